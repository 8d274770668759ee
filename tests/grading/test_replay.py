"""Ranks that average their gradients learn as one process would, by the law that says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from course_lib.grading import samples
from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.learning import as_one_process
from course_lib.grading.laws.replay import Reference
from course_lib.grading.sandbox import Process, Record

IMAGES, LABELS = samples.images(9, 2, np.random.default_rng(1))
INPUTS, TARGETS = torch.from_numpy(IMAGES).flatten(1) / 255, torch.from_numpy(LABELS).long()
STEPS = [([0, 1], [2, 3]), ([4], [5, 6]), ([7, 8], [0, 1]), ([2], [3, 4])]  # the batches of two ranks


def evidence(optimizer: Any) -> Evidence:
    """What two ranks would tell that take the mean of their gradients, whatever the size of their batches."""
    model = nn.Linear(64, 2)
    stepping = optimizer(model.parameters())
    events: list[list[dict[str, Any]]] = [[{"kind": "group", "rank": rank, "world_size": 2}] for rank in range(2)]

    def tell(rank: int, batch: list[int], step: int) -> None:
        weights = parameters_to_vector(model.parameters()).detach().clone()
        told = {"rows": INPUTS[batch, :8].double(), "mark": str(step), "weights": weights, "at": float(step)}
        events[rank].append({"kind": "forward", "training": step < len(STEPS), **told})

    for step, batches in enumerate(STEPS):
        stepping.zero_grad()
        for rank, batch in enumerate(batches):
            tell(rank, batch, step)
            (cross_entropy(model(INPUTS[batch]), TARGETS[batch]) / len(batches)).backward()
        stepping.step()
    for rank in range(2):
        tell(rank, [0], len(STEPS))
    return Evidence(Record([Process(rank, None, each) for rank, each in enumerate(events)], "ended", 1.0, [], {}))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW])
def test_the_mean_of_gradients_is_right_also_where_batches_are_of_other_sizes(optimizer: Any) -> None:
    optimizer = partial(optimizer, lr=0.05)
    reference = Reference(lambda: nn.Linear(64, 2), INPUTS, TARGETS, cross_entropy, optimizer)
    assert list(as_one_process(evidence(optimizer), reference)) == []


def test_another_rate_is_another_step() -> None:
    reference = Reference(lambda: nn.Linear(64, 2), INPUTS, TARGETS, cross_entropy, partial(torch.optim.AdamW, lr=0.05))
    assert list(as_one_process(evidence(partial(torch.optim.AdamW, lr=0.1)), reference))

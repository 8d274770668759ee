"""Images per second of the trainers, beside loops written by hand and the same loops fed by a DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import by_hand
from benchmarks.measuring import Row, compare
from benchmarks.turns import launched, take_turns_by_epoch
from benchmarks.workload import QUICK, TRAINING, TURNS
from course_lib.config import RunConfig
from course_lib.training import ddp, single

SHARE_OF_BY_HAND = 0.97
HAND, LOADER_0, LOADER_2 = "by hand", "DataLoader, 0 workers", "DataLoader, 2 workers"


def measure(quick: bool) -> list[Row]:
    """Both trainers, each against three loops."""
    config, turns = (QUICK, 1) if quick else (TRAINING, TURNS)
    return [
        *_against_loops("single.train, 1 core", single.train, by_hand.single, config.with_(num_gpus=1), turns),
        *_against_loops(f"ddp.train, {config.num_gpus} CPU ranks", ddp.train, by_hand.ddp, config, turns),
    ]


def _against_loops(
    name: str, train: Callable[..., Any], loop: Callable[..., Any], config: RunConfig, turns: int
) -> list[Row]:
    sides = [
        launched(name, train, config),
        launched(HAND, loop, config),
        launched(LOADER_0, partial(loop, num_workers=0), config),
        launched(LOADER_2, partial(loop, num_workers=2), config),
    ]
    rates = take_turns_by_epoch(sides, turns)
    against = partial(compare, name, "images/s", rates[name])
    return [
        against(rates[HAND], HAND, at_least=SHARE_OF_BY_HAND),
        against(rates[LOADER_0], LOADER_0, above=1.0),
        against(rates[LOADER_2], LOADER_2, above=1.0),
    ]

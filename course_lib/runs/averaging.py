"""One step of data-parallel training on a line fitted to points, with every number that occurs in it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import nn
from torch.nn.functional import mse_loss

from course_lib.errors import BatchError

WEIGHTED, PLAIN, WHOLE = "weighted", "plain", "whole"
PARAMETERS = ("weight", "bias")


def averaged_step(
    points: Sequence[tuple[float, float]], sizes: Sequence[int], line: tuple[float, float], lr: float
) -> pd.DataFrame:
    """What each replica computes in a step, what the averages of that are, and what one model on all points computes.

    Args:
        points: the batch, (input, target) each; the first `sizes[0]` of them are replica 0's, and so on.
        sizes: how many points each replica has.
        line: weight and bias of target = weight * input + bias before the step.
        lr: learning rate of plain SGD.

    Returns:
        One row a replica, by number; then `WEIGHTED`, the mean of their gradients weighted by `sizes`, `PLAIN`, their
        plain mean, and `WHOLE`, one model on the whole batch. Columns: `samples`, `loss` (mean squared error),
        `weight_gradient` and `bias_gradient`; and `weight` and `bias`, to which a step with this gradient leads.

    Raises:
        BatchError: the sizes do not add up to the number of points, or a replica has none.
    """
    if sum(sizes) != len(points) or min(sizes) < 1:
        raise BatchError(f"Shards of {', '.join(map(str, sizes))} samples are no way to deal {len(points)} samples.")
    batch = torch.tensor(points, dtype=torch.float64)
    rows = {str(replica): _gradients(shard, line) for replica, shard in enumerate(batch.split(list(sizes)))}
    replicas = pd.DataFrame.from_dict(rows, orient="index")
    shares = replicas["samples"] / len(points)
    frame = pd.DataFrame.from_dict(
        {
            **rows,
            WEIGHTED: replicas.mul(shares, axis=0).sum().to_dict(),
            PLAIN: replicas.mean().to_dict(),
            WHOLE: _gradients(batch, line),
        },
        orient="index",
    )
    frame.loc[[WEIGHTED, PLAIN], "samples"] = len(points)
    for name, before in zip(PARAMETERS, line, strict=True):
        frame[name] = before - lr * frame[f"{name}_gradient"]
    return frame


def _gradients(points: torch.Tensor, line: tuple[float, float]) -> dict[str, float]:
    """The loss of one model on some points, and its gradient, as backward computes it."""
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), line, strict=True):
            parameter.fill_(value)
    loss = mse_loss(model(points[:, :1]), points[:, 1:])
    weight, bias = torch.autograd.grad(loss, list(model.parameters()))
    gradients = {"weight_gradient": weight.item(), "bias_gradient": bias.item()}
    return {"samples": len(points), "loss": loss.item(), **gradients}

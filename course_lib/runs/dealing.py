"""Which sample which rank takes in which step: as the trainers deal, and as torch's DistributedSampler does."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, TensorDataset

from course_lib.errors import ConfigError
from course_lib.training.data import Sampler

# How samples are dealt, and what happens to those that are left over.
DEALINGS = {
    "like cards": "every sample once; the last step may be smaller",
    "padded": "DistributedSampler: some samples are repeated, until all ranks have as many",
    "dropped": "DistributedSampler(drop_last=True): some samples are left out, so that all ranks have as many",
}


def dealt(
    samples: int, world_size: int, batch_size: int, epochs: int, set_epoch: bool = True, dealing: str = "like cards"
) -> pd.DataFrame:
    """What each rank takes in each step of some epochs.

    Args:
        samples: how many there are.
        world_size: ranks.
        batch_size: samples per rank and step.
        epochs: how many, from 1 on.
        set_epoch: whether the sampler is told which epoch it is; else all have the same order.
        dealing: one of `DEALINGS`; "like cards" is `training.data.Sampler`, what the trainers use.

    Returns:
        One row for each time that a rank takes a sample: `epoch` and `step` from 1 on, `rank` and `sample` from 0 on,
        `counts` (not for a sample that a rank only takes along to keep step with the others) and `repeated` (another
        rank takes it too, and it counts both times).

    Raises:
        ConfigError: there is no such dealing.
    """
    if dealing not in DEALINGS:
        raise ConfigError(f"dealing must be one of {', '.join(DEALINGS)}, not {dealing!r}.")
    rows: list[tuple[int, int, int, int, bool]] = []
    for epoch in range(1, epochs + 1):
        known = epoch if set_epoch else 0  # which a new sampler has
        for rank in range(world_size):
            if dealing == "like cards":
                steps = _like_cards(samples, rank, world_size, batch_size, known)
            else:
                steps = _distributed(samples, rank, world_size, batch_size, known, dealing == "dropped")
            for step, (taken, counts) in enumerate(steps, start=1):
                rows += [(epoch, step, rank, sample, counts) for sample in taken]
    frame = pd.DataFrame(rows, columns=["epoch", "step", "rank", "sample", "counts"])
    repeated = frame.duplicated(["epoch", "sample", "counts"], keep=False) & frame["counts"]
    return frame.assign(repeated=repeated)


def _like_cards(
    samples: int, rank: int, world_size: int, batch_size: int, epoch: int
) -> Iterator[tuple[list[int], bool]]:
    """The samples of each step of one rank, and whether they count."""
    sampler = Sampler(samples, seed=0).shard(rank, world_size)
    sampler.set_epoch(epoch)
    for step in sampler.steps(batch_size, accumulation_steps=1):
        yield torch.cat(step.micro_batches).tolist(), bool(step.weight)


def _distributed(
    samples: int, rank: int, world_size: int, batch_size: int, epoch: int, drop_last: bool
) -> Iterator[tuple[list[int], bool]]:
    """The same of torch's sampler, with a DataLoader that keeps the last, smaller batch."""
    dataset = TensorDataset(torch.empty(samples))
    sampler: DistributedSampler[tuple[Tensor, ...]]
    sampler = DistributedSampler(dataset, world_size, rank, seed=0, drop_last=drop_last)
    sampler.set_epoch(epoch)
    for taken in torch.tensor(list(sampler)).split(batch_size):
        yield taken.tolist(), True

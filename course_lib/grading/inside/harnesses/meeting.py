"""How the ranks of a student's function come together."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

_barrier = dist.ProcessGroup.barrier  # as it is without probes


def join(meeting: str, seconds: float) -> None:
    """Make a gloo group of the ranks that meet at this file, RANK of WORLD_SIZE; they wait for each other so long.

    Returns when all are in it: a function that ends at once would otherwise leave while others still look for it.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    method, timeout = f"file://{Path(meeting).absolute()}", timedelta(seconds=seconds)
    dist.init_process_group("gloo", method, timeout, world_size=world_size, rank=rank)
    wait_for_all()


def wait_for_all() -> None:
    """A barrier that is not told as one of the student's."""
    _barrier(dist.group.WORLD).wait()  # type: ignore[arg-type]

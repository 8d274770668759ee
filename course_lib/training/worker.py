"""What a training function may ask of the rank that it runs in."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Worker(Protocol):
    """One rank of a run; `course_lib.runs.worker` has the real one.

    Attributes:
        rank, world_size: its number among all ranks, and how many there are.
        local_rank, local_world_size: the same on its node; the local rank chooses the GPU.
        device: the device that it has for itself.
        backend, init_method: how and where the ranks meet, for `init_process_group`.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    backend: str
    init_method: str

    def report(self, kind: str, **values: Any) -> None:
        """Record an event: numbers, strings, or tensors of one element."""

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Keep a state to go on from; only rank 0 writes."""

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state to go on from; None to start anew."""

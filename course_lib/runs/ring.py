"""What a ring all_reduce does round by round: the algorithm of `training.reductions`, watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from course_lib.training.reductions import COMBINE, Traffic, Wire, pass_and_add, pass_on


class Transfer(NamedTuple):
    """A chunk that one rank sends to another."""

    source: int
    target: int
    chunk: int


class Round(NamedTuple):
    """What is sent in a round, all of it at the same time, and what the ranks hold after it.

    `held[rank, chunk, share]` is what rank number `share` brought into the chunk; the chunk's value is their sum.
    """

    transfers: list[Transfer]
    held: np.ndarray


def ring_rounds(values: np.ndarray) -> list[Round]:
    """The start, with no transfer, and each round after it, of a ring over N ranks.

    `values`, [N, N], are what each rank brings for each of the N chunks that its tensor is cut into.
    """
    world_size = len(values)
    shares = torch.eye(world_size, dtype=torch.float64)
    pieces = [[shares[rank] * float(value) for value in own] for rank, own in enumerate(values)]
    wire = _WatchedWire(pieces)
    pass_and_add(pieces, COMBINE["sum"], wire)
    pass_on(pieces, wire)
    return wire.watched


class _WatchedWire(Wire):
    """A wire that remembers which chunk was sent, and what all ranks hold after each round."""

    def __init__(self, pieces: Sequence[Sequence[Tensor]]) -> None:
        super().__init__(Traffic())
        self._pieces = pieces
        self._sent: list[Transfer] = []
        self.watched: list[Round] = []
        self._look()

    def send(self, tensor: Tensor, source: int, target: int, device: torch.device, copy: bool = True) -> Tensor:
        chunk = next(number for number, piece in enumerate(self._pieces[source]) if piece is tensor)
        self._sent.append(Transfer(source, target, chunk))
        return super().send(tensor, source, target, device, copy)

    def next_round(self, sent: bool = True) -> None:
        super().next_round(sent)
        self._look()

    def _look(self) -> None:
        held = np.array([[piece.numpy() for piece in own] for own in self._pieces])
        self.watched.append(Round(self._sent, held))
        self._sent = []

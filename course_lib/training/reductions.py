"""How an all_reduce gets from rank to rank: all to one, along a tree, or around a ring. Each message is taken down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Combine = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Message:
    """Bytes that one rank sent to another. Messages of one round are on their way at the same time."""

    round: int
    source: int
    target: int
    bytes: int


@dataclass
class Traffic:
    """The messages of one collective or of several, in the order in which they were sent."""

    messages: list[Message] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How many rounds there were; each costs the latency of a link."""
        return self.messages[-1].round + 1 if self.messages else 0

    @property
    def bytes(self) -> int:
        """Bytes sent by all ranks together."""
        return sum(message.bytes for message in self.messages)

    @property
    def busiest_bytes(self) -> int:
        """Bytes sent by the rank that sends most: what the bandwidth of a link is paid for."""
        sent: Counter[int] = Counter()
        for message in self.messages:
            sent[message.source] += message.bytes
        return max(sent.values(), default=0)


class Wire:
    """Carries messages from rank to rank, and takes them down."""

    def __init__(self, traffic: Traffic | None) -> None:
        self._messages = [] if traffic is None else traffic.messages
        self._round = 0 if traffic is None else traffic.rounds

    def send(self, tensor: Tensor, source: int, target: int, device: torch.device, copy: bool = True) -> Tensor:
        """What arrives, in memory of its own, or else only to be read. What a rank keeps for itself is no message."""
        if source != target:
            self._messages.append(Message(self._round, source, target, tensor.numel() * tensor.element_size()))
        return tensor.to(device, copy=copy)

    def next_round(self, sent: bool = True) -> None:
        """What is sent from now on waits for what was sent until now."""
        self._round += sent


def naive(tensors: list[Tensor], combine: Combine, wire: Wire) -> list[Tensor]:
    """All send to rank 0, one after the other, and it sends the result to each."""
    root, *others = tensors
    for rank, tensor in enumerate(others, start=1):
        combine(root, wire.send(tensor, rank, 0, root.device, copy=False))
        wire.next_round()
    results = [root]
    for rank, tensor in enumerate(others, start=1):
        results.append(wire.send(root, 0, rank, tensor.device))
        wire.next_round()
    return results


def _tree(tensors: list[Tensor], combine: Combine, wire: Wire) -> list[Tensor]:
    """In each round half of the ranks that still have something send it to a partner; then all the way back."""
    distance = 1
    while distance < len(tensors):
        for target in range(0, len(tensors) - distance, 2 * distance):
            source = target + distance
            combine(tensors[target], wire.send(tensors[source], source, target, tensors[target].device))
        wire.next_round()
        distance *= 2
    return tree_down(tensors, list(range(len(tensors))), wire)


def tree_down(tensors: list[Tensor], ranks: list[int], wire: Wire) -> list[Tensor]:
    """The first tensor for all: in each round, whoever has it sends it to one who does not."""
    results = list(tensors)
    distance = 1 << (len(tensors) - 1).bit_length() >> 1
    while distance:
        for source in range(0, len(tensors) - distance, 2 * distance):
            target = source + distance
            results[target] = wire.send(results[source], ranks[source], ranks[target], tensors[target].device)
        wire.next_round()
        distance //= 2
    return results


def _ring(tensors: list[Tensor], combine: Combine, wire: Wire) -> list[Tensor]:
    """Each rank sends pieces to its neighbour: once around to add them up, once around to hand them out."""
    pieces = [list(tensor.tensor_split(len(tensors))) for tensor in tensors]
    pass_and_add(pieces, combine, wire)
    pass_on(pieces, wire)
    return [torch.cat(own) for own in pieces]


def pass_and_add(pieces: list[list[Tensor]], combine: Combine, wire: Wire) -> None:
    """`pieces[rank]` are the pieces of a rank's tensor; afterwards piece number `rank` of each is the result."""
    world_size = len(pieces)
    for step in range(world_size - 1):
        arrived = []
        for rank, own in enumerate(pieces):
            number, neighbour = (rank - step - 1) % world_size, (rank + 1) % world_size
            arrived.append((neighbour, number, wire.send(own[number], rank, neighbour, pieces[neighbour][0].device)))
        for rank, number, piece in arrived:
            combine(pieces[rank][number], piece)
        wire.next_round()


def pass_on(pieces: list[list[Tensor]], wire: Wire) -> None:
    """Afterwards each rank has, as piece number n, what rank n had as that."""
    world_size = len(pieces)
    for step in range(world_size - 1):
        for rank, own in enumerate(pieces):
            number, neighbour = (rank - step) % world_size, (rank + 1) % world_size
            device = pieces[neighbour][neighbour].device
            pieces[neighbour][number] = wire.send(own[number], rank, neighbour, device)
        wire.next_round()


ALGORITHMS: dict[str, Callable[[list[Tensor], Combine, Wire], list[Tensor]]] = {
    "naive": naive,
    "tree": _tree,
    "ring": _ring,
}


def _add(mine: Tensor, arrived: Tensor) -> Tensor:
    return mine.add_(arrived)


# How a rank combines what it has with what arrives, in place.
COMBINE: dict[str, Combine] = {
    "sum": _add,
    "mean": _add,
    "max": lambda mine, arrived: torch.maximum(mine, arrived, out=mine),
    "min": lambda mine, arrived: torch.minimum(mine, arrived, out=mine),
}

"""Collectives over tensors on several devices, driven by one process: what NCCL does, in plain sight.

`tensors[rank]` is the tensor of one rank. Each function may be given a `Traffic`, which then takes down every message.
What an all_reduce of S bytes over N ranks costs, which the tests hold the algorithms to (Thakur, Rabenseifner and
Gropp 2005, "Optimization of Collective Communication Operations in MPICH", doi 10.1177/1094342005051521; for the ring
Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002):

    algorithm    rounds            messages        bytes in all    bytes that the busiest rank sends
    naive        2 (N - 1)         2 (N - 1)       2 (N - 1) S     (N - 1) S
    tree         2 ceil(log2 N)    2 (N - 1)       2 (N - 1) S     ceil(log2 N) S
    ring         2 (N - 1)         2 (N - 1) N     2 (N - 1) S     2 (N - 1) / N S
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.errors import CollectiveError
from course_lib.training.device_queues import Device
from course_lib.training.reductions import ALGORITHMS, COMBINE, Message, Traffic, Wire, pass_and_add, pass_on, tree_down

__all__ = ["Message", "Traffic", "all_gather", "all_reduce", "broadcast", "gather", "reduce_scatter", "scatter"]

HALVES = (torch.float16, torch.bfloat16)


def all_reduce(
    tensors: Sequence[Tensor], op: str = "sum", algorithm: str = "ring", traffic: Traffic | None = None
) -> None:
    """Put the sum, mean, max or min of all tensors, element by element, into each of them: the same bits on every rank.

    Half precision is added up, and sent, as float32 and rounded once at the end.

    Args:
        tensors: one for each rank, of one shape and dtype.
        op: "sum", "mean", "max" or "min".
        algorithm: "naive" (all send to rank 0, which sends the result to each), "tree" (pairs, then pairs of pairs) or
            "ring" (each sends pieces to its neighbour). They differ in their traffic, and in rounding.
        traffic: takes down the messages.

    Raises:
        CollectiveError: the tensors do not fit together, or cannot be reduced like that; names the rank.
    """
    _check_alike(tensors)
    _check_op(tensors[0], op)
    if algorithm not in ALGORITHMS:
        raise CollectiveError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}.")
    with torch.no_grad():
        results = ALGORITHMS[algorithm]([_widened(tensor).flatten() for tensor in tensors], COMBINE[op], Wire(traffic))
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(_finished(result, op, len(tensors)).view(tensor.shape))


def reduce_scatter(tensors: Sequence[Tensor], op: str = "sum", traffic: Traffic | None = None) -> list[Tensor]:
    """Reduce the tensors, and leave each rank one near-even piece of the result, cut along the first dimension.

    This is the first half of a ring all_reduce; `all_gather` is the second.

    Args:
        tensors: one for each rank, of one shape and dtype.
        op: "sum", "mean", "max" or "min".
        traffic: takes down the messages.

    Returns:
        For each rank its piece, on its device; the first ranks have the longer ones.

    Raises:
        CollectiveError: the tensors do not fit together, or cannot be reduced like that; names the rank.
    """
    _check_alike(tensors)
    _check_op(tensors[0], op)
    _check_has_rows(tensors[0])
    with torch.no_grad():
        pieces = [list(_widened(tensor).tensor_split(len(tensors))) for tensor in tensors]
        pass_and_add(pieces, COMBINE[op], Wire(traffic))
        dtype = tensors[0].dtype
        return [_finished(own[rank], op, len(tensors)).to(dtype, copy=True) for rank, own in enumerate(pieces)]


def all_gather(pieces: Sequence[Tensor], traffic: Traffic | None = None) -> list[Tensor]:
    """Give each rank all pieces, one after the other along the first dimension; they are sent around a ring.

    Args:
        pieces: one for each rank; they may differ in length, not in the other dimensions.
        traffic: takes down the messages.

    Raises:
        CollectiveError: the pieces do not fit together; names the rank.
    """
    _check_rows(pieces)
    with torch.no_grad():
        held: list[list[Tensor]] = [[piece] * len(pieces) for piece in pieces]  # each rank knows its own only
        pass_on(held, Wire(traffic))
        return [torch.cat(own) for own in held]


def broadcast(tensors: Sequence[Tensor], root: int = 0, traffic: Traffic | None = None) -> None:
    """Put the tensor of rank `root` into all others, along a tree.

    Raises:
        CollectiveError: the tensors do not fit together, or there is no such rank.
    """
    _check_alike(tensors)
    _check_rank(root, len(tensors))
    ranks = [root, *(rank for rank in range(len(tensors)) if rank != root)]
    with torch.no_grad():
        results = tree_down([tensors[rank] for rank in ranks], ranks, Wire(traffic))
        for rank, result in zip(ranks[1:], results[1:], strict=True):
            tensors[rank].copy_(result)


def scatter(tensor: Tensor, devices: Sequence[Device], root: int = 0, traffic: Traffic | None = None) -> list[Tensor]:
    """Deal near-even pieces of rank `root`'s tensor, cut along the first dimension, to one device for each rank.

    Returns:
        For each rank its piece in memory of its own; the first ranks have the longer ones.

    Raises:
        CollectiveError: the tensor has no dimension to cut, or there is no such rank.
    """
    _check_has_rows(tensor)
    _check_rank(root, len(devices))
    wire = Wire(traffic)
    pieces = []
    with torch.no_grad():
        for rank, piece in enumerate(tensor.tensor_split(len(devices))):
            pieces.append(wire.send(piece, root, rank, torch.device(devices[rank])))
            wire.next_round(rank != root)
    return pieces


def gather(tensors: Sequence[Tensor], root: int = 0, traffic: Traffic | None = None) -> Tensor:
    """Put all tensors one after the other, along the first dimension, on the device of rank `root`.

    Raises:
        CollectiveError: the tensors do not fit together, or there is no such rank.
    """
    _check_rows(tensors)
    _check_rank(root, len(tensors))
    wire = Wire(traffic)
    held = []
    with torch.no_grad():
        for rank, tensor in enumerate(tensors):
            held.append(wire.send(tensor, rank, root, tensors[root].device))
            wire.next_round(rank != root)
        return torch.cat(held)


def _widened(tensor: Tensor) -> Tensor:
    """A copy in the precision in which it is added up."""
    return tensor.detach().to(torch.float32 if tensor.dtype in HALVES else tensor.dtype, copy=True).contiguous()


def _finished(result: Tensor, op: str, world_size: int) -> Tensor:
    return result.div_(world_size) if op == "mean" else result


def _check_op(tensor: Tensor, op: str) -> None:
    if op not in COMBINE:
        raise CollectiveError(f"op must be one of {', '.join(COMBINE)}, not {op!r}.")
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    if op == "mean" and whole:
        raise CollectiveError(
            f"The mean of {_name(tensor)} numbers is not one of them in general. Take op='sum', and divide; or convert "
            "the tensors to float32 first."
        )
    if (op == "sum" and tensor.dtype == torch.bool) or (op in ("max", "min") and tensor.is_complex()):
        raise CollectiveError(f"{_name(tensor)} numbers have no {op}. Convert the tensors first.")


def _check_alike(tensors: Sequence[Tensor]) -> None:
    _check_any(tensors)
    first = tensors[0]
    for rank, tensor in enumerate(tensors):
        if (tensor.shape, tensor.dtype) != (first.shape, first.dtype):
            raise CollectiveError(
                f"Rank {rank} has a {_name(tensor)} tensor of shape {tuple(tensor.shape)}, and rank 0 a {_name(first)} "
                f"tensor of shape {tuple(first.shape)}. All ranks must bring the same shape and dtype."
            )
    memory = [tensor.data_ptr() for tensor in tensors if tensor.numel()]
    if len(set(memory)) < len(memory):
        raise CollectiveError("Two ranks bring one and the same tensor. Give each a copy of its own (tensor.clone()).")


def _check_rows(tensors: Sequence[Tensor]) -> None:
    _check_any(tensors)
    first = tensors[0]
    for rank, tensor in enumerate(tensors):
        _check_has_rows(tensor)
        if (tensor.shape[1:], tensor.dtype) != (first.shape[1:], first.dtype):
            raise CollectiveError(
                f"Rank {rank} has {_name(tensor)} rows of shape {tuple(tensor.shape[1:])}, and rank 0 {_name(first)} "
                f"rows of shape {tuple(first.shape[1:])}. All ranks must bring the same kind of rows."
            )


def _check_any(tensors: Sequence[Tensor]) -> None:
    if not tensors:
        raise CollectiveError("There is no tensor: a collective needs one of each rank.")


def _check_has_rows(tensor: Tensor) -> None:
    if tensor.ndim == 0:
        raise CollectiveError("A tensor without dimensions cannot be cut. Give it one: tensor.reshape(1).")


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise CollectiveError(f"root is {rank}, and there are the ranks 0 to {world_size - 1}.")


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")

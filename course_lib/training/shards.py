"""Dealing a batch: cut it into shards, whatever it is built of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from torch import Tensor

from course_lib.errors import BatchError

Batch = Any  # a tensor, or a tuple, list or dict of batches


def shard_batch(batch: Batch, num_shards: int) -> tuple[list[Batch], list[int]]:
    """Cut a batch into near-even shards along the first dimension of its tensors.

    Args:
        batch: a tensor, or tensors in tuples, lists and dicts, all of one length.
        num_shards: how many; where there are fewer samples, the last shards are empty.

    Returns:
        The shards, built like the batch, and how many samples each has. They are views.

    Raises:
        BatchError: lengths differ, the batch is empty, or something in it is no tensor; says what.
    """
    if num_shards < 1:
        raise BatchError(f"A batch cannot be cut into {num_shards} shards; it takes at least one.")
    lengths = dict(_lengths(batch, "batch"))
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise BatchError(f"All tensors of a batch must have as many samples: {told or 'this one holds no tensor'}.")
    (length,) = set(lengths.values())
    if length == 0:
        raise BatchError("The batch is empty: there is nothing to learn from it.")
    sizes = [length // num_shards + (number < length % num_shards) for number in range(num_shards)]
    ends = [sum(sizes[: number + 1]) for number in range(num_shards)]
    return [map_batch(batch, itemgetter(slice(end - size, end))) for size, end in zip(sizes, ends, strict=True)], sizes


def _lengths(batch: Batch, name: str) -> Iterator[tuple[str, int]]:
    """The name of each tensor in a batch, and how many samples it has."""
    if isinstance(batch, Tensor):
        if batch.ndim == 0:
            raise BatchError(f"{name} is a tensor without dimensions: its first one must count the samples.")
        yield name, len(batch)
    elif isinstance(batch, tuple | list):
        for place, part in enumerate(batch):
            yield from _lengths(part, f"{name}[{place}]")
    elif isinstance(batch, dict):
        for key, part in batch.items():
            yield from _lengths(part, f"{name}[{key!r}]")
    else:
        raise BatchError(f"{name} is a {type(batch).__name__}; a batch holds tensors, in tuples, lists and dicts.")


def map_batch(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with each of its tensors changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: map_batch(part, change) for key, part in batch.items()}
    parts = [map_batch(part, change) for part in batch]
    if hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*parts)
    return parts if isinstance(batch, list) else tuple(parts)

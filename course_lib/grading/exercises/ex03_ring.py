"""Exercise 3: all_reduce. A ring of sends and receives, and what it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.grading.answers import Answer, Group, GroupCalls, call, call_in_groups, failed
from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.ring import (
    is_the_sum,
    miscounted,
    on_the_ring_only,
    sent_in_each_call,
    well_cut,
    well_scattered,
)
from course_lib.grading.laws.values import kept, of_other_type, whole
from course_lib.grading.parts import Attempt, Check, Exercise, Part

WORLD_SIZES = (1, 2, 3, 5)
LONG, SHORT, WHOLE = 0, 1, 2  # the calls on a group: an uneven tensor, one shorter than the ring, one of whole numbers


# 3.1: chunks.


def cut(attempt: Attempt) -> dict[str, tuple[list[Any], Answer]]:
    """The arguments of `chunks`, and what came of them."""

    def make() -> dict[str, tuple[list[Any], Answer]]:
        draw = attempt.random.integers
        ranks = int(draw(3, 7))
        given = {
            "even": [_values(attempt.random, ranks * int(draw(2, 6))), ranks],
            "uneven": [_values(attempt.random, ranks * int(draw(2, 6)) + int(draw(1, ranks))), ranks],
            "nearly": [_values(attempt.random, 9), 6],
            "short": [_values(attempt.random, int(draw(1, 4))), 5],
            "whole": [torch.from_numpy(draw(-(2**40), 2**40, 2 * ranks + 1)), ranks],
            "alone": [_values(attempt.random, int(draw(3, 9))), 1],
        }
        answers = call(attempt, *(("chunks", each) for each in given.values()))
        return {name: (given[name], answer) for name, answer in zip(given, answers, strict=True)}

    return attempt.once("cut", make)


def cut_right(*names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that chunks together are the tensor, and fair."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for name in names:
            (tensor, ranks), answer = cut(attempt)[name]
            yield from failed("chunks", answer)
            if answer.error is None:
                yield from well_cut(tensor, ranks, answer.value)
                yield from kept("chunks", answer.after, [tensor, ranks], ("tensor", "world_size"))

    return judge


# 3.2 and 3.3: the ring.


def ring(attempt: Attempt, function: str) -> tuple[GroupCalls, dict[int, Group]]:
    """The calls on groups, and what came of them."""

    def make() -> tuple[GroupCalls, dict[int, Group]]:
        calls: GroupCalls = {}
        for size in WORLD_SIZES:
            lengths = [size * int(attempt.random.integers(3, 9)) + size // 2, max(1, size - 2)]
            tensors = [[_values(attempt.random, length) for length in lengths] for _ in range(size)]
            for each in tensors:
                each.append(torch.from_numpy(attempt.random.integers(-(2**40), 2**40, 2 * size + 1)))
            calls[size] = [[(function, [tensor]) for tensor in each] for each in tensors]
        return calls, call_in_groups(attempt, calls)

    return attempt.once(function, make)


def sums(*call_numbers: int) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that the tensor of each rank is the sum of all."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        calls, groups = ring(attempt, "ring_all_reduce")
        for size, call_number in product(WORLD_SIZES, call_numbers):
            given = [calls[size][rank][call_number][1][0] for rank in range(size)]
            for rank, answer in enumerate(groups[size].of(call_number)):
                value = answer.after[0] if answer.after else None
                yield from is_the_sum(size, rank, value, answer.value, given)

    return judge


def scattered(attempt: Attempt) -> Iterator[Finding]:
    """Each rank is left with the sum of one chunk, each with another one."""
    yield from _scattered(attempt, (LONG, WHOLE))


def scattered_short(attempt: Attempt) -> Iterator[Finding]:
    """As above, where some chunks are empty."""
    yield from _scattered(attempt, (SHORT,))


def _scattered(attempt: Attempt, call_numbers: Sequence[int]) -> Iterator[Finding]:
    calls, groups = ring(attempt, "reduce_scatter")
    for size in WORLD_SIZES:
        for call_number in call_numbers:
            given = [calls[size][rank][call_number][1][0] for rank in range(size)]
            yield from well_scattered(size, groups[size].values(call_number), given)


def on_the_ring(attempt: Attempt, function: str, rounds: int) -> Iterator[Finding]:
    """Messages go to the next rank and come from the one before, `rounds` * (W - 1) of a chunk each."""
    calls, groups = ring(attempt, function)
    for size, call_number in product(WORLD_SIZES, (LONG, SHORT, WHOLE)):
        groups[size].of(call_number)
        for rank, process in enumerate(groups[size].processes):
            tensor = calls[size][rank][call_number][1][0]
            sent = sent_in_each_call(process)[call_number]
            yield from on_the_ring_only(size, rank, sent, tensor, rounds * (size - 1))


# 3.4: what it sends.


def counted(attempt: Attempt) -> Iterator[Finding]:
    """The number of messages, of all ranks together."""
    yield from _counted(attempt, 0, "messages", lambda length, size, ranks: 2 * ranks * (ranks - 1))


def bytes_counted(attempt: Attempt) -> Iterator[Finding]:
    """Their bytes."""
    yield from _counted(attempt, 1, "bytes", lambda length, size, ranks: 2 * (ranks - 1) * length * size)


def _counted(attempt: Attempt, place: int, what: str, formula: Callable[[int, int, int], int]) -> Iterator[Finding]:
    def make() -> list[tuple[list[int], Answer]]:
        draw = attempt.random.integers
        given = [[int(draw(2, 10_000)), int(draw(1, 4)) * 4, int(ranks)] for ranks in (draw(3, 9), draw(9, 65), 2, 1)]
        return list(zip(given, call(attempt, *(("traffic", each) for each in given)), strict=True))

    for (length, size, ranks), answer in attempt.once("traffic", make):
        yield from failed("traffic", answer)
        if answer.error is not None:
            continue
        value = answer.value
        pair = isinstance(value, (tuple, list)) and len(value) == 2
        found = whole(value[place]) if pair else None
        if found is None:
            yield of_other_type("traffic", value, "two whole numbers, messages and bytes")
        elif found != formula(length, size, ranks):
            yield miscounted(what, found, formula(length, size, ranks), (length, size, ranks))


def _values(generator: np.random.Generator, length: int) -> Tensor:
    return torch.from_numpy(generator.normal(size=length)).float()


PARTS = (
    Part(
        "3.1",
        "A chunk for each rank",
        ("chunks",),
        (
            Check("as many chunks as ranks, together the tensor", 1, cut_right("even", "uneven", "whole", "alone")),
            Check("so it is where the tensor is short", 1, cut_right("nearly", "short")),
        ),
        (
            "How would you cut a cake of 9 pieces for 6 people, so that nobody has two pieces more than another?",
            "Some chunks are one value longer than the others. A chunk may also have no value at all.",
            "Look up the difference between `torch.chunk` and `torch.tensor_split`: which of them always "
            "gives as many as "
            "you ask for?",
        ),
        names=("chunks",),
    ),
    Part(
        "3.2",
        "The first half: add up",
        ("chunks", "reduce_scatter"),
        (
            Check("each rank has the complete sum of one chunk", 3, scattered),
            Check("so it is where some chunks are empty", 1, scattered_short),
            Check(
                "each rank sends W - 1 chunks, to its neighbour only",
                2,
                lambda attempt: on_the_ring(attempt, "reduce_scatter", 1),
            ),
        ),
        (
            "Take three ranks and three chunks, and follow chunk 0: who sends it to whom, and what is "
            "added on its way?",
            "In round k, rank r sends the chunk that it has just added to; in the first, its own. What "
            "number has that?",
            "Sending before the neighbour receives can make everybody wait. `isend` returns at once, so "
            "you can receive and "
            "wait for it then. Receive into another tensor, and add that.",
        ),
        names=("chunks", "reduce_scatter"),
    ),
    Part(
        "3.3",
        "The second half: pass on",
        ("chunks", "reduce_scatter", "ring_all_reduce"),
        (
            Check("every rank has the sum of all, in the tensor that it was given", 2, sums(LONG)),
            Check("on tensors that are shorter than the ring, and of whole numbers", 1, sums(SHORT, WHOLE)),
            Check(
                "each rank sends 2 (W - 1) chunks, to its neighbour only",
                2,
                lambda attempt: on_the_ring(attempt, "ring_all_reduce", 2),
            ),
        ),
        (
            "After the first half each rank has one complete chunk. Whose turn is it to have it next?",
            "It is the same ring once more, but what arrives replaces a chunk instead of being added to it.",
            "In each round send the chunk that came last, beginning with the complete one; what arrives "
            "is the chunk one "
            "number lower, counted round the ring.",
        ),
        names=("chunks", "reduce_scatter", "ring_all_reduce"),
    ),
    Part(
        "3.4",
        "What it costs",
        ("traffic",),
        (Check("the messages of all ranks", 1, counted), Check("their bytes", 1, bytes_counted)),
        (
            "Count one round: how many messages are on their way, and what do they add up to?",
            "In each round every rank sends one chunk. The chunks of all ranks together are the whole tensor.",
            "There are W - 1 rounds to add up, and as many to pass on.",
        ),
        names=("traffic",),
    ),
)
EXERCISE = Exercise("03_ring_all_reduce", "all_reduce from sends and receives", PARTS)

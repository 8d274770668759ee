"""A ring all_reduce: its chunks, its sums, and the messages that were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.laws.finding import Finding, counted, listed
from course_lib.grading.laws.values import described, dtype, integer, of_other_type, tensors_close
from course_lib.grading.sandbox import Process

SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")


def well_cut(tensor: Tensor, world_size: int, value: Any) -> Iterator[Finding]:
    """Chunks that together are the tensor, as many as ranks, and fair."""
    said = f"{counted(len(tensor), 'value')} for {counted(world_size, 'rank')}"
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, Tensor) and each.ndim == 1 for each in value):
        yield of_other_type("chunks", value, "a list of one-dimensional tensors")
        return
    sizes = [len(each) for each in value]
    if len(value) != world_size:
        yield Finding(
            "number-of-chunks",
            f"{said}: {counted(len(value), 'chunk')}, of {listed(sizes)} values.",
            "The ring has a chunk for each rank, always. Of how many values is one that is left over?",
        )
    elif any(each.dtype != tensor.dtype for each in value):
        yield Finding(
            "dtype",
            f"{said}: the tensor is {dtype(tensor)}, and there are chunks of "
            f"{listed(sorted({dtype(each) for each in value} - {dtype(tensor)}))}.",
            "What the ring sends is added to values of the tensor. Which type should it have?",
        )
    elif not torch.equal(torch.cat(list(value)), tensor):
        yield Finding(
            "not-the-tensor",
            f"{said}: the chunks, {listed(sizes)} values, are not the tensor when they are put together again.",
            "Which values come in no chunk, or in two, or in another order?",
        )
    elif max(sizes) - min(sizes) > 1:
        yield Finding(
            "uneven",
            f"{said}: the chunks have {listed(sizes)} values.",
            "In each round all wait for the largest. How large must it be?",
        )


@dataclass(frozen=True)
class Sent:
    """What one rank did in one call, as the process group saw it.

    Fields:
        sends: the rank that each message went to, and its bytes.
        receives: the rank that each came from; None: from any.
        others: the names of other calls to the group.
    """

    sends: list[tuple[int | None, int]]
    receives: list[int | None]
    others: list[str]


def is_the_sum(world_size: int, rank: int, value: Any, returned: Any, given: Sequence[Tensor]) -> Iterator[Finding]:
    """The tensor of a rank is the sum of all."""
    expected = torch.stack(list(given)).sum(0)
    who = f"{counted(len(expected), 'value')} on {counted(world_size, 'rank')}"
    if isinstance(value, Tensor) and _equal(value, expected):
        return
    if not isinstance(value, Tensor) or value.shape != expected.shape or value.dtype != expected.dtype:
        yield Finding("type", f"{who}: the tensor became {described(value)}.", "It keeps its shape and its type.")
    elif isinstance(returned, Tensor) and _equal(returned, expected) and torch.equal(value, given[rank]):
        yield Finding(
            "not-in-place",
            f"{who}: a tensor with the sum was returned, and the one that was given is as before.",
            "Whoever calls it goes on with the tensor that he has. How are values written into that?",
        )
    elif torch.equal(value, given[rank]):
        yield Finding("unchanged", f"{who}: the tensor of rank {rank} is as before.", "Where do you keep what arrives?")
    else:
        right = [bool(torch.isclose(one, other, rtol=1e-5)) for one, other in zip(value, expected, strict=True)]
        yield Finding(
            "wrong-sum",
            f"{who}: on rank {rank}, {right.count(False)} of {len(right)} values are not the sum of all ranks, the "
            f"first of them at place {right.index(False) if False in right else 0}.",
            "Take three ranks and pencil and paper: which chunk does each hold after each round, and with what in it?",
        )


def well_scattered(world_size: int, values: Sequence[Any], given: Sequence[Tensor]) -> Iterator[Finding]:
    """Each rank has the sum of a chunk of its own."""
    expected = torch.stack(list(given)).sum(0)
    said = f"{counted(len(expected), 'value')} on {counted(world_size, 'rank')}"
    owners: dict[int, int] = {}
    found: list[Tensor | None] = [None] * world_size
    for rank, value in enumerate(values):
        number = integer(value[0]) if isinstance(value, (tuple, list)) and len(value) == 2 else None
        if number is None or not isinstance(value[1], Tensor):
            yield of_other_type("reduce_scatter", value, "the number of a chunk, and that chunk, a tensor")
            return
        if not 0 <= number < world_size or number in owners:
            which = f"ranks {owners[number]} and {rank} both say" if number in owners else f"rank {rank} says"
            yield Finding(
                "whose-chunk",
                f"{said}: {which} that chunk {number} is complete with them.",
                "Follow one chunk round the ring: where does it start, and where is it after W - 1 rounds?",
            )
            return
        owners[number], found[number] = rank, value[1]
    start = 0
    sizes = [len(each) for each in found if each is not None]
    if sum(sizes) != len(expected) or max(sizes) - min(sizes) > 1:
        yield Finding(
            "chunk-sizes", f"{said}: the ranks' chunks have {listed(sizes)} values.", "Cut the tensor as in part 3.1."
        )
        return
    for number, chunk in enumerate(found):
        wanted = expected[start : start + sizes[number]]
        start += sizes[number]
        if chunk is None or chunk.dtype != wanted.dtype or not _equal(chunk, wanted):
            yield Finding(
                "not-complete",
                f"{said}: chunk {number}, which rank {owners[number]} says is complete, is not the sum of all ranks.",
                "Which chunk does a rank send in a round? The one it has just added to, so that sums travel on.",
            )
            return


def on_the_ring_only(world_size: int, rank: int, sent: Sent, tensor: Tensor, messages: int) -> Iterator[Finding]:
    """A rank sent so many messages of a chunk each to the next rank, and heard from the one before.

    Where the tensor is shorter than the ring some chunks are empty, and need not be sent.
    """
    who = f"On {counted(world_size, 'rank')}, rank {rank}"
    following, before = (rank + 1) % world_size, (rank - 1) % world_size
    targets = {peer for peer, _ in sent.sends}
    sources = {peer for peer in sent.receives if peer is not None}
    most = -(-len(tensor) // world_size) * tensor.element_size()
    sizes = [size for _, size in sent.sends]
    if sent.others:
        yield Finding(
            "other-collectives",
            f"{who} called {listed(sorted(set(sent.others)))}.",
            "Here you build what is inside those. Only messages from one rank to another are needed.",
        )
    elif world_size == 1 and sent.sends:
        yield Finding("alone", "A rank that is alone sent messages.", "How many rounds does a ring of one have?")
    elif targets - {following} or sources - {before}:
        yield Finding(
            "not-a-ring",
            f"{who} sent to {listed(sorted(map(str, targets)))} and received from {listed(sorted(map(str, sources)))}.",
            "In a ring each rank sends to its next one only, and hears from the one before. Then no link is crowded.",
        )
    elif sizes and max(sizes) > most:
        yield Finding(
            "whole-tensor",
            f"{who} sent messages of up to {max(sizes)} bytes; the tensor has {tensor.nbytes} bytes, and its largest "
            f"chunk {most}.",
            "What travels in a round is one chunk, not the whole tensor.",
        )
    elif len(sizes) > messages or (len(sizes) < messages and len(tensor) >= world_size):
        yield Finding(
            "number-of-messages",
            f"{who} sent {counted(len(sizes), 'message')}; {messages} are enough.",
            "After how many rounds has a chunk been with every rank?",
        )


def sent_in_each_call(process: Process) -> list[Sent]:
    """What a rank did in each call, and in what came after the last one."""
    calls = [Sent([], [], [])]
    for event in process.events:
        if event["kind"] == "answer":
            calls.append(Sent([], [], []))
        elif event["kind"] != "collective" or (event["line"] is None and event["name"] == "barrier"):
            continue  # the harness waits between two calls, which is no doing of the student's
        elif event["name"] in SENDS:
            calls[-1].sends.append((event["peer"], event["bytes"]))
        elif event["name"] in RECEIVES:
            calls[-1].receives.append(event["peer"])
        else:
            calls[-1].others.append(event["name"])
    return calls


def miscounted(what: str, found: int, expected: int, given: tuple[int, int, int]) -> Finding:
    """Another number of messages or bytes than a ring has."""
    length, size, ranks = given
    where = f"{counted(length, 'value')} of {counted(size, 'byte')} on {counted(ranks, 'rank')}"
    seen = f"{where}: {found} {what}, which is not what a ring sends."
    if expected and found * ranks == expected:
        return Finding("one-rank", seen, "It is what one rank sends. All ranks are asked for.")
    if found * 2 == expected:
        return Finding("one-phase", seen, "It is half of it. What comes after the sums are complete?")
    if what == "bytes" and found * size == expected:
        return Finding("values-not-bytes", seen, "It is the number of values. How many bytes has each?")
    return Finding(
        "wrong-count", seen, "Count one round first: how many ranks send, and what do all of them send together?"
    )


def _equal(value: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(value, expected)
    return tensors_close(value, expected)

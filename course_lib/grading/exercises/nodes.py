"""Laws of programs on two nodes: which number is for the GPU, which for the data, and who writes and downloads."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from course_lib.grading import calling, samples
from course_lib.grading.calling import Group
from course_lib.grading.evidence import Evidence
from course_lib.grading.laws import dealing, learning, starting
from course_lib.grading.laws.finding import Finding, listed, ranks
from course_lib.grading.parts import Attempt
from course_lib.grading.sandbox import Process

NODES, PER_NODE = 2, 2
AT_ONCE = 0.1  # seconds: what processes tell in less than that may be heard in another order
PREPARING = 3  # ranks of a node, so that who counts on two is seen
COUNT, BATCH_SIZE, EPOCHS = 37, 4, 2
SAVED = "model.pt"
ADDRESS = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"  # of the first node: not the one that all would guess


def on_nodes(attempt: Attempt, gpus: bool = False) -> Evidence:
    """What `main` does on two nodes; run when it is first asked for."""
    return attempt.once(("main", gpus), lambda: _on_nodes(attempt, gpus))


def _port(attempt: Attempt) -> str:
    """The port that the launcher chooses."""
    return attempt.once("port", lambda: str(attempt.random.integers(20_000, 60_000)))


def _on_nodes(attempt: Attempt, gpus: bool) -> Evidence:
    images, labels = samples.images(COUNT, 3, attempt.random, size=3)
    packed = io.BytesIO()
    inputs = images.reshape(COUNT, 9).astype(np.float32) / 255
    np.savez(packed, inputs=inputs, targets=labels.astype(np.int64))
    probes: dict[str, dict[str, Any]] = {"training": {}, "files": {}}
    if gpus:
        probes["gpus"] = {"count": PER_NODE}
    environ = {"MASTER_ADDR": ADDRESS, "MASTER_PORT": _port(attempt)}
    group = Group(
        NODES * PER_NODE, "nodes:main", lambda rank: {"function": "main", "arguments": []}, NODES, probes, environ
    )
    (evidence,) = calling.run(attempt, group, files={"data.npz": packed.getvalue()}, collect=(SAVED,), seconds=10.0)
    return evidence


def one_group(attempt: Attempt) -> Iterator[Finding]:
    """Four ranks, which meet where torchrun says."""
    seen = on_nodes(attempt)
    yield from _elsewhere(seen, _port(attempt))
    yield from starting.joined(seen, NODES * PER_NODE)
    if len(seen.ranks) < NODES * PER_NODE:
        yield from calling.finished(seen)
        yield Finding("no-group", f"{len(seen.ranks)} of 4 ranks joined a group.", "Which call makes them a group?")


def _elsewhere(seen: Evidence, port: str) -> Iterator[Finding]:
    """Ranks that meet at another address than the launcher chose."""
    for _, place in starting.meetings(seen):
        if place != f"{ADDRESS}:{port}":
            yield Finding(
                "port",
                f"torchrun chose where the ranks meet; a rank went to {place} instead.",
                "Other jobs, and other machines, have other addresses. Who knows the right one?",
            )
            return


def own_gpu(attempt: Attempt) -> Iterator[Finding]:
    """Each rank uses the GPU of its node that has its local rank."""
    without = on_nodes(attempt)
    same = next((each for each in starting.joined(without, NODES * PER_NODE) if each.fault == "same-rank"), None)
    if without.record.why == "time" or same:
        yield from one_group(attempt)  # it would not end with GPUs either
        return
    seen = on_nodes(attempt, gpus=True)
    used = {number: {event["number"] for event in rank.process.of("device")} for number, rank in seen.ranks.items()}
    for number, numbers in used.items():
        if missing := [each for each in numbers if not 0 <= each < PER_NODE]:
            yield Finding(
                "device-index",
                f"Rank {number} asked for GPU {listed(missing)}; its node has {PER_NODE}, 0 and 1.",
                "A node has only its own GPUs. Which number starts at zero on each node?",
            )
            return
    for first, second in pairwise(used):
        if used[first] and used[first] & used[second] and first // PER_NODE == second // PER_NODE:
            yield Finding(
                "shared-gpu",
                f"Ranks {first} and {second} of one node both used GPU {listed(sorted(used[first] & used[second]))}.",
                "Who tells each rank which GPU of its node is its own?",
            )
            return
    if len(used) == NODES * PER_NODE and not all(used.values()):
        idle = [number for number, numbers in used.items() if not numbers]
        yield Finding(
            "no-gpu-used",
            f"Each node has {PER_NODE} GPUs, and {ranks(idle)} used none.",
            "Which device does a rank take where there are GPUs, and which where there are none?",
        )
        return
    yield from _worked(seen)


def dealt(attempt: Attempt) -> Iterator[Finding]:
    """Each sample goes to one of the four ranks, anew in each epoch."""
    seen = on_nodes(attempt)
    yield from _worked(seen)
    yield from dealing.dealt(seen, EPOCHS, COUNT, BATCH_SIZE * NODES * PER_NODE)
    yield from dealing.reshuffled(seen, EPOCHS)
    yield from dealing.batches(seen, BATCH_SIZE)


def in_step(attempt: Attempt) -> Iterator[Finding]:
    """All ranks of both nodes have the same weights before each step."""
    seen = on_nodes(attempt)
    yield from _worked(seen)
    yield from learning.same_start(seen)
    yield from learning.in_step(seen)
    yield from starting.equally_long(seen)


def one_writer(attempt: Attempt) -> Iterator[Finding]:
    """One process of all nodes writes the file."""
    seen = on_nodes(attempt)
    yield from _worked(seen)
    writers = [
        number
        for number, rank in seen.ranks.items()
        if any(event["path"] == SAVED and event["how"] != "remove" for event in rank.process.of("wrote"))
    ]
    if len(writers) > 1:
        yield Finding(
            "several-writers",
            f"{ranks(writers).capitalize()} wrote {SAVED}, one on each node."
            if {number // PER_NODE for number in writers} == set(range(NODES)) and len(writers) == NODES
            else f"{ranks(writers).capitalize()} wrote {SAVED}.",
            "Both nodes see one disk. How many pens may there be on one page?",
        )
    elif not writers or SAVED not in seen.record.files:
        yield Finding("no-file", f"No rank wrote {SAVED}.", "Which rank writes, and does it come so far?")


def _worked(seen: Evidence) -> Iterator[Finding]:
    yield from starting.joined(seen, NODES * PER_NODE)
    yield from calling.finished(seen)
    idle = [number for number, rank in seen.ranks.items() if not rank.rounds]
    if idle or not seen.ranks:
        yield Finding("idle-rank", f"{ranks(idle).capitalize()} took no step.", "Which lines does each rank reach?")


def prepared(attempt: Attempt) -> Evidence:
    """What `prepare` does on two nodes with disks of their own; run when it is first asked for."""
    group = Group(NODES * PREPARING, "nodes:prepare", lambda rank: {"function": "prepare"}, NODES, {"answers": {}})
    return attempt.once("prepare", lambda: calling.run(attempt, group)[0])


def _in_order(seen: Evidence) -> list[Process]:
    """The processes of the ranks."""
    return sorted(
        (process for process in seen.record.processes if process.place is not None), key=lambda each: each.place or 0
    )


def _downloads(seen: Evidence, what: str) -> Iterator[tuple[int, float]]:
    """The node of each download, and when it begins or ends."""
    for rank, process in enumerate(_in_order(seen)):
        for event in process.of("answer"):
            if event.get("download") == what:
                yield rank // PREPARING, event["at"]


def once_a_node(attempt: Attempt) -> Iterator[Finding]:
    """One rank of each node downloads."""
    seen = prepared(attempt)
    yield from calling.finished(seen)
    calls = Counter(node for node, _ in _downloads(seen, "begins"))
    for node in range(NODES):
        if calls[node] == 0:
            yield Finding(
                "no-download",
                f"On node {node} nobody downloaded: its ranks have no data.",
                "Each node has a disk of its own. Which rank is there on each of them?",
            )
            return
        if calls[node] > 1:
            yield Finding(
                "several-downloads",
                f"On node {node} the data was downloaded {calls[node]} times into the same folder.",
                "Who fetches, and who waits?",
            )
            return


def nobody_too_early(attempt: Attempt) -> Iterator[Finding]:
    """No rank goes on before all of the data is there."""
    seen = prepared(attempt)
    yield from calling.finished(seen)
    there: dict[int, float] = {}
    for node, at in _downloads(seen, "ends"):
        there[node] = max(at, there.get(node, 0.0))
    early = [
        rank
        for rank, (answer, process) in enumerate(zip(calling.answers(seen), _in_order(seen), strict=True))
        if not answer["whole"] or process.of("returned")[-1]["at"] < there.get(rank // PREPARING, 0.0) - AT_ONCE
    ]
    if early:
        yield Finding(
            "too-early",
            f"On {ranks(early)} `prepare` returned before all of the data was on the disk of the node.",
            "How does a rank that does not download learn that the data is there?",
        )

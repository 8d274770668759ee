"""Exercise 8: two nodes. Which number chooses the GPU, which the data, and which decides who writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.grading.calling import first
from course_lib.grading.exercises import nodes
from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.parts import Attempt, Check, Exercise, Part


def places(attempt: Attempt) -> list[tuple[dict[str, str], int, dict[str, Any], dict[str, Any]]]:
    """Environments, numbers of GPUs, what `place` should say of each, and what it said."""
    return attempt.once("places", lambda: _places(attempt))


def _places(attempt: Attempt) -> list[tuple[dict[str, str], int, dict[str, Any], dict[str, Any]]]:
    cases = [
        _case(attempt, node, local, gpus) for gpus in (True, False) for node, local in ((0, 0), (1, 0), (1, 1), (2, 1))
    ]
    cases += [({}, gpus, _expected(0, 1, 0, 0, gpus)) for gpus in (0, 1)]
    came = attempt.call("place", *[(environ, gpus) for environ, gpus, _ in cases])
    return [(*case, answer) for case, answer in zip(cases, came, strict=True)]


def _case(attempt: Attempt, node: int, local_rank: int, has_gpus: bool) -> tuple[dict[str, str], int, dict[str, Any]]:
    """A rank of a job on three nodes or more that have different numbers of GPUs."""
    per_node = [int(each) for each in attempt.random.permutation(np.arange(2, 9))[: attempt.random.integers(3, 6)]]
    rank, world_size = sum(per_node[:node]) + local_rank, sum(per_node)
    environ = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": per_node[node]}
    environ |= {"GROUP_RANK": node, "GROUP_WORLD_SIZE": len(per_node)}
    told = {name: str(value) for name, value in environ.items()} | {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    gpus = per_node[node] if has_gpus else 0
    return told, gpus, _expected(rank, world_size, local_rank, node, gpus)


def _expected(rank: int, world_size: int, local_rank: int, node: int, gpus: int) -> dict[str, Any]:
    device = f"cuda:{local_rank}" if gpus else "cpu"
    numbers = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "node": node}
    return {**numbers, "device": device, "writes": rank == 0}


def says(*names: str, launched: bool = True) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of some entries of what `place` says: where torchrun started it, or where nobody did."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for environ, gpus, expected, answer in places(attempt):
            if bool(environ) != launched:
                continue
            where = f"node {environ['GROUP_RANK']}, rank {environ['RANK']}" if environ else "no launcher"
            where += f", {counted(gpus, 'GPU')} here"
            if "error" in answer:
                error = answer["error"]
                undone = error["type"] == "NotImplementedError"
                idea = (
                    "There is still work to do in this cell."
                    if undone
                    else "Who sets these variables, and what if nobody does?"
                )
                seen = f"With {where}, `place` failed: {error['type']}: {error['message'][:200]}"
                yield Finding("not-done" if undone else "error", seen, idea)
                return
            said = answer["value"]
            if type(said) is not dict:
                yield Finding("no-dict", f"`place` returned a {type(said).__name__}.", "The text says what it returns.")
                return
            for name in names:
                if not _is(said.get(name), expected[name]):
                    yield _wrong_place(name, said.get(name), expected[name], where, launched)
                    return

    return judge


def _is(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and value == expected


def _wrong_place(name: str, value: Any, expected: Any, where: str, launched: bool) -> Finding:
    shown = repr(value)[:40] if type(value) in (str, int, bool, type(None)) else f"a {type(value).__name__}"
    seen = f"With {where}, {name!r} was {shown}."
    if type(value) is str and value == str(expected):
        return Finding("text", seen, "Variables of the environment are text. Is 10 after 9, or before it?")
    if not launched:
        alone = "Nobody launched it, so it is one process. What does the text say that it is, and which GPU is its own?"
        return Finding(name.replace("_", "-"), seen, alone)
    idea = {
        "rank": "The rank counts through all nodes. Need it be worked out, or does somebody say it?",
        "world_size": "All ranks of all nodes. Who counted them?",
        "local_rank": "Which number starts at zero on each node?",
        "node": "torchrun calls a node a group.",
        "device": "A node has only its own GPUs, or none. Which number starts at zero on each node?",
        "writes": "There is one file for all nodes. How many ranks may write it?",
    }
    return Finding(name.replace("_", "-"), seen, idea[name])


PARTS = (
    Part(
        "8.1",
        "Who am I?",
        ("place",),
        (
            Check("rank, world size, local rank and node", 2, says("rank", "world_size", "local_rank", "node")),
            Check("the device", 1, says("device")),
            Check("who writes", 1, says("writes")),
            Check("a program that nobody launched is alone", 1, says(*_expected(0, 1, 0, 0, 0), launched=False)),
        ),
        (
            "Print `os.environ` in a program that torchrun started: most answers are there.",
            "All values are text. `environ.get` can have a default for the case that nobody set them.",
            "The rank counts through all nodes, the local rank through the GPUs of one. GROUP_RANK is the node.",
        ),
        ("place",),
    ),
    Part(
        "8.2",
        "Train on two nodes",
        ("main",),
        (
            Check("four ranks meet where torchrun says", 2, first(nodes.one_group)),
            Check("each rank has its own GPU of its node", 2, first(nodes.own_gpu)),
            Check("each sample goes to one rank of both nodes", 1, first(nodes.dealt)),
            Check("all ranks stay in step", 1, first(nodes.in_step)),
            Check("one rank of both nodes writes the file", 1, first(nodes.one_writer)),
        ),
        (
            "Go through the program line by line: is a number meant that counts through the node, or through all?",
            "`init_process_group` reads rank, world size and address from the environment by itself.",
            "The local rank belongs in the name of the device and nowhere else.",
        ),
        ("main",),
    ),
    Part(
        "8.3",
        "Once a node",
        ("prepare",),
        (
            Check("one rank of each node downloads", 1, first(nodes.once_a_node)),
            Check("no rank goes on before the data is there", 2, first(nodes.nobody_too_early)),
        ),
        (
            "What exists once for all, and what once on each node?",
            "There is a number that is 0 for one rank of each node.",
            "A barrier is for those that wait, and for the one that works: after its work.",
        ),
        ("prepare",),
    ),
)
EXERCISE = Exercise("08_two_nodes", "Two nodes", PARTS)

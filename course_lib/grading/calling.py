"""Students' functions on the ranks of gloo groups; several groups may run side by side in one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.starting import ended
from course_lib.grading.parts import Attempt, environment
from course_lib.grading.sandbox import Program

Probes = Mapping[str, Mapping[str, Any]]
SECONDS = 14.0  # for a job: ranks that wait for each other give up after 6


@dataclass(frozen=True)
class Group:
    """Ranks to start.

    Fields:
        harness: what runs on each, as "module:function" (see inside/harnesses).
        inputs: what the harness gets on a rank.
        nodes: that the ranks are divided among, as the environment has it.
        path: of a file to run instead of a harness.
    """

    world_size: int
    harness: str = ""
    inputs: Callable[[int], Any] = lambda rank: None
    nodes: int = 1
    probes: Probes = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    argv: Sequence[str] = ()


def run(
    attempt: Attempt,
    *groups: Group,
    files: Mapping[str, bytes] | None = None,
    collect: Sequence[str] = (),
    seconds: float = SECONDS,
) -> list[Evidence]:
    """Start all groups at once, in one folder; what each of them did."""
    ports = attempt.random.choice(20_000, len(groups), replace=False) + 20_000
    programs = [
        _program(attempt, group, rank, int(port))
        for group, port in zip(groups, ports, strict=True)
        for rank in range(group.world_size)
    ]
    record = attempt.run(programs, files, seconds, collect)
    found, first = [], 0
    for group in groups:
        places = range(first, first + group.world_size)
        own = [process for process in record.processes if process.place in places or len(groups) == 1]
        found.append(Evidence(replace(record, processes=own)))
        first += group.world_size
    return found


def answers(evidence: Evidence) -> list[Any]:
    """What each rank returned, in their order; None of a rank that did not come so far."""
    programs = sorted(
        (process for process in evidence.record.processes if process.place is not None),
        key=lambda process: process.place or 0,
    )
    return [events[-1]["value"] if (events := process.of("returned")) else None for process in programs]


def finished(evidence: Evidence) -> Iterator[Finding]:
    """All ranks did what they were asked for, to its end."""
    failed = False
    for finding in ended(evidence):
        failed = True
        yield finding
    if not failed and any(answer is None for answer in answers(evidence)):
        yield Finding(
            "no-result", "A rank ended without a result.", "What ends a program before its last line is reached?"
        )


def first(law: Callable[[Attempt], Iterator[Finding]]) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that tells the first finding of a law: a law tells causes before what follows from them."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        finding = next(law(attempt), None)
        if finding is not None:
            yield finding

    return judge


def _program(attempt: Attempt, group: Group, rank: int, port: int) -> Program:
    told = {**environment(rank, group.world_size, group.nodes, port), **group.environ}
    probes = {"group": {}, **group.probes}
    if group.path:
        return Program(path=group.path, argv=group.argv, environ=told, probes=probes)
    return Program(code=attempt.code, harness=group.harness, inputs=group.inputs(rank), environ=told, probes=probes)

"""What is judged: parts of exercises, each with checks that have points of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.starting import ended
from course_lib.grading.sandbox import Program, Record, Sandbox

BUDGET = 90.0  # seconds that all runs of an attempt may take together: what hangs once hangs again
FALSE_EVENTS = "false-events"  # the fault of code that speaks for the probes
MOST_BROKEN = 2  # sandboxes that an attempt may break: a new one takes seconds


class Attempt:
    """A student's code for one part, and what was seen when it ran; checks of a part share what is run for them.

    Attributes:
        code: of the solution cells that the part needs, in their order.
        random: draws the hidden inputs, other ones each time.
    """

    def __init__(self, code: str, sandbox: Sandbox) -> None:
        self.code = code
        self.random = np.random.default_rng()
        self._sandbox = sandbox
        self._seen: dict[object, Any] = {}
        self._seconds_left = BUDGET
        self._broken = 0

    @property
    def isolated(self) -> bool:
        """Whether nothing else can be seen from where the code runs, such as a port that is taken."""
        return self._sandbox.isolated

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """What `make` gives, made when it is first asked for.

        Raises:
            Broken: `make` raised it, now or when it was first asked for.
        """
        if key not in self._seen:
            try:
                self._seen[key] = make()
            except Broken as error:
                self._seen[key] = error
        if isinstance(self._seen[key], Broken):
            raise self._seen[key]
        return self._seen[key]

    def run(
        self,
        programs: Sequence[Program],
        files: Mapping[str, bytes] | None = None,
        seconds: float = 20.0,
        collect: Sequence[str] = (),
    ) -> Record:
        """Run programs side by side (see `Sandbox.run`).

        Raises:
            Broken: the runs before have taken all the time that there is, or broke the sandbox; or this one told what
                nobody saw.
        """
        if self._seconds_left <= 0:
            raise Broken(
                Finding(
                    "out-of-time",
                    f"This was not run: what ran before took all of the {BUDGET:g} s that there are.",
                    "See what was found above. What takes so long there, or never ends?",
                )
            )
        if self._broken >= MOST_BROKEN:
            raise Broken(
                Finding(
                    "broke-the-sandbox",
                    "This was not run: the code has ended the processes around it, again and again.",
                    "A program may end the processes that it has started, and no others.",
                )
            )
        if self._seconds_left == BUDGET:
            self._sandbox.ready()  # later on it starts anew only if this code has broken it, and in its own time
        began = time.monotonic()
        record = self._sandbox.run(programs, files or {}, min(seconds, self._seconds_left), collect)
        for process in record.processes:
            process.source = self.code
        self._seconds_left -= time.monotonic() - began
        self._broken += record.why == "broken"
        if record.false:
            raise Broken(
                Finding(
                    FALSE_EVENTS,
                    "The code told the checks itself what it does, in the place of what watches it.",
                    "A program need not say what it does. It is seen.",
                )
            )
        return record

    def call(self, function: str, *calls: Sequence[Any], seconds: float = 10.0) -> list[dict[str, Any]]:
        """Call a function of the student's with each of these arguments; {"value": …} or {"error": …} of each.

        Raises:
            Broken: the code itself fails, or does not end.
        """
        inputs = {"function": function, "calls": [list(each) for each in calls]}
        record = self.run([Program(code=self.code, harness="calls:call", inputs=inputs)], seconds=seconds)
        return answers_of(record)[0]

    def call_in_group(
        self,
        world_size: int,
        function: str,
        calls: Callable[[int], Sequence[Sequence[Any]]],
        seconds: float = 15.0,
        **probes: Any,
    ) -> Record:
        """Call a function on each rank of a gloo group, with the arguments that `calls` has for the rank."""
        programs = [
            Program(
                code=self.code,
                harness="calls:call_in_group",
                inputs={"function": function, "calls": [list(each) for each in calls(rank)]},
                environ=environment(rank, world_size),
                probes={"group": {}, **probes},
            )
            for rank in range(world_size)
        ]
        return self.run(programs, seconds=seconds)


class Broken(Exception):
    """The code could not be judged further: what is wrong is in `finding`."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.seen)
        self.finding = finding


@dataclass(frozen=True)
class Check:
    """One behaviour: its name for people, its points, and what finds fault with it; no finding means passed."""

    title: str
    points: float
    judge: Callable[[Attempt], Iterable[Finding]]


@dataclass(frozen=True)
class Part:
    """A part of an exercise.

    Fields:
        name: as in `check("4.2")`.
        cells: the grade ids of the solution cells that it needs, in their order.
        names: what these cells must define; where there are none they are a program, train.py.
        hints: three, each saying more than the one before.
    """

    name: str
    title: str
    cells: tuple[str, ...]
    checks: tuple[Check, ...]
    hints: tuple[str, str, str]
    names: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Of all checks."""
        return sum(check.points for check in self.checks)


@dataclass(frozen=True)
class Exercise:
    """An exercise: one notebook, and its parts.

    Fields:
        notebook: its name without ending, in `exercises/` and in `solutions/`.
    """

    notebook: str
    title: str
    parts: tuple[Part, ...]

    @property
    def points(self) -> float:
        """Of all parts."""
        return sum(part.points for part in self.parts)


@dataclass(frozen=True)
class CheckResult:
    """What came of a check."""

    title: str
    points: float
    max_points: float
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class PartResult:
    """What came of a part.

    Fields:
        trouble: why it could not be judged, which is no fault of the student's; empty where it was.
        isolated: whether the code ran without access to this machine (see sandbox.py).
    """

    name: str
    title: str
    checks: tuple[CheckResult, ...] = field(default_factory=tuple)
    trouble: str = ""
    isolated: bool = True
    seconds: float = 0.0

    @property
    def points(self) -> float:
        """Of the checks that passed."""
        return sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """Of all checks."""
        return sum(check.max_points for check in self.checks)

    @property
    def passed(self) -> bool:
        """Whether nothing was found; not where it could not be judged."""
        return not self.trouble and all(not check.findings for check in self.checks)


def environment(rank: int, world_size: int, nodes: int = 1, port: int = 29500) -> dict[str, str]:
    """What torchrun tells a rank, of so many equal nodes."""
    per_node = world_size // nodes
    values = {
        **{"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank % per_node, "LOCAL_WORLD_SIZE": per_node},
        **{"GROUP_RANK": rank // per_node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
    }
    return {name: str(value) for name, value in values.items()}


def answers_of(record: Record) -> list[Any]:
    """What each program of a job returned.

    Raises:
        Broken: one did not; says which, and why.
    """
    programs = [process for process in record.processes if process.place is not None]
    returned = [process.of("returned") for process in programs]
    if not all(returned):
        for finding in ended(Evidence(record)):
            raise Broken(finding)
        raise Broken(
            Finding("no-result", "The code ended without giving a result.", "What ends a program before its last line?")
        )
    return [events[-1]["value"] for events in returned]

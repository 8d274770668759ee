"""Functions of a student's, called in a process of their own or on the ranks of a group, and what came of the calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding, counted, listed, quoted, ranks
from course_lib.grading.laws.messages import FROM_PEER, KNOWN, told
from course_lib.grading.laws.starting import ended
from course_lib.grading.parts import Attempt, Broken, environment
from course_lib.grading.sandbox import Process, Program, Record

ALONE, IN_GROUP = "functions:call", "functions:call_in_group"
SECONDS = 12.0  # that the calls of a job may take
Call = tuple[str, list[Any]]  # the name of a function, and its arguments
GroupCalls = dict[int, list[list[Call]]]  # of each world size, of each rank
NO_RESULT = Finding("no-result", "The code ended without giving a result.", "What ends a program before its last line?")


@dataclass(frozen=True)
class Answer:
    """What came of one call.

    Fields:
        value: what it returned.
        error: how it failed (see inside/student.py); None where it did not.
        after: the arguments, as they were after it.
        disturbed: the global generators of random numbers that it used or seeded.
        told: all that the harness told of it.
    """

    value: Any = None
    error: dict[str, Any] | None = None
    after: list[Any] = field(default_factory=list)
    disturbed: tuple[str, ...] = ()
    told: dict[str, Any] = field(default_factory=dict)

    def named(self, name: str) -> dict[Any, Any]:
        """A dict that the harness told by this name; an empty one where it told none."""
        value = self.told.get(name)
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Group:
    """The ranks of a group, each of which was called as often as the others.

    Fields:
        answers: of each rank, of each call; fewer where it failed.
        processes: of each rank.
        record: of this group's processes only.
    """

    world_size: int
    answers: list[list[Answer]]
    processes: list[Process]
    record: Record

    def values(self, call: int) -> list[Any]:
        """What each rank returned.

        Raises:
            Broken: a rank failed, or waited for another in vain.
        """
        return [answer.value for answer in self.of(call)]

    def of(self, call: int) -> list[Answer]:
        """Each rank's answer to one call.

        Raises:
            Broken: as above.
        """
        if all(len(each) > call and each[call].error is None for each in self.answers):
            return [each[call] for each in self.answers]
        raise Broken(next(self._why_not()))

    def _why_not(self) -> Iterator[Finding]:
        """The rank that failed by itself comes before those that noticed."""
        errors = {
            rank: error
            for rank, answers in enumerate(self.answers)
            for answer in answers
            if (error := answer.error) is not None
        }
        for rank, error in errors.items():
            if not any(part in error["message"] for part in FROM_PEER):
                yield explained_error(f"Rank {rank} of {self.world_size}", error)
        yield from ended(Evidence(self.record))
        if errors:
            yield _in_vain(self.world_size, errors)
        yield NO_RESULT


def call(attempt: Attempt, *calls: Call, harness: str = ALONE) -> list[Answer]:
    """Make calls (function, arguments) one after the other.

    Raises:
        Broken: the code itself fails, or does not end.
    """
    return call_in_processes(attempt, [list(calls)], harness)[0]


def call_in_processes(attempt: Attempt, calls: Sequence[Sequence[Call]], harness: str = ALONE) -> list[list[Answer]]:
    """As `call`, in several processes that know nothing of each other; the answers of each.

    Raises:
        Broken: as above.
    """
    programs = [
        Program(code=attempt.code, harness=harness, inputs=_inputs(attempt, each), probes={"answers": {}})
        for each in calls
    ]
    record = attempt.run(programs, seconds=SECONDS)
    found = [_answers(record.program(place), len(each)) for place, each in enumerate(calls)]
    if [len(answers) for answers in found] != [len(each) for each in calls]:
        raise Broken(next(ended(Evidence(record)), NO_RESULT))
    return found


def call_in_groups(
    attempt: Attempt,
    calls: Mapping[int, Sequence[Sequence[Call]]],
    harness: str = IN_GROUP,
) -> dict[int, Group]:
    """Make calls on gloo groups, all groups at the same time: of each world size, of each rank, the calls.

    Raises:
        Broken: the code itself fails, or does not end.
    """
    programs = [
        Program(
            code=attempt.code,
            harness=harness,
            inputs={**_inputs(attempt, each), "meeting": f".meeting{world_size}"},
            environ=environment(rank, world_size),
            probes={"answers": {}, "group": {}},
        )
        for world_size, of_ranks in calls.items()
        for rank, each in enumerate(of_ranks)
    ]
    record = attempt.run(programs, seconds=SECONDS)
    groups, place = {}, 0
    for world_size, of_ranks in calls.items():
        processes = [record.program(place + rank) for rank in range(world_size)]
        place += world_size
        own = dataclasses.replace(record, processes=processes)
        answers = [_answers(process, len(each)) for process, each in zip(processes, of_ranks, strict=True)]
        groups[world_size] = Group(world_size, answers, processes, own)
    return groups


def failed(name: str, answer: Answer) -> Iterator[Finding]:
    """The function fails."""
    if answer.error is not None:
        yield explained_error(f"{name}(…)", answer.error)


def explained_error(who: str, error: dict[str, Any]) -> Finding:
    """An error that somebody met (see inside/student.py), and what it is mostly about."""
    lines = [line.strip() for line in error["message"].splitlines() if line.strip()]
    seen = told(who, error, lines[-1][:300] if lines else "")
    if error["type"] == "TypeError" and "argument" in error["message"] and error["where"] is None:
        return Finding("signature", seen, "With which arguments is it called? The text of the exercise says it.")
    for fault, idea, parts in KNOWN:
        if any(part in error["message"] or part == error["type"] for part in parts):
            return Finding(fault, seen, idea)
    return Finding("error", seen, "Read the last line first: what did Python expect, and what was there?")


def _inputs(attempt: Attempt, calls: Sequence[Call]) -> dict[str, Any]:
    plain = [[function, list(arguments)] for function, arguments in calls]
    return {"calls": plain, "seed": int(attempt.random.integers(2**31))}


def _answers(process: Process, most: int) -> list[Answer]:
    """The answers that a process gave, until one that cannot be read."""
    told = process.of("answer")
    answers = [_answer(each) for each in told] if len(told) <= most else []
    return [answer for answer in takewhile(bool, answers) if answer is not None]


def _answer(told: Any) -> Answer | None:
    if not isinstance(told, dict) or not isinstance(told.get("disturbed"), list):
        return None
    error = told.get("error")
    if error is not None and not _is_error(error):
        return None
    after = told.get("after")
    disturbed = tuple(str(each) for each in told["disturbed"])
    return Answer(told.get("value"), error, after if isinstance(after, list) else [], disturbed, told)


def _is_error(told: Any) -> bool:
    """Whether it is what `describe` in inside/student.py makes."""
    if not isinstance(told, dict) or not all(isinstance(told.get(name), str) for name in ("type", "message")):
        return False
    where = told.get("where")
    return isinstance(told.get("kinds"), list) and (where is None or (isinstance(where, dict) and "line" in where))


def _in_vain(world_size: int, waiting: dict[int, dict[str, Any]]) -> Finding:
    """Ranks waited until they gave up, or until the one that they waited for had left."""
    lines = {rank: error["where"] for rank, error in waiting.items() if error["where"]}
    places = listed(
        f"rank {rank} at line {where['line']} ({quoted(str(where.get('text')))})" for rank, where in lines.items()
    )
    seen = f"On {counted(world_size, 'rank')}, {ranks(sorted(waiting))} waited in vain for another: {places}."
    idea = "Whom does each wait for, and what does that one do meanwhile?"
    if len(waiting) < world_size:
        idea = "Some ranks did not wait there. Which calls must all ranks make, and does each make them?"
    return Finding("hang", seen, idea)

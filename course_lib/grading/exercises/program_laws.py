"""What has to hold in a run of the program of exercise 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.exercises.program_runs import (
    BATCH_SIZE,
    FAILS_IN_PASS,
    NAN_IN_PASS,
    WITHIN,
    Run,
    reference,
    run,
)
from course_lib.grading.laws import dealing, learning, starting
from course_lib.grading.laws.finding import Finding, listed, ranks
from course_lib.grading.parts import Attempt

Law = Callable[[Run], Iterable[Finding]]
ABOUT_DEVICES = ("device-index", "device-ids", "no-gpu")  # faults: what else ends a program is told by other checks


def holds(law: Law, *names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that a law holds in these runs.

    Only the first finding is told: a law tells causes before what follows from them.
    """

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for name in names:
            finding = _first(lambda each: law(run(attempt, each)), name)
            if finding is not None:
                yield finding
                return

    return judge


def _first(found: Callable[[str], Iterable[Finding]], name: str) -> Finding | None:
    """What is found first in a run; None also where nothing is found in the one that it is within."""
    if name in WITHIN and next(iter(found(WITHIN[name])), None) is None:
        return None
    return next(iter(found(name)), None)


def processes(seen: Run) -> Iterable[Finding]:
    """A process for each GPU."""
    return starting.started(seen.evidence, seen.setting.world_size)


def group(seen: Run) -> Iterator[Finding]:
    """The processes are one group."""
    yield from starting.started(seen.evidence, seen.setting.world_size)
    yield from starting.joined(seen.evidence, seen.setting.world_size)
    if _together(seen.evidence) < seen.setting.world_size:
        yield from starting.ended(seen.evidence)


def _together(evidence: Evidence) -> int:
    """How many ranks got into a group, or train without one."""
    return sum(rank.group is not None or bool(rank.rounds) for rank in evidence.ranks.values())


def nodes(seen: Run) -> Iterator[Finding]:
    """The processes of several nodes are one group, and meet where they were told to."""
    yield from group(seen)
    yield from starting.met(seen.evidence, seen.host)


def copies(seen: Run) -> Iterator[Finding]:
    """Programs that know nothing of each other do not get in each other's way."""
    yield from group(seen)
    for evidence in seen.copies:
        if _together(evidence) < seen.setting.world_size:
            for finding in starting.ended(evidence):
                yield replace(finding, seen=f"Two copies ran at once, with a port for each. {finding.seen}")


def devices(seen: Run) -> Iterator[Finding]:
    """Each rank of a node puts all that it has on a GPU of its own."""
    yield from group(seen)
    failure = next(iter(starting.ended(seen.evidence)), None)
    if failure is not None and failure.fault in ABOUT_DEVICES:
        yield failure
    used = {number: _devices(rank) for number, rank in seen.evidence.ranks.items()}
    for number, each in used.items():
        if not each:
            yield failure or Finding(
                "no-device",
                f"Each node had {seen.setting.ranks} GPUs, and rank {number} put nothing on one.",
                "Where does the model live, and where the images?",
            )
        elif len(each) > 1:
            yield Finding(
                "two-devices",
                f"Rank {number} used GPUs {listed(sorted(each))}.",
                "Does everything that a rank computes with live in one place?",
            )
    for program in range(seen.setting.nodes):
        node = [number for number, rank in seen.evidence.ranks.items() if rank.process.program == program]
        shared = [device for device, times in Counter(min(used[number]) for number in node).items() if times > 1]
        if shared:
            yield Finding(
                "same-device",
                f"{ranks(node).capitalize()}, which run on the same node, all use GPU {shared[0]}.",
                "Which of a rank's numbers tells it apart from the others on its node?",
            )


def _devices(rank: Rank) -> set[int]:
    return {event["number"] for event in rank.process.of("device") if event["what"] != "set_device"}


def dealt(seen: Run) -> Iterator[Finding]:
    """Each image goes to one rank."""
    yield from trained(seen)
    size = BATCH_SIZE * seen.setting.world_size
    for finding in dealing.dealt(seen.evidence, seen.setting.epochs, seen.setting.images, size):
        if finding.fault == "samples-missing":
            yield from starting.ended(seen.evidence)
        yield finding


def reshuffled(seen: Run) -> Iterator[Finding]:
    """Another order in each epoch, and batches of the size that was asked for."""
    yield from trained(seen)
    yield from dealing.reshuffled(seen.evidence, seen.setting.epochs)
    yield from dealing.batches(seen.evidence, BATCH_SIZE)


def in_step(seen: Run) -> Iterator[Finding]:
    """All ranks have the same weights, from the first step on."""
    yield from trained(seen)
    if min(len(rank.rounds) for rank in seen.evidence.ranks.values()) < 2:  # no step to judge was taken
        yield from starting.ended(seen.evidence)
    yield from learning.same_start(seen.evidence)
    yield from dealing.apart(seen.evidence)
    yield from learning.in_step(seen.evidence, seen.setting.mirrored)


def as_one(seen: Run) -> Iterator[Finding]:
    """All ranks learn as one process would."""
    yield from in_step(seen)
    yield from learning.as_one_process(seen.evidence, reference(seen))


def seeded(attempt: Attempt) -> Iterator[Finding]:
    """Other seeds begin with other weights."""
    seen = [run(attempt, name) for name in ("2", "3")]
    for each in seen:
        for finding in trained(each):
            yield finding
            return
    marks = [min(each.evidence.ranks.items())[1].rounds[0].mark for each in seen]
    if marks[0] == marks[1] and seen[0].seed != seen[1].seed:
        yield Finding(
            "seed-ignored",
            "Two runs with different values of --base-seed began with the same weights.",
            "What decides the first weights? Who repeats your experiment with other seeds wants other ones.",
        )


def complete(seen: Run) -> Iterator[Finding]:
    """The program ends, with as many steps on all ranks."""
    yield from trained(seen)
    yield from starting.ended(seen.evidence)
    yield from starting.equally_long(seen.evidence)


def _disturbed(seen: Run, after: int) -> Iterator[Finding]:
    """Rank 1 was disturbed in the pass after so many of training, if it came so far."""
    if _passes(seen) > after and not seen.evidence.ranks[1].process.of("disturbed"):
        yield Finding(
            "not-disturbed",
            f"Something was made to happen in step {after} of rank 1; the step was told, and it did not happen.",
            "Does each step go through the model?",
        )


def _passes(seen: Run) -> int:
    """How many passes of training rank 1 began."""
    return sum(event["training"] for event in seen.evidence.ranks[1].process.of("forward"))


def ends_together(seen: Run) -> Iterator[Finding]:
    """When a rank fails, all end; or all go on, in step."""
    yield from trained(seen)
    yield from _disturbed(seen, FAILS_IN_PASS)
    if seen.evidence.record.why == "time":
        for finding in starting.ended(seen.evidence):
            yield Finding(
                "hang-after-failure",
                f"Rank 1 was made to fail in its step {FAILS_IN_PASS}. {finding.seen}",
                "Who tells the others that one of them is gone? What becomes of its error?",
            )
    elif _passes(seen) > FAILS_IN_PASS + 1:
        for finding in chain(learning.in_step(seen.evidence), complete(seen)):
            yield Finding(
                "swallowed",
                f"Rank 1 was made to fail in its step {FAILS_IN_PASS}, and went on. {finding.seen}",
                "A rank that quietly sits out a step holds up the others. What should become of its error?",
            )


def not_a_number(attempt: Attempt) -> Iterator[Finding]:
    """When a rank meets a NaN, all end, or all go on with the same weights; only what is found first is told."""
    yield from islice(_not_a_number(run(attempt, "nan"), run(attempt, "2")), 1)


def _not_a_number(seen: Run, undisturbed: Run) -> Iterator[Finding]:
    yield from trained(seen)
    yield from _disturbed(seen, NAN_IN_PASS)
    anyway = next(chain(learning.same_start(undisturbed.evidence), learning.in_step(undisturbed.evidence)), None)
    found: Iterable[Finding] = ()
    if seen.evidence.record.why == "time":
        found = starting.ended(seen.evidence)
    elif not seen.evidence.errors:  # who parts without a NaN is told so elsewhere
        found = chain(() if anyway else learning.in_step_at_each_pass(seen.evidence), complete(seen))
    for finding in found:
        yield from islice(complete(undisturbed), 1)  # this has nothing to do with a NaN
        yield replace(
            finding,
            seen=f"The images of rank 1 were made NaN in its step {NAN_IN_PASS}. {finding.seen}",
            idea="Who decides that a step is left out: one rank, or all of them?",
        )


def trained(seen: Run) -> Iterator[Finding]:
    """What keeps ranks from training; told first, since all else follows from it."""
    yield from group(seen)
    idle = sorted(set(range(seen.setting.world_size)) - {rank.rank for rank in seen.evidence.trained})
    if idle:
        yield from starting.ended(seen.evidence)
        yield Finding("idle-rank", f"{ranks(idle).capitalize()} did not train.", "Which lines does each process reach?")

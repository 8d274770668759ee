"""The ranks start, find each other, and come to an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.laws.finding import Finding, counted, counted_were, listed, ranks
from course_lib.grading.laws.messages import explained
from course_lib.grading.laws.waiting import where_each_waits
from course_lib.grading.sandbox import Process


def started(evidence: Evidence, world_size: int) -> Iterator[Finding]:
    """As many processes train as there are ranks."""
    processes = [process for process in evidence.record.processes if process.of("joining") or process.of("forward")]
    if len(processes) == world_size:
        return
    failure = explained(evidence) if evidence.errors else None
    asked, trained = f"{counted_were(world_size, 'rank')} asked for", f"{counted(len(processes), 'process')} trained"
    if failure is not None and failure.fault != "world-size" and len(processes) < world_size:
        yield from _same_rank(evidence)  # all but one of these fail, since the port is taken, and end the others
        yield failure
    elif not processes and evidence.record.why != "ended":
        yield from ended(evidence)
    elif not processes:
        yield Finding(
            "nothing-trains",
            f"{asked}; no process trained or joined a group, and the program ended.",
            "Where does the number of processes come from, and what is it on a machine without GPUs?",
        )
    elif len(processes) == 1:
        yield Finding(
            "one-process",
            f"{asked}, and one process did everything.",
            "Who starts the other processes, and how many?",
        )
    elif len(processes) == world_size**2:
        yield Finding(
            "started-twice",
            f"{asked}, and {trained}: each started {world_size}.",
            "Who starts the workers here, the launcher or your program? One of them is enough.",
        )
    else:
        yield Finding(
            "number-of-processes",
            f"{asked}, and {trained}.",
            "Which of the program's arguments says how many processes this machine starts?",
        )


def joined(evidence: Evidence, world_size: int) -> Iterator[Finding]:
    """The processes are one group, each with a rank of its own."""
    groups = [group for rank in evidence.ranks.values() if (group := rank.group) is not None]
    sizes = sorted({group["world_size"] for group in groups})
    if (same := next(_same_rank(evidence), None)) and not (sizes == [1] and world_size > 1):
        yield same
    elif not groups and evidence.trained and world_size > 1:  # one process may well do without a group
        yield Finding(
            "no-group",
            f"{counted(len(evidence.trained), 'process')} trained, and none joined a process group.",
            "Processes that know nothing of each other cannot average anything. Which call makes them a group?",
        )
    elif groups and sizes != [world_size]:
        yield Finding(
            "world-size",
            f"{counted_were(world_size, 'rank')} asked for; the groups that were made are of size {listed(sizes)}.",
            "Ask each process how big its world is. Which numbers make up the world size?",
        )
    elif groups and sorted(evidence.ranks) != list(range(world_size)):
        if any(rank.process.error for rank in evidence.ranks.values()):  # others met nobody since these were gone
            yield explained(evidence)
            return
        yield Finding(
            "missing-rank",
            f"The ranks that joined are {listed(evidence.ranks)}; they should be 0 to {world_size - 1}.",
            "How does a process work out its rank from its node and from its place there?",
        )
    elif not evidence.errors and (alone := [number for number, rank in evidence.ranks.items() if _is_alone(rank)]):
        yield Finding(
            "not-connected",
            f"{ranks(alone).capitalize()} joined a group of {world_size}, and had a connection to no other process.",
            "What does a group need so that its members can send each other anything?",
        )


def _same_rank(evidence: Evidence) -> Iterator[Finding]:
    claims = Counter(
        number for process in evidence.record.processes if (number := evidence.rank_of(process)) is not None
    )
    same = sorted(number for number, times in claims.items() if times > 1)
    if same:
        yield Finding(
            "same-rank",
            f"{max(claims.values())} processes say that they are {ranks(same)}.",
            "What makes the ranks of two processes differ, on one node and on two?",
        )


def _is_alone(rank: Rank) -> bool:
    """Whether a rank was seen to be connected to no other, whatever it says of its group."""
    return rank.group is not None and rank.group["world_size"] > 1 and rank.process.connected is False


def meetings(evidence: Evidence) -> Iterator[tuple[Process, str]]:
    """Where each process went to meet the others, as "address:port"."""
    for process in evidence.record.processes:
        for event in process.of("joining"):
            method = event["given"].get("init_method", "")
            if store := event["given"].get("store"):
                yield process, store
            elif method.startswith("tcp:"):
                yield process, method.removeprefix("tcp://").partition("?")[0]
            elif not method.startswith("file:"):
                yield process, ":".join(str(event["environ"].get(name)) for name in ("MASTER_ADDR", "MASTER_PORT"))


def met(evidence: Evidence, host: str) -> Iterator[Finding]:
    """The processes look for each other where they were told to."""
    looked = {address.rpartition(":")[0] for _, address in meetings(evidence)} - {host}
    if looked:
        yield Finding(
            "address",
            f"The nodes were told to meet at {host} (MASTER_ADDR); a process looked at {min(looked)}.",
            "Who knows where the first node is: the program, or whoever starts it on each node?",
        )


def ended(evidence: Evidence) -> Iterator[Finding]:
    """The program comes to its end: no rank fails, none waits for ever."""
    record = evidence.record
    waiting = [each for each in record.processes if each.of("joining") and not each.of("group") and not each.error]
    places = {place for process, place in meetings(evidence) if any(process is each for each in waiting)}
    if record.why == "time" and len(places) > 1:
        yield Finding(
            "address",
            f"The processes look for each other at different places: {listed(sorted(places), 4)}.",
            "Who decides where they meet, and how do the others know it?",
        )
    elif record.why == "time" and waiting:
        announced = listed(sorted({each.of("joining")[0]["given"].get("world_size", "?") for each in waiting}))
        yield Finding(
            "world-size",
            f"{counted(len(waiting), 'process')} did not get into a group of {announced}. "
            f"{where_each_waits(evidence)[0]}",
            "The group waits for all that were announced. Count the processes that you start.",
        )
    elif record.why == "time":
        yield Finding("hang", *where_each_waits(evidence))
    elif record.why != "ended":
        yield _stopped(record.why)
    elif evidence.errors:
        yield explained(evidence)
    elif killed := [process for process in record.processes if _was_killed(process)]:
        yield Finding(
            "killed",
            f"A process was ended by signal {-(killed[0].code or 0)}.",
            "Sizes that differ between ranks end a process like this. Is what each rank sends the same size?",
        )


def equally_long(evidence: Evidence) -> Iterator[Finding]:
    """All ranks take the same number of steps."""
    steps = {number: len(rank.rounds) for number, rank in evidence.ranks.items()}
    passes = {sum(len(each.batches) for each in rank.rounds) for rank in evidence.ranks.values()}
    # Where only one rank steps, the others cannot be seen to when the weights stay what they are, as NaN does.
    if len(set(steps.values())) > 1 and len(passes) > 1:
        said = listed(f"{count} on rank {number}" for number, count in steps.items())
        yield Finding(
            "uneven-steps",
            f"The ranks took different numbers of steps: {said}.",
            "Each step waits for all ranks. What happens in the step that some of them no longer take?",
        )


def _was_killed(process: Process) -> bool:
    """Whether a process was ended by a signal before its work was done; gloo aborts after it now and then."""
    return process.code is not None and process.code < 0 and not process.of("left") and not process.of("returned")


def _stopped(why: str) -> Finding:
    if why == "memory":
        return Finding("memory", "The program took more memory than it may have.", "What grows with each step?")
    if why == "processes":
        return Finding(
            "processes",
            "The program started more processes than it may.",
            "What runs again in each process that starts?",
        )
    return Finding("broken", "The program ended what was running it.", "Which processes does your program kill?")

"""Why a run failed: from how its ranks ended to one error that names the first culprit.

The rank that makes the most noise is often innocent: when one dies, its peers' collectives fail with
"connection closed by peer". So a rank that failed by itself comes before one that failed because of
another, and a rank that did not join a collective before the ones that waited for it.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import Any

from course_lib import errors
from course_lib.errors import CourseError, DiskFullError, FolderError, HangError, RankError, WriteError
from course_lib.runs.events import EventReader
from course_lib.runs.exit_codes import EXIT_CANNOT_WRITE, EXIT_DISK_FULL
from course_lib.runs.folder import RunFolder, read_json

LOG_LINES = 15
# After the first rank failed, the others have this long to say how they did.
GRACE_SECONDS = 1.0
# What a rank says by its exit code alone.
UNRECORDED: dict[int, tuple[type[WriteError], str]] = {
    EXIT_DISK_FULL: (
        DiskFullError,
        "No space is left on the disk of {}, so the run was stopped. What was recorded before is kept. Free some "
        "space, or choose another folder for the runs (--out).",
    ),
    EXIT_CANNOT_WRITE: (
        WriteError,
        "Nothing can be written in {} any more, so the run was stopped. What was recorded before is kept. See whether "
        "the folder is still there and may be written to, or choose another one for the runs (--out).",
    ),
}


@dataclass
class Ranks:
    """How the ranks of a run stand, as the notices tell it.

    Attributes:
        world_size: how many there are.
        exits: of each rank that ended by itself, its exit code (negative: the signal) and when.
        finished: the ranks that have recorded their result.
        killed: the ranks that the launcher killed, because the run had to end.
        meeting_folder: the temporary folder by which they meet; the server removes it if it can.
    """

    world_size: int
    exits: dict[int, tuple[int, float]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    meeting_folder: str = ""

    def note(self, notice: dict[str, Any]) -> None:
        """Take in what the server said."""
        if notice["is"] == "started":
            self.meeting_folder = notice["meeting_folder"]
        elif notice["is"] == "finished":
            self.finished.add(notice["rank"])
        elif notice["is"] == "exit" and notice["rank"] not in self.killed:
            self.exits[notice["rank"]] = (notice["code"], time.time())

    @property
    def alive(self) -> set[int]:
        """The ranks whose process is still there."""
        return set(range(self.world_size)) - set(self.exits)

    @property
    def running(self) -> set[int]:
        """The ranks that are still in the training function."""
        return self.alive - self.finished

    @property
    def failed(self) -> bool:
        """Whether a rank ended by itself; one that finished waits until it is told."""
        return bool(self.exits)


@dataclass(frozen=True)
class Failure:
    """How one rank failed."""

    rank: int
    kind: str
    message: str
    traceback: str
    time: float
    from_peer: bool = False
    timed_out: bool = False


def verdict(folder: RunFolder, ranks: Ranks) -> CourseError | None:
    """The error of a run whose last rank is gone, or None if every rank finished."""
    absent = ranks.killed - ranks.finished
    failures = [_failure(folder, rank, *how, bool(absent)) for rank, how in sorted(ranks.exits.items())]
    if not failures:
        return None
    by_themselves = [failure for failure in failures if not failure.from_peer]
    waited = any(failure.timed_out for failure in failures)
    if not by_themselves and waited and ranks.world_size > 1:
        return _nobody_came(folder, failures, ranks)
    return _blame(folder, min(by_themselves or failures, key=lambda failure: failure.time), ranks.world_size)


def time_limit_passed(folder: RunFolder, ranks: Ranks, seconds: float) -> HangError:
    """The error of a run that went on for too long; says where each rank was."""
    where = "\n\n".join(f"Rank {rank} was here:\n{stack(folder, rank)}" for rank in sorted(ranks.running))
    return HangError(
        f"The run went on for more than its time limit of {seconds:g} s and was stopped. What it recorded is in "
        f"{folder.path}. Allow more time (time_limit, or --time-limit), or train less.\n\n{where}"
    )


def stack(folder: RunFolder, rank: int) -> str:
    """Where a rank was when it was asked, outermost call first."""
    path = folder.stack(rank)
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    calls = [line for line in lines if line.startswith("  File")]
    if not calls:
        return "  (it did not answer)"
    return "\n".join(reversed(calls))


def _failure(folder: RunFolder, rank: int, code: int, when: float, others_are_absent: bool) -> Failure:
    try:
        error = read_json(folder.error(rank))
    except FolderError:
        if code in UNRECORDED:
            kind, message = UNRECORDED[code]
            return Failure(rank, kind.__name__, message.format(folder.path), "", when)
        # NCCL's watchdog aborts a rank that waited for too long, and gloo one whose peer sent another size.
        waited = code == -signal.SIGABRT and others_are_absent
        return Failure(rank, "", _died(folder, rank, code), "", when, from_peer=waited, timed_out=waited)
    return Failure(
        rank, error["type"], error["message"], error["traceback"], error["time"], error["from_peer"], error["timed_out"]
    )


def _died(folder: RunFolder, rank: int, code: int) -> str:
    if code == -signal.SIGKILL:
        how = "was killed (SIGKILL); the system does so when memory runs out"
    elif code < 0:
        how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
    else:
        how = f"ended by itself with exit code {code} before the function returned (os._exit?)"
    log = folder.log(rank)
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
    printed = "It printed last:\n" + "\n".join(lines) if lines else "It printed nothing."
    return f"{how}. {printed}"


def _blame(folder: RunFolder, culprit: Failure, world_size: int) -> CourseError:
    who = f"Rank {culprit.rank} of {world_size}"
    step = _last_step(folder, culprit.rank)
    at = f" after step {step}" if step else ""
    others = "; the other ranks were stopped" if world_size > 1 else ""
    kind = getattr(errors, culprit.kind, None)
    if isinstance(kind, type) and issubclass(kind, CourseError) and kind is not RankError:
        return kind(f"{culprit.message} ({who} said so{at}{others}.)")
    if not culprit.kind:
        return RankError(f"{who} died{at}{others}. It {culprit.message}", culprit.rank)
    advice = " To debug it here, run with num_gpus=1." if world_size > 1 else ""
    return RankError(
        f"{who} failed{at}{others}: {_said(culprit)}.{advice} Its traceback follows.",
        culprit.rank,
        culprit.traceback,
    )


def _said(culprit: Failure) -> str:
    """The kind of its error and, where it has one, the message."""
    return f"{culprit.kind}: {culprit.message}".rstrip(":. \n")


def _last_step(folder: RunFolder, rank: int) -> int:
    steps = [event["step"] for event in EventReader(folder.path).read_new() if _is_step_of(event, rank)]
    return max(steps, default=0)


def _is_step_of(event: dict[str, Any], rank: int) -> bool:
    return event["kind"] == "step" and event.get("rank") == rank and isinstance(event.get("step"), int)


def _nobody_came(folder: RunFolder, failures: list[Failure], ranks: Ranks) -> HangError:
    """Every rank that failed did so in a collective: name the ranks that it waited for."""
    waiting = ", ".join(f"rank {failure.rank}" for failure in failures)
    evidence = [f"Rank {each.rank} waited here:\n{each.traceback or each.message}" for each in failures]
    missing = sorted(ranks.killed - ranks.finished)
    finished = sorted(ranks.finished)
    if missing:
        names = ", ".join(f"rank {rank}" for rank in missing)
        evidence = [f"Rank {rank} was here:\n{stack(folder, rank)}" for rank in missing] + evidence
        what = f"{names} did not join the collective in which {waiting} waited"
    elif finished:
        names = ", ".join(f"rank {rank}" for rank in finished)
        what = f"{names} had returned from the training function while {waiting} still waited in a collective"
    else:
        what = f"The ranks waited for each other in different places ({waiting})"
    return HangError(
        f"{what[0].upper()}{what[1:]}, so the run was stopped. Every rank must call the same collectives in the same "
        "order: look for one inside `if rank == ...`, or for loops of different length. If the ranks were only slow, "
        f"raise collective_timeout.\n\n" + "\n\n".join(evidence)
    )

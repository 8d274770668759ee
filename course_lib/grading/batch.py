"""Grading many submissions: as many at once as the machine carries, each in a sandbox, one journal line for each."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

from course_lib import __version__
from course_lib.errors import FolderError
from course_lib.grading import catalog, judging, submission
from course_lib.grading.handed_in import HandedIn
from course_lib.grading.journal import Journal
from course_lib.grading.laws.finding import Finding
from course_lib.grading.results import Graded
from course_lib.grading.sandbox import MEMORY, Sandbox
from course_lib.runs.devices import core_count

SECONDS_TO_STOP = 10.0


@dataclass(frozen=True)
class Progress:
    """How far a grading is.

    Fields:
        total, done: submissions, those included that were graded before.
        kept: graded before, and not changed since.
        troubled: could not be judged, which is no fault of theirs.
        last: the one that was graded last.
        seconds_left: as far as can be told; None before more have come than are graded at once.
    """

    total: int
    done: int
    kept: int
    troubled: int = 0
    last: Graded | None = None
    seconds_left: float | None = None


def grade_all(handed: Sequence[HandedIn], journal: Journal, show: Callable[[Progress], None]) -> list[Graded]:
    """Grade what was not graded before by this version of the course, and return the results of all, in their order.

    Raises:
        WriteError: the journal cannot be written.
        KeyboardInterrupt: as it came; the sandboxes are gone, and the journal has what was graded.
    """
    results = {}
    waiting = []
    before = journal.read()
    for each in handed:
        earlier = before.get((each.student, each.exercise))
        if earlier is not None and _still_holds(earlier, each):
            results[each.student, each.exercise] = earlier
        else:
            waiting.append(each)
    kept, troubled, at_once = len(results), 0, _workers()
    arrived: list[float] = []
    show(Progress(len(handed), kept, kept))
    with closing(_graded(waiting, at_once)) as arriving:
        for graded in arriving:
            journal.add(graded)
            results[graded.student, graded.exercise] = graded
            troubled += bool(graded.trouble)
            arrived.append(time.monotonic())
            left = _seconds_left(arrived, len(waiting), at_once)
            show(Progress(len(handed), len(results), kept, troubled, graded, left))
    return [results[each.student, each.exercise] for each in handed]


def grade_one(handed: HandedIn, sandbox: Sandbox) -> Graded:
    """Grade one submission, whatever it is."""
    began = time.monotonic()
    exercise = catalog.exercise(handed.exercise)
    digest, unreadable = "", ""
    remarks: list[str] = []
    try:
        read = submission.read(handed.path)
        digest = read.digest
        parts, more = judging.judge_all(exercise.parts, read, sandbox)
        remarks = [*read.remarks, *more]
    except FolderError as error:
        unreadable = str(error).replace(str(handed.path), handed.path.name)
        told = Finding("unreadable", unreadable, "Open it in Jupyter: is it what you handed in?")
        parts = [judging.without_verdict(part, sandbox, findings=(told,)) for part in exercise.parts]
    except Exception as error:  # of ours: it costs this submission alone
        trouble = f"The grader failed: {type(error).__name__}: {error}"
        parts = [judging.without_verdict(part, sandbox, trouble=trouble) for part in exercise.parts]
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    seconds = time.monotonic() - began
    who = (handed.student, handed.exercise, digest, __version__, now)
    return Graded(*who, tuple(parts), seconds, unreadable, tuple(remarks), handed.number)


def _still_holds(earlier: Graded, handed: HandedIn) -> bool:
    if earlier.trouble or earlier.course != __version__ or not earlier.digest:
        return False
    try:
        return submission.digest(handed.path) == earlier.digest
    except FolderError:
        return False


def _seconds_left(arrived: Sequence[float], total: int, at_once: int) -> float | None:
    """By the pace since the first result: before it the sandboxes started, and as many as are at work come together."""
    if len(arrived) <= at_once:
        return None
    pace = (arrived[-1] - arrived[0]) / (len(arrived) - 1)
    return pace * (total - len(arrived))


def _graded(waiting: Sequence[HandedIn], at_once: int) -> Generator[Graded, None, None]:
    """The results as they come; when this is closed, all has ended."""
    todo: queue.SimpleQueue[HandedIn] = queue.SimpleQueue()
    done: queue.SimpleQueue[Graded] = queue.SimpleQueue()
    for each in waiting:
        todo.put(each)
    sandboxes = [Sandbox() for _ in range(min(at_once, len(waiting)))]
    stopped = threading.Event()
    threads = [threading.Thread(target=_work, args=(todo, done, each, stopped), daemon=True) for each in sandboxes]
    try:
        for thread in threads:
            thread.start()
        for _ in waiting:
            yield done.get()
    finally:
        stopped.set()
        stopping = [threading.Thread(target=sandbox.stop, daemon=True) for sandbox in sandboxes]
        for thread in stopping:
            thread.start()
        deadline = time.monotonic() + SECONDS_TO_STOP
        for thread in (*stopping, *threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _work(
    todo: queue.SimpleQueue[HandedIn], done: queue.SimpleQueue[Graded], sandbox: Sandbox, stopped: threading.Event
) -> None:
    while not stopped.is_set():
        try:
            handed = todo.get_nowait()
        except queue.Empty:
            return
        graded = grade_one(handed, sandbox)
        if not stopped.is_set():
            done.put(graded)


def _workers() -> int:
    """As many submissions at once as keep the cores busy, and as there is memory for: most of a run is waiting."""
    return max(1, min(3 * core_count(), psutil.virtual_memory().available // MEMORY))

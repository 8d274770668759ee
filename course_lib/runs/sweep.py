"""Make the runs of a sweep, one after the other, and take up from where an earlier call ended."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, CourseError, FolderError
from course_lib.runs import store
from course_lib.runs.folder import FINISHED, FORMAT, RUNNING, RunFolder, check_name, read_json, write_json
from course_lib.runs.functions import TrainFunction, full_name
from course_lib.runs.launch import launch, prepare, trainer_of, with_hardware
from course_lib.runs.pace import Pace
from course_lib.runs.plan import Planned, Sweep
from course_lib.runs.run import Run
from course_lib.runs.torchrun import JoinedRun, started_by_torchrun
from course_lib.training import sources

__all__ = ["OnProgress", "Progress", "Sweep", "run_sweep"]

SECONDS_BETWEEN_LOOKS = 0.25
# A run whose launcher was killed ends by itself within this time.
SECONDS_TO_END = 15.0


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Fields:
        done, total: runs that are over, and all of them.
        failed: how many of those done did not finish.
        current: the name of the run that goes on; None between runs.
        fraction: how much of it is done, 0 to 1.
        seconds_left: for the whole sweep; None before anything is known.
        last_status: how the run before ended ("finished", "failed", ...); None before the first.
    """

    done: int
    total: int
    failed: int = 0
    current: str | None = None
    fraction: float = 0.0
    seconds_left: float | None = None
    last_status: str | None = None


OnProgress = Callable[[Progress], object]


def run_sweep(
    train: TrainFunction, sweep: Sweep, out: str | os.PathLike[str], on_progress: OnProgress | None = None
) -> pd.DataFrame:
    """Make the runs of a sweep in `out`, one at a time, and return them as `store.frame` does.

    What finished in an earlier call is not made again. What failed, was stopped or lost is tried again
    in a folder of its own (`...-try2`), and the earlier attempt stays. A run that fails does not
    stop the others. An interrupt, or an exception from `on_progress`, ends the run that goes on and
    the sweep; the next call takes up from there.

    Raises:
        UsageError: a run of the plan cannot be made here; nothing was started.
        DataError: the data is missing; nothing was started.
        FolderError: `out` cannot be written, holds something else, or another process sweeps there.
    """
    folder = Path(out).absolute()
    check_name(folder)
    # What "auto" comes to now holds for all of the sweep, also for what a later call adds.
    sweep = replace(sweep, base=with_hardware(sweep.base.with_(data=sources.locate(sweep.base.data).kind)))
    plan = sweep.plan(folder.name)
    trainer_of(train, sweep.base)
    if started_by_torchrun():
        raise ConfigError("torchrun starts one number of ranks, and a sweep needs several. Start the sweep without it.")
    prepared = [prepare(planned.config) for planned in plan[: len(plan) // sweep.repeats]]
    content = {"function": full_name(train), **sweep.to_dict()}
    with _claim(folder, content):
        _record(folder, content, plan)
        _Sweeping(train, folder, plan, prepared[0].images, on_progress).run()
        return store.frame(folder)


@contextmanager
def _claim(folder: Path, content: dict[str, Any]) -> Iterator[None]:
    """Hold a sweep's folder, so that no other process sweeps there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_other(folder, content)  # before the lock, which would be left in somebody else's folder
        lock = FileLock(folder / "sweep.lock")
        lock.acquire(blocking=False)
    except Timeout as error:
        raise FolderError(
            f"Another sweep goes on in {folder}. Wait until it ends, or choose another folder."
        ) from error
    except OSError as error:
        raise FolderError(f"Cannot write to {folder}: {error.strerror}. Choose another folder (--out).") from error
    try:
        yield
    finally:
        lock.release()


def _record(folder: Path, content: dict[str, Any], plan: list[Planned]) -> None:
    """Write sweep.json, or check that the one that is there is of the same sweep."""
    path = folder / "sweep.json"
    _refuse_other(folder, content)
    if path.exists():
        return
    try:
        write_json(path, {"format": FORMAT, "sweep": content, "runs": [planned.name for planned in plan]})
    except OSError as error:
        raise FolderError(f"Cannot write {path}: {error.strerror}. Choose another folder (--out).") from error


def _refuse_other(folder: Path, asked: dict[str, Any]) -> None:
    """Refuse a folder that holds another sweep, or something else."""
    path = folder / "sweep.json"
    if not path.exists():
        others = [name for name in os.listdir(folder) if name != "sweep.lock" and not name.startswith(".")]
        if others:
            raise FolderError(f"{folder} holds something else than a sweep ({others[0]}). Choose a new folder (--out).")
        return
    there = read_json(path).get("sweep")
    if not isinstance(there, dict):
        raise FolderError(f"{path} does not hold a sweep of this version. Choose a new folder (--out).")
    different = [
        f"{name} ({there.get(name)!r} there, {asked.get(name)!r} now)"
        for name in dict.fromkeys([*there, *asked])
        if there.get(name) != asked.get(name)
    ]
    if different:
        raise FolderError(
            f"{folder} holds another sweep. Different: {', '.join(different)}. "
            "Choose a new folder (--out), or ask for the same sweep to go on with it."
        )


@dataclass
class _Sweeping:
    """A sweep at work; `images` is the size of its training set."""

    train: TrainFunction
    folder: Path
    plan: list[Planned]
    images: int
    on_progress: OnProgress | None
    pending: list[Planned] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    measured: list[tuple[RunConfig, float]] = field(default_factory=list)

    def run(self) -> None:
        """Make every run that did not finish before."""
        for planned in self.plan:
            attempts = map(RunFolder, takewhile(os.path.lexists, _attempts(self.folder / planned.name)))
            done = next((attempt for attempt in attempts if _is_done(attempt, planned.config)), None)
            if done is None:
                self.pending.append(planned)
            else:
                self._note(planned, done)
        self._tell()
        while self.pending:
            planned = self.pending[0]
            path = next(path for path in _attempts(self.folder / planned.name) if not os.path.lexists(path))
            run = launch(self.train, planned.config, path, labels=planned.labels)
            self._watch(planned, run)
            del self.pending[0]
            self._note(planned, run.folder)
            self._tell()

    def _watch(self, planned: Planned, run: Run | JoinedRun) -> None:
        """Wait for a run, and tell how far it is; what ends the sweep ends the run too."""
        pace = Pace(planned.config.epochs, self.images)
        try:
            while not _over(run):
                pace.take(run.events())
                self._tell(planned, pace.fraction, pace.seconds)
        finally:
            run.stop()

    def _note(self, planned: Planned, attempt: RunFolder) -> None:
        self.statuses.append(_status(attempt))
        if self.statuses[-1] == FINISHED:
            self.measured.append((planned.config, store.seconds_of(attempt)))

    def _tell(self, current: Planned | None = None, fraction: float = 0.0, elapsed: float = 0.0) -> None:
        if self.on_progress is None:
            return
        known = [(current.config, elapsed / fraction)] if current and fraction and elapsed else []
        times = [expected_seconds(planned.config, self.measured or known) for planned in self.pending]
        left = None if None in times else sum(filter(None, times))
        if left and times[0] and current:
            left -= times[0] * fraction
        progress = Progress(
            done=len(self.statuses),
            total=len(self.plan),
            failed=sum(status != FINISHED for status in self.statuses),
            current=current.name if current else None,
            fraction=fraction,
            seconds_left=left,
            last_status=self.statuses[-1] if self.statuses else None,
        )
        self.on_progress(progress)


def _over(run: Run | JoinedRun) -> bool:
    """Wait a little for a run to end. How it ended, its folder tells."""
    try:
        run.wait(SECONDS_BETWEEN_LOOKS)
    except TimeoutError:
        return False
    except CourseError:
        pass
    return True


def expected_seconds(config: RunConfig, measured: list[tuple[RunConfig, float]]) -> float | None:
    """How long a run of a sweep will take, from others of it; None where there are none.

    The median over runs with the same ranks and batch; before there is one, over all, as if time
    were inverse to the number of processes.
    """
    like = [
        seconds
        for other, seconds in measured
        if (other.num_gpus, other.batch_size) == (config.num_gpus, config.batch_size)
    ]
    if like:
        return statistics.median(like)
    process_seconds = [other.processes * seconds for other, seconds in measured]
    return statistics.median(process_seconds) / config.processes if process_seconds else None


def _attempts(path: Path) -> Iterator[Path]:
    """The folders of the first attempt at a run, the second, and so on, whether they are there or not."""
    yield path
    yield from (path.with_name(f"{path.name}-try{number}") for number in count(2))


def _is_done(attempt: RunFolder, config: RunConfig) -> bool:
    """Whether an attempt finished, with the config of the plan and all its files readable.

    Raises:
        FolderError: it still goes on.
    """
    deadline = time.monotonic() + SECONDS_TO_END
    while (status := _status(attempt)) == RUNNING:
        if time.monotonic() > deadline:
            raise FolderError(
                f"The run in {attempt.path} still goes on. Stop it, or wait until it ends, and try again."
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)
    try:
        return status == FINISHED and attempt.read_config()[0] == config and store.seconds_of(attempt) >= 0
    except FolderError:
        return False


def _status(attempt: RunFolder) -> str:
    try:
        return attempt.status()
    except (FolderError, OSError):
        return store.UNREADABLE

"""One experiment of the Scaling Lab at a time: its runs are made in the background, each with a folder of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from course_lib.config import RunConfig
from course_lib.errors import CourseError, FolderError, UsageError
from course_lib.lab.panel.choices import Choices
from course_lib.runs import devices
from course_lib.runs.folder import FINISHED
from course_lib.runs.functions import TrainFunction
from course_lib.runs.launch import prepare
from course_lib.runs.plan import Sweep
from course_lib.runs.sweep import Progress, run_sweep
from course_lib.scaling.speedup import SAME_FOR_SPEED, alike

LOCK = ".lab.lock"  # held in the folder while an experiment goes on there, in this program or another
# What a run on one rank must have in common with another to be its baseline, of what a config says.
SAME_IN_CONFIG = [name for name in (*SAME_FOR_SPEED, "batch_size") if name in RunConfig.__dataclass_fields__]
SWEPT = ("num_gpus", "batch_size", "lr")  # what can be swept over


class Experiment(threading.Thread):
    """The runs of one click on Run or Sweep, made one after the other in a thread; the kernel stays free.

    Attributes:
        folder: where the runs are, each experiment's in a folder of its own.
        progress: how far it is, over all its runs.
        error: why it ended before its time; empty if it did not.
    """

    def __init__(self, train: TrainFunction, sweeps: Sequence[Sweep], folder: Path, name: str, lock: FileLock) -> None:
        super().__init__(name=f"experiment {name}", daemon=True)
        self.folder = folder
        self.progress = Progress(0, sum(len(sweep.plan("")) for sweep in sweeps))
        self.error = ""
        # Where there are several sweeps, each has a folder.
        places = [name] if len(sweeps) == 1 else [f"{name}-{place}" for place in range(1, len(sweeps) + 1)]
        self._sweeps = dict(zip((folder / place for place in places), sweeps, strict=True))
        self._train, self._lock = train, lock
        self._stopping = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stopping.is_set()

    @property
    def run_path(self) -> Path | None:
        """The folder of the run that goes on."""
        current = self.progress.current  # read once: the thread may go on to another
        return self._out / current if current else None

    def holds(self, path: str) -> bool:
        """Whether the run in this folder is one of its own."""
        return Path(path).parent in self._sweeps

    def stop(self) -> None:
        """Have the run that goes on ended, and make no more; returns at once."""
        self._stopping.set()

    def run(self) -> None:
        """Make the runs. Thread.start calls this."""
        try:
            for out, sweep in self._sweeps.items():
                self._out, self._before = out, self.progress
                run_sweep(self._train, sweep, out, self._take)
        except _Stopped:
            pass
        except CourseError as error:
            self.error = str(error)
        except Exception as error:  # in a thread, nobody else would see it
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._lock.release()

    def _take(self, progress: Progress) -> None:
        """Note how far it is, with the sweeps before counted in."""
        done, failed = self._before.done + progress.done, self._before.failed + progress.failed
        self.progress = replace(progress, done=done, total=self.progress.total, failed=failed)
        if self._stopping.is_set() and done < self.progress.total:
            raise _Stopped


class _Stopped(Exception):
    """Leaves `run_sweep`, which ends the run that goes on."""


def begin(train: TrainFunction, sweeps: Sequence[Sweep], folder: Path, what: str) -> Experiment:
    """Start an experiment; returns at once. `what` is part of the name of its folder.

    Raises:
        UsageError: one goes on in this folder already, or the folder cannot be written; nothing was started.
    """
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UsageError(
            "An experiment goes on in this folder already. Wait until it ends, or stop it where it began."
        ) from error
    except OSError as error:
        raise FolderError(f"Cannot write to {folder}: {error.strerror}. Choose another folder.") from error
    try:
        experiment = Experiment(train, sweeps, folder, _new_name(folder, what), lock)
        experiment.start()
    except BaseException:
        lock.release()
        raise
    return experiment


def at_work(folder: Path) -> Experiment | None:
    """The experiment that this program makes in a folder now, whoever began it: a panel that is gone, perhaps."""
    alive = (thread for thread in threading.enumerate() if isinstance(thread, Experiment))
    return next((experiment for experiment in alive if experiment.folder == folder), None)


def _new_name(folder: Path, what: str) -> str:
    """A name that says when and what, and that no experiment has."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"
    names = (name if number == 1 else f"{name}-again{number}" for number in count(1))
    return next(name for name in names if not any(folder.glob(f"{name}*")))


def single(choices: Choices, guess: float | None, frame: pd.DataFrame) -> list[Sweep]:
    """The run that was chosen, and before it the one on one rank that it is compared with, if there is none yet.

    Raises:
        UsageError: a choice is impossible; says which.
        DataError: the data is missing or damaged.
    """
    guesses = {} if guess is None else {choices.num_gpus: guess}
    chosen = choices.sweep((choices.num_gpus,), guesses)
    if not needs_baseline(choices, frame):
        return [chosen]
    if choices.num_nodes == 1:
        return [choices.sweep((1, choices.num_gpus), guesses)]
    return [choices.with_(num_gpus=1, num_nodes=1).sweep((1,)), chosen]


def swept(choices: Choices, over: str, values: Sequence[Any], guess: float | None) -> list[Sweep]:
    """The sweep over the values of one of `SWEPT`.

    Raises:
        UsageError, DataError: as `single`.
    """
    guesses = {} if guess is None else {choices.num_gpus: guess}
    if over == "num_gpus":
        return [choices.sweep(values, guesses)]
    changes: dict[str, Any] = {over: tuple(values)}
    return [replace(choices.sweep((choices.num_gpus,), guesses), **changes)]


def needs_baseline(choices: Choices, frame: pd.DataFrame) -> bool:
    """Whether a frame of runs (see store.py) has no run on one rank of this machine to compare the chosen one with.

    Raises:
        UsageError, DataError: as `single`.
    """
    if choices.num_gpus * choices.num_nodes == 1:
        return False
    prepared = prepare(choices.with_(num_gpus=1, num_nodes=1).config())
    here = {"timing": devices.timing_of(prepared.places[0]), "cores": devices.core_count(), "cpu": devices.cpu_name()}
    runs = frame[(frame["status"] == FINISHED) & (frame["world_size"] == 1)]
    runs = alike(runs, here | vars(prepared.config), [*here, *SAME_IN_CONFIG])
    return not ((runs["scaling"] == "strong") == (choices.scaling == "strong")).any()

"""The runs in a folder, as they come and go: read again only where files did."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from course_lib.errors import CourseError, FolderError
from course_lib.runs import store
from course_lib.runs.folder import RUNNING, RunFolder, check_name, working_folder

SHARE_FOR_LOOKING = 0.005  # of one core: what is looked for must not slow what is measured
SECONDS_BETWEEN_LOOKS = 0.5, 10.0  # at least and at most


class RunsFolder:
    """The runs below a folder, which may not be there yet.

    Attributes:
        path: the folder.
        frame: the runs, as of the last `look`, in the order in which they began; one row a run, see store.py.
        running: the folders of those that go on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(working_folder(), path)
        check_name(self.path)
        self.frame = pd.DataFrame(columns=[*store.RUN_COLUMNS])
        self.running: list[str] = []
        self._marks: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._look_again_at = 0.0

    @property
    def shown(self) -> Path:
        """The path as people read it: from the working folder where it lies below, so that no notebook keeps more."""
        here = Path.cwd()
        return self.path.relative_to(here) if self.path.is_relative_to(here) else self.path

    def look(self, now: bool = False) -> bool:
        """Read the runs again if any came, went or ended; whether that was so. Without `now`, not too often."""
        if not now and time.monotonic() < self._look_again_at:
            return False
        began = time.thread_time()
        marks = _marks(self.path)
        changed = marks != self._marks or any(_status(path) != RUNNING for path in self.running)
        if changed:
            self._marks = marks
            self._read()
        least, most = SECONDS_BETWEEN_LOOKS
        taken = (time.thread_time() - began) / SHARE_FOR_LOOKING
        self._look_again_at = time.monotonic() + min(most, max(least, taken))
        return changed

    def _read(self) -> None:
        try:
            frame = store.frame(self.path)
        except FolderError:  # it is not there yet, or no longer
            frame = self.frame[:0]
        for path in sorted({*frame["path"]} - self._numbers.keys(), key=_began):
            self._numbers[path] = len(self._numbers) + 1
        frame = frame.sort_values("path", key=lambda paths: paths.map(self._numbers), ignore_index=True)
        self.frame, self.running = frame, list(frame.loc[frame["status"] == RUNNING, "path"])

    def number(self, path: str) -> int | None:
        """The number that people know a run by, the same as long as this object is there; None before it was read."""
        return self._numbers.get(path)

    def name(self, path: str) -> str:
        """What people call a run."""
        return f"Run {self.number(path) or ''}".rstrip()

    def delete(self, paths: Iterable[str]) -> None:
        """Remove runs and all that they recorded.

        Raises:
            FolderError: one still goes on, is none of this folder's, or cannot be removed.
        """
        for path in paths:
            if not self.frame["path"].eq(path).any():
                raise FolderError(f"{path} is none of the runs in {self.path}.")
            if _status(path) == RUNNING:
                raise FolderError(f"Run {self.number(path)} still goes on. Stop it first.")
            try:
                shutil.rmtree(path)
            except OSError as error:
                raise FolderError(f"Cannot delete {path}: {error.strerror}.") from error
        self.look(now=True)


def _began(path: str) -> tuple[float, str]:
    """What sorts runs by the time when they began."""
    try:
        return RunFolder(path).config.stat().st_mtime, path
    except OSError:
        return 0.0, path


def _status(path: str) -> str:
    try:
        return RunFolder(path).status()
    except (OSError, CourseError):
        return store.UNREADABLE


def _marks(folder: str | os.PathLike[str]) -> dict[str, int]:
    """When files last came, went or were replaced in each folder below: what is added to a file does not count."""
    marks: dict[str, int] = {}
    pending = [os.fspath(folder)]
    while pending:
        path = pending.pop()
        try:
            with os.scandir(path) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            marks[path] = os.stat(path).st_mtime_ns
        except OSError:
            continue
        pending += below
    return marks

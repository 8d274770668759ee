"""A run as its folder tells of it, whoever launched it: this program, another one, or a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, FolderError, RankError, RunError, RunStopped
from course_lib.runs.folder import FAILED, FINISHED, LOST, RUNNING, STOPPED, RunFolder, read_json
from course_lib.training import sources


class FoundRun:
    """A run that was found in a folder. It can be watched as a `Run` can, but not be stopped.

    Attributes:
        config: what was asked for.
        labels: what the run is part of.
        folder: its files.
        images: how many images an epoch of the training set has.

    Raises:
        FolderError: no run is here, or another version wrote it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = RunFolder(path)
        self.config, self.labels = self.folder.read_config()
        self.images = self.config.train_samples or sources.train_size_of(self.config.data)

    @property
    def path(self) -> Path:
        """The folder of this run."""
        return self.folder.path

    @property
    def status(self) -> str:
        """How far it is: "running", "finished", "failed", "stopped" or "lost"."""
        try:
            names = os.listdir(self.path)
            status = self.folder.status(names)
        except (OSError, FolderError):  # it was deleted, or is damaged
            return LOST
        # The last rank may still write, and of a failed run the launcher has yet to say which rank is to blame.
        judged = self.folder.failure.name in names
        return RUNNING if status in (FINISHED, FAILED) and not judged and self.folder.launcher_alive() else status

    def wait(self, timeout: float | None = None) -> Any:
        """What rank 0 returned; a run that goes on is not waited for.

        Raises:
            CourseError: the run failed, was stopped, or was lost.
            TimeoutError: it goes on.
        """
        status = self.status
        if status == RUNNING:
            raise TimeoutError(f"The run in {self.path} still goes on.")
        if status == FINISHED:
            return read_json(self.folder.result).get("value")
        raise self._error(status)

    def _error(self, status: str) -> CourseError:
        if status == LOST:
            return RunError("The program that launched it was killed before the run had ended.")
        try:
            told = read_json(self.folder.failure)
        except FolderError:
            return RunError("A rank failed, and the program that launched it was killed before it could say why.")
        message = str(told.get("message"))
        if status == STOPPED:
            return RunStopped(message)
        rank = told.get("rank")
        return RankError(message, rank if isinstance(rank, int) else 0, str(told.get("traceback") or ""))

"""Whether a run had the machine for itself: two at once disturb each other's clock.

Each run holds a lock of its own, in a folder that the runs of one user share.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from course_lib.runs.folder import RunFolder, write_json

NOT_KNOWN = "it is not known whether another run went on at the same time"
NOT_ALONE = "another run went on at the same time"


class Measuring:
    """Held while a run goes on. What spoils its times as a measurement of speed is recorded with it.

    A simulated run spoils the times of others, and has none that could be spoiled.
    """

    def __init__(self, folder: RunFolder, caveats: list[str], simulated: bool = False) -> None:
        self._folder = folder
        self._simulated = simulated
        self._caveats = list(caveats)
        self._mine: Path | None = None
        self._held = contextlib.ExitStack()
        try:
            self._claim()
        except OSError:  # the temporary folder is full, another's, or something else is there
            self._caveats.append(NOT_KNOWN)
        self._write()

    def _claim(self) -> None:
        shared = Path(tempfile.gettempdir()) / f"ddp-course-runs-{os.getuid()}"
        shared.mkdir(exist_ok=True)
        self._mine = shared / f"{uuid.uuid4().hex}.lock"
        self._held.callback(_remove, self._mine)
        self._held.enter_context(FileLock(self._mine, thread_local=False))
        others = [path for path in shared.glob("*.lock") if path != self._mine and _is_held(path)]
        for other in others:
            _disturbed(other).touch()
        if others:
            self._caveats.append(NOT_ALONE)

    def end(self) -> None:
        """Leave the machine to others."""
        if self._mine and _disturbed(self._mine).exists() and NOT_ALONE not in self._caveats:
            self._caveats.append(NOT_ALONE)
            self._write()
        with contextlib.suppress(OSError):
            self._held.close()

    def _write(self) -> None:
        if self._simulated or not self._caveats:
            return
        with contextlib.suppress(OSError):
            write_json(self._folder.caveats, {"speed_caveats": self._caveats})


def _disturbed(lock: Path) -> Path:
    """Made by a run that finds this one going on, for this one to see when it ends."""
    return lock.with_suffix(".disturbed")


def _is_held(lock: Path) -> bool:
    """Whether the run with this lock still goes on; what a killed one left is removed."""
    other = FileLock(lock)
    try:
        other.acquire(blocking=False)
    except Timeout:
        return True
    other.release()
    _remove(lock)
    return False


def _remove(lock: Path) -> None:
    lock.unlink(missing_ok=True)
    _disturbed(lock).unlink(missing_ok=True)

"""Whether a run had the machine for itself: two at once disturb each other's clock."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

from course_lib.runs.folder import RunFolder, write_json


class Measuring:
    """Held while a run goes on. What spoils its times as a measurement of speed is recorded with it."""

    def __init__(self, folder: RunFolder, caveats: list[str]) -> None:
        self._folder = folder
        self._caveats = list(caveats)
        self._began = time.time()
        shared = Path(tempfile.gettempdir())
        self._lock = FileLock(shared / f"ddp-course-{os.getuid()}.lock", thread_local=False)
        # Touched by a run that finds another one going on, for that one to see when it ends.
        self._disturbed = shared / f"ddp-course-{os.getuid()}.disturbed"
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            self._disturbed.touch()
            self._caveats.append("another run went on at the same time")
        self._write()

    def end(self) -> None:
        """Let the next run measure."""
        if not self._lock.is_locked:
            return
        if self._disturbed.exists() and self._disturbed.stat().st_mtime > self._began:
            self._caveats.append("another run went on at the same time")
            self._write()
        self._lock.release()

    def _write(self) -> None:
        if not self._caveats:
            return
        with contextlib.suppress(OSError):
            write_json(self._folder.caveats, {"speed_caveats": self._caveats})

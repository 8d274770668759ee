"""A run that was launched: watch it, wait for it, stop it, and find out why it failed."""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from course_lib.config import RunConfig
from course_lib.errors import CourseError, FolderError, LaunchError, RankError, RunStopped, WriteError
from course_lib.runs.events import EventReader
from course_lib.runs.folder import FAILED, FINISHED, RUNNING, STOPPED, RunFolder, read_json
from course_lib.runs.launcher import ForkServer
from course_lib.runs.verdict import GRACE_SECONDS, Ranks, time_limit_passed, verdict

MAX_LOG_BYTES = 20 * 2**20
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_KILL = 5.0  # that the server may take over it


class Run:
    """A run in progress or over. A thread of this process supervises it; `wait` only waits.

    Attributes:
        config: what was asked for.
        folder: its files.
        images: how many images an epoch of the training set has.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        server: ForkServer,
        request: dict[str, Any],
        images: int,
        time_limit: float | None,
        on_end: Callable[[], None],
    ) -> None:
        self.config = config
        self.folder = folder
        self.images = images
        self._server = server
        self._time_limit = time_limit
        self._on_end = on_end
        self._name = str(folder.path)
        self._reader = EventReader(folder.path)
        self._stop = threading.Event()
        self._over = threading.Event()
        self._error: CourseError | None = None
        self._lock = FileLock(folder.launcher_lock, thread_local=False)
        self._lock.acquire()
        try:
            self._notices = server.start(self._name, request)
            threading.Thread(target=self._supervise, name=f"run {folder.path.name}", daemon=True).start()
        except BaseException:
            with contextlib.suppress(LaunchError):
                server.kill(self._name)
            self._release()
            raise

    def __repr__(self) -> str:
        return f"Run({self._name!r}, {self.status})"

    @property
    def path(self) -> Path:
        """The folder of this run."""
        return self.folder.path

    @property
    def status(self) -> str:
        """How far it is: "running", "finished", "failed" or "stopped"."""
        if not self._over.is_set():
            return RUNNING
        if self._error is None:
            return FINISHED
        return STOPPED if isinstance(self._error, RunStopped) else FAILED

    def wait(self, timeout: float | None = None) -> Any:
        """What rank 0 returned, once all ranks have.

        An interrupt (Ctrl-C, or the notebook's Stop button) stops the run.

        Raises:
            CourseError: the run failed or was stopped; which one says why.
            TimeoutError: it goes on after `timeout` seconds.
        """
        try:
            if not self._over.wait(timeout):
                raise TimeoutError(f"{self._name} still runs after {timeout} s. Wait longer, or stop it with .stop().")
        except KeyboardInterrupt:
            self.stop()
            raise
        if self._error is not None:
            raise self._error
        return read_json(self.folder.result)["value"]

    def stop(self) -> None:
        """End the run now; what it recorded stays. Returns when no process of it is left."""
        self._stop.set()
        self._over.wait()

    def events(self) -> list[dict[str, Any]]:
        """What the ranks reported since the last call; nothing where the folder is gone, which `wait` tells."""
        try:
            return self._reader.read_new()
        except FolderError:
            if self.path.is_dir():
                raise
            return []

    def log(self, rank: int = 0) -> str:
        """What a rank printed so far."""
        path = self.folder.log(rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def _supervise(self) -> None:
        try:
            self._error = self._watch()
        except Exception as error:  # whoever waits must hear of it
            self._end_ranks()
            self._error = error if isinstance(error, CourseError) else LaunchError(f"The run was lost: {error!r}")
        try:
            if self._error is not None:
                with contextlib.suppress(OSError):  # on a full disk, `wait` still raises it
                    self.folder.write_failure(self._error)
            self._release()
            self._on_end()
        finally:
            self._over.set()

    def _end_ranks(self) -> None:
        """Kill the ranks, whatever the notices say, and return when they are gone."""
        with contextlib.suppress(LaunchError):
            self._server.kill(self._name)
        try:
            while self._notices.get(timeout=SECONDS_TO_KILL)["is"] not in ("over", "lost"):
                pass
        except queue.Empty:
            self._server.destroy()

    def _release(self) -> None:
        """Let go of the lock that says that the run goes on."""
        self._lock.release()
        with contextlib.suppress(OSError):
            self.folder.launcher_lock.unlink(missing_ok=True)

    def _watch(self) -> CourseError | None:
        """Follow the ranks until the last one is gone.

        Returns:
            Why the run did not finish; None if it did.
        """
        ranks = Ranks(self.config.processes)
        began = time.monotonic()
        reason: CourseError | None = None
        kill_at = give_up_at = float("inf")
        while True:
            with contextlib.suppress(queue.Empty):
                notice = self._notices.get(timeout=SECONDS_BETWEEN_LOOKS)
                if notice["is"] == "over":
                    return reason or verdict(self.folder, ranks)
                if notice["is"] == "lost":
                    shutil.rmtree(ranks.meeting_folder, ignore_errors=True)
                    return reason or LaunchError(f"{_SERVER_DIED} {self._server.errors()}".rstrip())
                if notice["is"] == "refused":
                    reason = LaunchError(f"The system would not start {self.config.processes} ranks: {notice['why']}.")
                ranks.note(notice)
            if reason is None and not ranks.killed:
                reason = self._reason_to_end(time.monotonic() - began, ranks)
                if reason is not None:
                    kill_at = 0.0
                elif ranks.failed:
                    kill_at = min(kill_at, time.monotonic() + GRACE_SECONDS)
            if time.monotonic() > kill_at and not ranks.killed:
                if reason is None:
                    self._ask_where_they_are(ranks)
                ranks.killed = ranks.alive
                self._server.kill(self._name)
                give_up_at = time.monotonic() + SECONDS_TO_KILL
            elif time.monotonic() > give_up_at:  # somebody stopped the server (SIGSTOP); its ranks die with it
                self._server.destroy()

    def _reason_to_end(self, seconds: float, ranks: Ranks) -> CourseError | None:
        """Why the run must end although no rank failed."""
        if self._stop.is_set():
            return RunStopped(f"The run was stopped after {seconds:.1f} s. What it recorded is in {self._name}.")
        if self._time_limit is not None and seconds > self._time_limit:
            self._ask_where_they_are(ranks)
            return time_limit_passed(self.folder, ranks, self._time_limit)
        if not self.path.is_dir():
            return WriteError(f"{self._name} was removed while its run went on, so the run was stopped.")
        for rank in range(self.config.processes):
            if _size(self.folder.log(rank)) > MAX_LOG_BYTES:
                return RankError(
                    f"Rank {rank} of {self.config.processes} printed more than {MAX_LOG_BYTES / 2**20:.0f} MiB, "
                    "so the run was stopped. Print less: once an epoch is enough, and worker.report records figures.",
                    rank,
                )
        return None

    def _ask_where_they_are(self, ranks: Ranks) -> None:
        """Have the ranks that still run write their stacks, for the verdict."""
        for rank in ranks.running:
            self._server.dump(self._name, rank)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(_size(self.folder.stack(rank)) == 0 for rank in ranks.running) and time.monotonic() < deadline:
            time.sleep(0.01)


_SERVER_DIED = (
    "The process that starts the ranks died, and the ranks with it. It may have been killed for want of memory. "
    "Launch again: a new one is started."
)


def _size(path: Path) -> int:
    """Bytes in a file; 0 where it is not there, or cannot be asked for now."""
    try:
        return path.stat().st_size
    except OSError:
        return 0

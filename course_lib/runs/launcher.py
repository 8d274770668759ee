"""The launcher's end of the fork server: one for each process that launches runs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from typing import Any

from course_lib.errors import LaunchError

_current: ForkServer | None = None
_current_lock = threading.Lock()


def fork_server() -> ForkServer:
    """The fork server of this process, started if it is not there yet or no longer.

    This is the only state that the library keeps in a module: a server takes seconds to start and
    serves every run of its process.
    """
    global _current
    with _current_lock:
        if _current is None or not _current.alive:
            _current = ForkServer()
        return _current


class ForkServer:
    """A running server (see server.py); starting one returns at once."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.runs.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # an interrupt of the notebook's kernel is not for the server
            env=_server_environment(),
        )
        self._owner = os.getpid()
        self._runs: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._gone = False
        self.ready = threading.Event()
        threading.Thread(target=self._deliver, name="fork-server", daemon=True).start()
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        """Whether this process started it and it still serves."""
        return not self._gone and self._owner == os.getpid()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def start(self, run: str, request: dict[str, Any]) -> queue.Queue[dict[str, Any]]:
        """Start the ranks of a run.

        Returns:
            The notices on that run as they come; the last one is "over", or "lost" when the server died.

        Raises:
            LaunchError: the server is gone.
        """
        notices: queue.Queue[dict[str, Any]] = queue.Queue()
        with self._lock:
            self._runs[run] = notices
        self._ask({"do": "start", "run": run, **request})
        return notices

    def kill(self, run: str) -> None:
        """Kill all ranks of a run, and what they started."""
        self._ask({"do": "kill", "run": run})

    def destroy(self) -> None:
        """End a server that no longer answers; the kernel ends its ranks."""
        self._process.kill()

    def dump(self, run: str, rank: int) -> None:
        """Have a rank write where it is."""
        self._ask({"do": "dump", "run": run, "rank": rank})

    def errors(self) -> str:
        """What the server printed."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End the server and every rank."""
        if self._owner != os.getpid():
            return  # a fork of the process that started it
        with self._lock:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.close()
            if not self.ready.is_set():  # it is still importing and has no ranks yet: do not wait for it
                self._process.kill()
        with contextlib.suppress(KeyboardInterrupt):  # at exit there is nothing left to interrupt
            self._process.wait()

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise LaunchError(f"The process that starts the ranks is gone. It printed: {self.errors()}") from error

    def _deliver(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            notice = json.loads(line)
            if notice["is"] == "ready":
                self.ready.set()
                continue
            with self._lock:
                notices = self._runs[notice["run"]]
                if notice["is"] == "over":
                    del self._runs[notice["run"]]
            notices.put(notice)
        self._gone = True
        self.ready.set()
        with self._lock:
            for notices in self._runs.values():
                notices.put({"is": "lost"})
            self._runs.clear()
        self._process.wait()


# Keep the memory of a step for the next one. By default malloc returns large tensors to the system each time, and the
# system hands them out again page by page, which took a fifth of a step. (Read by glibc; other systems ignore it.)
_KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.hugetlb=1"


def _server_environment() -> dict[str, str]:
    return {
        **os.environ,
        # Where this process finds its modules, the server does too.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _KEEP_MEMORY),
        # No pool of threads before the fork.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # Where a process takes several cores, and another program one of them, threads that spin while they wait for
        # each other make it ten times as slow.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        # Counting GPUs must not initialise CUDA, which does not survive a fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # macOS refuses to run its own libraries in a fork otherwise.
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
    }

"""Looking at processes, and waiting for things to happen."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from course_lib.runs.launcher import fork_server


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something comes to hold within `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def ranks_left() -> list[psutil.Process]:
    """The processes that runs of this process have left behind."""
    return psutil.Process(fork_server().pid).children(recursive=True)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

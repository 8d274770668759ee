"""The processes below this one: counted and killed, however they tried to get away."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36  # from linux/prctl.h


def adopt_orphans() -> None:
    """Become the parent of every process below whose own parent ends: none leaves by a second fork (on Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Be killed when the parent ends, and not when it becomes another program (on Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def close_memory(closed: bool = True) -> None:
    """Keep other processes of this user from reading or changing the memory of this one and its forks (on Linux)."""
    _prctl(_PR_SET_DUMPABLE, int(not closed))


def limits() -> list[Any]:
    """What the kernel grants this process; others of its user can change it, and forks inherit it."""
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    granted: list[Any] = [resource.getrlimit(getattr(resource, name)) for name in names]
    granted.append(os.getpriority(os.PRIO_PROCESS, 0))
    if sys.platform == "linux":
        granted += [os.sched_getaffinity(0), os.sched_getscheduler(0)]
    return granted


def descendants() -> list[psutil.Process]:
    """All processes below this one that have not ended."""
    return [each for each in psutil.Process().children(recursive=True) if _lives(each)]


def threads(processes: list[psutil.Process]) -> int:
    """How many these processes have."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.num_threads()
    return total


def resident_bytes(processes: list[psutil.Process]) -> int:
    """The memory that these processes have, without what comes from files; what they share counts for each."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            total += _resident_bytes(process)
    return total


def _resident_bytes(process: psutil.Process) -> int:
    if sys.platform != "linux":
        return process.memory_info().rss
    lines = Path(f"/proc/{process.pid}/status").read_bytes().splitlines()
    sizes = [line.split()[1] for line in lines if line.startswith((b"RssAnon:", b"RssShmem:"))]
    return sum(map(int, sizes)) << 10


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """What these processes, and their children that ended, have used of the processors."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def any_wants_to_run(processes: list[psutil.Process]) -> bool:
    """Whether a thread of these processes runs, or would if there were a processor or a disk for it (on Linux)."""
    for process in processes:
        for thread in Path(f"/proc/{process.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # it has ended
                state = thread.read_text(errors="replace").rpartition(") ")[2][:1]  # see proc_pid_stat(5)
                if state in ("R", "D"):
                    return True
    return False


def proportional_bytes(processes: list[psutil.Process]) -> int:
    """The memory that these processes have, where each has its part of what a fork left to several (on Linux).

    `resident_bytes` is never less, and takes a tenth of the time.
    """
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total


def connected(pids: set[int]) -> set[int] | None:
    """Those of these processes that have a TCP connection to another one; None where the system does not say."""
    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    ends = {(each.laddr.port, each.raddr.port): each.pid for each in found if each.raddr and each.pid in pids}
    return {pid for (near, far), pid in ends.items() if pid is not None and ends.get((far, near), pid) != pid}


def kill_descendants(seconds: float = 5.0) -> bool:
    """Kill all processes below this one, and those that they start meanwhile; whether none is left."""
    deadline = time.monotonic() + seconds
    while processes := descendants():
        # First all are stopped: one that runs on could start others as fast as they are killed.
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    act(process)
        reap()
        if time.monotonic() > deadline:
            return False
    reap()
    return True


def reap() -> dict[int, int]:
    """The exit codes of the children that ended; negative: killed by that signal."""
    codes = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

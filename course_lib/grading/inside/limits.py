"""When a job is over that does not end by itself: its limits of time, memory and processes."""

from __future__ import annotations

import time

import psutil

from course_lib.grading.inside import processes

QUIET_TICKS = 14  # looks in a row that find all processes waiting: for ever, then. A loaded machine looks less often
IDLE_SECONDS = 0.1  # of the processor, in all these ticks and of all processes: less than this is waiting
MOST_PROCESSES, MOST_THREADS = 64, 1024
CPU_SECONDS_TO_LOAD = 4.0  # more for each process that the programs started: a new Python loads torch
SECONDS_BETWEEN_LOOKS = 0.5  # at memory, close ones


class Limits:
    """What the processes of a job may take together: `seconds`, `cpu_seconds`, and `memory` in bytes."""

    def __init__(self, seconds: float, cpu_seconds: float, memory: int) -> None:
        self._seconds, self._cpu_seconds, self._memory = seconds, cpu_seconds, memory
        self._began = time.monotonic()
        self._quiet, self._heard, self._used = 0, 0, 0.0
        self._next_look = 0.0

    def reached(self, below: list[psutil.Process], told: int, started: int) -> str:
        """Which limit these processes have reached; "" if none.

        They told so many bytes until now, and so many of them were started by the programs.
        """
        now = time.monotonic()
        if len(below) > MOST_PROCESSES or processes.threads(below) > MOST_THREADS:
            return "processes"
        if self._is_too_large(below, now):
            return "memory"
        used = processes.cpu_seconds(below)
        if self._heard != told or abs(used - self._used) > IDLE_SECONDS:
            self._quiet, self._heard, self._used = 0, told, used
        self._quiet += 1
        late = now - self._began > self._seconds or used > self._cpu_seconds + started * CPU_SECONDS_TO_LOAD
        # On a machine with too much to do, a process that does nothing may be waiting for its turn.
        waiting = self._quiet > QUIET_TICKS and not processes.any_wants_to_run(below)
        return "time" if late or waiting else ""

    def _is_too_large(self, below: list[psutil.Process], now: float) -> bool:
        """Whether they have too much memory: a coarse look at each time, and a closer one now and then."""
        if processes.resident_bytes(below) <= self._memory or now < self._next_look:
            return False
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        return processes.proportional_bytes(below) > self._memory

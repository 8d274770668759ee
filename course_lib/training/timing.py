"""How long each phase of a training step takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from course_lib.config import untimed_steps

PHASES = ("data", "forward", "backward", "optimizer")


class Stopwatch:
    """Times the phases of each step.

    On a GPU the work is only queued when a line of Python is done, so the phases are measured by CUDA
    events, which the GPU reaches in its own time; reading them waits until it has.

    Args:
        device: where it trains.
        seconds_before: how long the run had trained before it was stopped and resumed.
        clock: what tells the time on a CPU, in seconds.
    """

    def __init__(
        self, device: torch.device, seconds_before: float = 0.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._on_gpu = device.type == "cuda"
        self._clock = clock
        self._began = clock() - seconds_before
        self._wall_clock = time.time(), self._now()  # one moment on both clocks
        self._steps: list[StepTimes] = []

    def start(self) -> None:
        """The first step of an epoch begins; each later one begins where the one before it ended.

        So what is done between two steps, reporting too, counts as time of the next one.
        """
        self._step = StepTimes(self._now())

    def lap(self, phase: str) -> None:
        """A phase ends: all since the last lap belongs to it."""
        self._step.laps.append((phase, self._now()))

    def end_step(self, samples: int) -> dict[str, Any]:
        """The times of the step as a report takes them; the next step begins.

        Args:
            samples: images in the step, over all ranks.
        """
        step = self._step
        step.samples = samples
        self._steps.append(step)
        self._step = StepTimes(step.laps[-1][1])  # before its laps are read, and gone
        readings: dict[str, Any] = step.readings(*self._wall_clock)
        if not self._on_gpu:
            readings = {name: reading.item() for name, reading in readings.items()}
        return {"samples": samples, **readings}

    def seconds(self) -> float:
        """Since the training began, with all that was queued on the GPU done; pauses do not count."""
        if self._on_gpu:
            torch.cuda.synchronize()
        return self._clock() - self._began

    def summary(self) -> dict[str, Any]:
        """Images per second over all ranks, and the median step and its split, without the first steps."""
        steps = self._steps[untimed_steps(len(self._steps)) :]
        return {
            "images_per_sec": sum(step.samples for step in steps) / sum(step.total() for step in steps),
            "timed_steps": len(steps),
            "step_seconds": median(step.total() for step in steps),
            "time_split": {phase: median(step.phases()[phase] for step in steps) for phase in PHASES},
        }

    def _now(self) -> Any:
        if not self._on_gpu:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class StepTimes:
    """When one step began, and when each of its phases ended."""

    def __init__(self, began: Any) -> None:
        self.samples = 0
        self.laps: list[tuple[str, Any]] = [("", began)]
        self._phases: dict[str, float] = {}

    def phases(self) -> dict[str, float]:
        """Seconds in each phase; with accumulation, of all its passes together."""
        if not self._phases:
            phases = dict.fromkeys(PHASES, 0.0)
            for (_, began), (phase, ended) in zip(self.laps, self.laps[1:], strict=False):
                phases[phase] += _elapsed(began, ended)
            self._phases = phases
            self.laps.clear()  # a run has hundreds of thousands of them, and on a GPU each is an event
        return self._phases

    def total(self) -> float:
        """Seconds from the step's beginning to its end."""
        return sum(self.phases().values())

    def _phase(self, phase: str) -> float:
        return self.phases()[phase]

    def readings(self, wall_clock: float, then: Any) -> dict[str, Reading]:
        """The figures of a step's report; `wall_clock` is what time it was at the moment `then`."""
        began = self.laps[0][1]
        phases = {phase: Reading(partial(self._phase, phase)) for phase in PHASES}
        return {
            "start": Reading(lambda: wall_clock + _elapsed(then, began)),
            **phases,
            "seconds": Reading(self.total),
            "images_per_sec": Reading(lambda: self.samples / self.total()),
        }


class Reading:
    """A time that is known once the GPU has come that far; reads like a tensor of one element."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.item = read


def _elapsed(began: Any, ended: Any) -> float:
    """Seconds between two moments; waits for the GPU to reach them."""
    if isinstance(began, float):
        return float(ended - began)
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1000

"""How far a run is, how fast it goes, and how long it still takes: from what one of its ranks reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import isfinite
from statistics import median
from typing import Any

STEPS_FOR_SPEED = 20


class Pace:
    """The pace of a rank; a function of one's own may report anything, and what is no number counts for nothing.

    Attributes:
        rank: whose events count; epochs are rank 0's, which speaks for all.
        started: whether it reported a step or an epoch.
        epoch: the epoch of its last step.
        seconds: from the beginning of its first step to what it reported last.
    """

    def __init__(self, epochs: int, images: int, rank: int = 0) -> None:
        """Of a run over `epochs` epochs of so many images each."""
        self.rank = rank
        self.started = False
        self.epoch: float | None = None
        self.seconds = 0.0
        self._epochs, self._images = epochs, images
        self._began = 0.0
        self._before: float | None = None  # epochs that were done at the first step: more than 0 in a resumed run
        self._samples = 0.0
        self._whole_epochs = 0.0
        self._speeds: deque[float] = deque(maxlen=STEPS_FOR_SPEED)
        self._own_speeds: deque[float] = deque(maxlen=STEPS_FOR_SPEED)

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take in what the ranks reported since the last time."""
        for event in events:
            if event.get("rank") != self.rank or event["kind"] not in ("step", "epoch"):
                continue
            if not self.started:
                self.started = True
                self._began = number_of(event, "start") or event["time"]
            self.seconds = max(0.0, event["time"] - self._began)
            if event["kind"] == "step":
                self._take_step(event)
            else:
                self._whole_epochs = number_of(event, "epoch") or self._whole_epochs + 1

    def _take_step(self, event: Mapping[str, Any]) -> None:
        self.epoch = number_of(event, "epoch")
        if self._before is None:
            self._before = max(0.0, (self.epoch or 1.0) - 1)
        samples = number_of(event, "samples") or 0.0
        self._samples += samples
        speed = number_of(event, "images_per_sec")
        if speed is not None:
            self._speeds.append(speed)
            share = number_of(event, "local_samples")
            self._own_speeds.append(speed if share is None or not samples else speed * share / samples)

    @property
    def epochs_before(self) -> float:
        """Epochs that were done before the first step: those of an earlier run, where this one goes on from it."""
        return self._before or 0.0

    @property
    def fraction(self) -> float:
        """How much of the run is done, 0 to 1."""
        done = max((self._before or 0.0) + self._samples / self._images, self._whole_epochs)
        return max(0.0, min(1.0, done / self._epochs))

    @property
    def images_per_sec(self) -> float | None:
        """The median over the last steps."""
        return median(self._speeds) if self._speeds else None

    @property
    def own_images_per_sec(self) -> float | None:
        """The same of the images that this rank takes itself; a step's `samples` are those of all ranks."""
        return median(self._own_speeds) if self._own_speeds else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace so far; None before there is one."""
        done, before = self.fraction, (self._before or 0.0) / self._epochs
        return self.seconds * (1 - done) / (done - before) if done > before else None


def number_of(event: Mapping[str, Any], name: str) -> float | None:
    """A number of an event; None where a function of one's own reported none, or something else."""
    value = event.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None

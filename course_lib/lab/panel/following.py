"""Which runs the Scaling Lab shows live, and how: the bars and the curves of those that go on and that went before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from course_lib.config import untimed_steps
from course_lib.errors import CourseError
from course_lib.lab.live import LiveRun
from course_lib.lab.panel.live_chart import STYLES, Line, chart, legend
from course_lib.lab.panel.ranks import ranks_html
from course_lib.runs.folder import RUNNING
from course_lib.runs.found import FoundRun

MOST_CURVES = len(STYLES)  # runs in a chart: those that go on, and the last that went before
MOST_SHOWN = 3  # runs that go on at the same time and have bars
RATES = 25  # points of a curve of throughput
EPOCHS_AT_ONCE = 10  # that an axis shows from the start
AXES = ("epochs", "seconds")
CHARTS = '<div style="display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:6px 18px">{}</div>'


class Following:
    """The runs that are followed, from their folders.

    Attributes:
        lives: by their folders, those that go on, and before them the last that ended.
    """

    def __init__(self) -> None:
        self.lives: dict[str, LiveRun] = {}

    def update(self, paths: Iterable[str]) -> bool:
        """Follow the runs in these folders too, and read what is new; whether there was anything."""
        new = {path: live for path in paths if path not in self.lives and (live := _live(path)) is not None}
        ended = [path for path, live in self.lives.items() if live.status != RUNNING]
        for path in ended[: max(0, len(self.lives) + len(new) - MOST_CURVES)]:
            del self.lives[path]
        self.lives |= new
        news = [live.update() for live in self.lives.values() if live.status == RUNNING]
        return bool(new) or any(news)

    @property
    def ended(self) -> int:
        """How many epochs and runs have ended, and how many runs have begun to train."""
        lives = self.lives.values()
        return sum(len(live.epoch_events) + (live.status != RUNNING) + live.paces[0].started for live in lives)

    def shown(self) -> list[LiveRun]:
        """The runs that go on; where there are none, the last one."""
        running = [live for live in self.lives.values() if live.status == RUNNING]
        return running[:MOST_SHOWN] or [*self.lives.values()][-1:]

    def forget(self) -> None:
        """Show none that has ended."""
        self.lives = {path: live for path, live in self.lives.items() if live.status == RUNNING}

    def ranks_html(self, name_of: Callable[[str], str]) -> str:
        """The bars of the ranks."""
        return "".join(ranks_html(live, name_of(str(live.run.path))) for live in self.shown())

    def charts_html(self, axis: str, name_of: Callable[[str], str]) -> str:
        """Loss, accuracy and throughput against one of `AXES`; nothing where no run is followed."""
        lives = [*self.lives.values()][-MOST_CURVES:]
        if not lives:
            return ""
        labels = [_label(live, name_of) for live in lives]
        loss, accuracy, speed = [], [], []
        for label, live in zip(labels, lives, strict=True):
            steps, epochs = live.curves(), live.accuracies()
            loss.append(Line(label, steps[axis], steps["loss"]))
            with np.errstate(over="ignore"):  # a function may report anything
                accuracy.append(Line(label, epochs[axis], 100 * epochs["accuracy"], marks=True))
            speed.append(Line(label, *_rates(steps["samples"], steps["seconds"], steps[axis])))
        end = _end_of(lives) if axis == "epochs" else None
        charts = [
            chart("Training loss", axis, loss, "no step yet", end),
            chart("Validation accuracy (%)", axis, accuracy, "no epoch has ended yet", end),
            chart("Images/s, all ranks", axis, speed, "no step yet", end),
        ]
        return CHARTS.format("".join(charts)) + legend(labels)


def _label(live: LiveRun, name_of: Callable[[str], str]) -> str:
    config = live.run.config
    ranks = f"{config.world_size} {'simulated ' if config.simulated else ''}rank{'s' * (config.world_size > 1)}"
    return f"{name_of(str(live.run.path))}: {ranks} x {config.batch_size}"


def _end_of(lives: list[LiveRun]) -> float:
    """Where an axis of epochs ends: of long runs it moves on now and then, so that what has been done is seen."""
    done = max(live.run.config.epochs * live.paces[0].fraction for live in lives)
    end = float(EPOCHS_AT_ONCE)
    while end < done:
        end *= 2
    return min(end, max(float(live.run.config.epochs) for live in lives))


def _live(path: str) -> LiveRun | None:
    """The run in a folder; None where it cannot be read (yet)."""
    try:
        return LiveRun(FoundRun(Path(path)))
    except (CourseError, OSError):
        return None


def _rates(samples: np.ndarray, seconds: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images a second over some steps each, and where on the axis these end; the first steps would hide the others."""
    if not len(x):
        return x, x
    ends = np.unique(np.linspace(untimed_steps(len(x)), len(x) - 1, RATES + 1).astype(int))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return x[ends[1:]], np.diff(samples[ends]) / np.diff(seconds[ends])

"""A run that goes on, as the live view sees it: what it reported so far, how far it is, how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

import pandas as pd

from course_lib.config import RunConfig
from course_lib.errors import CourseError, FolderError
from course_lib.lab.learning_plots import SETTINGS_OF_A_RUN
from course_lib.lab.pages import EPOCHS, PROGRESS
from course_lib.lab.series import number
from course_lib.lab.style import GREY, PALETTE
from course_lib.runs import store
from course_lib.runs.events import EventReader
from course_lib.runs.folder import FAILED, FINISHED, RUNNING, STOPPED, read_json
from course_lib.runs.run import Run

ROWS = 8  # epochs in the table: it must not push away what is below it
STEPS_FOR_SPEED = 20
COLORS = {RUNNING: PALETTE[0], FINISHED: PALETTE[2], STOPPED: GREY, FAILED: PALETTE[1]}
COLUMNS = {  # of the table of epochs: what it shows of an event, times what, in which digits
    "Accuracy (%)": ("val_accuracy", 100, "{:.2f}"),
    "Training loss": ("train_loss", 1, "{:.3f}"),
    "Images/s": ("images_per_sec", 1, "{:,.0f}"),
    "Seconds": ("seconds", 1, "{:.1f}"),
}


class LiveRun:
    """Follows one run. Reading costs in proportion to what is new; only rank 0's steps are kept.

    Attributes:
        title: what it is.
        status: "running", "finished", "failed" or "stopped", as of the last `update`.
        error: why it did not finish; empty as long as there is no reason.
    """

    def __init__(self, run: Run, name: str = "") -> None:
        self._run = run
        self._reader = EventReader(run.path)
        self._pace = Pace(run.config.epochs, run.images)
        self._steps: dict[str, list[float | None]] = {"step": [], "loss": []}
        self._epochs: list[dict[str, Any]] = []
        self._timing: str | None = None
        self._caveats = self._read_caveats()
        self._facts = store.frame(run.path).iloc[0]
        what = _describe(run.config, self._facts["peak_lr"])
        self.title = f"{name}: {what}" if name else what
        self.status = RUNNING
        self.error = ""

    def update(self) -> bool:
        """Read what is new; whether there was anything."""
        status = self._run.status  # before the events: then the last reading is complete
        events = self._reader.read_new()
        for event in events:
            self._take(event)
        if self._timing is None and events:
            self._timing = self._read_timing()
        changed = bool(events) or status != self.status
        if status != RUNNING and self.status == RUNNING:
            self.error = self._why_it_ended()
            self._caveats = self._read_caveats()  # another run may have begun meanwhile
        self.status = status
        return changed

    def _take(self, event: dict[str, Any]) -> None:
        if event["kind"] == "step" and event.get("rank") == 0:
            self._pace.step(event)
            for name, values in self._steps.items():
                values.append(_number(event, name))
        elif event["kind"] == "epoch":
            self._pace.epoch(event)
            self._epochs.append(event)

    def _read_timing(self) -> str | None:
        try:
            return read_json(self._run.folder.environment).get("timing")
        except FolderError:  # not written yet
            return None

    def _read_caveats(self) -> str:
        try:
            return "; ".join(map(str, read_json(self._run.folder.caveats)["speed_caveats"]))
        except FolderError:  # a measurement of speed
            return ""

    def _why_it_ended(self) -> str:
        try:
            self._run.wait(0)
        except CourseError as error:
            return str(error)
        return ""

    def steps(self) -> pd.DataFrame:
        """One row a step, as far as `plots.progress` needs it."""
        return self._with_facts(pd.DataFrame(self._steps))

    def epochs(self) -> pd.DataFrame:
        """One row an epoch, as far as `plots.progress` needs it."""
        names = ("epoch", "val_accuracy")
        return self._with_facts(pd.DataFrame({name: [_number(e, name) for e in self._epochs] for name in names}))

    def _with_facts(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(**self._facts[["run", "path", *SETTINGS_OF_A_RUN]], timing=self._timing)

    def progress_html(self) -> str:
        """Heading, progress bar, status line, and what keeps the run from being a measurement of speed."""
        percent = 100 if self.status == FINISHED else self._pace.percent()
        status = self._pace.in_words() if self.status == RUNNING else self._ending()
        color = COLORS[self.status]
        return PROGRESS.render(title=self.title, percent=percent, status=status, color=color, caveats=self._caveats)

    def _ending(self) -> str:
        text = f"{self.status} after {self._pace.seconds():.1f} s"
        accuracy = _number(self._epochs[-1], "val_accuracy") if self._epochs else None
        return text if accuracy is None else f"{text}, accuracy {100 * accuracy:.2f} %"

    def epochs_html(self) -> str:
        """The table of the last epochs and, where the run failed, why."""
        shown = self._epochs[-ROWS:]
        total = self._run.config.epochs
        return EPOCHS.render(
            caption="Epochs" if len(shown) == len(self._epochs) else f"The last {ROWS} of {len(self._epochs)} epochs",
            head=["Epoch", *COLUMNS],
            rows=[[number(_number(event, "epoch")), *_cells(event)] for event in shown],
            height=f"{1.75 * (2 + min(total, ROWS)):.0f}em",
            error=self.error if self.status == FAILED else "",
        )


class Pace:
    """How far a run is and how long it still takes, from the events of rank 0."""

    def __init__(self, epochs: int, images: int) -> None:
        self._epochs = epochs
        self._images = images  # in an epoch
        self._whole_epochs = 0.0
        self._in_epoch = 0.0
        self._last_step: dict[str, Any] = {}
        self._speeds: deque[float] = deque(maxlen=STEPS_FOR_SPEED)
        self._began: tuple[float, float] | None = None  # when, and how far it was then
        self._now = 0.0

    def step(self, event: dict[str, Any]) -> None:
        """Take in a step of rank 0."""
        if self._began is None:
            self._whole_epochs = max(0.0, (_number(event, "epoch") or 1) - 1)  # above 0 where a run was resumed
            self._began = (_number(event, "start") or event["time"], self._whole_epochs / self._epochs)
        self._in_epoch += _number(event, "samples") or 0
        self._last_step = event
        self._now = event["time"]
        speed = _number(event, "images_per_sec")
        if speed is not None:
            self._speeds.append(speed)

    def epoch(self, event: dict[str, Any]) -> None:
        """Take in the end of an epoch."""
        self._whole_epochs = _number(event, "epoch") or self._whole_epochs + 1
        self._in_epoch = 0.0
        self._now = event["time"]

    def fraction(self) -> float:
        """How much of the run is done, 0 to 1."""
        return min(1.0, (self._whole_epochs + min(1.0, self._in_epoch / self._images)) / self._epochs)

    def percent(self) -> int:
        """The same in whole percent."""
        return int(100 * self.fraction())

    def seconds(self) -> float:
        """Since the first step began."""
        return self._now - self._began[0] if self._began else 0.0

    def in_words(self) -> str:
        """The status line of a run that goes on."""
        if self._began is None:
            return "starting"
        parts = [f"epoch {number(_number(self._last_step, 'epoch'))} of {self._epochs}"]
        if self._speeds:
            parts.append(f"{median(self._speeds):,.0f} images/s")
        done = self.fraction()
        if done > self._began[1]:
            parts.append(_left(self.seconds() * (1 - done) / (done - self._began[1])))
        return ", ".join(parts)


def _left(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"


def _describe(config: RunConfig, peak_lr: float) -> str:
    ranks = "1 rank" if config.world_size == 1 else f"{config.world_size} ranks"
    rate = f"lr {config.lr:g}"
    if peak_lr != config.lr:
        rate += f" x {peak_lr / config.lr:.3g} = {peak_lr:.3g} ({config.lr_rule} rule)"
    return f"{config.model} on {ranks}, batch {config.batch_size} per rank, {rate}"


def _cells(event: Mapping[str, Any]) -> list[str]:
    values = [(_number(event, name), factor, form) for name, factor, form in COLUMNS.values()]
    return ["–" if value is None else form.format(factor * value) for value, factor, form in values]


def _number(event: Mapping[str, Any], name: str) -> float | None:
    """A number of an event; None where a function of one's own reported none, or something else."""
    value = event.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

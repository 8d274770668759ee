"""A run that goes on, as the live view sees it: what it reported so far, how far it is, how it ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from course_lib.config import RunConfig
from course_lib.errors import CourseError, FolderError
from course_lib.lab.style import GREY, PALETTE
from course_lib.lab.words import SETTINGS_OF_A_RUN, duration, number
from course_lib.runs import store
from course_lib.runs.events import EventReader
from course_lib.runs.folder import FAILED, FINISHED, LOST, RUNNING, STOPPED, read_json
from course_lib.runs.found import FoundRun
from course_lib.runs.pace import Pace, number_of
from course_lib.runs.run import Run

COLORS = {RUNNING: PALETTE[0], FINISHED: PALETTE[2], STOPPED: GREY, FAILED: PALETTE[1], LOST: GREY}


class LiveRun:
    """Follows one run. Reading costs in proportion to what is new; only rank 0's steps are kept.

    Attributes:
        run: the run.
        title: what it is.
        status: "running", "finished", "failed", "stopped" or "lost", as of the last `update`.
        error: why it did not finish; empty as long as there is no reason.
        caveats: why it is no measurement of speed; empty if it is one.
        timing: how its times come about; None before it is known.
        epoch_events: what it reported after each epoch so far.
        paces: how far each rank is. One process stands for all ranks where they are simulated.
    """

    def __init__(self, run: Run | FoundRun, name: str = "") -> None:
        self.run = run
        self._reader = EventReader(run.path)
        self.paces = [Pace(run.config.epochs, run.images, rank) for rank in range(run.config.processes)]
        self._steps: dict[str, list[float | None]] = {"step": [], "loss": [], "samples": [], "seconds": []}
        self.epoch_events: list[dict[str, Any]] = []
        self.timing: str | None = None
        self.caveats = self._read_caveats()
        self._facts = store.frame(run.path).iloc[0]
        what = _describe(run.config, self._facts["peak_lr"])
        self.title = f"{name}: {what}" if name else what
        self.status = RUNNING
        self.error = ""

    def update(self) -> bool:
        """Read what is new; whether there was anything."""
        status = self.run.status  # before the events: then the last reading is complete
        events = self._read_events()
        for event in events:
            self._take(event)
        if self.timing is None and events:
            self.timing = self._read_timing()
        changed = bool(events) or status != self.status
        if status != RUNNING and self.status == RUNNING:
            self.error = self._why_it_ended()
            self.caveats = self._read_caveats()  # another run may have begun meanwhile
        self.status = status
        return changed

    def _read_events(self) -> list[dict[str, Any]]:
        try:
            return self._reader.read_new()
        except FolderError:
            if self.run.path.is_dir():
                raise
            return []  # somebody deleted it

    def _take(self, event: dict[str, Any]) -> None:
        rank = event.get("rank")
        if isinstance(rank, int) and 0 <= rank < len(self.paces):
            self.paces[rank].take([event])
        if event["kind"] == "step" and event.get("rank") == 0:
            for name, values in self._steps.items():
                values.append(number_of(event, name))
        elif event["kind"] == "epoch":
            self.epoch_events.append(event)

    def _read_timing(self) -> str | None:
        try:
            return read_json(self.run.folder.environment).get("timing")
        except FolderError:  # not written yet
            return None

    def _read_caveats(self) -> str:
        try:
            return "; ".join(map(str, read_json(self.run.folder.caveats)["speed_caveats"]))
        except FolderError:  # a measurement of speed
            return ""

    def _why_it_ended(self) -> str:
        try:
            self.run.wait(0)
        except CourseError as error:
            return str(error)
        return ""

    def steps(self) -> pd.DataFrame:
        """One row a step, as far as `plots.progress` needs it."""
        return self._with_facts(pd.DataFrame(self._steps))

    def epochs(self) -> pd.DataFrame:
        """One row an epoch, as far as `plots.progress` needs it."""
        names = ("epoch", "val_accuracy")
        return self._with_facts(pd.DataFrame({name: [number_of(e, name) for e in self.epoch_events] for name in names}))

    def curves(self) -> dict[str, np.ndarray]:
        """Of each step of rank 0 its `loss`, and the `epochs`, `seconds` and `samples` that were done after it.

        Seconds are those of training, on its own clock where the run is simulated. What was not reported is NaN.
        """
        table = {name: np.array(values, dtype=float) for name, values in self._steps.items()}
        with np.errstate(over="ignore"):  # a function may report anything
            samples, seconds = (np.nan_to_num(table[name]).cumsum() for name in ("samples", "seconds"))
        epochs = self.paces[0].epochs_before + samples / self.run.images
        return {"loss": table["loss"], "epochs": epochs, "seconds": seconds, "samples": samples}

    def accuracies(self) -> dict[str, np.ndarray]:
        """Of each epoch so far its `accuracy`, and the `epochs` and `seconds` of training after which it was."""
        names = {"accuracy": "val_accuracy", "epochs": "epoch", "seconds": "seconds"}
        return {new: np.array([number_of(e, old) for e in self.epoch_events], float) for new, old in names.items()}

    def _with_facts(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(**self._facts[["run", "path", *SETTINGS_OF_A_RUN]], timing=self.timing)

    def state_in_words(self) -> str:
        """How far it is and how fast, or how it ended."""
        if self.status == RUNNING:
            return pace_in_words(self.paces[0], self.run.config.epochs)
        text = f"{self.status} after {self.paces[0].seconds:.1f} s"
        accuracy = number_of(self.epoch_events[-1], "val_accuracy") if self.epoch_events else None
        return text if accuracy is None else f"{text}, accuracy {100 * accuracy:.2f} %"


def pace_in_words(pace: Pace, epochs: int) -> str:
    """The status line of a run that goes on."""
    if not pace.started:
        return "starting"
    parts = [f"epoch {number(pace.epoch)} of {epochs}"]
    if pace.images_per_sec is not None:
        parts.append(f"{pace.images_per_sec:,.0f} images/s")
    if pace.seconds_left is not None:
        parts.append(left_in_words(pace.seconds_left))
    return ", ".join(parts)


def left_in_words(seconds: float) -> str:
    """How long something still takes."""
    return f"about {duration(seconds)} left"


def _describe(config: RunConfig, peak_lr: float) -> str:
    simulated = "simulated " if config.simulated else ""
    ranks = f"1 {simulated}rank" if config.world_size == 1 else f"{config.world_size} {simulated}ranks"
    rate = f"lr {config.lr:g}"
    if peak_lr != config.lr:
        rate += f" x {peak_lr / config.lr:.3g} = {peak_lr:.3g} ({config.lr_rule} rule)"
    return f"{config.model} on {ranks}, batch {config.batch_size} per rank, {rate}"

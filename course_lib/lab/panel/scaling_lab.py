"""The Scaling Lab: the whole experiment in one cell, without code.

The panel keeps nothing but what its runs record in their folder, so it can be closed and opened again at any time.
What is pressed and typed is only noted; a thread of its own reads, computes and draws, a few times a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from ipywidgets import HTML, Box, Button, Layout, VBox, Widget

from course_lib.errors import CourseError
from course_lib.lab.interaction import all_below, make_answer
from course_lib.lab.panel.choices import Choices, Consequences, consequences
from course_lib.lab.panel.controls import Controls
from course_lib.lab.panel.experiments import Experiment, at_work, begin, needs_baseline, single, swept
from course_lib.lab.panel.figures import FigureView, Results
from course_lib.lab.panel.inputs import FLOW, button
from course_lib.lab.panel.live_area import LiveArea
from course_lib.lab.panel.outcome import outcome_html
from course_lib.lab.panel.panel_html import facts_html, heading_html, status_html
from course_lib.lab.panel.pump import Pump, retire_others
from course_lib.lab.panel.questions import GuessQuestion, SweepQuestion
from course_lib.lab.panel.runs_folder import RunsFolder
from course_lib.lab.panel.runs_view import RunsView
from course_lib.runs.folder import FAILED, FINISHED
from course_lib.runs.functions import TrainFunction
from course_lib.runs.launch import data_parallel_trainer, warm_up
from course_lib.runs.plan import THIS_MACHINE, Sweep
from course_lib.runs.profiles import Profile, find

CHOICES, RUNS, FIGURE = "choices", "runs", "figure"  # what can be out of date
SHARE_FOR_FIGURES = 0.01  # of one core at most, while runs go on: what is drawn must not slow what is measured


class ScalingLab(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Controls, what follows from them, and the runs of a folder: live while they go on, and afterwards.

    Args:
        folder: where the runs are. It may be one that a cluster writes, and need not be there yet.
        train: the training function; the course's own if none is given.

    A saved notebook keeps only the panel's `repr`: end a cell with `results()` to keep a plot and its table.
    """

    def __init__(self, folder: str | os.PathLike[str] = "runs", train: TrainFunction | None = None) -> None:
        warm_up()  # first: it loads torch while the rest is made
        self._train = train or data_parallel_trainer()
        self._runs = RunsFolder(folder)
        self.folder = self._runs.path
        retire_others(self.folder)
        self._runs.look(now=True)
        self._experiment = at_work(self.folder)
        self._profile = _profile()
        self._known: Consequences | None = None
        self._stale = {CHOICES, RUNS, FIGURE}
        self._drawn: object = None
        self._told, self._figure_again_at = "", 0.0
        self._pump = Pump(self)
        self._make_widgets()
        super().__init__(self._layout(), layout=Layout(max_width="1100px", grid_gap="10px"))
        self.add_class("scaling-lab")
        make_answer(self)
        self.tell(self._greeting())
        self._arrange_buttons()
        self._pump.start()

    def _make_widgets(self) -> None:
        self.controls = Controls(Choices.suitable(), self.choose)
        self.guess, self.sweep_over = GuessQuestion(self.choose), SweepQuestion(self.choose)
        self.run_button = _button("Run", self.run, "primary")
        self.stop_button = _button("Stop", self.stop)
        self.sweep_button = _button("Sweep", self.sweep)
        self.clear_button = _button("Clear", self.clear)
        self.facts, self.status, self.outcome = HTML(), HTML(), HTML()
        self.live = LiveArea(self._runs.name, self._pump.wake)
        self.figures = FigureView(self.draw_again)
        self.table = RunsView(self._runs, self.draw_again)

    def _layout(self) -> list[Widget]:
        one_run = _card(self.guess, self.run_button, self.stop_button, self.clear_button)
        side_by_side = Layout(**(FLOW | {"align_items": "stretch", "grid_gap": "10px"}))
        experiments = Box([one_run, _card(self.sweep_over, self.sweep_button)], layout=side_by_side)
        self.facts.add_class("lab-card")
        return [
            *(HTML(heading_html(self._runs.shown)), self.controls, self.facts, experiments),
            *(self.status, self.live, self.outcome, self.figures, self.table),
        ]

    def __repr__(self) -> str:
        runs, folder = len(self._runs.frame), self._runs.shown
        return f"Scaling Lab of {runs} run{'s' * (runs != 1)} in {folder}; panel.results() stays in a notebook"

    # What the controls and buttons do. Each returns at once.

    def choose(self) -> None:
        """Another choice was made: what follows from it is told soon."""
        self._note(CHOICES)

    def draw_again(self) -> None:
        """Other runs were chosen, or another plot."""
        self._drawn, self._figure_again_at = None, 0.0
        self._note(FIGURE)

    def run(self) -> None:
        """Make the run that was chosen, after the one on one rank that it is compared with, if there is none yet."""
        self._begin(lambda: single(self.controls.choices, self.guess.guess(), self._runs.frame), "run")

    def sweep(self) -> None:
        """Make the runs over the values that were named."""
        self._begin(lambda: swept(self.controls.choices, *self.sweep_over.asked(), self.guess.guess()), "sweep")

    def _begin(self, plan: Callable[[], list[Sweep]], what: str) -> None:
        try:
            self._experiment = begin(self._train, plan(), self.folder, what)
        except CourseError as error:
            self.tell(str(error))
        else:
            self.table.done_choosing()
            self.outcome.value = ""
            self.tell("Starting…")
        self._arrange_buttons()
        self._pump.wake()

    def stop(self) -> None:
        """End the run that goes on, and make no more of its experiment."""
        if self._experiment is not None:
            self._experiment.stop()
            self.tell("Stopping…")
            self._arrange_buttons()

    def wait(self) -> None:
        """Wait until the experiment that goes on, if one does, is over and shown."""
        while self._experiment is not None and self._pump.is_alive():
            time.sleep(0.05)

    def clear(self) -> None:
        """Take away what is shown of earlier runs; the runs themselves stay."""
        self.table.clear()
        self.live.forget()
        self.figures.clear()
        self._drawn = self._figure_key()
        self.outcome.value = ""
        self.tell("Cleared. All runs are kept, and are in the list below.")

    def results(self) -> Results:
        """The plot and the table of the runs that are chosen (all, where none is), as the last value of a cell."""
        runs = self.table.rows()
        return Results(self.figures.figure_of(runs), runs)

    # What the thread does.

    def look(self) -> None:
        """Look for news, and show what is new: what the thread does a few times a second."""
        experiment = self._experiment
        over = experiment is not None and not experiment.is_alive()  # asked first: what it recorded is then complete
        path = experiment.run_path if experiment is not None else None
        own = None if path is None else str(path)
        if self._runs.look(now=over or own not in (None, *self.live.following.lives)) or self._take(RUNS):
            self._stale |= {FIGURE, CHOICES}
            self.table.show()
        self.live.update(dict.fromkeys([*filter(None, [own]), *self._runs.running]), now=over)
        if self._take(CHOICES):
            self._show_consequences()
        if experiment is not None:
            (self._end if over else self._tell_of)(experiment)
        if FIGURE in self._stale and (self._experiment is None or time.monotonic() >= self._figure_again_at):
            self._draw_figure()

    def _take(self, what: str) -> bool:
        """Whether this is out of date; it is about to be brought up to date."""
        was = what in self._stale
        self._stale.discard(what)
        return was

    def _show_consequences(self) -> None:
        choices = self.controls.choices
        self._known = known = consequences(choices, self._runs.frame, self._profile)
        self.controls.show(known)
        self.guess.show(known.world_size)
        self.sweep_over.suggest(choices)
        self.facts.value = facts_html(choices, known, known.possible and needs_baseline(choices, self._runs.frame))
        self._arrange_buttons()

    def _tell_of(self, experiment: Experiment) -> None:
        path, progress = str(experiment.run_path or ""), experiment.progress
        if self._runs.number(path) and not experiment.stopping:
            which = f" ({progress.done + 1} of {progress.total})" if progress.total > 1 else ""
            self.tell(f"{self._runs.name(path)} goes on{which}.")

    def _end(self, experiment: Experiment) -> None:
        """Tell what came of an experiment that is over."""
        if self._experiment is experiment:  # and no other was begun meanwhile
            self._experiment = None
        self._arrange_buttons()
        runs = self._runs.frame[self._runs.frame["path"].map(experiment.holds).astype(bool)]
        # One may have failed between two looks.
        self.live.update(runs.loc[runs["status"] == FAILED, "path"].tail(1), now=True)
        self.tell(" ".join(filter(None, (_endings(runs["status"]), experiment.error))))
        self._stale.add(FIGURE)
        self.outcome.value = outcome_html(self._runs.frame, runs, self._profile)

    def _draw_figure(self) -> None:
        self._stale.discard(FIGURE)
        if (key := self._figure_key()) == self._drawn:
            return
        self._drawn = key
        began = time.thread_time()
        self.figures.draw(self.table.rows())
        self._figure_again_at = time.monotonic() + (time.thread_time() - began) / SHARE_FOR_FIGURES

    def _figure_key(self) -> object:
        """What the figure depends on."""
        frame = self._runs.frame
        return self.figures.which.value, self.table.chosen, tuple(frame.loc[frame["status"] == FINISHED, "path"])

    def _greeting(self) -> str:
        runs = len(self._runs.frame)
        if self._experiment is not None:
            return "An experiment that was begun before goes on."
        return (
            f"Ready. {runs} earlier run{'s' * (runs > 1)} found." if runs else "Ready. No run has been made here yet."
        )

    def tell(self, text: str) -> None:
        """Say in the status line what goes on; a screen reader reads it out, so only what is new."""
        if text != self._told:
            self._told = text
            self.status.value = status_html(text)

    def _arrange_buttons(self) -> None:
        """Let be pressed only what can be done."""
        experiment = self._experiment
        possible = self._known is None or self._known.possible
        for each in (self.run_button, self.sweep_button):
            each.disabled = experiment is not None or not possible
        self.stop_button.disabled = experiment is None or experiment.stopping

    def _note(self, what: str) -> None:
        self._stale.add(what)
        self._pump.wake()

    def fail(self, error: Exception) -> None:
        """Say that something could not be shown. It is not tried again before there is news, and the rest goes on."""
        self.tell(f"Something could not be shown; the runs go on. {type(error).__name__}: {error}")

    def retire(self) -> None:
        """Give way to a panel of the same folder that was opened later."""
        self._pump.end()
        below = all_below(self)[1:]
        self.children = [HTML(status_html("This panel was opened again: the newer one has its runs."))]
        for widget in below:
            widget.close()


def _profile() -> Profile | None:
    """What calibrate measured of this machine, if it was called in this folder."""
    try:
        return find(THIS_MACHINE) if Path(THIS_MACHINE).exists() else None
    except CourseError:
        return None


def _endings(statuses: pd.Series[str]) -> str:
    """How the runs of an experiment ended: "2 runs finished, 1 stopped."."""
    counts = [(count, status) for status, count in statuses.value_counts().items()]
    words = [f"{count} run{'s' * (count > 1)} {status}" for count, status in counts[:1]]
    return ", ".join(words + [f"{count} {status}" for count, status in counts[1:]] or ["No run was made"]) + "."


def _card(question: Widget, *buttons: Button) -> VBox:
    """A question, and below it what can be pressed then."""
    card = VBox([question, Box(buttons, layout=Layout(**FLOW))], layout=Layout(flex="1 1 300px", grid_gap="4px"))
    card.layout.justify_content = "space-between"
    card.add_class("lab-card")
    return card


def _button(words: str, act: Callable[[], None], style: str = "") -> Button:
    return button(words, act, button_style=style, layout=Layout(width="auto", min_width="6.5em"))

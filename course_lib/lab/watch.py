"""The live view of a notebook: runs that go on, drawn while other cells run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pandas as pd
from ipywidgets import HTML, Box, Button, HBox, Layout, VBox

from course_lib.lab.display import image_html
from course_lib.lab.interaction import answer_while_busy
from course_lib.lab.live import COLORS, LiveRun
from course_lib.lab.pages import EPOCHS, PROGRESS
from course_lib.lab.plots.learning_plots import progress
from course_lib.lab.words import number
from course_lib.runs.folder import FAILED, FINISHED, RUNNING
from course_lib.runs.pace import number_of
from course_lib.runs.run import Run

SECONDS_BETWEEN_LOOKS = 1 / 3
ROWS = 8  # epochs in the table: it must not push away what is below it
SHARE_FOR_DRAWING = 0.1  # of one core at most: what is drawn must not slow what is measured
COLUMNS = {  # of the table of epochs: what it shows of an event, times what, in which digits
    "Accuracy (%)": ("val_accuracy", 100, "{:.2f}"),
    "Training loss": ("train_loss", 1, "{:.3f}"),
    "Images/s": ("images_per_sec", 1, "{:,.0f}"),
    "Seconds": ("seconds", 1, "{:.4g}"),
}


def watch(run: Run, *more: Run) -> LiveView:
    """Show runs live: progress, time left, a table of epochs, loss and accuracy, and buttons to stop them.

    Returns at once; the view follows by itself until the last of the runs is over. A run that fails
    shows why. A button reaches the kernel when no cell runs; a cell that waits is interrupted instead.
    What should stay in the saved notebook is shown by `display_figure` afterwards.
    """
    view = LiveView([run, *more])
    threading.Thread(target=view.follow, name=f"watch {run.path.name}", daemon=True).start()
    return view


class LiveView(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The widgets of one call of `watch`; a saved notebook keeps its `repr`."""

    def __init__(self, runs: list[Run]) -> None:
        names = [f"Run {place}" for place in range(1, len(runs) + 1)] if len(runs) > 1 else [""]
        self._lives = [LiveRun(run, name) for run, name in zip(runs, names, strict=True)]
        self._total_epochs = max(run.config.epochs for run in runs)
        self._plot, self._problem = HTML(), HTML()
        self._heads = [HTML(layout=Layout(flex="1 1 auto", min_width="0")) for _ in runs]
        self._tables = [HTML() for _ in runs]
        self._buttons = [_stop_button(run, name) for run, name in zip(runs, names, strict=True)]
        self._draw_again_at = 0.0
        half, bottom = Layout(flex="1 1 420px", min_width="0"), Layout(align_items="flex-end")
        sections = [
            VBox([HBox([head, button], layout=bottom), table], layout=half)
            for head, button, table in zip(self._heads, self._buttons, self._tables, strict=True)
        ]
        columns = Box(sections, layout=Layout(display="flex", flex_flow="row wrap", grid_gap="0 24px"))
        super().__init__([self._plot, columns, self._problem], layout=Layout(max_width="940px"))
        self._show()
        self._draw_again_at = 0.0  # the first drawing loads fonts: it says nothing about the others

    def __repr__(self) -> str:
        return "Live view, drawn while the kernel runs, of " + "; ".join(live.title for live in self._lives)

    def follow(self) -> None:
        """Look for news until all runs are over."""
        try:
            while any(live.status == RUNNING for live in self._lives):
                time.sleep(SECONDS_BETWEEN_LOOKS)
                news = [live.update() for live in self._lives]
                if any(news):
                    self._show()
            self._draw(scale=2)
        except Exception as error:  # in a thread, nobody else would see it
            reason = f"The live view ended; the runs go on. {type(error).__name__}: {error}"
            self._problem.value = EPOCHS.render(rows=[], height="0", error=reason)

    def _show(self) -> None:
        for place, live in enumerate(self._lives):
            self._heads[place].value = progress_html(live)
            self._tables[place].value = epochs_html(live)
            self._buttons[place].disabled = live.status != RUNNING
        if time.monotonic() >= self._draw_again_at:
            self._draw()

    def _draw(self, scale: float = 1.0) -> None:
        began = time.thread_time()
        steps = pd.concat([live.steps() for live in self._lives])
        epochs = pd.concat([live.epochs() for live in self._lives])
        figure = progress(steps, epochs, self._total_epochs)
        self._plot.value = image_html(figure, scale)
        self._draw_again_at = time.monotonic() + (time.thread_time() - began) / SHARE_FOR_DRAWING


def _stop_button(run: Run, name: str) -> Button:
    button = Button(description=f"Stop {name.lower()}".strip(), layout=Layout(flex="0 0 auto", width="7em"))
    button.on_click(lambda _: run.stop())
    answer_while_busy(button)
    return button


def progress_html(live: LiveRun) -> str:
    """Heading, progress bar, status line, and what keeps the run from being a measurement of speed."""
    percent = 100 if live.status == FINISHED else int(100 * live.paces[0].fraction)
    status, color = live.state_in_words(), COLORS[live.status]
    return PROGRESS.render(title=live.title, percent=percent, status=status, color=color, caveats=live.caveats)


def epochs_html(live: LiveRun) -> str:
    """The table of the last epochs and, where the run failed, why."""
    shown = live.epoch_events[-ROWS:]
    total = live.run.config.epochs
    which = "Epochs" if len(shown) == len(live.epoch_events) else f"The last {ROWS} of {len(live.epoch_events)} epochs"
    return EPOCHS.render(
        caption=f"{which}, {live.timing}" if live.timing else which,
        head=["Epoch", *COLUMNS],
        rows=[[number(number_of(event, "epoch")), *_cells(event)] for event in shown],
        height=f"{1.75 * (2 + min(total, ROWS)):.0f}em",
        error=live.error if live.status == FAILED else "",
    )


def _cells(event: Mapping[str, Any]) -> list[str]:
    values = [(number_of(event, name), factor, form) for name, factor, form in COLUMNS.values()]
    return ["–" if value is None else form.format(factor * value) for value, factor, form in values]

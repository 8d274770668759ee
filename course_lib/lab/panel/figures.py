"""The plots of the Scaling Lab: one at a time, of the runs that are chosen, and what of it stays in a notebook."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pandas as pd
from IPython.display import display
from ipywidgets import HTML, Dropdown, Layout, VBox
from matplotlib.figure import Figure

from course_lib.lab import plots
from course_lib.lab.display import display_figure, image_html
from course_lib.lab.pages import template
from course_lib.lab.panel.inputs import LABELLED
from course_lib.lab.plots.learning_plots import with_settings
from course_lib.lab.run_table import run_table
from course_lib.lab.style import alt_text
from course_lib.runs import store
from course_lib.runs.folder import FINISHED

MOST_CURVES = 12  # runs of which every step or epoch is drawn: the last ones
SCALE = 1.5  # pixels of the image for each of the page: sharp enough, and small enough to be sent

_KEPT = template("""\
<table>
<caption style="text-align:left">{{ caption }}</caption>
<thead><tr>
{% for column in columns %}
<th scope="col">{{ column.title }}{% if column.unit %}, {{ column.unit }}{% endif %}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr>
{% for cell in row %}
{% if loop.first %}
<th scope="row" style="white-space:nowrap">{{ cell.text }}</th>
{% else %}
<td style="text-align:right">{{ cell.text }}{% if cell.interval %} ({{ cell.interval }}){% endif %}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
""")


def _finished(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == FINISHED]


def _events(runs: pd.DataFrame, read: Callable[[str], pd.DataFrame], columns: tuple[str, ...]) -> pd.DataFrame:
    """What the last finished of these runs reported."""
    tables = [read(path) for path in _finished(runs)["path"].tail(MOST_CURVES)]
    return pd.concat(tables) if tables else pd.DataFrame(columns=[*columns])


def _of_epochs(draw: Callable[[pd.DataFrame], Figure]) -> Callable[[pd.DataFrame], Figure]:
    return lambda runs: draw(_events(runs, store.epochs, store.EPOCH_FACTS))


def _loss(runs: pd.DataFrame) -> Figure:
    return plots.loss_against_step(with_settings(_events(runs, store.steps, store.STEP_FACTS), runs))


def _timeline(runs: pd.DataFrame) -> Figure:
    widest = _finished(runs).sort_values("world_size", kind="stable").tail(1)
    return plots.timeline(_events(widest, store.steps, store.STEP_FACTS))


PLOTS: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "Speedup": plots.speedup,
    "Efficiency": plots.efficiency,
    "Throughput": plots.throughput,
    "Where the time of a step goes": plots.time_split,
    "What each rank does": _timeline,
    "Accuracy against epoch": _of_epochs(plots.accuracy_against_epoch),
    "Accuracy against seconds": _of_epochs(plots.accuracy_against_seconds),
    "Loss against step": _loss,
    "Accuracy by batch and learning rate": plots.heat_map,
}


class FigureView(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """One plot of runs, and the control that says which. `on_change` is told when another is asked for."""

    def __init__(self, on_change: Callable[[], object]) -> None:
        self.which = Dropdown(
            description="Plot", options=list(PLOTS), style=LABELLED, layout=Layout(width="330px", max_width="100%")
        )
        self.which.observe(lambda _: on_change(), "value")
        self.image = HTML()
        super().__init__([self.which, self.image], layout=Layout(grid_gap="6px"))

    def figure_of(self, runs: pd.DataFrame) -> Figure:
        """The plot of these runs (rows of a frame, see store.py) that was asked for."""
        return PLOTS[self.which.value](runs)

    def draw(self, runs: pd.DataFrame) -> None:
        """Show it; nothing where none of the runs has finished."""
        none = _finished(runs).empty
        self.layout.display = "none" if none else ""
        if none:
            self.clear()
            return
        self.image.value = image_html(self.figure_of(runs), SCALE)
        gc.collect(1)  # a figure's parts hold each other, and dozens would stay until Python looks for old circles

    def clear(self) -> None:
        """Show nothing."""
        self.image.value = ""


class Results:
    """A figure and the table of its runs as the last value of a cell: both stay in the saved notebook."""

    def __init__(self, figure: Figure, runs: pd.DataFrame) -> None:
        self.figure, self.runs = figure, runs

    def __repr__(self) -> str:
        return alt_text(self.figure)

    def _ipython_display_(self) -> None:
        display(display_figure(self.figure))
        if not self.runs.empty:
            display(KeptTable(self.runs))


class KeptTable:
    """The table of runs, as HTML and as text."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self._table = run_table(runs)
        self._rows = [[column.fill(row) for column in self._table.columns] for _, row in runs.iterrows()]

    def __repr__(self) -> str:
        head = [f"{column.title} {column.unit}".strip() for column in self._table.columns]
        rows = [[f"{cell.text} {cell.interval}".strip() for cell in row] for row in self._rows]
        return pd.DataFrame(rows, columns=head).to_string(index=False)

    def _repr_html_(self) -> str:
        return _KEPT.render(caption=self._table.caption, columns=self._table.columns, rows=self._rows)

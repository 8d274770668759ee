"""The table of all runs in a folder: sorted, in pages; runs can be chosen, deleted, and taken along as CSV."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pandas as pd
from ipywidgets import HTML, Box, Checkbox, Dropdown, HBox, Layout, SelectMultiple, VBox

from course_lib.errors import CourseError
from course_lib.lab.pages import template
from course_lib.lab.panel.comparison import comparison_html
from course_lib.lab.panel.inputs import FLOW, LABELLED, button, label_above
from course_lib.lab.panel.panel_html import status_html
from course_lib.lab.panel.runs_folder import RunsFolder
from course_lib.lab.run_table import run_table
from course_lib.lab.words import number
from course_lib.runs.folder import FINISHED

ROWS = 12  # of the table on a page
SORTS = {
    "newest": "",
    "accuracy": "val_accuracy",
    "images/s": "images_per_sec",
    "speedup": "speedup",
    "efficiency": "efficiency",
    "ranks": "world_size",
    "global batch": "global_batch_size",
    "learning rate": "peak_lr",
    "run time": "seconds",
}

_TABLE = template("""\
<div role="heading" aria-level="4" style="font-weight:600">{{ title }}</div>
<div tabindex="0" role="region" aria-label="Table of runs" style="overflow-x:auto">
<table aria-label="Runs" style="border-collapse:collapse;font-size:92%;line-height:1.35;\
font-variant-numeric:tabular-nums">
<thead><tr>
<th scope="col" style="text-align:right;padding:2px 5px;border-bottom:1px solid;vertical-align:bottom">No.</th>
{% for column in columns %}
<th scope="col" style="text-align:{{ 'right' if column.number else 'left' }};padding:2px 5px;border-bottom:1px solid;\
vertical-align:bottom">{{ column.title }}
{%- if column.unit %}<span style="display:block;font-weight:normal">{{ column.unit }}</span>{% endif %}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for no, chosen, row in rows %}
<tr{% if chosen %} style="background:rgba(0,114,178,0.18)"{% endif %}>
<th scope="row" style="text-align:right;padding:2px 5px;white-space:nowrap">{% if chosen %}✓ {% endif %}{{ no }}</th>
{% for column, cell in row %}
<td style="text-align:{{ 'right' if column.number else 'left' }};padding:2px 5px;white-space:nowrap\
{{ ';font-weight:600' if cell.bad }}">{{ cell.text }}
{%- if cell.interval %}<span style="display:block;font-size:90%">{{ cell.interval }}</span>{% endif %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
<div style="font-size:85%;margin-top:4px;max-width:80em">{{ notes }}</div>
""")
_LINK = template("""\
<a download="runs.csv" href="data:text/csv;base64,{{ content }}" style="text-decoration:underline;color:inherit">\
Download {{ count }} as CSV</a>
""")
_HINT = '<div style="font-size:92%">Shift, Ctrl or ⌘ choose several.</div>'


class RunsView(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The runs of a folder. `on_choice` is told when others are chosen.

    The list to choose from is left as it is from a choice until something is pressed: written anew in between, it would
    lose the place from which Shift and the arrow keys go on.
    """

    def __init__(self, runs: RunsFolder, on_choice: Callable[[], object]) -> None:
        self._runs, self._on_choice = runs, on_choice
        self._page, self._filling, self._choosing, self._comparing = 0, False, False, False
        self.table, self.link, self.answer, self.comparison = HTML(), HTML(), HTML(status_html("")), HTML()
        self.sort = Dropdown(description="Sort by", options=list(SORTS), style=LABELLED, layout=Layout(width="auto"))
        self.ascending = Checkbox(description="Smallest first", indent=False, layout=Layout(width="auto"))
        self.earlier, self.later = (
            button("Previous rows", lambda: self.turn(-1)),
            button("Next rows", lambda: self.turn(1)),
        )
        self.choice = SelectMultiple(description="Runs to compare", rows=6, **label_above(max_width="560px"))
        self.compare_button = button("Compare", self.compare)
        self.delete_button = button("Delete…", self.ask_to_delete)
        self.yes, self.no = button("Yes, delete", self.delete), button("No, keep", self.keep)
        self.question = HBox([self.yes, self.no], layout=Layout(display="none", grid_gap="8px"))
        for widget in (self.sort, self.ascending):
            widget.observe(lambda _: self.turn(-self._page), "value")
        self.choice.observe(self._chosen, "value")
        row = Box([self.sort, self.ascending, self.earlier, self.later, self.link], layout=Layout(**FLOW))
        buttons = Box([self.compare_button, self.delete_button, self.question], layout=Layout(**FLOW))
        below = [self.choice, HTML(_HINT), buttons, self.answer, self.comparison]
        super().__init__([self.table, row, *below], layout=Layout(grid_gap="6px"))
        self.show()

    @property
    def chosen(self) -> tuple[str, ...]:
        """The folders of the runs that are chosen."""
        return tuple(self.choice.value)

    def choose(self, *paths: str) -> None:
        """Choose these runs and no other."""
        known = {path for _, path in self.choice.options}
        self.choice.value = tuple(path for path in paths if path in known)

    def rows(self) -> pd.DataFrame:
        """The runs that are chosen; all, where none is."""
        frame = self._runs.frame
        return frame[frame["path"].isin(self.chosen)] if self.chosen else frame

    def show(self) -> None:
        """Fill all from the runs as they are now; the list only when nobody is choosing in it."""
        frame = self._runs.frame
        if not self._choosing:
            self._fill_list()
        self.link.value = "" if frame.empty else _link(frame)
        self.layout.display = "none" if frame.empty else ""
        self._show_table()

    def _fill_list(self) -> None:
        frame = self._runs.frame
        options = [(self._label(row), row.path) for row in frame.iloc[::-1].itertuples(index=False)]
        if options == list(self.choice.options):
            return
        kept, self._filling = {*self.chosen}, True
        with self.choice.hold_sync():  # a browser never sees the new list with another choice
            self.choice.options = options
            self.choice.value = tuple(path for _, path in options if path in kept)
        self._filling = False

    def done_choosing(self) -> None:
        """Something was pressed after choosing: from now on the list shows new runs again."""
        self._choosing = False
        self._fill_list()

    def compare(self) -> None:
        """Hold the runs that are chosen in the list against each other, also when others are chosen from now on.

        From a browser the last choice may arrive after the click, which does not wait in line with the choices.
        """
        self.done_choosing()
        self._comparing = True
        self._show_comparison()

    def clear(self) -> None:
        """Choose none, and say nothing of them."""
        self._comparing = False
        self.choose()
        self.done_choosing()
        self.comparison.value = ""
        self.tell("")

    def turn(self, pages: int) -> None:
        """Go on by so many pages."""
        last = max(0, (len(self._runs.frame) - 1) // ROWS)
        self._page = min(last, max(0, self._page + pages))
        self._show_table()

    def ask_to_delete(self) -> None:
        """Ask before anything is deleted."""
        if not self.chosen:
            self.tell("Choose the runs to delete in the list first.")
            return
        names = ", ".join(str(self._runs.number(path)) for path in self.chosen)
        what = f"run {names}" if len(self.chosen) == 1 else f"the {len(self.chosen)} runs {names}"
        self.tell(f"Delete {what}, with all that was recorded? This cannot be undone.")
        self.question.layout.display = ""

    def delete(self) -> None:
        """Delete the runs that are chosen: the answer yes to the question."""
        self.question.layout.display = "none"
        try:
            self._runs.delete(self.chosen)
            self.tell("Deleted.")
        except CourseError as error:
            self.tell(str(error))
        self._comparing, self.comparison.value = False, ""
        self.done_choosing()
        self.show()
        self._on_choice()

    def keep(self) -> None:
        """Delete nothing: the other answer."""
        self.question.layout.display = "none"
        self.tell("Nothing was deleted.")

    def tell(self, text: str) -> None:
        """Say something below the table."""
        self.answer.value = status_html(text, strong=False)

    def _chosen(self, _: object) -> None:
        if not self._filling:
            self._choosing = bool(self.chosen)
            self.question.layout.display = "none"  # it was about others
            self._show_table()
            if self._comparing:
                self._show_comparison()
            self._on_choice()

    def _show_comparison(self) -> None:
        count = len(self.chosen)
        self.comparison.value = comparison_html(self.rows(), self._runs.name) if count > 1 else ""
        self.tell(
            f"{count} runs are compared; the plot above shows them alone."
            if count > 1
            else "Choose two or more runs in the list to compare them."
        )

    def _show_table(self) -> None:
        frame = self._sorted()
        count, first = len(frame), self._page * ROWS
        shown = frame.iloc[first : first + ROWS]
        self.earlier.disabled, self.later.disabled = first == 0, first + ROWS >= count
        for each in (self.earlier, self.later):
            each.layout.display = "" if count > ROWS else "none"
        if shown.empty:
            self.table.value = ""
            return
        which = (
            f"{count} run{'s' * (count > 1)}" if count <= ROWS else f"{first + 1}–{first + len(shown)} of {count} runs"
        )
        table = run_table(shown)
        same = f"The same for all: {table.same}." if len(shown) > 1 else f"Also: {table.same}."
        columns = [column for column in table.columns if column.title != "Run"]  # people know it by its number
        # Each row for itself: where rows are sorted, repeats need not stand together.
        cells = [[(column, column.fill(row)) for column in columns] for _, row in shown.iterrows()]
        numbered = [(self._runs.number(path), path in self.chosen) for path in shown["path"]]
        self.table.value = _TABLE.render(
            title=which,
            notes=f"{table.caption} {same}",
            columns=columns,
            rows=[(*known, row) for known, row in zip(numbered, cells, strict=True)],
        )

    def _sorted(self) -> pd.DataFrame:
        frame = self._runs.frame
        column = SORTS[self.sort.value]
        if not column:
            return frame if self.ascending.value else frame.iloc[::-1]
        return frame.sort_values(column, ascending=self.ascending.value, kind="stable", na_position="last")

    def _label(self, row: Any) -> str:
        ranks = f"{number(row.world_size)} rank{'s' * (row.world_size != 1)} x {number(row.batch_size)}"
        words = [f"{self._runs.number(row.path)}: {row.model}, {ranks}", f"lr {number(row.peak_lr)}"]
        if row.status != FINISHED:
            words.append(row.status)
        elif row.val_accuracy == row.val_accuracy:
            words.append(f"{100 * row.val_accuracy:.1f} %")
        return ", ".join(words)


def _link(frame: pd.DataFrame) -> str:
    """A link that holds the table itself, without the columns that say nothing."""
    told = frame.loc[:, (frame.notna() & (frame != "")).any()]
    content = base64.b64encode(told.to_csv(index=False).encode(errors="backslashreplace")).decode()
    return _LINK.render(content=content, count=f"{len(frame)} run{'s' * (len(frame) > 1)}")

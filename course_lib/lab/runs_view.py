"""The table of all runs in a folder: sorted, in pages; runs can be chosen, deleted, and taken along as CSV."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pandas as pd
from ipywidgets import HTML, Box, Button, Checkbox, Dropdown, HBox, Layout, SelectMultiple, VBox

from course_lib.errors import CourseError
from course_lib.lab.pages import template
from course_lib.lab.run_table import run_table
from course_lib.lab.runs_folder import RunsFolder
from course_lib.lab.series import number
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
FLOW = {"display": "flex", "flex_flow": "row wrap", "grid_gap": "4px 12px", "align_items": "flex-end"}
LABELLED = {"description_width": "initial"}

_TABLE = template("""\
<div tabindex="0" role="region" aria-label="Table of runs" style="overflow-x:auto">
<table style="border-collapse:collapse;font-size:92%;line-height:1.35;font-variant-numeric:tabular-nums">
<caption style="text-align:left;caption-side:bottom;font-size:92%;padding-top:4px">{{ caption }}</caption>
<thead><tr>
<th scope="col" style="text-align:right;padding:2px 8px;border-bottom:1px solid;vertical-align:bottom">No.</th>
{% for column in columns %}
<th scope="col" style="text-align:{{ 'right' if column.number else 'left' }};padding:2px 8px;border-bottom:1px solid;\
vertical-align:bottom">{{ column.title }}
{%- if column.unit %}<span style="display:block;font-weight:normal">{{ column.unit }}</span>{% endif %}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for no, chosen, row in rows %}
<tr{% if chosen %} style="background:rgba(0,114,178,0.18)"{% endif %}>
<th scope="row" style="text-align:right;padding:2px 8px;white-space:nowrap">{% if chosen %}✓ {% endif %}{{ no }}</th>
{% for column, cell in row %}
<td style="text-align:{{ 'right' if column.number else 'left' }};padding:2px 8px;white-space:nowrap\
{{ ';font-weight:600' if cell.bad }}">{{ cell.text }}
{%- if cell.interval %}<span style="display:block;font-size:90%">{{ cell.interval }}</span>{% endif %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
""")
_LINK = template("""\
<a download="runs.csv" href="data:text/csv;base64,{{ content }}" style="text-decoration:underline;color:inherit">\
Download {{ count }} as CSV</a>
""")
_SAID = template("""<div role="status" style="line-height:1.4">{{ text }}</div>""")


class RunsView(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The runs of a folder. `on_choice` is told when others are chosen."""

    def __init__(self, runs: RunsFolder, on_choice: Callable[[], object]) -> None:
        self._runs, self._on_choice = runs, on_choice
        self._page, self._filling = 0, False
        self.table, self.link, self.answer = HTML(), HTML(), HTML()
        self.sort = Dropdown(description="Sort by", options=list(SORTS), style=LABELLED, layout=Layout(width="210px"))
        self.ascending = Checkbox(description="Smallest first", indent=False, layout=Layout(width="auto"))
        self.earlier, self.later = _button("Previous rows", self.turn, -1), _button("Next rows", self.turn, 1)
        self.choice = SelectMultiple(
            description="Runs to compare", rows=6, style=LABELLED, layout=Layout(width="auto", flex="1 1 420px")
        )
        self.delete_button = _button("Delete…", self.ask_to_delete)
        self.yes, self.no = _button("Yes, delete", self.delete), _button("No, keep", self.keep)
        self.question = HBox([self.yes, self.no], layout=Layout(display="none"))
        for widget in (self.sort, self.ascending):
            widget.observe(lambda _: self.turn(-self._page), "value")
        self.choice.observe(self._chosen, "value")
        row = Box([self.sort, self.ascending, self.earlier, self.later, self.link], layout=Layout(**FLOW))
        below = Box([self.choice, self.delete_button, self.question], layout=Layout(**FLOW))
        super().__init__([row, self.table, below, self.answer])
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
        """Fill all from the runs as they are now."""
        frame = self._runs.frame
        options = [(self._label(row), row.path) for row in frame.iloc[::-1].itertuples(index=False)]
        if options != list(self.choice.options):
            kept = {path for _, path in options} & {*self.chosen}
            self._filling = True
            self.choice.options = options
            self.choice.value = tuple(path for _, path in options if path in kept)
            self._filling = False
        self.link.value = "" if frame.empty else _link(frame)
        self.layout.display = "none" if frame.empty else ""
        self._show_table()

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
        self.show()
        self._on_choice()

    def keep(self) -> None:
        """Delete nothing: the other answer."""
        self.question.layout.display = "none"
        self.tell("Nothing was deleted.")

    def tell(self, text: str) -> None:
        """Say something below the table."""
        self.answer.value = _SAID.render(text=text)

    def _chosen(self, _: object) -> None:
        if not self._filling:
            self.question.layout.display = "none"  # it was about others
            self._show_table()
            self._on_choice()

    def _show_table(self) -> None:
        frame = self._sorted()
        count, first = len(frame), self._page * ROWS
        shown = frame.iloc[first : first + ROWS]
        self.earlier.disabled, self.later.disabled = first == 0, first + ROWS >= count
        if shown.empty:
            self.table.value = ""
            return
        which = (
            f"{count} run{'s' * (count > 1)}" if count <= ROWS else f"{first + 1}–{first + len(shown)} of {count} runs"
        )
        table = run_table(shown)
        same = f"The same for all: {table.same}." if len(shown) > 1 else f"Also: {table.same}."
        # Each row for itself: where rows are sorted, repeats need not stand together.
        cells = [[(column, column.fill(row)) for column in table.columns] for _, row in shown.iterrows()]
        numbered = [(self._runs.number(path), path in self.chosen) for path in shown["path"]]
        self.table.value = _TABLE.render(
            caption=f"{which}. {table.caption} {same}",
            columns=table.columns,
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


def _button(words: str, act: Callable[..., None], *values: Any) -> Button:
    button = Button(description=words, layout=Layout(width="auto"))
    button.on_click(lambda _: act(*values))
    return button


def _link(frame: pd.DataFrame) -> str:
    """A link that holds the table itself, without the columns that say nothing."""
    told = frame.loc[:, (frame.notna() & (frame != "")).any()]
    content = base64.b64encode(told.to_csv(index=False).encode()).decode()
    return _LINK.render(content=content, count=f"{len(frame)} run{'s' * (len(frame) > 1)}")

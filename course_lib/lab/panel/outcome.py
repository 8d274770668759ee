"""What came out of an experiment: guess, prediction and measurement side by side, and why it came out so."""

from __future__ import annotations

from typing import Any

import pandas as pd

from course_lib.config import SIMULATED
from course_lib.errors import CourseError
from course_lib.lab.explain import Explanation, explain
from course_lib.lab.pages import template
from course_lib.lab.words import number
from course_lib.runs.expected import expected_speedup
from course_lib.runs.folder import FINISHED
from course_lib.runs.profiles import Profile
from course_lib.scaling.speedup import RANKS

MOST_ROWS = 8
_OUTCOME = template("""\
{% if rows %}
<div tabindex="0" role="region" aria-label="Table of speedups" style="overflow-x:auto">
<table style="border-collapse:collapse;font-variant-numeric:tabular-nums;margin:2px 0">
<caption style="text-align:left;font-weight:600">Speedup over one rank</caption>
<thead><tr>
<td style="border-bottom:1px solid"></td>
{% for name in head %}
<th scope="col" style="text-align:right;padding:2px 0 2px 12px;border-bottom:1px solid">{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row" style="text-align:left;font-weight:normal;white-space:nowrap">{{ row.ranks }}</th>
{% for value, interval in row.cells %}
<td style="text-align:right;padding:2px 0 2px 12px"><strong>{{ value }}</strong>
{%- if interval %} <span style="font-size:90%">({{ interval }})</span>{% endif %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{% for note in notes %}
<div style="font-size:92%;max-width:70em">{{ note }}</div>
{% endfor %}
{% if explanations %}
<div role="heading" aria-level="4" style="font-weight:600;margin-top:6px">Why?</div>
<ul style="margin:2px 0;padding-left:20px;max-width:64em">
{% for each in explanations %}
<li style="margin:3px 0">{{ each.sentence }} <em>Try next:</em> {{ each.try_next }}</li>
{% endfor %}
</ul>
{% endif %}
""")


def outcome_html(frame: pd.DataFrame, runs: pd.DataFrame, profile: Profile | None) -> str:
    """What came of some runs, all rows of `frame` (see store.py); empty if none has finished.

    The last of those with most ranks is explained.
    """
    finished = runs[runs["status"] == FINISHED]
    if finished.empty:
        return ""
    settings = finished.drop_duplicates([*RANKS, "batch_size", "peak_lr"], keep="last")
    settings = settings.sort_values("world_size", kind="stable")
    rows = [_row(run, frame, profile) for _, run in settings[settings["world_size"] > 1].tail(MOST_ROWS).iterrows()]
    notes = list(dict.fromkeys(note for row in rows for note in row["notes"]))
    simulated = finished["timing"].eq(SIMULATED).all()
    return _OUTCOME.render(
        head=["Your guess", "The model expected", "Simulated" if simulated else "Measured"],
        rows=rows,
        notes=notes if rows else ["One rank alone: what runs on more are compared with."],
        explanations=explanations(frame, str(settings["path"].iloc[-1])),
    )


def explanations(frame: pd.DataFrame, path: str) -> list[Explanation]:
    """Why the run in this folder came out as it did; none if that cannot be told."""
    try:
        return explain(frame, path)
    except CourseError:
        return []


def _row(run: pd.Series[Any], frame: pd.DataFrame, profile: Profile | None) -> dict[str, Any]:
    """One number of ranks: its three cells, and what to know of them."""
    expected = expected_speedup(run, frame, profile)
    cells, notes = [_cell(run["guess"])], []
    if expected is None:
        cells.append(("–", ""))
        notes.append("The model has nothing to go by yet: it needs another run here that is a measurement of speed.")
    else:
        cells.append(_cell(expected.speedup, expected.low, expected.high))
        notes.append(f"The model goes by {expected.basis}. In brackets: where it expects 8 of 10 measurements.")
    cells.append(_cell(run["speedup"], run["speedup_low"], run["speedup_high"]))
    if run["speed_caveats"]:
        notes.append(f"Not a speed measurement: {run['speed_caveats']}.")
    if pd.isna(run["speedup"]):
        notes.append("There is no speedup without a run on one rank that is otherwise the same.")
    ranks = f"{number(run['world_size'])} ranks x {number(run['batch_size'])}"
    return {"ranks": ranks, "cells": cells, "notes": notes}


def _cell(value: Any, low: Any = None, high: Any = None) -> tuple[str, str]:
    if pd.isna(value):
        return "–", ""
    interval = f"{low:.2f} to {high:.2f}" if pd.notna(low) and pd.notna(high) and low < high else ""
    return f"{value:.2f}", interval

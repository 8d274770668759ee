"""Runs side by side: how much faster and how much better, where that can be said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from course_lib.errors import ComparisonError
from course_lib.lab.pages import template
from course_lib.lab.panel.choices import in_titles
from course_lib.lab.words import SETTINGS_OF_A_RUN, differing, in_short
from course_lib.runs.folder import FINISHED
from course_lib.scaling.speedup import compare

MOST = 8  # runs that are told of
_COMPARISON = template("""\
<div role="heading" aria-level="4" style="font-weight:600">{{ title }}</div>
<ul style="margin:2px 0;padding-left:20px;max-width:64em">
{% for sentence in sentences %}
<li style="margin:3px 0">{{ sentence }}</li>
{% endfor %}
</ul>
""")


def comparison_html(runs: pd.DataFrame, name_of: Callable[[str], str]) -> str:
    """Each of the runs (rows of a frame, see store.py) held against the one with fewest ranks, the first of these."""
    finished = runs[runs["status"] == FINISHED].sort_values("world_size", kind="stable")
    if len(finished) < 2:
        return _COMPARISON.render(title="Compare", sentences=["Choose two or more runs that have finished."])
    first, others = finished.iloc[0], finished.iloc[1 : MOST + 1]
    names = differing(finished, SETTINGS_OF_A_RUN)
    sentences = [_sentence(run, first, names, name_of) for _, run in others.iterrows()]
    if len(finished) > MOST + 1:
        sentences.append(f"And {len(finished) - MOST - 1} more, which the plot shows.")
    return _COMPARISON.render(title=f"Compared with {_name(first, names, name_of)}", sentences=sentences)


def _name(run: pd.Series[Any], names: list[str], name_of: Callable[[str], str]) -> str:
    settings = in_short(run, names)
    return name_of(run["path"]) + (f" ({settings})" if settings else "")


def _sentence(run: pd.Series[Any], first: pd.Series[Any], names: list[str], name_of: Callable[[str], str]) -> str:
    try:
        speed = f"{compare(run, first):.2f} times as many images per second"
        doubtful = run["speed_caveats"] or first["speed_caveats"]
        speed += ", which is not a speed measurement." if doubtful else "."
    except ComparisonError as error:
        speed = f"the speeds cannot be compared. {in_titles(str(error))}"
    accuracy = 100 * (run["val_accuracy"] - first["val_accuracy"])
    moved = "" if pd.isna(accuracy) else f"accuracy {accuracy:+.1f} points; "
    return f"{_name(run, names, name_of)}: {moved}{speed}"

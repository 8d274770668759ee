"""Which rows of a frame belong to one line of a plot, and what that line is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED
from course_lib.lab.style import LOOKS, PALETTE, TIMING_UNKNOWN, Look
from course_lib.lab.words import differing, in_short, in_words, number
from course_lib.runs.folder import FINISHED
from course_lib.scaling.speedup import SAME_FOR_SPEED

MAX_COLORS = len(PALETTE)
MOST_CAVEATS = 3  # that stand under a figure
# What makes a line of its own over the number of ranks; `batch` is made by `usable`. The first are named first.
_FIRST = ("model", "batch", "num_nodes", "precision", "optimizer")
# Simulated hardware is told by `devices`.
SETTINGS = (*_FIRST, *(name for name in SAME_FOR_SPEED if name not in (*_FIRST, "timing", "hardware")))


@dataclass(frozen=True)
class Series:
    """The rows of one line, and how to draw it.

    Fields:
        number: its place among the series.
        label: what it is called; lines of one label share colour and marker.
        legend: the label and how many lines have it, or what hides it where an earlier line shows it.
        timing: how its times came about; no series holds two of these.
        rows: its rows.
    """

    number: int
    label: str
    legend: str
    timing: str
    rows: pd.DataFrame
    color: str
    marker: str
    look: Look


def usable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows that a plot of `columns` can show: of runs that finished, with a value in each of them.

    Adds `timing` and `speed_caveats` where the frame has none, and `batch`, which says what is the
    same for every world size: the batch per rank, or the global batch in strong scaling.
    """
    if "status" in frame:
        frame = frame[frame["status"] == FINISHED]
    missing = [name for name in (*columns, "timing", "speed_caveats") if name not in frame]
    frame = frame.reindex(columns=[*frame.columns, *missing]).dropna(subset=list(columns))
    timing, caveats = frame["timing"].astype(object), frame["speed_caveats"].astype(object)
    frame = frame.assign(
        timing=timing.where(timing.isin(list(LOOKS)), TIMING_UNKNOWN),
        speed_caveats=caveats.where(caveats.notna(), ""),
    )
    if "batch_size" in frame and "global_batch_size" in frame:
        frame["batch"] = _batch(frame)
    return frame


def split(
    frame: pd.DataFrame, names: Sequence[str], apart: Sequence[str] = (), alone: str = ""
) -> tuple[list[Series], list[str]]:
    """Part the rows into series: by timing, by the columns of `names` that vary, and by those of `apart`.

    Labels name as many varying columns as there are colours for. The second value returned is a
    note that names the others, if there are any. `apart` is for lines that are a run each: repeats of
    a setting then share a label, and the legend says how many they are. `alone` is what lines are called
    that differ in nothing, in a plot that shows no times; without it, the way of timing.
    """
    varying = differing(frame, names)
    shown: list[str] = []
    for name in varying:
        if len(frame[[*shown, name]].drop_duplicates()) <= MAX_COLORS:
            shown.append(name)
    rest = [in_words(name) for name in varying if name not in shown]
    frame = frame.sort_values(varying, kind="stable") if varying else frame
    keys = ["timing", *varying, *(name for name in apart if name in frame)]
    timings = [timing for timing in LOOKS if (frame["timing"] == timing).any()]
    numbers: dict[tuple[Any, ...], int] = {}
    series: list[Series] = []
    for _, rows in frame.groupby(keys, dropna=False, observed=True, sort=False):
        first = rows.iloc[0]
        key = tuple(str(first[name]) for name in shown)
        place = numbers.setdefault(key, len(numbers))
        look = LOOKS[first["timing"]]
        label = in_short(first, shown)
        if len(timings) > 1:
            label = ", ".join(filter(None, (label, first["timing"])))
        label = label or alone or first["timing"]
        known = any(label == earlier.label for earlier in series)
        series.append(
            Series(
                number=len(series),
                label=label,
                legend="_nolegend_" if known else label,
                timing=first["timing"],
                rows=rows,
                color=PALETTE[place if shown else timings.index(first["timing"])],
                marker=look.markers[place % len(look.markers)],
                look=look,
            )
        )
    series.sort(key=lambda each: timings.index(each.timing))
    if apart:
        series = _count_repeats(series)
    return series, [f"Lines of one colour differ in: {', '.join(rest)}."] if rest else []


def _count_repeats(series: list[Series]) -> list[Series]:
    """The same series; the one that stands in the legend for several says for how many."""
    counts = Counter(each.label for each in series)
    return [
        replace(each, legend=f"{each.label} ({counts[each.label]} runs)")
        if each.legend == each.label and counts[each.label] > 1
        else each
        for each in series
    ]


def identity(frame: pd.DataFrame) -> str:
    """The column that tells runs apart: two in different folders may have the same name."""
    return "path" if "path" in frame else "run"


def how_timed(frame: pd.DataFrame) -> str:
    """How the times of a frame came about, for a title: ", measured on GPUs, simulated"."""
    return "".join(f", {timing}" for timing in LOOKS if (frame["timing"] == timing).any())


def rank_words(frame: pd.DataFrame) -> tuple[str, str]:
    """What one rank of these runs is called, and several."""
    present = set(frame["timing"])
    if present == {MEASURED_ON_CPU_RANKS}:
        return "CPU rank", "CPU ranks"
    if present <= {MEASURED_ON_GPUS, SIMULATED}:
        return "GPU", "GPUs"
    return "rank", "GPUs or CPU ranks"


def caveat_notes(frame: pd.DataFrame) -> list[str]:
    """The notes on rows that are not a speed measurement, each caveat once."""
    texts = sorted({part for text in set(frame["speed_caveats"]) for part in text.split("; ") if part})
    notes = [f"Not a speed measurement: {text}" for text in texts[:MOST_CAVEATS]]
    if more := len(texts) - len(notes):
        reasons = "1 more reason" if more == 1 else f"{more} more reasons"
        notes.append(f'A report on these runs names {reasons}, under "How the times came about".')
    return notes


def _batch(frame: pd.DataFrame) -> pd.Series[Any]:
    """What is the same for every world size, as text that sorts by size."""
    strong = frame["scaling"] == "strong" if "scaling" in frame else pd.Series(False, index=frame.index)
    sizes = frame["batch_size"].mask(strong, frame["global_batch_size"]).astype(float)
    keys = list(zip(sizes, strong, strict=True))
    words = {key: f"global batch {number(key[0])}" if key[1] else f"batch {number(key[0])} per rank" for key in keys}
    kind = pd.CategoricalDtype([words[key] for key in sorted(words)], ordered=True)
    return pd.Series([words[key] for key in keys], index=frame.index, dtype=kind)

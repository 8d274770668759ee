"""Plots of where the time goes: the parts of a step, and the ranks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.config import WARMUP_STEPS, untimed_steps
from course_lib.lab.plots.series import SETTINGS, caveat_notes, how_timed, identity, rank_words, split, usable
from course_lib.lab.style import (
    GREY,
    NOT_A_SPEED,
    SMALL,
    finish,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
    plain,
)
from course_lib.lab.words import number

# Part of a step: colour and hatch. `other` is what a step took beyond the four.
PHASES = {
    "data": ("#3D97D0", "////"),
    "forward": ("#C08400", ""),
    "backward": ("#0072B2", "\\\\\\\\"),
    "optimizer": ("#009E73", "...."),
    "other": ("#BBBBBB", ""),
}
MEASURED_PHASES = tuple(PHASES)[:4]
CROWDED = 10  # bars from which on their totals stand upright
WINDOW = 3  # steps that a timeline shows
SEEN_FROM = 0.02  # of the longest step: an `other` below that is no part worth a colour
OTHER = "Other: what a step takes beyond its four parts."
MEDIANS = "Bars are medians over steps. A speedup compares means, in which slow steps count too, so the two can differ."
BACKWARD = "Backward includes the exchange of gradients, and the wait for slower ranks."


class Bar(NamedTuple):
    """The step of one number of ranks: milliseconds of each phase, in the order of `PHASES`."""

    group: str
    world_size: int
    milliseconds: tuple[float, ...]
    hollow: bool


def time_split(frame: pd.DataFrame) -> Figure:
    """Milliseconds of a step's parts for each number of ranks: stacked bars of medians over the runs.

    `frame` has one row a run, as `store.frame` gives it. Measured and simulated times stand in
    groups of their own.
    """
    columns = [f"{phase}_seconds" for phase in MEASURED_PHASES]
    rows = usable(frame, ["world_size", "step_seconds", *columns])
    figure, (axes,) = new_figure()
    title = f"Where the time of a step goes{how_timed(rows)}"
    label_axes(axes, f"Number of {rank_words(rows)[1]}", "Time of one step (milliseconds)")
    axes.grid(False, axis="x")
    if rows.empty:
        nothing_to_draw(axes, text := "No finished run has recorded the parts of its steps.")
        return finish(figure, title, [], [text])
    bars, notes = _bars(rows, columns)
    phases = _visible(np.array([bar.milliseconds for bar in bars]))
    _draw_bars(axes, bars, phases)
    _phase_legend(axes, phases[::-1], any(bar.hollow for bar in bars))
    facts = [_bar_in_words(bar, phases) for bar in bars]
    return finish(figure, title, [MEDIANS, *_explained(phases), *notes, *caveat_notes(rows)], facts)


def timeline(steps: pd.DataFrame, run: str | None = None) -> Figure:
    """What each rank does during a few steps of one epoch in the middle of a run, past the slow first ones.

    `steps` has one row a step and rank, as `store.steps` gives it. `run` names the run; without it,
    the one with most ranks. A rank reports how long it was in each phase of a step; where it goes
    through a phase several times (accumulation), the times stand together.
    """
    rows = usable(steps, ["run", "rank", "step", "start", "seconds", *MEASURED_PHASES])
    figure, (axes,) = new_figure()
    axes.grid(False, axis="y")
    label_axes(axes, "Time (milliseconds)", "Rank")
    if run is not None:
        rows = rows[rows["run"] == run]
    if rows.empty:
        nothing_to_draw(axes, text := "No run here has recorded the start of its steps.")
        return finish(figure, "What each rank does", [], [text])
    one = rows.groupby(identity(rows))["rank"].nunique().idxmax()
    rows = rows[rows[identity(rows)] == one]
    name = rows["run"].iloc[0]
    shown, note = _typical_steps(rows)
    rows = rows[rows["step"].isin(shown)]
    took = rows[[*MEASURED_PHASES]].astype(float)
    other = (rows["seconds"].astype(float) - took.sum(axis=1)).clip(lower=0)
    phases = _visible(took.assign(other=other).to_numpy())
    facts = _draw_timeline(axes, rows.assign(other=other), phases)
    which = f"step {shown[0]}" if len(shown) == 1 else f"steps {shown[0]} to {shown[-1]}"
    title = f"What each rank does during {which} of {name}"
    notes = [f"Times {rows['timing'].iloc[0]}. {BACKWARD}", *_explained(phases), note]
    return finish(figure, title, [*notes, *caveat_notes(rows)], facts)


def _typical_steps(rows: pd.DataFrame) -> tuple[list[int], str]:
    """The steps of a run that a timeline shows, and the note that says why these.

    All are of one epoch: between two epochs the ranks evaluate, which no step tells of.
    """
    epochs = rows.drop_duplicates("step").sort_values("step").set_index("step")["epoch"].fillna(1)
    skipped = untimed_steps(len(epochs))
    timed = epochs.iloc[skipped:]
    of_epoch = timed.index[timed == timed.iloc[len(timed) // 2]].astype(int)
    first = max(0, (len(of_epoch) - WINDOW) // 2)
    if skipped < WARMUP_STEPS:
        note = f"Not typical: the run has {len(epochs)} steps, and the first {WARMUP_STEPS} of a run are often slower."
    else:
        note = f"From the middle of the run: its first {WARMUP_STEPS} steps, which are often slower, are not shown."
    return list(of_epoch[first : first + WINDOW]), note


def _bars(rows: pd.DataFrame, columns: list[str]) -> tuple[list[Bar], list[str]]:
    series, notes = split(rows, SETTINGS)
    groups: dict[str, list[pd.DataFrame]] = {}
    for each in series:
        groups.setdefault(each.label, []).append(each.rows)
    bars = []
    for label, parts in groups.items():
        for size, of_size in pd.concat(parts).groupby("world_size", sort=True):
            medians = 1000 * of_size[[*columns, "step_seconds"]].astype(float).median()
            phases = [float(medians[column]) for column in columns]
            other = max(0.0, float(medians["step_seconds"]) - sum(phases))
            hollow = bool((of_size["speed_caveats"] != "").any())
            bars.append(Bar(label, int(number(size)), (*phases, other), hollow))
    return bars, [note.replace("Lines of one colour", "Runs in one bar") for note in notes]


def _visible(milliseconds: np.ndarray) -> tuple[str, ...]:
    """The phases to draw, of rows with one time for each of `PHASES`: `other` only where it is seen."""
    return tuple(PHASES) if milliseconds[:, -1].max() > SEEN_FROM * milliseconds.sum(axis=1).max() else MEASURED_PHASES


def _explained(phases: Sequence[str]) -> list[str]:
    return [OTHER] if "other" in phases else []


def _draw_bars(axes: Axes, bars: list[Bar], phases: Sequence[str]) -> None:
    """Stack the phases of each bar; a gap and a name set the groups apart."""
    groups = list(dict.fromkeys(bar.group for bar in bars))
    places = np.array([place + 0.8 * groups.index(bar.group) for place, bar in enumerate(bars)])
    heights = np.array([bar.milliseconds for bar in bars])
    totals = heights.sum(axis=1)
    for index, phase in enumerate(phases):
        color, hatch = PHASES[phase]
        bottoms = heights[:, :index].sum(axis=1)
        patches = axes.bar(
            places, heights[:, index], 0.7, bottoms, color=color, hatch=hatch, edgecolor="white", gid=phase
        )
        for patch, bar in zip(patches, bars, strict=True):
            if bar.hollow:
                patch.set(facecolor="white", edgecolor=color, linewidth=1.5)
    turn = 90 if len(bars) > CROWDED else 0
    for place, total in zip(places, totals, strict=True):
        above = axes.annotate(f"{total:.3g}", (place, total), (0, 3), textcoords="offset points", ha="center")
        above.set(fontsize=SMALL, rotation=turn)
    axes.set_xticks(places, [str(bar.world_size) for bar in bars])
    if len(groups) > 1:
        _name_groups(axes, bars, places)
    middle, half = (places[0] + places[-1]) / 2, max((places[-1] - places[0]) / 2 + 0.6, 2.0)
    axes.set_xlim(middle - half, middle + half)
    axes.set_ylim(0, 1.12 * totals.max())


def _name_groups(axes: Axes, bars: list[Bar], places: np.ndarray) -> None:
    """Write the name of each group of bars under their world sizes."""
    groups = list(dict.fromkeys(bar.group for bar in bars))
    centers = [float(places[[bar.group == group for bar in bars]].mean()) for group in groups]
    axes.xaxis.remove_overlapping_locs = False  # a name may stand under a tick
    counts = [sum(bar.group == group for bar in bars) + 0.8 for group in groups]
    widths = [max(10, int(85 * count / sum(counts))) for count in counts]  # characters
    texts = [fill(plain(group), width) for group, width in zip(groups, widths, strict=True)]
    axes.set_xticks(centers, texts, minor=True, fontsize=SMALL)
    axes.tick_params(axis="x", which="minor", length=0, pad=20)


def _draw_timeline(axes: Axes, rows: pd.DataFrame, phases: Sequence[str]) -> list[str]:
    """One lane a rank, one box a phase; a tick where a step begins. Returns the time in each phase in words."""
    origin = float(rows["start"].min())
    ranks = sorted({int(rank) for rank in rows["rank"]})
    facts = []
    for rank in ranks:
        of_rank = rows[rows["rank"] == rank].sort_values("step")
        begin = 1000 * (of_rank["start"].to_numpy(float) - origin)
        words = []
        for phase in phases:
            color, hatch = PHASES[phase]
            took = 1000 * of_rank[phase].to_numpy(float)
            boxes = list(zip(begin, took, strict=True))
            axes.broken_barh(
                boxes, (rank - 0.36, 0.72), facecolor=color, hatch=hatch, edgecolor="white", linewidth=0.5, gid=phase
            )
            begin = begin + took
            words.append(f"{phase} {np.nanmedian(took):.3g}")
        starts = 1000 * (of_rank["start"].to_numpy(float) - origin)
        axes.vlines(starts, rank - 0.44, rank + 0.44, color="black", linewidth=1.6)
        facts.append(f"Rank {rank}, median milliseconds a step: {', '.join(words)}")
    axes.set_ylim(max(ranks) + 0.6, min(ranks) - 0.6)
    axes.set_yticks(ranks[:: 1 + len(ranks) // 16])
    axes.set_xlim(left=0)
    _phase_legend(axes, phases)
    return facts


def _phase_legend(axes: Axes, phases: Sequence[str], hollow: bool = False) -> None:
    entries = [
        Patch(facecolor=PHASES[phase][0], hatch=PHASES[phase][1], edgecolor="white", label=phase) for phase in phases
    ]
    if hollow:
        entries.append(Patch(facecolor="white", edgecolor=GREY, label=NOT_A_SPEED))
    legend_beside(axes, entries)


def _bar_in_words(bar: Bar, phases: Sequence[str]) -> str:
    parts = ", ".join(f"{phase} {took:.3g}" for phase, took in zip(phases, bar.milliseconds, strict=False))
    caveat = " (not a speed measurement)" if bar.hollow else ""
    ranks = "1 rank" if bar.world_size == 1 else f"{bar.world_size} ranks"
    return f"{bar.group}, {ranks}{caveat}: {sum(bar.milliseconds):.3g} ms a step: {parts}"

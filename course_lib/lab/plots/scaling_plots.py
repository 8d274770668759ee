"""Plots over the number of GPUs: speedup, efficiency, throughput."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lab.plots.series import SETTINGS, Series, caveat_notes, how_timed, rank_words, split, usable
from course_lib.lab.style import (
    GREY,
    finish,
    hollow_entry,
    integer_axis,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
    say,
)

LOGARITHMIC_FROM = 17  # ranks: below, a linear axis shows each of them


def speedup(frame: pd.DataFrame) -> Figure:
    """Speedup over one rank against the number of ranks, with the ideal line.

    `frame` has one row a run, as `store.frame` gives it. Bars are the 90 % interval over the repeats.
    """
    rows = usable(frame, ["world_size", "speedup"])
    figure, (axes,) = new_figure()
    one, many = rank_words(rows)
    label_axes(axes, f"Number of {many}", f"Speedup over one {one} (times)")
    title = f"Speedup{_scaling(rows)}{how_timed(rows)}"
    if rows.empty:
        return _nothing(figure, axes, title, frame, "speedup")
    sizes = _sizes(rows)
    largest = max(sizes)
    ideal = np.unique([1, *sizes])
    axes.plot(ideal, ideal, color=GREY, linewidth=1.2, label="ideal: N times on N", gid="ideal")
    facts, notes = _draw(axes, rows, ("speedup", "speedup_low", "speedup_high"), "{:.2f}")
    if _size_axis(axes, sizes):
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, max(largest, float(rows["speedup"].max())) * 1.12 + (largest == 1))
    if sizes == [1]:
        say(axes, hint := f"Run with more {many} (num_gpus=2, 4, …) to see a speedup.", 0.85)
        facts.append(hint)
    legend_beside(axes, hollow_entry(rows))
    return finish(figure, title, notes, facts)


def efficiency(frame: pd.DataFrame) -> Figure:
    """Speedup divided by the number of ranks, in percent, against the number of ranks."""
    rows = usable(frame, ["world_size", "efficiency"])
    names = ["efficiency", "efficiency_low", "efficiency_high"]
    rows = rows.assign(**{name: 100 * rows[name].astype(float) for name in names if name in rows})
    figure, (axes,) = new_figure()
    many = rank_words(rows)[1]
    label_axes(axes, f"Number of {many}", "Efficiency: speedup / number (%)")
    title = f"Scaling efficiency{_scaling(rows)}{how_timed(rows)}"
    if rows.empty:
        return _nothing(figure, axes, title, frame, "efficiency")
    sizes = _sizes(rows)
    axes.axhline(100, color=GREY, linewidth=1.2, label="ideal: 100 %", gid="ideal")
    facts, notes = _draw(axes, rows, (names[0], names[1], names[2]), "{:.0f} %")
    _size_axis(axes, sizes)
    axes.set_ylim(0, max(115.0, 1.08 * float(rows["efficiency"].max())))
    if sizes == [1]:
        say(axes, hint := f"Run with more {many} (num_gpus=2, 4, …) to see how well each is used.", 0.4)
        facts.append(hint)
    legend_beside(axes, hollow_entry(rows))
    return finish(figure, title, notes, facts)


def throughput(frame: pd.DataFrame) -> Figure:
    """Images a second over all ranks against their number: each run, and a line through the medians."""
    rows = usable(frame, ["world_size", "images_per_sec"])
    figure, (axes,) = new_figure()
    label_axes(axes, f"Number of {rank_words(rows)[1]}", "Training images a second, over all ranks")
    title = f"Throughput{_scaling(rows)}{how_timed(rows)}"
    if rows.empty:
        return _nothing(figure, axes, title, frame, "throughput")
    facts, notes = _draw(axes, rows, ("images_per_sec", "", ""), "{:,.0f} images/s")
    for series in split(rows, SETTINGS)[0]:
        size, rate = series.rows["world_size"], series.rows["images_per_sec"]
        axes.scatter(size, rate, s=14, color=series.color, alpha=0.45, linewidths=0, gid=series.timing, zorder=3)
    if _size_axis(axes, _sizes(rows)):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * float(rows["images_per_sec"].max()))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    if rows.groupby(["world_size", "batch"] if "batch" in rows else "world_size").size().max() > 1:
        notes = ["Small dots are runs; the line goes through their medians.", *notes]
    legend_beside(axes, hollow_entry(rows))
    return finish(figure, title, notes, facts)


def _draw(axes: Axes, rows: pd.DataFrame, names: tuple[str, str, str], form: str) -> tuple[list[str], list[str]]:
    """Draw `names` (value, low, high) of each series; returns what was drawn in words, and the notes."""
    series, notes = split(rows, SETTINGS)
    for each in series:
        legend = each.legend
        for hollow, part in each.rows.groupby(each.rows["speed_caveats"] != "", sort=True):
            _draw_points(axes, each, _medians(part, names), legend, bool(hollow))
            legend = "_nolegend_"
    facts = []
    for label in dict.fromkeys(each.label for each in series):
        of_label = pd.concat([each.rows for each in series if each.label == label])
        facts.append(f"{label}: {_in_words(of_label, names, form)}")
    if names[2] in rows and (rows[names[2]] > rows[names[1]]).any():
        notes = ["Bars: 90 % interval over the repeats.", *notes]
    return facts, [*notes, *caveat_notes(rows)]


def _draw_points(axes: Axes, series: Series, points: pd.DataFrame, legend: str, hollow: bool) -> None:
    """Draw points with their intervals: joined by the line of their series, or hollow and not joined."""
    middle = points["value"].to_numpy(float)
    sides = np.array([middle - points["low"].to_numpy(float), points["high"].to_numpy(float) - middle])
    axes.errorbar(
        points.index.to_numpy(int),
        middle,
        yerr=np.where(sides > 0, sides, np.nan) if (sides > 0).any() else None,
        color=series.color,
        marker=series.marker,
        markerfacecolor="white" if hollow else series.color,
        markersize=series.look.size,
        linestyle="" if hollow else series.look.line,
        linewidth=1.8,
        elinewidth=1.2,
        capsize=4,
        label=legend,
        gid=series.timing,
        zorder=series.look.order,
    )


def _medians(rows: pd.DataFrame, names: tuple[str, str, str]) -> pd.DataFrame:
    """One row a world size: columns value, low, high. NaN where `names` has no column for one."""
    columns = {"value": names[0], "low": names[1], "high": names[2]}
    table = pd.DataFrame({new: pd.to_numeric(rows[old]) if old in rows else np.nan for new, old in columns.items()})
    return table.groupby(rows["world_size"].astype(int)).median().sort_index()


def _in_words(rows: pd.DataFrame, names: tuple[str, str, str], form: str) -> str:
    """The medians: "1.00 on 1, 1.90 (1.85 to 1.94) on 2"."""
    words = []
    doubtful = set(rows.loc[rows["speed_caveats"] != "", "world_size"])
    for size, (value, low, high) in _medians(rows, names).iterrows():
        interval = f" ({form.format(low)} to {form.format(high)})" if high > low else ""
        words.append(f"{form.format(value)}{interval} on {size}" + ", not a speed measurement" * (size in doubtful))
    return "; ".join(words)


def _scaling(rows: pd.DataFrame) -> str:
    kinds = sorted(set(rows["scaling"].dropna())) if "scaling" in rows else []
    return f", {kinds[0]} scaling" if len(kinds) == 1 else ""


def _sizes(rows: pd.DataFrame) -> list[int]:
    return sorted({int(size) for size in rows["world_size"]})


def _size_axis(axes: Axes, sizes: list[int]) -> bool:
    """Put the world sizes on the horizontal axis; whether it had to be logarithmic."""
    logarithmic = max(sizes) >= LOGARITHMIC_FROM
    integer_axis(axes, sizes, logarithmic)
    if not logarithmic:
        axes.set_xlim(0, max(sizes) + max(1.0, 0.08 * max(sizes)))
    return logarithmic


def _nothing(figure: Figure, axes: Axes, title: str, frame: pd.DataFrame, what: str) -> Figure:
    """Say why there is nothing to draw."""
    finished = usable(frame, ["world_size"])
    if finished.empty:
        text = "No run has finished yet. Launch one, and draw this again."
    elif what == "throughput":
        text = "The runs that finished reported no throughput."
    else:
        text = f"No {what}: it needs a run on one GPU or CPU rank that is otherwise the same. Run that with num_gpus=1."
    nothing_to_draw(axes, text)
    return finish(figure, title, [], [text])

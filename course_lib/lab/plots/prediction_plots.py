"""Plots of what the scaling model predicts: throughput beside what was measured, and the parts of a step."""

from __future__ import annotations

from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.config import MEASURED_ON_GPUS, SIMULATED
from course_lib.lab.plots.predictions import (
    BAND,
    MEASURED_COLOR,
    PREDICTED,
    WIDE,
    Curve,
    band_entry,
    curves,
    doubling_axis,
    draw_prediction,
    nothing_predicted,
    ratio_axis,
    three_digits,
    told,
    what_differs,
)
from course_lib.lab.plots.series import SETTINGS, Series, caveat_notes, how_timed, split, usable
from course_lib.lab.style import (
    GREY,
    SMALL,
    WIDTH,
    finish,
    hollow_entry,
    label_axes,
    legend_beside,
    new_figure,
    plain,
)
from course_lib.lab.words import percent

# Part of a step: its name for people, colour and hatch.
PARTS = {
    "compute_s": ("compute", "#0072B2", ""),
    "straggler_s": ("waiting for the slowest", "#C08400", "////"),
    "communication_s": ("communication that is not hidden", "#CC79A7", "xxxx"),
}
MOST_PANELS = 3
TITLE_ROOM = 90  # characters over all panels
MOST_NAMED = 15  # bars in a figure that there is room to name
IDEAL = "ideal: each stays as fast"
HOW = "StepTimeModel.predict"


def predicted_throughput(predicted: pd.DataFrame, measured: pd.DataFrame | None = None) -> Figure:
    """Images a second against the number of GPUs, predicted and measured: of all together, and of each.

    Args:
        predicted: one row a prediction: `gpus`, `local_batch`, and what `StepTimeModel.predict` returned for them
            (`frame.join(model.predict(frame))`). A column `hardware` names what the prediction is for; each name
            has a line of its own, and so has each batch.
        measured: one row a run, as `store.frame` gives it. Simulated runs are left out: their times are predictions.

    Raises:
        ComparisonError: two rows predict for one number of GPUs and differ neither in hardware nor in the batch.
    """
    shown, notes = curves(predicted, ["throughput", "step_time_s", "low", "high"])
    runs = usable(pd.DataFrame() if measured is None else measured, ["world_size", "images_per_sec"])
    simulated = runs["timing"] == SIMULATED
    runs = runs[~simulated]
    labels, common = what_differs(shown)
    title = f"Throughput, predicted {common}".rstrip() + how_timed(runs).replace(",", ", and", 1)
    if not shown:
        return nothing_predicted(title, "a throughput", HOW)
    figure, (together, each) = new_figure(columns=2, width=WIDE)
    who = "GPUs" if set(runs["timing"]) <= {MEASURED_ON_GPUS} else "GPUs or CPU ranks"
    label_axes(together, f"Number of {who}", "Images a second, all together")
    label_axes(each, f"Number of {who}", "Images a second, each")
    facts = [_draw_rates(together, each, curve, label) for curve, label in zip(shown, labels, strict=True)]
    series, more = split(runs, SETTINGS)
    facts += [_draw_runs(together, each, one, place) for place, one in enumerate(series)]
    for axes in (together, each):
        doubling_axis(axes, [*np.concatenate([curve.gpus for curve in shown]), *runs["world_size"].astype(float)])
    ratio_axis(together)
    each.set_ylim(bottom=0)
    each.yaxis.set_major_formatter("{x:,g}")
    legend_beside(each, [band_entry(), *hollow_entry(runs)], of=together)
    notes = [BAND, *notes]
    if not runs.empty:
        notes.append("Large marks: medians of the runs; small dots: runs.")
    if simulated.any():
        notes.append("Simulated runs are left out: their times are predictions.")
    return finish(figure, title, [*notes, *more, *caveat_notes(runs)], facts)


def predicted_step(predicted: pd.DataFrame) -> Figure:
    """What a step consists of for each number of GPUs, predicted, in milliseconds: a panel for each hardware or batch.

    `predicted` has one row a prediction, as `predicted_throughput` takes it.
    """
    shown, notes = curves(predicted, list(PARTS), MOST_PANELS)
    labels, common = what_differs(shown)
    title = f"Where the time of a step goes, predicted {common}".rstrip()
    if not shown:
        return nothing_predicted(title, "the parts of a step", HOW)
    figure, panels = new_figure(columns=len(shown), width=WIDTH if len(shown) == 1 else WIDE)
    facts = []
    for axes, curve, label in zip(panels, shown, labels, strict=True):
        rows = told(curve.rows)
        label_axes(axes, "Number of GPUs", "Time of one step (milliseconds)" if axes is panels[0] else "")
        _draw_parts(axes, rows, MOST_NAMED // len(shown))
        if len(shown) > 1:
            axes.set_title(fill(plain(label), TITLE_ROOM // len(shown)), fontsize=SMALL, loc="left")
        facts.append(f"{label}, milliseconds a step: {_parts_in_words(rows)}")
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(0, top)
        axes.tick_params(labelleft=axes is panels[0])
    legend_beside(panels[-1], _part_entries())
    return finish(figure, title, ["All times are predicted, none was measured.", *notes], facts)


def _draw_rates(together: Axes, each: Axes, curve: Curve, label: str) -> str:
    """Draw a curve, its band and its ideal in both panels; returns it in words."""
    rate, step, gpus = curve.values("throughput"), curve.values("step_time_s"), curve.gpus
    low, high = rate * step / curve.values("high"), rate * step / curve.values("low")
    one = rate[0] / gpus[0]
    known = IDEAL in together.get_legend_handles_labels()[1]
    together.plot(gpus, one * gpus, color=GREY, linewidth=1, gid="ideal", label="_nolegend_" if known else IDEAL)
    each.plot(gpus, np.full(len(gpus), one), color=GREY, linewidth=1, gid="ideal")
    legend = label if label == PREDICTED else f"{PREDICTED}: {label}"
    draw_prediction(together, gpus, (rate, low, high), legend, curve.color, curve.dots)
    draw_prediction(each, gpus, (rate / gpus, low / gpus, high / gpus), legend, curve.color, curve.dots)
    table = told(pd.DataFrame({"gpus": gpus, "rate": rate, "low": low, "high": high}))
    words = [
        f"{three_digits(r)} ({three_digits(lo)} to {three_digits(hi)}) on {n:g}, {percent(r / n / one)} of ideal"
        for n, r, lo, hi in table.to_numpy()
    ]
    return f"{legend}, images a second: {'; '.join(words)}"


def _draw_runs(together: Axes, each: Axes, series: Series, place: int) -> str:
    """Draw runs that were measured, and the medians of each number of ranks; returns these in words.

    They are black, since colours tell predictions apart, and joined by nothing.
    """
    marker = series.look.markers[place % len(series.look.markers)]
    label = series.label if series.timing in series.label else f"{series.timing}: {series.label}"
    legend = "_nolegend_" if series.legend == "_nolegend_" else label
    words = []
    for hollow, runs in series.rows.groupby(series.rows["speed_caveats"] != "", sort=True):
        size, rate = runs["world_size"].to_numpy(float), runs["images_per_sec"].to_numpy(float)
        sizes = np.unique(size)
        medians = np.array([np.median(rate[size == n]) for n in sizes])
        for axes, of_run, of_median in ((together, 1, 1), (each, size, sizes)):
            axes.scatter(size, rate / of_run, s=10, color=MEASURED_COLOR, alpha=0.5, linewidths=0, gid=series.timing)
            axes.plot(
                sizes,
                medians / of_median,
                color=MEASURED_COLOR,
                marker=marker,
                markerfacecolor="white" if hollow else MEASURED_COLOR,
                markersize=series.look.size,
                linestyle="",
                label=legend,
                gid=series.timing,
                zorder=6,
            )
        legend = "_nolegend_"
        caveat = ", not a speed measurement" if hollow else ""
        words += [f"{three_digits(r)} on {n:g}{caveat}" for n, r in zip(sizes, medians, strict=True)]
    return f"{label}, median images a second: {'; '.join(words)}"


def _draw_parts(axes: Axes, rows: pd.DataFrame, most_named: int) -> None:
    """Stack the parts of a step, one bar a number of GPUs; what a step takes stands above it."""
    places, bottom = np.arange(len(rows)), np.zeros(len(rows))
    for name, (_, color, hatch) in PARTS.items():
        height = 1000 * rows[name].to_numpy(float)
        axes.bar(places, height, 0.75, bottom, color=color, hatch=hatch, edgecolor="white", linewidth=0.5, gid=name)
        bottom += height
    for place, total in zip(places, bottom, strict=True):
        above = axes.annotate(three_digits(total), (place, total), (0, 3), textcoords="offset points", ha="center")
        above.set(fontsize=SMALL, rotation=90 if len(rows) > most_named / 2 else 0)
    every = -(-len(rows) // most_named)
    axes.set_xticks(places[::every], [f"{gpus:g}" for gpus in rows["gpus"].iloc[::every]])
    middle, half = (len(rows) - 1) / 2, max(len(rows) / 2 + 0.3, 2.0)
    axes.set_xlim(middle - half, middle + half)
    axes.set_ylim(0, 1.15 * bottom.max())
    axes.grid(False, axis="x")


def _part_entries() -> list[Patch]:
    return [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=name)
        for name, color, hatch in reversed(PARTS.values())
    ]


def _parts_in_words(rows: pd.DataFrame) -> str:
    """The parts of each step: "36.1 on 32, 95 % of it compute (waiting 1.41, communication 0.553); …"."""
    words = []
    for _, row in rows.iterrows():
        took = {name: 1000 * float(row[name]) for name in PARTS}
        total = sum(took.values())
        waiting, communication = (three_digits(took[name]) for name in ("straggler_s", "communication_s"))
        words.append(
            f"{three_digits(total)} on {row['gpus']:g}, {percent(took['compute_s'] / total)} of it compute "
            f"(waiting {waiting}, communication that is not hidden {communication})"
        )
    return "; ".join(words)

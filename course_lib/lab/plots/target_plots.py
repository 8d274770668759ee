"""Plots of what it takes to reach a target accuracy: time and cost, epochs, and how noisy the gradients are."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    finite,
    nothing_predicted,
    ratio_axis,
    three_digits,
    told,
    what_differs,
)
from course_lib.lab.plots.series import identity
from course_lib.lab.style import (
    GREY,
    PALETTE,
    SMALL,
    finish,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
    whole_numbers,
)
from course_lib.lab.words import percent

WORTH = 0.1  # of the time: a doubling of the GPUs that saves less is not worth it
DEAR = 2.0  # times the lowest cost
LIMITS = (
    f"Diamond: from here on each doubling of the GPUs saves less than {percent(WORTH)} of the time. "
    f"Square: from here on the cost is {DEAR:g} times the lowest, or more."
)
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
COSTS = ["gpu_hours", "gpu_hours_low", "gpu_hours_high"]


def time_to_accuracy(predicted: pd.DataFrame, target: str = "the target accuracy") -> Figure:
    """How long it takes to reach a target accuracy against the number of GPUs, and how many GPU-hours that costs.

    It marks from which number of GPUs on each doubling saves less than a tenth of the time, and from which on the cost
    is twice the lowest.

    Args:
        predicted: one row a prediction: `gpus`, `local_batch`, and what `scaling.batch_size.time_to_accuracy` returned
            for them (`frame.join(time_to_accuracy(..., frame, ...))`). A column `hardware` names what the prediction
            is for; each name has a line of its own, and so has each batch.
        target: what is to be reached, in words: "93 % accuracy".

    Raises:
        ComparisonError: two rows predict for one number of GPUs and differ neither in hardware nor in the batch.
    """
    shown, notes = curves(predicted, ["seconds", "low", "high", *COSTS])
    labels, common = what_differs(shown)
    title = f"Time and cost to reach {target}, predicted {common}".rstrip()
    if not shown:
        return nothing_predicted(title, "the time to an accuracy", "scaling.batch_size.time_to_accuracy")
    figure, (time, cost) = new_figure(columns=2, width=WIDE)
    size, unit = _unit(np.concatenate([curve.values("seconds") for curve in shown]))
    label_axes(time, "Number of GPUs", f"Time to {target} ({unit})")
    label_axes(cost, "Number of GPUs", "Cost (GPU-hours)")
    facts, marked = [], False
    for curve, label in zip(shown, labels, strict=True):
        times = [curve.values(name) / size for name in ("seconds", "low", "high")]
        draw_prediction(time, curve.gpus, times, label, curve.color, curve.dots)
        draw_prediction(cost, curve.gpus, [curve.values(name) for name in COSTS], label, curve.color, curve.dots)
        limits = _mark_limits(time, cost, curve, size)
        marked = marked or bool(limits)
        facts.append("; ".join([_time_in_words(curve, label, size, unit), *limits]))
    for axes in (time, cost):
        doubling_axis(axes, np.concatenate([curve.gpus for curve in shown]).tolist())
        ratio_axis(axes)
    if max(len(curve.rows) for curve in shown) == 1:
        notes.append("Predict for several numbers of GPUs to see which of them are worth their cost.")
    elif marked:
        notes.append(LIMITS)
    legend_beside(cost, [band_entry()])
    return finish(figure, title, [f"All is predicted, nothing measured. {BAND}", *notes], facts)


def epochs_to_target(
    predicted: pd.DataFrame, measured: pd.DataFrame | None = None, critical_batch_size: float | None = None
) -> Figure:
    """Epochs to a target accuracy against the global batch size: the fitted curve, and what was measured.

    Args:
        predicted: one row a batch size: `global_batch`, and what `EpochsToTarget.predict` returned for it.
        measured: `global_batch` and `epochs`, one row a run.
        critical_batch_size: of the fit; it is marked.
    """
    points = finite(pd.DataFrame() if measured is None else measured, ["global_batch", "epochs"])
    title = f"Epochs to the target accuracy, predicted{' and measured' if len(points) else ''}"
    rows = finite(predicted, ["global_batch", "epochs", "low", "high"]).drop_duplicates("global_batch")
    if rows.empty:
        return nothing_predicted(title, "epochs to an accuracy", "EpochsToTarget.predict")
    figure, (axes,) = new_figure()
    label_axes(axes, "Global batch size (images)", "Epochs to the target accuracy")
    rows = rows.sort_values("global_batch")
    batches = rows["global_batch"].to_numpy(float)
    values = [rows[name].to_numpy(float) for name in ("epochs", "low", "high")]
    draw_prediction(axes, batches, values, PREDICTED, PALETTE[0])
    facts, notes = [f"{PREDICTED}: {_epochs_in_words(rows)}"], [BAND]
    if len(points):
        x, y = points[["global_batch", "epochs"]].to_numpy(float).T
        axes.plot(x, y, "o", color=MEASURED_COLOR, label="measured", gid="measured", zorder=6)
        facts.append(f"measured: {'; '.join(f'{three_digits(e)} at {b:g}' for b, e in zip(x, y, strict=True))}")
        batches = np.concatenate([batches, x])
    if critical_batch_size is not None:
        axes.axvline(critical_batch_size, color=GREY, linewidth=1.2, label="critical batch size", gid="critical")
        facts.append(f"critical batch size: {three_digits(critical_batch_size)} images")
        notes.append("At the critical batch size it takes twice the fewest epochs, and twice the fewest steps.")
        batches = np.append(batches, critical_batch_size)
    doubling_axis(axes, batches.tolist())
    axes.set_ylim(bottom=0)
    legend_beside(axes, [band_entry()])
    return finish(figure, title, notes, facts)


def noise_scale(estimates: pd.DataFrame) -> Figure:
    """The gradient noise scale over the steps of runs: about the batch size beyond which a larger one helps little.

    `estimates` is what `scaling.batch_size.noise_scale` returns. The bands are its 80 % intervals; steps of which
    nothing is known yet are left out.
    """
    title = "Gradient noise scale, about the critical batch size"
    rows = finite(estimates, ["step", "noise_scale"])
    rows = rows[rows["noise_scale"] > 0]
    figure, (axes,) = new_figure()
    label_axes(axes, "Step", "Noise scale (images)")
    if rows.empty:
        nothing_to_draw(
            axes, text := "No noise scale was estimated. It takes some steps of a run on two ranks or more."
        )
        return finish(figure, title, [], [text])
    facts = []
    groups = rows.groupby(identity(rows), sort=False) if identity(rows) in rows else [("", rows)]
    for (_, run), color in zip(groups, cycle(PALETTE), strict=False):
        facts.append(_draw_noise(axes, run, color))
    ratio_axis(axes)
    whole_numbers(axes)
    legend_beside(axes, [band_entry()])
    return finish(figure, title, ["A moving average: the first steps say little."], facts)


def _unit(seconds: np.ndarray) -> tuple[float, str]:
    """The unit in which the typical of these times is a number that people can picture, in seconds, and its name."""
    typical = float(np.median(seconds))
    return next(((size, name) for size, name in UNITS if typical >= 2 * size), UNITS[-1])


def _mark_limits(time: Axes, cost: Axes, curve: Curve, size: float) -> list[str]:
    """Mark where more GPUs stop being worth it, and where they have become dear; returns both in words."""
    facts = []
    gpus, seconds, hours = curve.gpus, curve.values("seconds"), curve.values("gpu_hours")
    saved = 1 - np.exp(np.diff(np.log(seconds)) / np.diff(np.log2(gpus)))  # by a doubling
    knee = int(np.flatnonzero(saved >= WORTH).max(initial=-1)) + 1
    if knee < len(gpus) - 1:
        _mark(time, gpus[knee], seconds[knee] / size, "D", curve.color)
        facts.append(f"from {gpus[knee]:g} GPUs on, each doubling saves less than {percent(WORTH)} of the time")
    dear = int(np.flatnonzero(hours < DEAR * hours.min()).max()) + 1
    if dear < len(gpus):
        _mark(cost, gpus[dear], hours[dear], "s", curve.color)
        facts.append(f"from {gpus[dear]:g} GPUs on it costs {DEAR:g} times the least, or more")
    return facts


def _mark(axes: Axes, gpus: float, value: float, marker: str, color: str) -> None:
    axes.plot(gpus, value, marker, color=color, markerfacecolor="white", markersize=8, gid="limit", zorder=6)
    axes.annotate(f"{gpus:g}", (gpus, value), (0, 8), textcoords="offset points", ha="center", fontsize=SMALL)


def _draw_noise(axes: Axes, run: pd.DataFrame, color: str) -> str:
    """One run: its line and its band, which ends where there is no upper bound; returns its last estimate in words."""
    step, scale = run["step"].to_numpy(float), run["noise_scale"].to_numpy(float)
    low, high = (
        pd.to_numeric(run[name]).to_numpy(float) if name in run else np.full(len(run), np.nan)
        for name in ("low", "high")
    )
    label = str(run["run"].iloc[0]) if "run" in run else "noise scale"
    bounded = np.isfinite(high) & (low > 0)
    axes.fill_between(step, low, high, where=bounded, color=color, alpha=0.18, linewidth=0, gid="noise")
    axes.plot(step, scale, color=color, linewidth=1.6, label=label, gid="noise")
    interval = f" ({three_digits(low[-1])} to {three_digits(high[-1])})" if bounded[-1] else ""
    return f"{label}: {three_digits(scale[-1])}{interval} images at step {step[-1]:g}"


def _time_in_words(curve: Curve, label: str, size: float, unit: str) -> str:
    """Time and cost: "1.5 (1.2 to 1.9) hours and 12 GPU-hours on 8"."""
    words = []
    for row in told(curve.rows).to_dict("records"):
        value, low, high = (three_digits(row[name] / size) for name in ("seconds", "low", "high"))
        cost, least, most = (three_digits(row[name]) for name in COSTS)
        words.append(f"{value} ({low} to {high}) {unit} and {cost} ({least} to {most}) GPU-hours on {row['gpus']:g}")
    return f"{label}: {'; '.join(words)}"


def _epochs_in_words(rows: pd.DataFrame) -> str:
    words = []
    for row in told(rows, "global_batch").to_dict("records"):
        epochs, low, high = (three_digits(row[name]) for name in ("epochs", "low", "high"))
        words.append(f"{epochs} ({low} to {high}) at {row['global_batch']:g}")
    return "; ".join(words)

"""Frames of predictions as curves over the number of GPUs, and how a prediction is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from course_lib.errors import ComparisonError
from course_lib.lab.style import GREY, PALETTE, finish, new_figure, nothing_to_draw
from course_lib.lab.words import number

PREDICTED = "predicted"  # the gid of what is drawn of a prediction
MEASURED_COLOR = PALETTE[-1]  # so that no prediction has it
MOST_CURVES = len(PALETTE) - 1
MOST_TOLD = 13  # numbers of GPUs that are told of one curve: from 1 to 4096, the powers of two
# All of dots, as nothing measured is; one for each colour, to tell curves apart in black and white.
DOTTED = tuple((0, dots) for dots in ((1, 1), (4, 1, 1, 1), (1, 2), (4, 1, 1, 1, 1, 1), (7, 2, 1, 2), (1, 1, 1, 4)))
WIDE = 9.6  # inches: two panels and a legend
UNNAMED = "hardware that is not named"
BAND = "Bands: where 8 of 10 measurements are expected."
FEW_DOUBLINGS = 7  # up to which an axis has room for each power of two
FEW_TENFOLDS = 10**2.5  # up to which an axis has room for 2 and 5 beside the powers of ten
MILLION = 1e6
NOTHING = 1e-4  # a number below is written as 0: no time, rate or cost of a figure is as small


@dataclass(frozen=True)
class Curve:
    """What was predicted for one kind of hardware and one way to set the batch.

    Fields:
        hardware: its name.
        batch: what is the same for all numbers of GPUs: "batch 32 per GPU", "global batch 512", or nothing.
        rows: one a number of GPUs, in their order.
    """

    hardware: str
    batch: str
    rows: pd.DataFrame
    color: str
    dots: Any

    @property
    def gpus(self) -> np.ndarray:
        """The numbers of GPUs."""
        return self.rows["gpus"].to_numpy(float)

    def values(self, name: str) -> np.ndarray:
        """A column."""
        return self.rows[name].to_numpy(float)


def curves(frame: pd.DataFrame, columns: Sequence[str], most: int = MOST_CURVES) -> tuple[list[Curve], list[str]]:
    """The curves of a frame of predictions, and a note on those beyond `most`, which are left out.

    Args:
        frame: one row a prediction: `gpus`, `columns`, and where they are known `hardware`, which names it, and
            `local_batch`. Rows without a finite value in each of `columns` are left out.
        columns: what is to be drawn.
        most: how many curves there is room for.

    Raises:
        ComparisonError: two rows predict for one number of GPUs and differ neither in hardware nor in the batch.
    """
    rows = finite(frame, ["gpus", *columns])
    hardware = rows["hardware"].astype(object) if "hardware" in rows else pd.Series(None, rows.index, object)
    rows = rows.assign(hardware=hardware.where(hardware.notna(), UNNAMED))
    keys = ["hardware"]
    if rows.duplicated(["hardware", "gpus"]).any():
        rows, keys = _by_batch(rows)
    groups = [(str(key[0]), part.sort_values("gpus")) for key, part in rows.groupby(keys, sort=False)]
    shown = [
        Curve(hardware, _batch(part), part, color, dots)
        for (hardware, part), color, dots in zip(groups[:most], PALETTE, DOTTED, strict=False)
    ]
    left_out = dict.fromkeys(f"{hardware} {_batch(part)}".strip() for hardware, part in groups[most:])
    return shown, [f"Left out, for want of room: {', '.join(left_out)}."] if left_out else []


def what_differs(shown: Sequence[Curve]) -> tuple[list[str], str]:
    """What each curve is called by, and what goes for all of them: "for a100, batch 32 per GPU"."""
    common: list[str] = []
    labels = [""] * len(shown)
    for names in ([curve.hardware for curve in shown], [curve.batch for curve in shown]):
        if len(set(names)) > 1:
            labels = [", ".join(filter(None, pair)) for pair in zip(labels, names, strict=True)]
        else:
            common += filter(None, set(names))
    hardware = list(dict.fromkeys(curve.hardware for curve in shown))
    if len(hardware) > 1:
        common = [" and ".join((", ".join(hardware[:-1]), hardware[-1])), *common]
    return [label or PREDICTED for label in labels], f"for {', '.join(common)}" if common else ""


def draw_prediction(
    axes: Axes, x: np.ndarray, values: Sequence[np.ndarray], label: str, color: str, dots: Any = ":"
) -> None:
    """A dotted line in its band: `values` are its middle, low and high. A single point is a dash with a bar."""
    middle, low, high = values
    if len(x) == 1:
        sides = np.array([middle - low, high - middle])
        axes.errorbar(x, middle, sides, fmt="_", color=color, markersize=14, capsize=4, label=label, gid=PREDICTED)
        return
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0, gid=PREDICTED)
    axes.plot(x, middle, color=color, linestyle=dots, linewidth=2.2, label=label, gid=PREDICTED, zorder=4)


def band_entry() -> Patch:
    """The legend's entry for the bands."""
    return Patch(facecolor=GREY, alpha=0.25, label="80 % interval")


def nothing_predicted(title: str, what: str, how: str) -> Figure:
    """A figure that says that nothing in a frame predicts `what`, and where to get it."""
    figure, (axes,) = new_figure()
    nothing_to_draw(axes, text := f"Nothing here predicts {what}. Join a frame with what {how} returns for it.")
    return finish(figure, title, [], [text])


def doubling_axis(axes: Axes, values: Sequence[float]) -> None:
    """Powers of two on the horizontal axis, each or every other one; a single value stands alone."""
    low, high = min(values), max(values)
    axes.set_xscale("log", base=2)
    if low == high:
        axes.set_xticks([low])
    else:
        axes.xaxis.set_major_locator(LogLocator(base=2 if high / low <= 2**FEW_DOUBLINGS else 4, numticks=100))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    side = 1.25 if high > low else 3
    axes.set_xlim(low / side, high * side)


def ratio_axis(axes: Axes) -> None:
    """A logarithmic vertical axis whose numbers are written out."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < FEW_TENFOLDS else (1,), numticks=100))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: three_digits(value))


def three_digits(value: float) -> str:
    """A number of 0 or more as people write it, to three digits: 0.0125, 3,790, 3.5 million."""
    if value >= MILLION:
        return f"{three_digits(value / MILLION)} million"
    if value < NOTHING:
        return "0"
    digits = 2 - int(np.floor(np.log10(value)))
    written = f"{round(value, digits):,.{max(0, digits)}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def finite(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows with a finite number in each of these columns; a column that is not there holds none."""
    rows = frame.reindex(columns=[*frame.columns, *(name for name in columns if name not in frame)])
    values = rows[list(columns)].apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan).astype(float)
    return rows.assign(**{name: values[name] for name in columns})[values.notna().all(axis=1)]


def told(rows: pd.DataFrame, by: str = "gpus") -> pd.DataFrame:
    """Those of the rows that are told, which are in order: of many the nearest to each doubling, and the last."""
    if len(rows) <= MOST_TOLD:
        return rows
    places = np.log2(rows[by].to_numpy(float))
    first, last = places[0], places[-1]
    wanted = np.array([*np.arange(first, last, np.ceil((last - first) / (MOST_TOLD - 1))), last])
    return rows.iloc[np.unique(np.abs(places - wanted[:, None]).argmin(axis=1))]


def _by_batch(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows, and by which columns they are curves with one row a number of GPUs: of weak or of strong scaling."""
    if "local_batch" in rows:
        rows = rows.assign(_global=rows["gpus"] * rows["local_batch"])
        ways = [["hardware", name] for name in ("local_batch", "_global")]
        fitting = [way for way in ways if not rows.duplicated([*way, "gpus"]).any()]
        if fitting:
            return rows, min(fitting, key=lambda way: len(rows[way].drop_duplicates()))
    twice = rows[rows.duplicated(["hardware", *rows.columns.intersection(["local_batch"]), "gpus"])].iloc[0]
    raise ComparisonError(
        f"Two rows predict for {number(twice['gpus'])} GPUs of {twice['hardware']} with the same batch. Draw one of "
        "them, or name them differently in a column hardware."
    )


def _batch(rows: pd.DataFrame) -> str:
    """What of the batch is the same in all rows."""
    if "local_batch" not in rows:
        return ""
    local = rows["local_batch"].astype(float)
    if local.nunique() == 1:
        return f"batch {number(float(local.iloc[0]))} per GPU"
    whole = local * rows["gpus"]
    return f"global batch {number(float(whole.iloc[0]))}" if np.ptp(whole) < 1e-6 * whole.iloc[0] else ""

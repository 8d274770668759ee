"""How every plot of the course looks, and the text that stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED

# Okabe and Ito, "Color Universal Design" (2008), without the yellow, which is too pale on white; of the orange
# and the sky blue a darker shade, which has 3:1 on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#C08400", "#3D97D0", "#000000")
GREY = "#6B6B6B"
TIMING_UNKNOWN = "timing not recorded"
NOT_A_SPEED = "Hollow: not a speed measurement"

WIDTH, HEIGHT, DPI = 8.0, 4.5, 100  # inches, inches, pixels an inch
SMALL, NORMAL, LARGE = 8.5, 10.0, 12.0  # points


class Look(NamedTuple):
    """The markers and the line of one way of timing; colour is left free to tell runs apart.

    What was measured is drawn over what was simulated, and smaller, so that both are seen where they agree.
    """

    markers: str
    line: str
    size: float = 6.5
    order: float = 5.0


LOOKS = {
    MEASURED_ON_GPUS: Look("osD^", "-"),
    MEASURED_ON_CPU_RANKS: Look("vp<>", "--"),
    SIMULATED: Look("XP*h", ":", size=9.5, order=4.0),
    TIMING_UNKNOWN: Look("8dH8", "-."),
}


def new_figure(
    columns: int = 1, width: float = WIDTH, height: float = HEIGHT, by_hand: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of fixed size in inches with `columns` axes side by side; `by_hand` if the caller places them."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout=None if by_hand else "constrained", facecolor="white")
    axes = figure.subplots(1, columns, squeeze=False)[0].tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="#DDDDDD", linewidth=0.7)
        each.set_axisbelow(True)
        each.tick_params(labelsize=SMALL)
    return figure, axes


def label_axes(axes: Axes, x: str, y: str) -> None:
    """Name both axes, each with its unit."""
    axes.set_xlabel(plain(x), fontsize=NORMAL)
    axes.set_ylabel(plain(y), fontsize=NORMAL)


def legend_beside(axes: Axes, extra: Sequence[Artist] = (), of: Axes | None = None) -> None:
    """The legend to the right of the axes, where it covers no data.

    It names what is labelled in them (or in `of`), and `extra`.
    """
    handles, labels = (of or axes).get_legend_handles_labels()
    handles, labels = [*handles, *extra], [*labels, *(str(each.get_label()) for each in extra)]
    if handles:
        axes.legend(
            handles,
            [fill(plain(label), 27) for label in labels],
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
            frameon=False,
            fontsize=SMALL,
            handlelength=3.2,
        )


def hollow_entry(rows: pd.DataFrame) -> list[Artist]:
    """The legend's entry for hollow marks, where there are rows that are no speed measurement."""
    if not (rows["speed_caveats"] != "").any():
        return []
    return [Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="", label=NOT_A_SPEED)]


def nothing_to_draw(axes: Axes, text: str) -> None:
    """Say in empty axes what is missing."""
    axes.set_xticks([])
    axes.set_yticks([])
    say(axes, text, 0.5)


def say(axes: Axes, text: str, height: float) -> None:
    """Write in the axes what is missing; `height` is a fraction of theirs."""
    axes.text(
        0.5,
        height,
        fill(plain(text), 46),
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=NORMAL,
        color="#333333",
        bbox={"facecolor": "white", "edgecolor": "#BBBBBB", "boxstyle": "round,pad=0.5"},
    )


def integer_axis(axes: Axes, values: Sequence[int], logarithmic: bool = False) -> None:
    """Whole numbers on the horizontal axis: the values themselves where there is room for them."""
    if logarithmic:
        axes.set_xscale("log", base=2)
    if len(values) <= 10:
        axes.set_xticks(list(values), [str(value) for value in values])
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def whole_numbers(axes: Axes) -> None:
    """Only whole numbers on the horizontal axis, also where there is one point."""
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    low, high = axes.dataLim.intervalx
    if low == high:
        axes.set_xlim(low - 0.5, high + 0.5)


def finish(figure: Figure, title: str, notes: Sequence[str], facts: Sequence[str]) -> Figure:
    """Give a figure its title, the notes under it, and its text: title, facts, notes."""
    width = figure.get_figwidth() / WIDTH
    figure.suptitle(fill(plain(title), int(72 * width)), x=0.012, ha="left", fontsize=LARGE, fontweight="bold")
    if notes:
        text = "\n".join(fill(plain(note), int(128 * width)) for note in notes)
        figure.supxlabel(text, x=0.012, ha="left", fontsize=SMALL, color="#333333")
    figure.set_label(" ".join(_sentence(part) for part in (title, *facts, *notes)))
    return figure


def alt_text(figure: Figure) -> str:
    """What the figure shows, in words and figures, for who cannot see it."""
    return str(figure.get_label())


def plain(text: str) -> str:
    """Text that matplotlib draws as it stands: a dollar would begin a formula."""
    return text.replace("$", r"\$")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."

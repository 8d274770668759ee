"""BatchNorm with the statistics of each rank's own images, and with those of all."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from course_lib.lab.display import image_html
from course_lib.lab.style import DPI, GREY, NORMAL, PALETTE, SMALL, finish, label_axes, new_figure
from course_lib.lab.widgets.lesson import SCALE, Lesson, choice, whole_number
from course_lib.runs.batch_statistics import ALL, CLASS_MEANS, channel, normalised, statistics

WIDTH, HEIGHT = 9.2, 3.7  # inches
DEALT = ("sorted by class", "shuffled")
PANELS = {"value": "Before", "local": "Local BatchNorm", "synchronised": "Synchronised"}
NOTE = "Bars: mean and standard deviation of each rank. Grey: those of all images."
MARKERS = "os^D"  # of the classes


class BatchNormViewer(Lesson):
    """One channel of a batch that is dealt to several ranks, before and after BatchNorm of both kinds.

    Attributes:
        ranks, batch_size, dealt, batch: the controls; another number of `batch` is another batch.
    """

    title = "BatchNorm: each rank's own statistics, or those of all"

    def __init__(self) -> None:
        self.ranks = whole_number("Ranks", 4, 2, 8)
        self.batch_size = whole_number("Batch per rank", 16, 2, 64)
        self.dealt = choice("Dealt", DEALT, DEALT[0])
        self.batch = whole_number("Batch number", 1, 1, 99)
        controls = [self.ranks, self.batch_size, self.dealt, self.batch]
        super().__init__(controls, height=round(HEIGHT * DPI), lines=6)

    def draw(self) -> tuple[str, list[str]]:
        """All values before and after, and how far the statistics are apart, in words."""
        images = normalised(
            channel(self.ranks.value, self.batch_size.value, self.batch.value, sort=self.dealt.value == DEALT[0])
        )
        by_rank = statistics(images)
        sentences = [_spread(by_rank), _zero(by_rank), self._classes(images)]
        if self.batch_size.value == 2:
            sentences.append("Of two values, local BatchNorm leaves only which one is larger: they become −1 and 1.")
        return image_html(_figure(images, by_rank, sentences), SCALE), sentences

    def _classes(self, images: pd.DataFrame) -> str:
        """How far apart the outermost classes are, after BatchNorm of both kinds."""
        means = images.groupby("class")[["local", "synchronised"]].mean()
        apart = means.iloc[-1] - means.iloc[0]
        text = (
            f"The means of classes 0 and {len(means) - 1} are then {_number(apart['local'])} apart, and synchronised "
            f"{_number(apart['synchronised'])}."
        )
        if self.dealt.value == DEALT[0] and apart["local"] < 0.5 * apart["synchronised"]:
            text += " What tells the classes apart is the mean of a rank, and local BatchNorm takes that away."
        return text


def _spread(by_rank: pd.DataFrame) -> str:
    """The statistics of the ranks beside those of all."""
    own = by_rank.drop(ALL)
    mean, variance = (
        f"{_number(own[name].min())} to {_number(own[name].max())}, that of all images {_number(by_rank[name][ALL])}"
        for name in ("mean", "variance")
    )
    return f"The ranks' means are {mean}. Their variances are {variance}."


def _zero(by_rank: pd.DataFrame) -> str:
    """What one and the same value becomes on two ranks."""
    becomes = by_rank["zero"]
    own = becomes.drop(ALL)
    return (
        f"With local BatchNorm a value of 0 becomes {_number(own.max())} on rank {own.idxmax()} and "
        f"{_number(own.min())} on rank {own.idxmin()}; synchronised, {_number(becomes[ALL])} on all."
    )


def _figure(images: pd.DataFrame, by_rank: pd.DataFrame, facts: list[str]) -> Figure:
    figure, panels = new_figure(3, width=WIDTH, height=HEIGHT)
    after = images[["local", "synchronised"]].to_numpy()
    limits = 1.08 * min(after.min(), -1.2), 1.08 * max(after.max(), 1.2)
    for axes, (column, name) in zip(panels, PANELS.items(), strict=True):
        axes.set_title(name, fontsize=NORMAL, loc="left")
        label_axes(axes, "Rank", "Value of each image" if column == "value" else "Normalised value")
        axes.set_xticks(range(len(by_rank) - 1))
        axes.set_xlim(-0.5, len(by_rank) - 1.5 + 0.1)
        axes.grid(False, axis="x")
        _draw_values(axes, images, column)
        if column != "value":
            axes.set_ylim(*limits)
    _draw_statistics(panels[0], by_rank)
    return finish(figure, "One channel of a batch", [NOTE], facts)


def _draw_values(axes: Axes, images: pd.DataFrame, column: str) -> None:
    """One mark an image, side by side within its rank."""
    ranks = images.groupby("rank")["rank"]
    across = images["rank"] + 0.7 * ((ranks.cumcount() + 0.5) / ranks.transform("size") - 0.5)
    for number in range(len(CLASS_MEANS)):
        own = images["class"] == number
        axes.plot(across[own], images[column][own], MARKERS[number], color=PALETTE[number], markersize=4, gid=column)


def _draw_statistics(axes: Axes, by_rank: pd.DataFrame) -> None:
    """Mean and standard deviation of each rank as a bar, and of all images as a band."""
    own = by_rank.drop(ALL)
    mean, deviation = by_rank["mean"][ALL], float(np.sqrt(by_rank["variance"][ALL]))
    axes.axhspan(mean - deviation, mean + deviation, color=GREY, alpha=0.18, linewidth=0)
    axes.axhline(mean, color=GREY, linestyle="--", linewidth=1.2)
    axes.errorbar(own.index + 0.42, own["mean"], np.sqrt(own["variance"]), fmt="_", color="black", capsize=3)
    handles = [
        Line2D([], [], marker=marker, color=color, linestyle="", markersize=4, label=f"class {number}")
        for number, (marker, color) in enumerate(zip(MARKERS, PALETTE, strict=False))
    ]
    axes.figure.legend(handles=handles, loc="upper right", ncols=4, frameon=False, fontsize=SMALL)


def _number(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")

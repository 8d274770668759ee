"""BatchNorm with the statistics of each rank's own images, and with those of all."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.lab.pages import template
from course_lib.lab.style import PALETTE
from course_lib.lab.svg import Scale, axes, picture
from course_lib.lab.widgets.lesson import Lesson, choice, whole_number
from course_lib.runs.batch_statistics import ALL, channel, normalised, statistics

TITLE = "One channel of a batch"
WIDTH, HEIGHT, TOP, BOTTOM = 920, 336, 52, 270  # pixels
LEFT, PANEL, BETWEEN = 42, 260, 46  # pixels: before the first panel, of each, and between them
DEALT = ("sorted by class", "shuffled")
PANELS = {"value": "Before", "local": "Local BatchNorm", "synchronised": "Synchronised"}
NOTE = "Bars: mean and standard deviation of each rank. Band and dashes: those of all images."
MARKS = (  # of the classes
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8l3.5 6.4h-7z",
    "m0-4.1l3.4 4.1l-3.4 4.1l-3.4-4.1z",
)

_PANELS = template("""\
<text x="0" y="16" font-size="14" font-weight="600">{{ title }}</text>
{% for mark, color in looks %}
<path d="M{{ 600 + 78 * loop.index0 }} 11{{ mark }}" fill="{{ color }}"/>
<text x="{{ 610 + 78 * loop.index0 }}" y="16">class {{ loop.index0 }}</text>
{% endfor %}
{% for panel in panels %}
<text x="{{ panel.left }}" y="40" font-weight="600">{{ panel.name }}</text>
{{ panel.axes | safe }}
{% if panel.band %}
<path d="{{ panel.band }}" opacity="0.15"/>
<path d="{{ panel.mean }}" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4"/>
{% endif %}
{% for path, (_, color) in zip(panel.paths, looks) %}
<path d="{{ path }}" fill="{{ color }}"/>
{% endfor %}
<path d="{{ panel.bars }}" fill="none" stroke="currentColor" stroke-width="1.8"/>
{% endfor %}
<text x="0" y="{{ height - 6 }}">{{ note }}</text>
""")


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
        super().__init__(controls, height=HEIGHT, lines=6)

    def draw(self) -> tuple[str, list[str]]:
        """All values before and after, and how far the statistics are apart, in words."""
        images = normalised(
            channel(self.ranks.value, self.batch_size.value, self.batch.value, sort=self.dealt.value == DEALT[0])
        )
        by_rank = statistics(images)
        sentences = [_spread(by_rank), _zero(by_rank), self._classes(images)]
        if self.batch_size.value == 2:
            sentences.append("Of two values, local BatchNorm leaves only which one is larger: they become −1 and 1.")
        return picture(TITLE, [*sentences, NOTE], WIDTH, HEIGHT, _drawing(images, by_rank)), sentences

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


def _drawing(images: pd.DataFrame, by_rank: pd.DataFrame) -> str:
    """Three panels side by side; those after BatchNorm have one scale."""
    own = by_rank.drop(ALL)
    edges = pd.concat([own["mean"] + np.sqrt(own["variance"]), own["mean"] - np.sqrt(own["variance"])])
    before = _around(np.concatenate([images["value"], edges]))
    after = _around(np.concatenate([images["local"], images["synchronised"], [-1.2, 1.2]]))
    panels = []
    for place, (column, name) in enumerate(PANELS.items()):
        left = LEFT + place * (PANEL + BETWEEN)
        x = Scale(-0.5, len(own) - 0.4, left, left + PANEL)
        y = Scale(*(before if column == "value" else after), BOTTOM, TOP)
        panel = {"name": name, "left": left, "paths": _values(images, column, x, y)}
        panel["axes"] = axes(x, y, "rank", [(float(x(rank)), str(rank)) for rank in range(len(own))], y.ticks(8))
        panels.append(panel | _statistics(by_rank, x, y, shown=column == "value"))
    looks = list(zip(MARKS, PALETTE, strict=False))
    return _PANELS.render(title=TITLE, looks=looks, panels=panels, note=NOTE, height=HEIGHT, zip=zip)


def _around(values: np.ndarray) -> tuple[float, float]:
    """All of these values, with some room."""
    low, high = float(values.min()), float(values.max())
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _values(images: pd.DataFrame, column: str, x: Scale, y: Scale) -> list[str]:
    """For each class a path with one mark an image, side by side within its rank."""
    ranks = images.groupby("rank")["rank"]
    across = x(images["rank"] + 0.7 * ((ranks.cumcount() + 0.5) / ranks.transform("size") - 0.5))
    down, classes = y(images[column]), images["class"].to_numpy()
    return [
        "".join(f"M{at} {height}{mark}" for at, height in zip(across[own].tolist(), down[own].tolist(), strict=True))
        for own, mark in ((classes == number, mark) for number, mark in enumerate(MARKS))
    ]


def _statistics(by_rank: pd.DataFrame, x: Scale, y: Scale, shown: bool) -> dict[str, str]:
    """Mean and standard deviation of each rank as a bar, and of all images as a band; empty where not `shown`."""
    if not shown:
        return {"band": "", "mean": "", "bars": ""}
    means, deviations = by_rank["mean"], np.sqrt(by_rank["variance"])
    middles, tops, bottoms = (
        pd.Series(y(value), by_rank.index) for value in (means, means + deviations, means - deviations)
    )
    bars = [
        f"M{at} {tops[rank]}V{bottoms[rank]}m-4 0h8M{at - 4} {tops[rank]}h8M{at - 6} {middles[rank]}h12"
        for rank, at in zip(range(len(by_rank) - 1), x(np.arange(len(by_rank) - 1) + 0.42).tolist(), strict=True)
    ]
    return {
        "band": f"M{x.start} {tops[ALL]}H{x.end}V{bottoms[ALL]}H{x.start}z",
        "mean": f"M{x.start} {middles[ALL]}H{x.end}",
        "bars": "".join(bars),
    }


def _number(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")

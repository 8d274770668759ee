"""DDP's buckets: what of their exchange hides behind the backward pass, and what does not."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lab.display import image_html
from course_lib.lab.style import DPI, GREY, NORMAL, PALETTE, SMALL, finish, label_axes, new_figure
from course_lib.lab.widgets.lesson import SCALE, Lesson, ink, number, whole_number
from course_lib.scaling.buckets import bucket_sizes, bucket_timeline
from course_lib.scaling.collectives import Cluster, Link, all_reduce_seconds

HEIGHT = 2.9  # inches
MIB = 2**20
COLORS = PALETTE[:6]
BACKWARD, NETWORK = 0, 1  # the lanes, from above
NARROWEST = 0.018  # of the figure, for a box with a number in it


class BucketTimeline(Lesson):
    """When each bucket is full and when it is exchanged, for any gradient, bucket size, network and number of ranks.

    Attributes:
        gradient, bucket: the controls of sizes, in MiB.
        backward: of the backward pass, in milliseconds.
        ranks, bandwidth, latency: of the ring that exchanges, the last two of each of its links, in GB/s and
            microseconds.
    """

    title = "Buckets: communication while backward goes on"

    def __init__(self) -> None:
        self.gradient = number("Gradient (MiB)", 100, 1, 2000, 10)
        self.bucket = number("Bucket (MiB)", 25, 1, 2000, 5)
        self.backward = number("Backward (ms)", 100, 1, 10_000, 10)
        self.ranks = whole_number("Ranks", 8, 1, 1024)
        self.bandwidth = number("Link (GB/s)", 2, 0.01, 1000, 1)
        self.latency = number("Latency (µs)", 50, 0, 10_000, 10)
        controls = [self.gradient, self.bucket, self.backward, self.ranks, self.bandwidth, self.latency]
        super().__init__(controls, height=round(HEIGHT * DPI), lines=4)

    def all_reduce_seconds(self, sizes: np.ndarray) -> np.ndarray:
        """Seconds of the all-reduce of each of these sizes in bytes."""
        link = Link(self.latency.value * 1e-6, self.bandwidth.value * 1e9)
        ranks = self.ranks.value
        return np.asarray(all_reduce_seconds(sizes, ranks, Cluster(ranks, link, link), "ring"))

    def timeline(self) -> pd.DataFrame:
        """When each bucket is full, and when it is exchanged, as `bucket_timeline` returns it."""
        sizes = bucket_sizes(self.gradient.value * MIB, self.bucket.value * MIB)
        return bucket_timeline(sizes, self.backward.value / 1000, self.all_reduce_seconds(sizes))

    def draw(self) -> tuple[str, list[str]]:
        """The lanes of backward and of the network, and what is exposed, in words."""
        timeline = self.timeline()
        sentences = self._in_words(timeline)
        return image_html(_figure(timeline, self.backward.value, sentences), SCALE), sentences

    def _in_words(self, timeline: pd.DataFrame) -> list[str]:
        if self.ranks.value == 1:
            return [f"One rank has nothing to exchange: the step waits for backward only, {self.backward.value:g} ms."]
        took = 1000 * float((timeline["end_s"] - timeline["start_s"]).sum())
        end = 1000 * float(timeline["end_s"].iloc[-1])
        exposed = end - self.backward.value
        buckets = "1 bucket" if len(timeline) == 1 else f"{len(timeline)} buckets"
        first = (
            f"{buckets}, {took:.3g} ms of all-reduce: {took - exposed:.3g} ms hidden behind backward, "
            f"{exposed:.3g} ms exposed. All is done at {end:.4g} ms."
        )
        return [first, self._why(timeline), self._without_buckets(end)]

    def _why(self, timeline: pd.DataFrame) -> str:
        """What makes the exposed part as long as it is."""
        last = timeline.iloc[-1]
        if last["start_s"] > last["ready_s"]:
            late = 1000 * (last["start_s"] - last["ready_s"])
            return (
                f"The network cannot keep up: the last bucket is full when backward ends, and waits {late:.3g} ms more."
            )
        return "The network keeps up: only the last bucket is exposed, since there is no backward left to hide it."

    def _without_buckets(self, end: float) -> str:
        """The same in one piece."""
        whole = self.backward.value + 1000 * float(self.all_reduce_seconds(np.array(self.gradient.value * MIB)))
        text = f"In one piece after backward, the exchange would end at {whole:.4g} ms: "
        if whole > 1.01 * end:
            return f"{text}buckets save {whole - end:.3g} ms."
        if whole < 0.99 * end:
            return f"{text}{end - whole:.3g} ms earlier. So many small buckets pay the latency over and over."
        return f"{text}buckets of this size make no difference."


def _figure(timeline: pd.DataFrame, backward_ms: float, facts: list[str]) -> Figure:
    figure, (axes,) = new_figure(height=HEIGHT)
    label_axes(axes, "Milliseconds after backward began", "")
    starts, ends, ready = (1000 * timeline[name].to_numpy() for name in ("start_s", "end_s", "ready_s"))
    longest = max(backward_ms, ends[-1])
    axes.set_xlim(0, 1.02 * longest)
    _draw_lane(axes, BACKWARD, np.concatenate([[0.0], ready[:-1]]), ready)
    _draw_lane(axes, NETWORK, starts, ends)
    axes.set_yticks([BACKWARD, NETWORK], ["backward\nfills bucket", "all-reduce\nof bucket"], fontsize=NORMAL)
    axes.set_ylim(1.75, -0.5)
    axes.grid(False, axis="y")
    axes.axvline(backward_ms, color=GREY, linestyle="--", linewidth=1.2)
    exposed = ends[-1] - backward_ms
    if exposed > 0:
        axes.annotate("", (backward_ms, 1.52), (ends[-1], 1.52), arrowprops={"arrowstyle": "<->", "color": "black"})
        late = exposed > 0.5 * longest
        x, side = ((backward_ms + ends[-1]) / 2, "center") if late else (backward_ms - 0.01 * longest, "right")
        axes.text(x, 1.66 if late else 1.56, f"exposed: {exposed:.3g} ms", ha=side, va="center", fontsize=SMALL)
    return finish(figure, "One step: each bucket is exchanged as soon as it is full", [], facts)


def _draw_lane(axes: Axes, lane: int, starts: np.ndarray, ends: np.ndarray) -> None:
    """One box a bucket, with its number where there is room."""
    colors = [color for _, color in zip(starts, cycle(COLORS), strict=False)]
    spans = list(zip(starts, ends - starts, strict=True))
    edge = 0.5 if len(spans) < 100 else 0  # wider than the boxes, white edges would hide them
    axes.broken_barh(spans, (lane - 0.34, 0.68), facecolors=colors, edgecolor="white", linewidth=edge)
    narrowest = NARROWEST * axes.get_xlim()[1]
    for place, (start, took) in enumerate(spans):
        if took > narrowest:
            middle, color = start + took / 2, ink(colors[place])
            axes.text(middle, lane, str(place + 1), ha="center", va="center", fontsize=NORMAL, color=color)

"""DDP's buckets: what of their exchange hides behind the backward pass, and what does not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.lab.pages import template
from course_lib.lab.style import PALETTE
from course_lib.lab.svg import Scale, axes, picture
from course_lib.lab.widgets.lesson import Lesson, ink, number, whole_number
from course_lib.scaling.buckets import bucket_sizes, bucket_timeline
from course_lib.scaling.collectives import Cluster, Link, all_reduce_seconds

MIB = 2**20
COLORS = PALETTE[:6]
TITLE = "One step: each bucket is exchanged as soon as it is full"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 236, 110, 14, 38, 196  # pixels
BACKWARD, NETWORK, LANE = 44, 106, 52  # pixels: where the lanes begin, and how high they are
ARROW = 180  # pixels: where what is exposed is shown
NARROWEST = 16  # pixels of a box with a number in it
MANY = 100  # boxes: of more, the edges would hide them

_LANES = template("""\
<text x="0" y="16" font-size="14" font-weight="600">{{ title }}</text>
{{ axes | safe }}
{% for y, name, what in lanes %}
<text x="0" y="{{ y + 23 }}">{{ name }}</text>
<text x="0" y="{{ y + 40 }}">{{ what }}</text>
{% endfor %}
{% for path, color in boxes %}
<path d="{{ path }}" fill="{{ color }}" stroke="currentColor" stroke-width="{{ edge }}"/>
{% endfor %}
{% for x, y, number, color in numbers %}
<text x="{{ x }}" y="{{ y }}" text-anchor="middle" fill="{{ color }}">{{ number }}</text>
{% endfor %}
<path d="M{{ over }} {{ top - 4 }}V{{ bottom }}" fill="none" stroke="currentColor" stroke-width="1.5" \
stroke-dasharray="5 4"/>
<text x="{{ over + (5 if over < 600 else -5) }}" y="{{ top }}" \
text-anchor="{{ "start" if over < 600 else "end" }}">backward ends</text>
{% if exposed %}
<path d="M{{ over }} {{ arrow }}H{{ end }}" stroke="currentColor" stroke-width="1.5"/>
{% if end - over > 16 %}
<path d="M{{ over }} {{ arrow }}l7-4v8zM{{ end }} {{ arrow }}l-7-4v8z"/>
{% endif %}
{% if end - over > 160 %}
<text x="{{ (over + end) / 2 }}" y="{{ arrow - 6 }}" text-anchor="middle">{{ exposed }}</text>
{% else %}
<text x="{{ over - 8 }}" y="{{ arrow + 4 }}" text-anchor="end">{{ exposed }}</text>
{% endif %}
{% endif %}
""")


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
        super().__init__(controls, height=HEIGHT, lines=4)

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
        drawn = _drawing(timeline, self.backward.value)
        return picture(TITLE, sentences, WIDTH, HEIGHT, drawn), sentences

    def _in_words(self, timeline: pd.DataFrame) -> list[str]:
        if self.ranks.value == 1:
            return [f"One rank has nothing to exchange: the step waits for backward only, {_ms(self.backward.value)}."]
        took = 1000 * float((timeline["end_s"] - timeline["start_s"]).sum())
        end = 1000 * float(timeline["end_s"].iloc[-1])
        exposed = end - self.backward.value
        buckets = "1 bucket" if len(timeline) == 1 else f"{len(timeline)} buckets"
        first = (
            f"{buckets}, {_ms(took)} of all-reduce: {_ms(max(0.0, took - exposed))} hidden behind backward, "
            f"{_ms(exposed)} exposed. All is done at {_ms(end)}."
        )
        return [first, self._why(timeline), self._without_buckets(end)]

    def _why(self, timeline: pd.DataFrame) -> str:
        """What makes the exposed part as long as it is."""
        last = timeline.iloc[-1]
        if last["start_s"] > last["ready_s"]:
            late = 1000 * (last["start_s"] - last["ready_s"])
            return (
                f"The network cannot keep up: the last bucket is full when backward ends, and waits {_ms(late)} more."
            )
        return "The network keeps up: only the last bucket is exposed, since there is no backward left to hide it."

    def _without_buckets(self, end: float) -> str:
        """The same in one piece."""
        whole = self.backward.value + 1000 * float(self.all_reduce_seconds(np.array(self.gradient.value * MIB)))
        text = f"In one piece after backward, the exchange would end at {_ms(whole)}: "
        if whole > 1.01 * end:
            return f"{text}buckets save {_ms(whole - end)}."
        if whole < 0.99 * end:
            return f"{text}{_ms(end - whole)} earlier. So many small buckets pay the latency over and over."
        return f"{text}buckets of this size make no difference."


def _drawing(timeline: pd.DataFrame, backward_ms: float) -> str:
    starts, ends, ready = (1000 * timeline[name].to_numpy() for name in ("start_s", "end_s", "ready_s"))
    longest = max(backward_ms, ends[-1])
    x, y = Scale(0, 1.01 * longest, LEFT, WIDTH - RIGHT), Scale(0, 1, BOTTOM, TOP)
    lanes = [(BACKWARD, x(np.concatenate([[0.0], ready[:-1]])), x(ready))]
    if (ends > starts).any():
        lanes.append((NETWORK, x(starts), x(ends)))
    exposed = ends[-1] - backward_ms
    return _LANES.render(
        title=TITLE,
        axes=axes(x, y, "milliseconds after backward began", x.ticks(10), []),
        lanes=[(BACKWARD, "backward", "fills bucket"), (NETWORK, "all-reduce", "of bucket")],
        boxes=[box for lane in lanes for box in _boxes(*lane)],
        numbers=[number for lane in lanes for number in _numbers(*lane)],
        edge=0.8 if len(timeline) < MANY else 0,
        top=TOP,
        bottom=BOTTOM,
        arrow=ARROW,
        over=float(x(backward_ms)),
        end=float(x(ends[-1])),
        exposed=f"exposed: {_ms(exposed)}" if exposed > 0 else "",
    )


def _boxes(top: int, lefts: np.ndarray, rights: np.ndarray) -> list[tuple[str, str]]:
    """One box a bucket; those of one colour are one path, since there may be thousands."""
    paths = [f"M{left:.1f} {top}H{right:.1f}v{LANE}H{left:.1f}z" for left, right in zip(lefts, rights, strict=True)]
    return [("".join(paths[place :: len(COLORS)]), color) for place, color in enumerate(COLORS[: len(paths)])]


def _numbers(top: int, lefts: np.ndarray, rights: np.ndarray) -> list[tuple[float, float, int, str]]:
    """The number of each bucket, where there is room for it."""
    return [
        (float(lefts[place] + rights[place]) / 2, top + LANE / 2 + 5, place + 1, ink(COLORS[place % len(COLORS)]))
        for place in np.flatnonzero(rights - lefts > NARROWEST).tolist()
    ]


def _ms(milliseconds: float) -> str:
    """To three or four figures."""
    return f"{milliseconds:,.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.{3 + (milliseconds >= 100)}g} ms"

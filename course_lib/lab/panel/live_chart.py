"""Small charts of runs that go on: SVG, in a hundredth of the time that a full figure takes, in the theme's colours.

What should be kept or printed is drawn by `lab.plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.lab.pages import template
from course_lib.lab.style import PALETTE
from course_lib.lab.svg import Scale, axes

WIDTH, HEIGHT = 300, 170
LEFT, RIGHT, TOP, BOTTOM = 44, 18, 8, 34  # pixels around the axes
MOST = 1e100  # no figure of a run is as large, and the arithmetic of an axis ends soon after
POINTS = 120  # of a line at most: more than pixels can show would only take time
OUTLIERS = 0.9  # what is more than twice as high as this share of a line is cut off
FEW = 20  # points of which none is cut off
# Each has 3:1 on white and on JupyterLab's dark ground; the dashes tell them apart without colour.
STYLES = tuple(zip(PALETTE[:4], ("", "6 3", "2 2", "8 2 2 2"), strict=True))


@dataclass(frozen=True)
class Line:
    """A line of a chart; NaN are left out.

    Fields:
        label: what it is.
        marks: whether each point has a mark of its own.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    marks: bool = False


_CHART = template("""\
<figure style="margin:0;min-width:0;max-width:460px">
<figcaption style="font-weight:600;font-size:92%">{{ title }}</figcaption>
<svg role="img" aria-label="{{ alt }}" viewBox="0 0 {{ width }} {{ height }}" style="width:100%;display:block" \
fill="none" stroke="currentColor" font-size="11">
{{ axes | safe }}
{% for path, marks, color, dashes in lines %}
<path d="{{ path }}" stroke="{{ color }}" stroke-width="2" stroke-dasharray="{{ dashes }}" stroke-linejoin="round"/>
{% for x, y in marks %}
<circle cx="{{ x }}" cy="{{ y }}" r="3.5" fill="{{ color }}" stroke="none"/>
{% endfor %}
{% endfor %}
{% if empty %}
<text x="{{ (left + right) / 2 }}" y="{{ height / 2 }}" text-anchor="middle" fill="currentColor" stroke="none">\
{{ empty }}</text>
{% endif %}
</svg>
</figure>
""")
_LEGEND = template("""\
<div style="display:flex;flex-wrap:wrap;gap:2px 16px;font-size:92%">
{% for label, color, dashes in entries %}
<span><svg width="26" height="8" aria-hidden="true"><path d="M0 4H26" stroke="{{ color }}" stroke-width="3" \
stroke-dasharray="{{ dashes }}"/></svg> {{ label }}</span>
{% endfor %}
</div>
""")


def chart(title: str, x_label: str, lines: Sequence[Line], empty: str, x_end: float | None = None) -> str:
    """One chart as HTML; `empty` is said where nothing can be drawn, `x_end` is how far the lines will go."""
    lines = [_thinned(line) for line in lines[: len(STYLES)]]
    xs, ys = (np.concatenate([getattr(line, name) for line in lines] or [np.array([])]) for name in "xy")
    x_top = max(x_end or 0.0, float(xs.max(initial=0.0))) or 1.0
    y_low, y_top = _limits(ys)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    across, down = Scale(0, x_top, LEFT, right), Scale(y_low, y_top, bottom, TOP)
    points = [
        list(zip(across(line.x).tolist(), down(np.minimum(line.y, y_top)).tolist(), strict=True)) for line in lines
    ]
    return _CHART.render(
        title=title,
        alt=_in_words(title, x_label, lines, empty),
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=right,
        bottom=bottom,
        axes=axes(across, down, x_label, across.ticks(), down.ticks(6)),
        lines=[
            (_path(each), each if line.marks else [], *style)
            for each, line, style in zip(points, lines, STYLES, strict=False)
        ],
        empty="" if len(xs) else empty,
    )


def legend(labels: Sequence[str]) -> str:
    """What the lines of charts are, as HTML; nothing where there is but one."""
    entries = [(label, *style) for label, style in zip(labels, STYLES, strict=False)]
    return _LEGEND.render(entries=entries) if len(entries) > 1 else ""


def _thinned(line: Line) -> Line:
    """The line without what is missing or absurd; of many points the means of some that follow each other."""
    known = (np.abs(line.x) < MOST) & (np.abs(line.y) < MOST)  # NaN is not
    x, y = line.x[known], line.y[known]
    if len(x) > POINTS:
        starts = np.linspace(0, len(x), POINTS, endpoint=False).astype(int)
        counts = np.diff([*starts, len(x)])
        x, y = (np.add.reduceat(values, starts) / counts for values in (x, y))
    return Line(line.label, x, y, line.marks)


def _limits(ys: np.ndarray) -> tuple[float, float]:
    """From 0 upwards, or from what is least where all is far above 0."""
    if not len(ys):
        return 0.0, 1.0
    low, top = float(ys.min()), float(ys.max())
    if len(ys) > FEW:
        top = min(top, 2 * float(np.quantile(ys, OUTLIERS)))
    if low < 0.7 * top:
        low = min(0.0, low)
    else:
        low = max(0.0, low - 0.5 * (top - low) - 0.01 * top)
    return low, max(top + 0.05 * (top - low), low + 1e-6)


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points) if points else ""


def _said(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _in_words(title: str, x_label: str, lines: Sequence[Line], empty: str) -> str:
    """First and last figure of each line."""
    facts = [
        f"{line.label}: from {_said(line.y[0])} to {_said(line.y[-1])} after {line.x[-1]:.3g} {x_label}"
        for line in lines
        if len(line.y)
    ]
    return f"{title}. {'; '.join(facts) or empty}."

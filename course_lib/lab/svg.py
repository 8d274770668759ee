"""Pictures in SVG: drawn in a few milliseconds, sharp at any zoom, in the theme's colours, and told in words."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from course_lib.lab.pages import template

Tick = tuple[float, str]  # where in the picture, and what is written there
SMALLEST = 0.75  # of its own width: where there is less room, a picture is scrolled, so that its text can be read

_PICTURE = template("""\
<div style="overflow-x:auto;margin:2px 0" tabindex="0" role="region" aria-label="{{ title }}">
<svg role="img" aria-label="{{ title }}. {{ words }}" width="{{ width }}" height="{{ height }}" \
viewBox="0 0 {{ width }} {{ height }}" fill="currentColor" font-size="13" \
style="display:block;width:100%;height:auto;min-width:{{ smallest }}px;max-width:{{ width }}px">
{{ body | safe }}</svg>
</div>
""")
_AXES = template("""\
<g fill="none" stroke="currentColor">
{% for at, _ in y_ticks %}
<path d="M{{ left }} {{ at }}H{{ right }}" opacity="0.2"/>
{% endfor %}
{% for at, _ in x_ticks %}
<path d="M{{ at }} {{ bottom }}v4" opacity="0.6"/>
{% endfor %}
<path d="M{{ left }} {{ bottom }}H{{ right }}" opacity="0.6"/>
</g>
<g fill="currentColor" stroke="none">
{% for at, text in y_ticks %}
<text x="{{ left - 6 }}" y="{{ at + 4 }}" text-anchor="end">{{ text }}</text>
{% endfor %}
{% for at, text in x_ticks %}
<text x="{{ at }}" y="{{ bottom + 16 }}" text-anchor="middle">{{ text }}</text>
{% endfor %}
<text x="{{ right }}" y="{{ bottom + 30 }}" text-anchor="end">{{ x_label }}</text>
</g>
""")
_SVG = re.compile(r'<svg role="img" aria-label="([^"]*)"(.*?)>(.*?)</svg>', re.S)


@dataclass(frozen=True)
class Scale:
    """Where the values of an axis lie in a picture: `low` at the pixel `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, values: ArrayLike) -> np.ndarray:
        """The pixels of these values, to a tenth."""
        shares = (np.asarray(values, float) - self.low) / (self.high - self.low)
        return np.round(self.start + shares * (self.end - self.start), 1)

    def ticks(self, most: int = 4) -> list[Tick]:
        """Round values along the axis, in at most about so many parts."""
        locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
        values = [tick for tick in locator.tick_values(self.low, self.high) if self.low <= tick <= self.high]
        return list(zip(self(values).tolist(), map(_short, values), strict=True))


def axes(x: Scale, y: Scale, x_label: str, x_ticks: Sequence[Tick], y_ticks: Sequence[Tick]) -> str:
    """The axes of a chart, to be drawn before what it shows."""
    edges = {"left": x.start, "right": x.end, "bottom": y.start}
    return _AXES.render(x_label=x_label, x_ticks=x_ticks, y_ticks=y_ticks, **edges)


def picture(title: str, sentences: Sequence[str], width: int, height: int, body: str) -> str:
    """A picture as HTML that takes as much room as there is, up to its size in pixels, and says what it shows."""
    return _PICTURE.render(
        title=title,
        words=" ".join(sentences),
        width=width,
        height=height,
        smallest=round(SMALLEST * width),
        body=body,
    )


def as_images(html: str) -> str:
    """The same with its pictures as images: a notebook that is not trusted shows these, and no SVG in its HTML."""
    return _SVG.sub(_as_image, html)


def _as_image(found: re.Match[str]) -> str:
    words, attributes, body = found.groups()
    # A page of its own: there the theme's colour is black.
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"{attributes}>{body}</svg>'.replace(
        "display:block;", "font-family:sans-serif;background:white;"
    )
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return f'<img alt="{words}" src="{source}" style="max-width:100%;height:auto">'


def _short(value: float) -> str:
    return (f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value + 0.0:g}").replace("-", "−")

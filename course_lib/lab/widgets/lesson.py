"""What the widgets of the lessons have in common: controls, a picture, and what it shows in words."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ipywidgets import HTML, BoundedFloatText, BoundedIntText, Box, Button, Checkbox, Dropdown, Layout, VBox, Widget
from matplotlib.colors import to_rgb

from course_lib.lab.interaction import SHARED_STYLE, make_answer
from course_lib.lab.pages import template
from course_lib.lab.style import PALETTE
from course_lib.lab.svg import as_images

WIDTH = "940px"
RANK_COLORS = (*PALETTE, "#F0E442")  # the ranks' numbers are written on them, so that colour alone says nothing

_TITLE = template('<div role="heading" aria-level="4" style="font-weight:600;margin:4px 0">{{ title }}</div>')
_WORDS = template("""\
<div role="status" style="line-height:1.45;min-height:{{ 1.45 * lines }}em;max-width:60em;margin:6px 0 4px">
{% for sentence in sentences %}
<p style="margin:0">{{ sentence }}</p>
{% endfor %}
</div>
""")


class Lesson(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Controls, a picture and words, which follow the controls.

    A saved notebook keeps the picture and the words that were there when the cell ran, also without a kernel.
    """

    title = ""

    def __init__(self, controls: Sequence[Widget], height: int, lines: int = 3) -> None:
        """`controls` in their order; `height` in pixels and `lines` of words are kept free, so that nothing jumps."""
        self._lines = lines
        self._lock = threading.RLock()  # a click and a cell may be at work at the same time
        self._picture, self._words = HTML(layout=Layout(min_height=f"{height}px")), HTML()
        row = Layout(display="flex", flex_flow="row wrap", grid_gap="2px 14px", align_items="center")
        heading = HTML(SHARED_STYLE + _TITLE.render(title=self.title))
        super().__init__([heading, Box(controls, layout=row), self._words, self._picture], layout={"max_width": WIDTH})
        for control in controls:
            if not isinstance(control, Button):
                control.observe(lambda _: self.show(), "value")
        make_answer(self)
        self.show()

    def draw(self) -> tuple[str, list[str]]:
        """The picture as HTML, and what it shows in sentences, as the controls stand."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw what the controls say."""
        with self._lock:
            self._picture.value, self.sentences = self.draw()
            self._words.value = _WORDS.render(sentences=self.sentences, lines=self._lines)

    def __repr__(self) -> str:
        return f"{self.title}. {' '.join(self.sentences)}"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        kept = "\n".join([_TITLE.render(title=self.title), self._words.value, as_images(self._picture.value)])
        return {**bundle, "text/plain": repr(self), "text/html": kept}


def ink(color: str) -> str:
    """Black or white: what is better read on `color` (relative luminance: WCAG 2.2)."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
    luminance = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def whole_number(name: str, value: int, low: int, high: int) -> BoundedIntText:
    """A control for a whole number from `low` to `high`."""
    return BoundedIntText(value, min=low, max=high, description=name, **_shape(name, "5.5em"))


def number(name: str, value: float, low: float, high: float, step: float) -> BoundedFloatText:
    """A control for a number from `low` to `high`, which the arrow keys change by `step`."""
    return BoundedFloatText(value, min=low, max=high, step=step, description=name, **_shape(name, "6.5em"))


def choice(name: str, options: Sequence[Any], value: Any) -> Dropdown:
    """A control for one of several things; options as `Dropdown` takes them."""
    longest = max(len(str(option[0] if isinstance(option, tuple) else option)) for option in options)
    return Dropdown(options=options, value=value, description=name, **_shape(name, f"{longest / 2 + 3.5}em"))


def yes_or_no(name: str, value: bool) -> Checkbox:
    """A control for something that is so or not."""
    return Checkbox(value, description=name, indent=False, layout=Layout(width="auto"))


def _shape(name: str, room: str) -> dict[str, Any]:
    """Room for the whole name and for the value."""
    return {"style": {"description_width": "initial"}, "layout": Layout(width=f"calc({len(name) / 2:.1f}em + {room})")}

"""How the inputs of the Scaling Lab look and stand beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipywidgets import Button, Layout

FLOW = {"display": "flex", "flex_flow": "row wrap", "grid_gap": "4px 12px", "align_items": "flex-end"}
LABELLED = {"description_width": "initial"}  # as wide as it is


def label_above(**layout: str) -> dict[str, Any]:
    """The options of an input that has its label above it."""
    whole = {"width": "auto", "height": "auto", "flex_flow": "column", "align_items": "stretch"}
    return {"style": LABELLED, "layout": Layout(**(whole | layout))}


def button(words: str, act: Callable[[], None], **look: Any) -> Button:
    """A button that does something; `look` as `Button` takes it."""
    # Without an icon: its character would be part of the accessible name.
    made = Button(description=words, **({"layout": Layout(width="auto")} | look))
    made.on_click(lambda _: act())
    return made

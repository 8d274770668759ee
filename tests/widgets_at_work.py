"""Looking into widgets without a browser."""

from __future__ import annotations

from ipywidgets import HTML, Widget


def parts(widget: Widget) -> list[Widget]:
    """A widget and all below it."""
    return [widget, *(part for child in getattr(widget, "children", ()) for part in parts(child))]


def html_of(widget: Widget) -> str:
    """All HTML in a widget."""
    return "\n".join(part.value for part in parts(widget) if isinstance(part, HTML))

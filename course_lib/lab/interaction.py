"""What a panel of widgets needs in JupyterLab, so that it answers: to the keyboard, and while a cell runs."""

from __future__ import annotations

from ipywidgets import DOMWidget, Widget

CLASS = "course-panel"
# To JupyterLab, a list that has the focus is part of the cell: arrow keys would go to the next cell, and M make text
# of the cell. The script keeps it from that. What has the focus of the keyboard is seen, and what is too wide for the
# page is scrolled by itself, not the panel.
SHARED_STYLE = f"""\
<style onload="this.closest('.{CLASS}')?.addEventListener('focusin', ({{target}}) =>
target.toggleAttribute('data-lm-suppress-shortcuts', target.matches('select, [role=region]')))">
.{CLASS} button:focus-visible, .{CLASS} [tabindex]:focus-visible, .{CLASS} a:focus-visible {{
  outline: 2px solid #0072B2; outline-offset: 1px; }}
.{CLASS} .widget-html-content {{ min-width: 0; }}
</style>
"""


def make_answer(panel: DOMWidget) -> None:
    """Have a panel and all that is in it now answer. The HTML of one of its widgets is to hold `SHARED_STYLE`."""
    panel.add_class(CLASS)
    for widget in all_below(panel):
        answer_while_busy(widget)


def answer_while_busy(widget: Widget) -> None:
    """Have what is done to a widget reach the kernel while a cell runs.

    From 7.4 on, ipykernel hands it to the loop that sent the widget, which is busy as long as a cell waits for a run.
    Forgetting that loop leaves the choice to Lab, which has a loop for widgets.
    """
    vars(widget.comm).pop("_reply_subshell_id", None)


def all_below(widget: Widget) -> list[Widget]:
    """A widget and all in it."""
    return [widget, *(each for child in getattr(widget, "children", ()) for each in all_below(child))]

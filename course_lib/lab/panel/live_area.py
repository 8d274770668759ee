"""The part of the Scaling Lab that shows runs while they go on: bars of their ranks, curves, and logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ipywidgets import HTML, Box, Dropdown, Layout, ToggleButton, VBox

from course_lib.lab.panel.following import AXES, Following
from course_lib.lab.panel.inputs import FLOW, LABELLED
from course_lib.lab.panel.ranks import log_html

# What is drawn must not slow what is measured: the browser takes several times as long for it as the kernel. So steps
# are shown now and then, and what ends (an epoch, a run) at once, as long as that does not take too much of a core.
SECONDS_BETWEEN_DRAWINGS = 3.0
SHARE_FOR_DRAWING = 0.02


class LiveArea(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Runs that are followed from their folders, and the last that ended before.

    Attributes:
        following: the runs.
    """

    def __init__(self, name_of: Callable[[str], str], on_change: Callable[[], object]) -> None:
        """`name_of` is what people call the run in a folder; `on_change` is told when something else is to be shown."""
        self.following = Following()
        self._name_of, self._on_change = name_of, on_change
        self._stale, self._draw_again_at, self._steps_again_at = True, 0.0, 0.0
        self._ended = 0
        self.ranks, self.charts, self.logs = HTML(), HTML(), HTML()
        self.axis = Dropdown(description="Curves against", options=AXES, style=LABELLED, layout=Layout(width="auto"))
        self.show_logs = ToggleButton(description="Logs of the ranks", layout=Layout(width="auto"))
        self.log_rank = Dropdown(
            description="Log of", options=[("rank 0", 0)], style=LABELLED, layout=Layout(width="auto")
        )
        for widget in (self.axis, self.show_logs, self.log_rank):
            widget.observe(self._changed, "value")
        row = Box([self.axis, self.show_logs, self.log_rank], layout=Layout(**FLOW))
        super().__init__([self.ranks, self.charts, row, self.logs], layout=Layout(display="none", grid_gap="6px"))

    def update(self, paths: Iterable[str], now: bool = False) -> None:
        """Follow the runs in these folders too, and show what is new; charts not too often, but `now`."""
        self._stale |= self.following.update(paths)
        if self._stale and (now or time.monotonic() >= self._due()):
            self._draw()
        if self.show_logs.value or self.logs.value:  # who prints need not report
            self._show_log()

    def forget(self) -> None:
        """Show none that has ended."""
        self.following.forget()
        self.show_logs.value = False
        self._changed(None)

    def _changed(self, _: object) -> None:
        self._stale, self._draw_again_at, self._steps_again_at = True, 0.0, 0.0
        self._on_change()

    def _due(self) -> float:
        """When to draw what is new."""
        return self._draw_again_at if self.following.ended != self._ended else self._steps_again_at

    def _draw(self) -> None:
        self._stale, self._ended = False, self.following.ended
        began = time.thread_time()
        self.ranks.value = self.following.ranks_html(self._name_of)
        self.charts.value = self.following.charts_html(self.axis.value, self._name_of)
        self.layout.display = "" if self.following.lives else "none"
        self.log_rank.layout.display = "" if self.show_logs.value else "none"
        self._draw_again_at = time.monotonic() + (time.thread_time() - began) / SHARE_FOR_DRAWING
        self._steps_again_at = time.monotonic() + SECONDS_BETWEEN_DRAWINGS

    def _show_log(self) -> None:
        shown = self.following.shown()
        if not self.show_logs.value or not shown:
            self.logs.value = ""
            return
        ranks = [(f"rank {pace.rank}", pace.rank) for pace in shown[0].paces]
        if ranks != list(self.log_rank.options):
            self.log_rank.options = ranks
        self.logs.value = log_html(shown[0], self.log_rank.value)

"""What the Scaling Lab asks besides the settings of a run: which speedup is expected, and what to sweep over."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from ipywidgets import HTML, Box, Dropdown, Layout, Text, VBox

from course_lib.errors import ConfigError
from course_lib.lab.pages import template
from course_lib.lab.panel.choices import TITLES, Choices
from course_lib.lab.panel.experiments import SWEPT
from course_lib.lab.panel.inputs import label_above

_NOTE = template("""<div style="font-size:92%;min-height:1.4em">{{ text }}</div>""")


class GuessQuestion(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The speedup that a student expects before the run."""

    def __init__(self, on_change: Callable[[], object]) -> None:
        self.field = Text(
            description="Predict first: your speedup",
            placeholder="for example 1.7",
            continuous_update=False,
            **label_above(),
        )
        self.field.observe(lambda _: on_change(), "value")
        self._note = HTML()
        super().__init__([self.field, self._note], layout=Layout(width="auto"))

    def guess(self) -> float | None:
        """The speedup that is expected; None where nothing was entered, or nothing is asked.

        Raises:
            ConfigError: what was entered is no number above 0.
        """
        text = self.field.value.strip()
        if not text or self.field.disabled:
            return None
        try:
            guess = float(text.replace(",", "."))
        except ValueError:
            guess = 0.0
        if not guess > 0 or not isfinite(guess):
            raise ConfigError(f"The speedup that you expect must be a number above 0, not {text!r}.")
        return guess

    def show(self, world_size: int | None) -> None:
        """Ask about so many ranks, or say why nothing is asked."""
        self.field.disabled = world_size == 1
        text = "" if world_size is None else f"How many times as fast as one rank will {world_size} ranks be?"
        if world_size == 1:
            text = "One rank is what others are compared with. Take more to predict a speedup."
        try:
            self.guess()
        except ConfigError as error:
            text = str(error)
        self._note.value = _NOTE.render(text=text)


class SweepQuestion(VBox):  # type: ignore[misc]  # ipywidgets has no types
    """What a sweep goes over, and through which values; these follow the controls until they are typed over."""

    def __init__(self, on_change: Callable[[], object]) -> None:
        self.over = Dropdown(
            description="Sweep over", options=[(TITLES[name], name) for name in SWEPT], **label_above(flex="1 1 130px")
        )
        self.values = Text(description="Values", continuous_update=False, **label_above(flex="1 1 130px"))
        for field in (self.over, self.values):
            field.observe(lambda _: on_change(), "value")
        self._suggested, self._note = "", HTML()
        row = Layout(display="flex", flex_flow="row wrap", grid_gap="4px 12px", align_items="flex-start")
        fields = Box([self.over, self.values], layout=row)
        super().__init__([fields, self._note], layout=Layout(width="auto"))

    def suggest(self, choices: Choices) -> None:
        """Name values around what was chosen, unless somebody named others."""
        if self.values.value in ("", self._suggested):
            self._suggested = ", ".join(f"{value:g}" for value in _around(choices, self.over.value))
            self.values.value = self._suggested
        try:
            runs = len(self.asked()[1]) * choices.repeats
            text = f"{runs} run{'s' * (runs != 1)} in all."
        except ConfigError as error:
            text = str(error)
        self._note.value = _NOTE.render(text=text)

    def asked(self) -> tuple[str, list[Any]]:
        """The field of `Choices`, and its values.

        Raises:
            ConfigError: what was typed is no list of numbers.
        """
        kind = float if self.over.value == "lr" else int
        try:
            values = [kind(text) for text in self.values.value.replace(",", " ").split()]
        except ValueError:
            values = []
        if not values:
            raise ConfigError(f"The values of a sweep are numbers, as in 1, 2, 4, not {self.values.value!r}.")
        return self.over.value, values


def _around(choices: Choices, name: str) -> list[float]:
    """For GPUs the powers of two up to what was chosen; for others half of it, itself, and twice as much."""
    value = getattr(choices, name)
    if name == "num_gpus":
        last = max(value, 2)
        return [*(2**power for power in range(12) if 2**power < last), last]
    return [value / 2, value, 2 * value] if name == "lr" else [max(1, value // 2), value, 2 * value]

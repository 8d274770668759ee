"""The input widgets of the Scaling Lab: they say `Choices`, and show beside each what is wrong with its choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ipywidgets import HTML, Dropdown, FloatText, GridBox, HBox, IntText, Layout, VBox, Widget

from course_lib.config import CHOICES, SIMULATED
from course_lib.lab.pages import template
from course_lib.lab.panel.choices import TITLES, Choices, Consequences
from course_lib.lab.panel.inputs import button, label_above
from course_lib.lab.style import PALETTE
from course_lib.runs.plan import SCALINGS
from course_lib.scaling.hardware import DEFAULT, PROFILES

# In this order they are shown: what runs, on how many, what each takes, how it learns, how often.
ORDER = (
    *("device", "hardware", "num_gpus", "num_nodes", "scaling"),
    *("model", "data_share", "epochs", "batch_size"),
    *("lr", "lr_rule", "warmup_epochs", "seed", "repeats"),
)
PERCENT = {"data_share": "Share of data (%)"}  # shown as a percentage, and chosen as a share of 1
WORDS = {
    "device": {"auto": "automatic", "cuda": "GPUs", "cpu": "CPU ranks", SIMULATED: "simulated GPUs"},
    "scaling": {each: each for each in SCALINGS},
}
BATCH_TITLES = {"weak": "Batch size per GPU", "strong": "Global batch size"}

_REMARK = template("""\
{% if text %}
<div style="margin-top:4px;line-height:1.3;font-size:92%;border-left:4px solid {{ color }};padding-left:6px">
<strong>{{ kind }}:</strong> {{ text }}</div>
{% endif %}
""")


class Controls(GridBox):  # type: ignore[misc]  # ipywidgets has no types
    """All controls with their labels, in a grid that takes as many columns as there is room for.

    Attributes:
        inputs: the widget of each control.
    """

    def __init__(self, choices: Choices, on_change: Callable[[], object]) -> None:
        self.inputs = {name: _make(name, getattr(choices, name)) for name in ORDER}
        self._remarks = {name: HTML() for name in ORDER}
        self._cells = {
            name: VBox([self._whole(name), self._remarks[name]], layout={"min_width": "0"}) for name in ORDER
        }
        self._on_change = on_change
        self._cells["lr"].layout.grid_area = "auto / span 2"  # there is room for its buttons
        columns = "repeat(auto-fill, minmax(140px, 1fr))"
        grid = Layout(grid_template_columns=columns, grid_gap="10px 14px", flex="0 0 auto")
        super().__init__([self._cells[name] for name in ORDER], layout=grid)
        self.choices = choices
        for widget in self.inputs.values():
            widget.observe(self._changed, "value")

    def _whole(self, name: str) -> Widget:
        """The input; the learning rate, which is chosen on a logarithmic scale, with buttons that go along it."""
        widget = self.inputs[name]
        if name != "lr":
            return widget
        widget.layout.flex = "1 1 90px"
        half, double = button("Halve", lambda: self.scale_lr(0.5)), button("Double", lambda: self.scale_lr(2))
        return HBox([widget, half, double], layout=Layout(align_items="flex-end", grid_gap="4px"))

    def scale_lr(self, factor: float) -> None:
        """Take a learning rate `factor` times as high."""
        self.inputs["lr"].value = float(f"{self.inputs['lr'].value * factor:.6g}")

    @property
    def choices(self) -> Choices:
        """What the controls say now, possible or not."""
        values: dict[str, Any] = {name: widget.value for name, widget in self.inputs.items()}
        for name in PERCENT:
            values[name] = round(values[name] / 100, 10)
        return Choices(**values)

    @choices.setter
    def choices(self, choices: Choices) -> None:
        for each in fields(choices):
            self.inputs[each.name].value = _shown(each.name, getattr(choices, each.name))
        self._arrange()

    def show(self, consequences: Consequences) -> None:
        """Say beside each control why its choice is impossible, or hardly wise."""
        for name, remark in self._remarks.items():
            problem, warning = consequences.problems.get(name), consequences.warnings.get(name)
            kind, color = ("Not possible", PALETTE[1]) if problem else ("Careful", PALETTE[4])
            remark.value = _REMARK.render(text=problem or warning, kind=kind, color=color)

    def _changed(self, _: object) -> None:
        self._arrange()
        self._on_change()

    def _arrange(self) -> None:
        """Show the hardware only where it is simulated, and name the batch after what it is."""
        choices = self.choices
        self._cells["hardware"].layout.display = "" if choices.device == SIMULATED else "none"
        self.inputs["batch_size"].description = BATCH_TITLES.get(choices.scaling, TITLES["batch_size"])


def _shown(name: str, value: Any) -> Any:
    """The value of a choice as its widget has it."""
    if name in PERCENT:
        return round(100.0 * value, 8)
    return value or DEFAULT if name == "hardware" else value


def _make(name: str, value: Any) -> Widget:
    """The widget of one control: of those with an accessible name, which sliders have not."""
    common = {
        "value": _shown(name, value),
        "description": PERCENT.get(name, TITLES[name]),
        **label_above(),
    }
    options = _options(name, value)
    if options is not None:
        return Dropdown(options=options, **common)
    return IntText(**common) if isinstance(value, int) else FloatText(**common)


def _options(name: str, value: Any) -> list[tuple[str, str]] | None:
    """What a dropdown offers: its words and its values; None for a control that takes any number."""
    if name == "hardware":
        names = [*PROFILES] if value in (None, *PROFILES) else [value, *PROFILES]
        return [(f"{each}: {PROFILES[each].title}" if each in PROFILES else each, each) for each in names]
    if name in WORDS:
        return [(text, each) for each, text in WORDS[name].items()]
    return [(each, each) for each in CHOICES[name]] if name in CHOICES else None

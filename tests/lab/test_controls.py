"""The controls say what was chosen, possible or not, and show beside each what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from ipywidgets import Button, Dropdown, FloatText, IntText, Text
from widgets_at_work import html_of, parts

from course_lib.errors import ConfigError
from course_lib.lab.panel.choices import Choices, consequences
from course_lib.lab.panel.controls import ORDER, Controls
from course_lib.lab.panel.questions import GuessQuestion, SweepQuestion

OTHER = Choices(
    num_gpus=3,
    num_nodes=2,
    batch_size=48,
    lr=0.3,
    lr_rule="sqrt",
    warmup_epochs=0.25,
    epochs=7,
    model="mlp",
    data_share=0.07,
    scaling="strong",
    device="simulated",
    hardware="h100-10gbe",
    repeats=4,
    seed=9,
)


@pytest.fixture
def told() -> list[Choices]:
    return []


@pytest.fixture
def controls(told: list[Choices]) -> Controls:
    controls = Controls(Choices(), lambda: told.append(controls.choices))
    return controls


def test_each_field_of_choices_has_a_control():
    assert {*ORDER} == {*Choices.__dataclass_fields__}


def test_what_is_set_is_what_is_said(controls):
    controls.choices = OTHER
    assert controls.choices == OTHER


def test_each_change_is_told(controls, told):
    controls.inputs["epochs"].value = 5
    controls.inputs["data_share"].value = 25.0
    assert told == [Choices(epochs=5, hardware="a100"), Choices(epochs=5, data_share=0.25, hardware="a100")]


def test_each_control_has_a_name_that_assistive_technology_finds(controls):
    for widget in parts(controls):
        if isinstance(widget, Dropdown | IntText | FloatText | Text | Button):
            assert widget.description


@pytest.mark.parametrize(
    ("control", "value"),
    [("num_gpus", 0), ("batch_size", -1), ("lr", 0.0), ("data_share", 150.0), ("epochs", 0), ("warmup_epochs", 99.0)],
)
def test_an_impossible_choice_is_explained_beside_its_control(controls, control, value):
    controls.inputs[control].value = value
    controls.show(consequences(controls.choices))
    assert "Not possible" in html_of(controls._cells[control])
    others = [html_of(controls._cells[name]) for name in ORDER if name != control]
    assert not any("Not possible" in text for text in others)
    controls.inputs[control].value = getattr(Choices(), control) * (100 if control == "data_share" else 1)
    controls.show(consequences(controls.choices))
    assert "Not possible" not in html_of(controls)


def test_what_an_error_says_is_shown_as_text(controls):
    from course_lib.lab.panel.choices import Consequences

    controls.show(Consequences(problems={"model": "<script>"}))
    assert "&lt;script&gt;" in html_of(controls)


def test_the_learning_rate_goes_along_a_logarithmic_scale(controls):
    half, double = (part for part in parts(controls) if isinstance(part, Button))
    double.click()
    double.click()
    assert controls.choices.lr == pytest.approx(0.2)
    for _ in range(4):
        half.click()
    assert controls.choices.lr == pytest.approx(0.0125)


def test_the_hardware_is_asked_for_only_where_it_is_simulated(controls):
    assert controls._cells["hardware"].layout.display == "none"
    controls.inputs["device"].value = "simulated"
    assert controls._cells["hardware"].layout.display == ""
    assert controls._cells["device"].layout.display != "none"


def test_the_batch_is_called_after_what_it_is(controls):
    assert controls.inputs["batch_size"].description == "Batch size per GPU"
    controls.inputs["scaling"].value = "strong"
    assert controls.inputs["batch_size"].description == "Global batch size"


def question(text: str) -> GuessQuestion:
    asked = GuessQuestion(lambda: None)
    asked.field.value = text
    return asked


@pytest.mark.parametrize(("text", "guess"), [("1.7", 1.7), (" 1,7 ", 1.7), ("3", 3.0), ("", None)])
def test_a_guess_is_a_number_or_nothing(text, guess):
    assert question(text).guess() == guess


@pytest.mark.parametrize("text", ["fast", "0", "-2", "nan", "inf", "1.7x"])
def test_what_is_no_guess_is_explained_below_the_field(text):
    asked = question(text)
    with pytest.raises(ConfigError, match="must be a number above 0"):
        asked.guess()
    asked.show(2)
    assert "must be a number above 0" in html_of(asked)


def test_of_one_rank_no_speedup_is_asked():
    asked = question("2")
    asked.show(1)
    assert asked.field.disabled
    assert asked.guess() is None
    asked.show(4)
    assert asked.guess() == 2
    assert "How many times as fast as one rank will 4 ranks be?" in html_of(asked)


@pytest.mark.parametrize(
    ("over", "values"),
    [("num_gpus", [1, 2, 4, 6]), ("batch_size", [32, 64, 128]), ("lr", [0.025, 0.05, 0.1])],
)
def test_a_sweep_suggests_values_around_what_was_chosen(over, values):
    asked = SweepQuestion(lambda: None)
    asked.over.value = over
    asked.suggest(Choices(num_gpus=6))
    assert asked.asked() == (over, values)


def test_values_that_were_typed_stay():
    asked = SweepQuestion(lambda: None)
    asked.values.value = "1 3"
    asked.suggest(Choices(num_gpus=8))
    assert asked.asked() == ("num_gpus", [1, 3])


@pytest.mark.parametrize("text", ["", "one, two", "1.5"])
def test_values_that_are_none_are_refused(text: Any):
    asked = SweepQuestion(lambda: None)
    asked.values.value = text
    with pytest.raises(ConfigError, match="values of a sweep are numbers"):
        asked.asked()

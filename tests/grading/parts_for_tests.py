"""A part of an exercise that is small enough to be seen through: a function `double`, and one `half`."""

from __future__ import annotations

from collections.abc import Iterator

from course_lib.grading import catalog
from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import Attempt, Check, Exercise, Part

HOW_MUCH: int | None = 2  # where it is None, the check itself fails


def doubles(attempt: Attempt) -> Iterator[Finding]:
    assert HOW_MUCH is not None
    numbers = attempt.random.integers(100, size=3).tolist()
    for number, answer in zip(numbers, attempt.call("double", *([number] for number in numbers)), strict=True):
        if answer.get("value") != HOW_MUCH * number:
            yield Finding("wrong", f"{answer}", "How much is twice as much?")


HINTS = ("It is about twice as much.", "Multiply.", "Return `2 * x`.")
DOUBLE = Part("0.1", "Twice as much", ("double",), (Check("twice as much", 2, doubles),), HINTS, ("double",))
BOTH = Part("0.2", "Twice and half", ("double", "half"), (Check("twice", 1, doubles),), HINTS, ("double", "half"))
PROGRAM = Part("0.3", "A program", ("program",), (Check("twice", 1, doubles),), HINTS)


def add_to_the_catalog() -> None:
    """For `check("0.1")` in a kernel."""
    catalog.EXERCISES = (*catalog.EXERCISES, Exercise("00_small", "Small", (DOUBLE, BOTH, PROGRAM)))

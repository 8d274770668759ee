"""How findings put things into words."""

from __future__ import annotations

import pytest

from course_lib.grading.laws.finding import counted, counted_were, quoted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, "sample"), "0 samples"),
        ((1, "process"), "1 process"),
        ((2, "process"), "2 processes"),
        ((2, "batch"), "2 batches"),
        ((12345, "value"), "12,345 values"),
    ],
)
def test_one_is_one_and_others_are_several(given, words):
    assert counted(*given) == words


def test_the_verb_is_that_of_the_number():
    assert [counted_were(number, "rank") for number in (0, 1, 3)] == ["0 ranks were", "1 rank was", "3 ranks were"]


def test_code_is_quoted_unless_its_own_backticks_forbid_it():
    assert [quoted(code) for code in ("a = 1", "`ls`", "")] == ["`a = 1`", "`ls`", ""]

"""How findings put things into words."""

from __future__ import annotations

import pytest

from course_lib.grading.laws.finding import counted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1, "rank", "was"), "1 rank was"),
        ((3, "rank", "was"), "3 ranks were"),
        ((0, "sample"), "0 samples"),
        ((1, "process", "waits"), "1 process waits"),
        ((2, "process", "waits"), "2 processes wait"),
        ((2, "batch"), "2 batches"),
        ((12345, "value"), "12,345 values"),
    ],
)
def test_one_is_one_and_others_are_several(given, words):
    assert counted(*given) == words

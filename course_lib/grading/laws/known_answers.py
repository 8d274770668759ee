"""A number that every rank should know, against what is mostly told instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from course_lib.grading.laws.finding import Finding, listed
from course_lib.grading.laws.values import close, figure, number, of_other_type

EXACT = 1e-6


IDEAS = {
    "own-value": "Whose samples does this number speak of? Each rank must speak of all.",
    "mean-of-means": "Does a rank with few samples speak as loudly as one with many? What can be added up?",
    "one-rank-only": "The sum is promised to one rank only. Who else uses what it returns?",
    "duplicates": "How many samples are there, and how many did you count? Which of them come twice?",
    "sum-of-rates": "A rank that has finished early waits. When is the run over?",
    "mean-of-rates": "Do the ranks take turns, or do they work at the same time?",
    "mean-time": "When is the run over: when the average rank is done, or when all are?",
    "sum-of-times": "Do the ranks take turns, or do they work at the same time?",
    "images-of-one": "Whose images were processed in this time?",
    "not-the-score": "Which counts does the score need, and do you add up the counts of all ranks before you divide?",
    "whole-number": "What becomes of the fraction when whole numbers are divided, and in which type do you divide?",
}


def is_known(
    function: str, values: Sequence[Any], expected: float, mistakes: Sequence[tuple[str, str, list[float]]]
) -> Iterator[Finding]:
    """Each rank returned the right number."""
    size = len(values)
    found = [number(value) for value in values]
    for value, each in zip(values, found, strict=True):
        if each is None:
            yield of_other_type(function, value, "a number")
            return
    plain = [each for each in found if each is not None]
    wrong = [rank for rank, each in enumerate(plain) if not close(each, expected, EXACT)]
    if not wrong:
        return
    told = listed(f"{figure(each)} on rank {rank}" for rank, each in enumerate(plain))
    seen = f"With {size} rank{'s' * (size > 1)}: {told}. Of all samples together it is {figure(expected)}."
    for fault, words, instead in mistakes:
        if size > 1 and all(close(each, other, 1e-4) for each, other in zip(plain, instead, strict=True)):
            yield Finding(fault, f"{seen} {words}", IDEAS[fault])
            return
    if wrong != list(range(size)):
        yield Finding("one-rank-only", f"{seen} Only some ranks have it.", IDEAS["one-rank-only"])
    elif all(each.is_integer() and abs(each - expected) < 1 for each in plain) and not expected.is_integer():
        yield Finding("whole-number", seen, IDEAS["whole-number"])
    else:
        yield Finding("wrong-value", seen, "Which two numbers of all ranks does it take, and do you have both?")

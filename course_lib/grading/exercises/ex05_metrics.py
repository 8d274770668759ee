"""Exercise 5: honest metrics. Numbers of a whole run, the same on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from course_lib.grading.answers import Group, GroupCalls, call_in_groups
from course_lib.grading.exercises.metric_cases import ACCURACY, PADDED, SCORES, SPEED, Case
from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.known_answers import is_known
from course_lib.grading.laws.values import kept
from course_lib.grading.parts import Attempt, Check, Exercise, Part

WORLD_SIZES = (1, 2, 4)


def group_calls(attempt: Attempt, function: str, draws: Sequence[Callable[[np.random.Generator, int], Case]]) -> Any:
    """The cases of each world size, and what came of the function's calls with them."""

    def make() -> tuple[dict[int, list[Case]], dict[int, Group]]:
        cases = {size: [draw(attempt.random, size) for draw in draws] for size in WORLD_SIZES}
        calls: GroupCalls = {
            size: [[(function, case[0][rank]) for case in each] for rank in range(size)] for size, each in cases.items()
        }
        return cases, call_in_groups(attempt, calls)

    return attempt.once(function, make)


def judged(
    function: str,
    draws: Sequence[Callable[[np.random.Generator, int], Case]],
    *numbers: int,
    names: Sequence[str] = (),
) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that the answers to some of the cases are right, on all ranks."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        cases, groups = group_calls(attempt, function, draws)
        for size in WORLD_SIZES:
            for place in numbers:
                given, expected, mistakes = cases[size][place]
                answers = groups[size].of(place)
                yield from is_known(function, [answer.value for answer in answers], expected, mistakes)
                for answer, arguments in zip(answers, given, strict=True):
                    yield from kept(function, answer.after, arguments, names)

    return judge


PREDICTED = ("predictions", "labels")
PARTS = (
    Part(
        "5.1",
        "Accuracy over ranks",
        ("accuracy",),
        (
            Check("it is that of all samples, on every rank", 2, judged("accuracy", ACCURACY, 0, 1, names=PREDICTED)),
            Check("a rank without samples takes part", 1, judged("accuracy", ACCURACY, 2, names=PREDICTED)),
        ),
        (
            "Add up the apples and the baskets separately.",
            "How many were right, and how many were there? Both are sums over ranks.",
            "One `all_reduce` of a tensor with both numbers, then divide. Nothing needs to be divided before.",
        ),
        names=("accuracy",),
    ),
    Part(
        "5.2",
        "What the sampler has filled up",
        ("padded_accuracy",),
        (
            Check(
                "each sample counts once",
                3,
                judged("padded_accuracy", PADDED, 0, 1, 2, names=("indices", *PREDICTED, "samples")),
            ),
            Check(
                "so it is with fewer samples than ranks",
                1,
                judged("padded_accuracy", PADDED, 3, 4, 5, names=("indices", *PREDICTED, "samples")),
            ),
        ),
        (
            "How many exam papers were marked, and how many were handed in?",
            "The indices say which sample is which. A sample that two ranks have is the same sample.",
            "A tensor with a place for each sample: every rank writes its hits into it. What must be done "
            "to the tensors of "
            "all ranks so that a hit on two ranks is one hit? A maximum, for example.",
        ),
        names=("padded_accuracy",),
    ),
    Part(
        "5.3",
        "Images per second",
        ("images_per_second",),
        (
            Check("it is the rate of the whole run, on every rank", 2, judged("images_per_second", SPEED, 0, 2)),
            Check("a rank that had nothing to do is no trouble", 1, judged("images_per_second", SPEED, 1)),
        ),
        (
            "All begin at the same time. When is the run over, and how much was done by then?",
            "Two numbers of all ranks: one is a sum, the other is not.",
            "`all_reduce` can do more than add: `op=dist.ReduceOp.MAX` takes the largest.",
        ),
        names=("images_per_second",),
    ),
    Part(
        "5.4",
        "A score that is no mean",
        ("f1",),
        (
            Check("it is that of all samples, on every rank", 2, judged("f1", SCORES, 0, names=PREDICTED)),
            Check("a rank without positives is no trouble", 1, judged("f1", SCORES, 1, 2, 3, names=PREDICTED)),
        ),
        (
            "Not every score can be averaged. What is it computed from?",
            "True positives, false positives, false negatives: each is a count, and counts can be added up.",
            "Every rank must take part in each collective, whatever it counted. Look at the denominator after the sum.",
        ),
        names=("f1",),
    ),
)
EXERCISE = Exercise("05_honest_metrics", "Honest metrics", PARTS)

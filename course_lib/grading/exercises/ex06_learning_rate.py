"""Exercise 6: the learning rate. How it grows with the batch, warms up, and ends with the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from course_lib.grading.answers import Answer, call, failed
from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.laws.rates import (
    TOLERANCE,
    factor,
    miscounted,
    off_the_curve,
    right_rate,
    right_schedule,
    steps_of,
)
from course_lib.grading.laws.values import close, figure, integer, number, numbers, of_other_type
from course_lib.grading.parts import Attempt, Broken, Check, Exercise, Part


def answered(attempt: Attempt, function: str, draw: Callable[[], list[list[Any]]]) -> list[tuple[list[Any], Answer]]:
    """The arguments of all calls of a part, and what came of each."""

    def make() -> list[tuple[list[Any], Answer]]:
        given = draw()
        return list(zip(given, call(attempt, *((function, each) for each in given)), strict=True))

    return attempt.once(function, make)


def value_of(function: str, answer: Answer, read: Callable[[Any], Any], wanted: str) -> Any:
    """What it returned.

    Raises:
        Broken: it failed, or returned something else than was asked for.
    """
    for finding in failed(function, answer):
        raise Broken(finding)
    value = read(answer.value)
    if value is None:
        raise Broken(of_other_type(function, answer.value, wanted))
    return value


# 6.1: the rule.


def _rates(attempt: Attempt) -> list[tuple[list[Any], Answer]]:
    def draw() -> list[list[Any]]:
        random = attempt.random
        cases: list[tuple[int, int, int]] = []  # base batch size, batch size of a rank, ranks
        base = int(random.choice([32, 64, 256]))
        cases.append((base, base, int(random.integers(3, 9))))
        cases.append((base, base // 2, int(random.integers(3, 9)) * 2 + 1))
        cases.append((256, 24, int(random.integers(2, 6))))  # smaller than the base, and no whole multiple of it
        cases.append((base, 2 * base, 1))
        return [
            [float(random.uniform(0.01, 0.5)), *case, rule] for case in cases for rule in ("linear", "sqrt", "none")
        ]

    return answered(attempt, "scaled_lr", draw)


def scaled(rule: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of one rule."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for (lr, base, batch, ranks, asked), answer in _rates(attempt):
            if asked == rule:
                found = value_of("scaled_lr", answer, number, "a learning rate, a number")
                yield from right_rate(found, lr, base, batch, ranks, rule)

    return judge


# 6.2: steps.


def _steps(attempt: Attempt) -> list[tuple[list[Any], Answer]]:
    def draw() -> list[list[Any]]:
        draw = attempt.random.integers
        ranks, batch, whole = int(draw(3, 7)), int(draw(4, 9)), int(draw(3, 9))
        cases = [
            (ranks * batch * whole, ranks, batch),
            (ranks * batch * (whole + 1), ranks, batch),  # an even number of steps, and an odd one
            (ranks * batch * int(draw(3, 9)) + 1, ranks, batch),  # one sample more than whole batches
            (ranks * batch * int(draw(3, 9)) - 1, ranks, batch),
            (ranks * (batch * int(draw(3, 9)) + 2) + 1, ranks, batch),
            (int(draw(100, 200)), 1, 7),
            (ranks * batch - ranks, ranks, batch),  # no rank has a whole batch
        ]
        return [[*case, drop] for case in cases for drop in (False, True)]

    return answered(attempt, "steps_per_epoch", draw)


def steps_right(drop: bool) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of the steps of an epoch, with the rest filled up or dropped."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for (samples, ranks, batch, dropped), answer in _steps(attempt):
            if dropped != drop:
                continue
            found = value_of("steps_per_epoch", answer, _count, "a number of steps")
            expected = steps_of(samples, ranks, batch, drop)
            seen = (
                f"{counted(samples, 'sample')} on {counted(ranks, 'rank')} in batches of {batch}, drop_last={drop}: "
                f"{figure(found)} steps; "
                f"each rank takes {expected}."
            )
            if not close(found, expected):
                yield miscounted(seen, found, samples, ranks, batch, drop)
            elif integer(answer.value) is None:
                yield Finding(
                    "not-whole",
                    f"{seen} But it is of type {type(answer.value).__name__}.",
                    "Whoever loops over the steps needs a whole number. Can `range` take this one?",
                )

    return judge


def _count(value: Any) -> float | None:
    return number(value)


# 6.3: the rate of a step.


def _curves(attempt: Attempt) -> list[tuple[list[Any], Answer]]:
    def draw() -> list[list[Any]]:
        random = attempt.random
        shapes = [
            (int(random.integers(3, 8)), int(random.integers(20, 30))),
            (0, int(random.integers(8, 15))),
            (1, int(random.integers(5, 9))),
        ]
        return [
            [step, float(random.uniform(0.1, 2.0)), warmup, total] for warmup, total in shapes for step in range(total)
        ]

    return answered(attempt, "lr_at", draw)


def rate_of_step(warming_up: bool) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of the steps of the warm-up, or of those after it."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for (step, peak, warmup, total), answer in _curves(attempt):
            if (step < warmup) != warming_up:
                continue
            found = value_of("lr_at", answer, number, "a learning rate, a number")
            expected = peak * factor(step, warmup, total)
            if not (close(found, expected, TOLERANCE) or abs(found - expected) <= 1e-9 * peak):
                yield off_the_curve(found / peak, step, warmup, total)

    return judge


def no_warm_up(attempt: Attempt) -> Iterator[Finding]:
    """Without a warm-up the first step has the peak."""
    for (step, peak, warmup, total), answer in _curves(attempt):
        if warmup == 0 and step == 0:
            found = value_of("lr_at", answer, number, "a learning rate, a number")
            if not close(found, peak, TOLERANCE):
                yield off_the_curve(found / peak, step, warmup, total)


# 6.4: a whole schedule.


def _schedules(attempt: Attempt) -> list[tuple[list[Any], Answer]]:
    def draw() -> list[list[Any]]:
        random = attempt.random
        return [
            [
                int(random.integers(150, 300)),
                ranks,
                int(random.integers(4, 9)),
                int(random.integers(3, 6)),
                warmup,
                float(random.uniform(0.05, 0.3)),
                16,
            ]
            for ranks, warmup in ((1, 2), (3, 1), (int(random.integers(4, 9)), 0))
        ]

    return answered(attempt, "schedule", draw)


def as_long_as_the_training(attempt: Attempt) -> Iterator[Finding]:
    """A rate for each step that a rank takes."""
    for given, answer in _schedules(attempt):
        rates = value_of("schedule", answer, numbers, "a list of learning rates")
        samples, ranks, batch, epochs = given[:4]
        expected = epochs * steps_of(samples, ranks, batch, False)
        if len(rates) == expected:
            continue
        seen = (
            f"{counted(epochs, 'epoch')} of {counted(samples, 'sample')} on {counted(ranks, 'rank')} in batches of "
            f"{batch}: "
            f"{counted(len(rates), 'rate')}; a rank takes {counted(expected, 'step')}."
        )
        if ranks > 1 and abs(len(rates) - expected * ranks) <= epochs * ranks:
            yield Finding("not-sharded", seen, "With more ranks an epoch has fewer steps. Whose steps did you count?")
        elif len(rates) * epochs == expected:
            yield Finding("one-epoch", seen, "How many epochs does the training have?")
        else:
            yield Finding("wrong-length", seen, "How many steps has an epoch on one rank?")


def right_rates(attempt: Attempt) -> Iterator[Finding]:
    """All of them."""
    for given, answer in _schedules(attempt):
        rates = value_of("schedule", answer, numbers, "a list of learning rates")
        yield from right_schedule(rates, given)


PARTS = (
    Part(
        "6.1",
        "A rate for a larger batch",
        ("scaled_lr",),
        (
            Check("linear", 1, scaled("linear")),
            Check("sqrt", 1, scaled("sqrt")),
            Check("none: the rate stays", 1, scaled("none")),
        ),
        (
            "A rate was found good for one batch size. How many times as large is the batch of all ranks together?",
            "The global batch is what all ranks take in one step. Divide it by the batch that the rate was tuned for.",
            "Call that factor k: the linear rule multiplies by k, the other one by its square root. k "
            "need be no whole number.",
        ),
        names=("scaled_lr",),
    ),
    Part(
        "6.2",
        "The steps of an epoch",
        ("steps_per_epoch",),
        (
            Check("with the rest filled up", 1, steps_right(False)),
            Check("with the rest dropped", 1, steps_right(True)),
        ),
        (
            "Two things are rounded, one after the other. Which?",
            "First the samples are shared among the ranks, then the share of a rank is cut into batches.",
            "Filled up means rounded up, both times; dropped means rounded down, both times. `math.ceil` "
            "gives whole numbers.",
        ),
        names=("steps_per_epoch",),
    ),
    Part(
        "6.3",
        "Up, and down again",
        ("lr_at",),
        (
            Check("a straight way up", 1, rate_of_step(True)),
            Check("half a cosine down", 2, rate_of_step(False)),
            Check("without a warm-up it begins at the peak", 1, no_warm_up),
        ),
        (
            "Draw it: the first step is already above zero, and the last step of the warm-up has the peak.",
            "On the way down, say how far along a step is: 0 where the warm-up ends, 1 where the training does.",
            "(1 + cos(π · progress)) / 2 goes from 1 to 0 as the progress goes from 0 to 1.",
        ),
        names=("lr_at",),
    ),
    Part(
        "6.4",
        "The schedule of a training",
        ("scaled_lr", "steps_per_epoch", "lr_at", "schedule"),
        (
            Check("a rate for each step that a rank takes", 2, as_long_as_the_training),
            Check("each of them right, from the first to the last", 2, right_rates),
        ),
        (
            "With twice as many ranks an epoch has half as many steps. What else is counted in steps?",
            "Peak, length and warm-up each come from one of the three functions that you have written.",
            "Total steps and warm-up steps are epochs times the steps of an epoch on one rank, with the "
            "rest filled up.",
        ),
        names=("scaled_lr", "steps_per_epoch", "lr_at", "schedule"),
    ),
)
EXERCISE = Exercise("06_learning_rate", "The learning rate", PARTS)

"""Speedup and efficiency, judged on tables of runs: with repeats, with failed runs, with nothing to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan

from course_lib.grading.answers import Answer, call, failed
from course_lib.grading.exercises.run_tables import repeats, scaled, table
from course_lib.grading.laws.finding import Finding, listed
from course_lib.grading.laws.speedups import (
    Runs,
    medians,
    other_ratio,
)
from course_lib.grading.laws.values import close, kept, number, of_other_type, whole
from course_lib.grading.parts import Attempt, Broken


def tables(attempt: Attempt) -> dict[str, Runs]:
    """One run each; with repeats; with failed runs; without one rank; with one rank that failed."""

    def make() -> dict[str, Runs]:
        random = attempt.random
        single, broken, without = (scaled(random) for _ in range(3))
        repeated = scaled(random, -0.01, -0.003)  # which caches make possible
        some_failed: dict[int, list[float | None]] = {
            ranks: [*repeats(random, rate, int(random.integers(3, 7))), None] for ranks, rate in broken.items()
        }
        some_failed[1] = [*repeats(random, broken[1], 4), None]
        last = max(broken)
        some_failed[last] = [None, None]
        return {
            "single": table(random, {ranks: [rate] for ranks, rate in single.items()}),
            "repeats": table(random, {ranks: repeats(random, rate) for ranks, rate in repeated.items()}),
            "failed": table(random, some_failed),
            "without": table(random, {ranks: [rate] for ranks, rate in without.items() if ranks > 1}),
            "baseline failed": table(random, {ranks: [rate if ranks > 1 else None] for ranks, rate in without.items()}),
        }

    return attempt.once("tables", make)


def answers(attempt: Attempt, function: str) -> dict[str, Answer]:
    """What came of the function on each table."""
    return attempt.once(
        function,
        lambda: dict(
            zip(tables(attempt), call(attempt, *((function, [runs]) for runs in tables(attempt).values())), strict=True)
        ),
    )


def ratios(attempt: Attempt, function: str, name: str) -> tuple[Runs, dict[int, float]]:
    """A table, and what the function gave for it, by the number of ranks.

    Raises:
        Broken: it failed, or gave no such thing.
    """
    runs, answer = tables(attempt)[name], answers(attempt, function)[name]
    for finding in failed(function, answer):
        raise Broken(finding)
    value = answer.value
    if not isinstance(value, dict):
        raise Broken(of_other_type(function, value, "a dict with a number for each number of ranks"))
    found = {}
    for key, each in value.items():
        ranks, ratio = whole(key), number(each)
        if ranks is None or ratio is None:
            raise Broken(of_other_type(function, value, "a dict with a number for each number of ranks"))
        found[ranks] = ratio
    expected = set(medians(runs))
    known = {ranks for ranks, ratio in found.items() if not isnan(ratio)}
    if known != expected:
        raise Broken(
            Finding(
                "other-ranks",
                f"There are finished runs on {listed(sorted(expected))} ranks; the answer speaks of "
                f"{listed(sorted(known)) or 'none'}.",
                "Which numbers of ranks have a run that finished? One rank is among them.",
            )
        )
    return runs, {ranks: found[ranks] for ranks in sorted(expected)}


def judged(function: str, name: str, share: bool) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of the numbers for one table; with `share` they are divided by the ranks."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        runs, found = ratios(attempt, function, name)
        middle = medians(runs)
        for ranks, value in found.items():
            scale = ranks if share else 1
            if not close(value, middle[ranks] / middle[1] / scale):
                yield other_ratio(runs, ranks, value, middle, share)
                return
        yield from kept(function, answers(attempt, function)[name].after, [runs], ("runs",))

    return judge


def refuses(function: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that there is no answer where there is nothing to compare with."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        ratios(attempt, function, "single")  # a function that refuses everything has not understood it
        for name in ("without", "baseline failed"):
            answer = answers(attempt, function)[name]
            if answer.error is None:
                yield Finding(
                    "no-baseline",
                    "No run on one rank had finished, and there was an answer all the same.",
                    "Faster than what? Say that it cannot be said: the exercise names the error.",
                )
                return
            if "ValueError" not in answer.error["kinds"]:
                yield Finding(
                    "other-error",
                    f"No run on one rank had finished, and it failed with {answer.error['type']}.",
                    "The exercise names the error. One that says what is missing is better than one that happens by "
                    "itself.",
                )
                return

    return judge

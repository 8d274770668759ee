"""Exercise 7: speedup. From a table of runs to speedup, efficiency, Amdahl's fraction, and how sure one can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan
from typing import Any

from course_lib.grading.answers import Answer, call, failed
from course_lib.grading.exercises.run_tables import repeats, scaled, table, world_sizes
from course_lib.grading.exercises.speedup_cases import judged, refuses
from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.laws.speedups import (
    FITTED,
    Runs,
    other_fraction,
    rates_of,
    right_interval,
)
from course_lib.grading.laws.values import close, figure, kept, number, numbers, of_other_type
from course_lib.grading.parts import Attempt, Broken, Check, Exercise, Part
from course_lib.scaling.laws import amdahl

# 7.3: Amdahl.


def fractions(attempt: Attempt) -> dict[str, tuple[float, Runs, Answer]]:
    """Tables of runs with a known serial fraction, and what came of them."""

    def make() -> dict[str, tuple[float, Runs, Answer]]:
        random = attempt.random
        rate = float(random.uniform(200, 5000))
        known = {
            "one": (float(random.uniform(0.03, 0.4)), [1, int(random.integers(2, 17))], 1),
            "two": (float(random.uniform(0.3, 0.6)), [1, 2], 1),
            "several": (float(random.uniform(0.03, 0.3)), world_sizes(random), 1),
            "repeats": (float(random.uniform(0.03, 0.3)), world_sizes(random), 5),
            "ideal": (0.0, world_sizes(random), 1),
        }
        given = {}
        for name, (fraction, ranks, count) in known.items():
            rates = {each: rate * amdahl(float(each), fraction) for each in ranks}
            given[name] = table(
                random, {each: repeats(random, rates[each]) if count > 1 else [rates[each]] for each in ranks}
            )
        found = call(attempt, *(("serial_fraction", [runs]) for runs in given.values()))
        return {name: (known[name][0], given[name], answer) for name, answer in zip(known, found, strict=True)}

    return attempt.once("fractions", make)


def fraction_right(*names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that the fraction is found again."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for name in names:
            expected, runs, answer = fractions(attempt)[name]
            yield from failed("serial_fraction", answer)
            if answer.error is not None:
                continue
            found = number(answer.value)
            if found is None:
                yield of_other_type("serial_fraction", answer.value, "one number, between 0 and 1")
            elif abs(found - expected) > FITTED * max(expected, 0.1) or isnan(found):
                yield other_fraction(found, expected, runs)
            else:
                yield from kept("serial_fraction", answer.after, [runs], ("runs",))

    return judge


def amdahl_right(attempt: Attempt) -> Iterator[Finding]:
    """What the law says for other numbers of ranks."""

    def make() -> list[tuple[list[Any], Answer]]:
        random = attempt.random
        given = [[float(random.uniform(0.01, 0.6)), int(random.integers(2, 500))] for _ in range(4)]
        given += [[0.0, 8], [1.0, 8], [0.25, 1]]
        return list(zip(given, call(attempt, *(("amdahl", each) for each in given)), strict=True))

    for (fraction, ranks), answer in attempt.once("amdahl", make):
        yield from failed("amdahl", answer)
        found = number(answer.value)
        expected = amdahl(float(ranks), fraction)
        if answer.error is None and found is None:
            yield of_other_type("amdahl", answer.value, "a speedup, a number")
        elif found is not None and not close(found, expected):
            yield Finding(
                "wrong-law",
                f"A serial fraction of {figure(fraction)} on {counted(ranks, 'rank')}: {figure(found)}; it should be "
                f"{figure(expected)}.",
                "How long does it take, if it takes 1 on one rank? The part that stays, and the part that is divided.",
            )


# 7.4: how sure.


def intervals(attempt: Attempt) -> dict[str, tuple[Runs, int, Answer]]:
    """Tables, the ranks that are asked for, and what came of it."""

    def make() -> dict[str, tuple[Runs, int, Answer]]:
        random = attempt.random
        given: dict[str, tuple[Runs, int]] = {}
        for name, counts in {
            "even": (3, 3, 3),
            "other": (4, 5, 3),
            "few": (4, 2, 3),
            "few alone": (2, 4, 3),
            "failed": (4, 3, 3),
            "none": (4, 0, 3),
        }.items():
            rates = scaled(random)
            asked, other = (int(each) for each in random.choice([each for each in rates if each > 1], 2, replace=False))
            some: dict[int, list[float | None]] = {
                ranks: [rates[ranks] * float(random.uniform(0.9, 1.1)) for _ in range(count)]
                for ranks, count in zip((1, asked, other), counts, strict=True)
            }
            if name in ("other", "failed"):
                some[asked][0] = None
            given[name] = table(random, some), asked
        found = call(attempt, *(("speedup_interval", list(each)) for each in given.values()))
        return {name: (*given[name], answer) for name, answer in zip(given, found, strict=True)}

    return attempt.once("intervals", make)


def interval_right(attempt: Attempt) -> Iterator[Finding]:
    """From the worst pair of runs to the best."""
    for name in ("even", "other"):
        runs, asked, answer = intervals(attempt)[name]
        yield from failed("speedup_interval", answer)
        if answer.error is not None:
            continue
        found = numbers(answer.value)
        if found is None or len(found) != 2:
            yield of_other_type("speedup_interval", answer.value, "two numbers, the lower one first")
            continue
        yield from right_interval(found, rates_of(runs)[asked], rates_of(runs)[1], asked)
        yield from kept("speedup_interval", answer.after, [runs, asked], ("runs", "world_size"))


def too_few(attempt: Attempt) -> Iterator[Finding]:
    """No interval where there are fewer than three finished runs on either side."""
    for finding in failed("speedup_interval", intervals(attempt)["even"][2]):
        raise Broken(finding)
    if numbers(intervals(attempt)["even"][2].value) is None:
        raise Broken(of_other_type("speedup_interval", intervals(attempt)["even"][2].value, "two numbers"))
    for name in ("few", "few alone", "failed", "none"):
        runs, asked, answer = intervals(attempt)[name]
        yield from failed("speedup_interval", answer)
        if answer.error is None and answer.value is not None and not numbers(answer.value):
            yield of_other_type(
                "speedup_interval", answer.value, "None, and nothing else, where there are too few runs"
            )
        elif answer.error is None and answer.value is not None:
            counts = [len(rates_of(runs).get(ranks, [])) for ranks in (asked, 1)]
            yield Finding(
                "too-sure",
                f"{counted(counts[0], 'finished run')} on {counted(asked, 'rank')} and {counts[1]} on one, and there "
                "was an interval all the "
                "same.",
                "Two runs that happen to agree say little. From how many on does the exercise speak of an interval?",
            )


PARTS = (
    Part(
        "7.1",
        "How many times as fast",
        ("speedups",),
        (
            Check("one run for each number of ranks", 1, judged("speedups", "single", False)),
            Check("of repeats the median, on both sides", 1, judged("speedups", "repeats", False)),
            Check("failed runs are left out", 1, judged("speedups", "failed", False)),
            Check("nothing to compare with is an error", 1, refuses("speedups")),
        ),
        (
            "First put together the rates of each number of ranks. A run that failed has none.",
            "A speedup compares two medians: that of the runs on so many ranks, and that of the runs on one.",
            "`statistics.median` of each list; then divide by that of one rank. Where there is none, "
            "`raise ValueError(…)`.",
        ),
        names=("speedups",),
    ),
    Part(
        "7.2",
        "What each rank contributes",
        ("speedups", "efficiencies"),
        (
            Check("the share of each rank", 1, judged("efficiencies", "repeats", True)),
            Check("nothing to compare with is an error", 1, refuses("efficiencies")),
        ),
        (
            "What would the speedup be if nothing were lost?",
            "Efficiency is 1 where N ranks are N times as fast.",
            "Take the speedups that you have, and divide each by its number of ranks.",
        ),
        names=("speedups", "efficiencies"),
    ),
    Part(
        "7.3",
        "What cannot be divided",
        ("speedups", "serial_fraction"),
        (
            Check("the speedup that Amdahl's law predicts", 1, amdahl_right),
            Check("the fraction from two rows", 1, fraction_right("one", "two")),
            Check("from many rows, with repeats", 1, fraction_right("several", "repeats", "ideal")),
        ),
        (
            "On one rank the work takes a time of 1: f that cannot be divided, and 1 - f that can. And on N ranks?",
            "The speedup is 1 over that time. Solve it for f: then each row with more than one rank gives an f.",
            "1 / S = f + (1 - f) / N, so f = (1 / S - 1 / N) / (1 - 1 / N). If the law holds, all rows "
            "say the same; take "
            "the median of what they say.",
        ),
        names=("speedups", "amdahl", "serial_fraction"),
    ),
    Part(
        "7.4",
        "How sure can you be",
        ("speedup_interval",),
        (
            Check("from the smallest ratio to the largest", 2, interval_right),
            Check("too few runs give no interval", 1, too_few),
        ),
        (
            "Each run on N ranks can be compared with each run on one. How many ratios are there?",
            "Which pair gives the smallest of them, and which the largest?",
            "The slowest on N ranks against the fastest on one, and the other way round. Fewer than three "
            "finished runs on "
            "either side: return None.",
        ),
        names=("speedup_interval",),
    ),
)
EXERCISE = Exercise("07_speedup", "Speedup", PARTS)

"""Speedups against the right ones, and against what is mostly in their place."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median
from typing import Any

from course_lib.grading.laws.finding import Finding, counted, listed
from course_lib.grading.laws.values import close, figure

Runs = list[dict[str, Any]]
RANKS, RATE = "world_size", "images_per_second"

FITTED = 2e-3  # a fit by some optimizer is right so far


def medians(runs: Runs) -> dict[int, float]:
    """The median rate of each number of ranks that finished a run."""
    return {ranks: median(rates) for ranks, rates in rates_of(runs).items()}


def rates_of(runs: Runs) -> dict[int, list[float]]:
    """The rates of all finished runs, by the number of ranks."""
    found: dict[int, list[float]] = {}
    for run in runs:
        if run[RATE] is not None:
            found.setdefault(run[RANKS], []).append(run[RATE])
    return dict(sorted(found.items()))


def other_ratio(runs: Runs, ranks: int, value: float, middle: dict[int, float], share: bool) -> Finding:
    """Another ratio than it should be."""
    expected = middle[ranks] / middle[1]
    scale = ranks if share else 1
    all_rates = rates_of(runs)
    seen = f"On {counted(ranks, 'rank')}: {figure(value)}; it should be {figure(expected / scale)}."
    repeats = "The fastest, the first, the mean: which of them does one slow run move the least?"
    instead = (
        ("turned-round", 1 / expected / scale, "Rates, not times: which is larger where it is faster?"),
        ("not-divided", expected, "What would be a perfect result on that many ranks, and what is yours called then?"),
        ("divided", expected / ranks, "Is it asked for what all ranks reach together, or for the share of each?"),
        ("divided-twice", expected / ranks**2, "How often is it divided by the ranks?"),
        ("repeats", mean(all_rates[ranks]) / mean(all_rates[1]) / scale, repeats),
        ("repeats", max(all_rates[ranks]) / max(all_rates[1]) / scale, repeats),
        ("repeats", min(all_rates[ranks]) / min(all_rates[1]) / scale, repeats),
        ("rate", middle[ranks] / scale, "By what is the rate to be divided?"),
    )
    for fault, other, idea in instead:
        if close(value, other):
            return Finding(fault, seen, idea)
    firsts = [run for run in runs if run[RATE] is not None]
    base, own = ([run[RATE] for run in firsts if run[RANKS] == number] for number in (1, ranks))
    if any(close(value, one / other / scale) for one in own for other in base):
        return Finding("repeats", seen, "There are several runs for a number of ranks. Which of them did you use?")
    smallest = min(middle)
    if smallest != 1 and close(value, middle[ranks] / middle[smallest] / scale):
        return Finding("other-baseline", seen, "Against which run is a speedup measured?")
    return Finding("wrong-value", seen, "Which two rates does it compare?")


def other_fraction(found: float, expected: float, runs: Runs) -> Finding:
    """Another serial fraction than the runs have."""
    sizes = sorted(medians(runs))
    seen = (
        f"Runs on {listed(sizes)} ranks that follow Amdahl's law with a serial fraction of {figure(expected)}: "
        f"the answer is {figure(found)}."
    )
    if abs(found - (1 - expected)) < FITTED:
        return Finding("parallel-fraction", seen, "Which of the two parts does not get faster?")
    if expected > 0 and close(found, 1 / expected, FITTED):
        return Finding(
            "limit", seen, "That is the largest speedup there can be. What is asked for is a share of the time."
        )
    lost = [1 - medians(runs)[size] / medians(runs)[1] / size for size in sizes if size > 1]
    if any(abs(found - each) < FITTED for each in (*lost, mean(lost))):
        return Finding(
            "efficiency", seen, "What is missing from the efficiency grows with the ranks; the fraction does not."
        )
    return Finding(
        "wrong-fraction", seen, "Write down the time on N ranks: a part that stays, and a part that is divided."
    )


def right_interval(found: list[float], rates: list[float], alone: list[float], ranks: int) -> Iterator[Finding]:
    """The smallest and the largest ratio of two runs."""
    expected = [min(rates) / max(alone), max(rates) / min(alone)]
    if all(close(one, other) for one, other in zip(found, expected, strict=True)):
        return
    seen = (
        f"{counted(len(rates), 'run')} on {counted(ranks, 'rank')}, {len(alone)} on one: "
        f"from {figure(found[0])} to {figure(found[1])}; "
        f"it should be from {figure(expected[0])} to {figure(expected[1])}."
    )
    if found[0] > found[1]:
        yield Finding("turned-round", seen, "The lower end comes first.")
    elif any(close(found[0], min(rates) / each) for each in (median(alone), mean(alone), min(alone))):
        yield Finding(
            "sure-of-baseline", seen, "The runs on one rank scatter as well. Which of them makes it look worst?"
        )
    elif found[0] > expected[0] or found[1] < expected[1]:
        yield Finding("too-narrow", seen, "Which pair of runs gives the smallest ratio, and which the largest?")
    else:
        yield Finding("too-wide", seen, "Which pair of runs gives the smallest ratio, and which the largest?")

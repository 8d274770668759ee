"""Tables of runs, as exercise 7 has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course_lib.grading.laws.speedups import RANKS, RATE, Runs
from course_lib.scaling.laws import amdahl


def table(random: np.random.Generator, rates: Mapping[int, list[float | None]]) -> Runs:
    """The runs of these rates, in a random order, where one rank does not come first."""
    runs: Runs = [{RANKS: ranks, RATE: rate} for ranks, each in rates.items() for rate in each]
    runs = [runs[place] for place in random.permutation(len(runs))]
    first = next(place for place, run in enumerate(runs) if run[RANKS] > 1)
    return [runs.pop(first), *runs]


def repeats(random: np.random.Generator, middle: float, count: int = 5) -> list[float | None]:
    """Repeats with this median, which none of an even number has; one is far too slow: their mean is another number."""
    off = float(random.uniform(0.01, 0.03))
    between = [middle] if count % 2 else [middle * (1 - off), middle * (1 + off)]
    below = [middle * float(random.uniform(0.93, 0.96)) for _ in range((count - len(between)) // 2 - 1)]
    above = [middle * float(random.uniform(1.035, 1.06)) for _ in range((count - len(between)) // 2)]
    return [middle * float(random.uniform(0.2, 0.5)), *below, *between, *above]


def world_sizes(random: np.random.Generator) -> list[int]:
    """Some numbers of ranks, the single one not always among the first rows."""
    return [1, *sorted(int(each) for each in random.choice(np.arange(2, 33), 3, replace=False))]


def scaled(random: np.random.Generator, low: float = 0.02, high: float = 0.2) -> dict[int, float]:
    """A rate for each number of ranks, with a serial fraction between these; below 0: more than N times as fast."""
    rate = float(random.uniform(200, 5000))
    fraction = float(random.uniform(low, high))
    return {ranks: rate * amdahl(float(ranks), fraction) for ranks in world_sizes(random)}

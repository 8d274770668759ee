"""Speedup and efficiency, of runs that differ in nothing else than the number of ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import isfinite, sqrt
from typing import Any

import numpy as np
import pandas as pd

from course_lib.config import SIMULATED
from course_lib.errors import ComparisonError

SPEEDUP_COLUMNS = ("speedup", "speedup_low", "speedup_high", "efficiency", "efficiency_low", "efficiency_high")
# What changes the time of a step, besides the ranks and the batch. Learning rate, seed, schedule and
# number of epochs do not, so runs that differ in these are repeats of one measurement. The machine is
# told by its hardware: a container has a new host name each time, and a cluster many like nodes.
SAME_FOR_SPEED = (
    *("timing", "hardware", "cpu", "cores", "devices", "torch"),
    *("threads_per_rank", "precision", "channels_last", "compile"),
    *("model", "data", "train_samples", "accumulation_steps", "optimizer", "clip_norm", "sync_batchnorm"),
)
RANKS = ("num_gpus", "num_nodes")
# Timed steps below which a speed is doubtful: on laptops and virtual machines a step that takes five times as long as
# the others comes along now and then, and adds a fifth to the mean of 20.
FEW_STEPS = 20
TOO_SHORT = (
    f"too short to say much about speed. With fewer than {FEW_STEPS} steps after the first ones, which are left out, a "
    "single slow step can change the mean by a fifth. Train on more images or for more epochs."
)
TAIL = 0.05  # on either side of a 90 % interval
EXACT_UP_TO = 20  # runs on each side; above, the normal approximation is as good


def with_speedup(frame: pd.DataFrame) -> pd.DataFrame:
    """A copy of a frame of runs (see runs/store.py) with the columns `SPEEDUP_COLUMNS`.

    Runs that are alike in `SAME_FOR_SPEED`, ranks and batch are repeats of one measurement.
    Their speedup is the median of their images per second over the median of the runs on one rank
    that are alike in the rest: with the same batch per rank, or, in strong scaling, the same global
    batch. Efficiency is speedup over `world_size`. The 90 % interval is `ratio_interval`'s; the
    speedup of one rank is 1 by definition, and so is its interval.

    NaN where there is nothing to compare with: a run that did not finish, whose timing is not
    known, or without a like run on one rank. The interval is NaN where there are too few repeats.
    A repeat that is no speed measurement (`speed_caveats`) is left out, and NaN, where there are others
    that are; where there are none, the speedup is that of all repeats.
    """
    rate = pd.to_numeric(frame["images_per_sec"], errors="coerce").to_numpy(float, na_value=np.nan)
    usable = (
        (frame["status"] == "finished").to_numpy() & frame["timing"].notna().to_numpy() & (rate > 0) & (rate < np.inf)
    )
    values = np.full((len(frame), len(SPEEDUP_COLUMNS)), np.nan)
    if usable.any():
        values[usable] = _speedups(frame[usable].reset_index(drop=True), rate[usable])
    return frame.assign(**dict(zip(SPEEDUP_COLUMNS, values.T, strict=True)))


def too_short(frame: pd.DataFrame) -> pd.Series[bool]:
    """Which runs of a frame (see runs/store.py) say that they were timed over fewer than `FEW_STEPS` steps.

    None that was simulated, since the clock of a simulation is never slow by chance.
    """
    return (frame["timed_steps"] < FEW_STEPS) & (frame["timing"] != SIMULATED)


def _speedups(runs: pd.DataFrame, rate: np.ndarray) -> np.ndarray:
    """One row of `SPEEDUP_COLUMNS` for each of these runs, which all have a rate."""
    experiment = _number_groups(_experiment(runs))
    measurement = _number_groups(runs[[*RANKS]].assign(experiment=experiment))
    clean = (runs["speed_caveats"] == "").to_numpy()
    rows_of = {number: _best(np.flatnonzero(measurement == number), clean) for number in np.unique(measurement)}
    alone = np.flatnonzero(runs["world_size"] == 1)
    baselines = dict(zip(experiment[alone], measurement[alone], strict=True))
    world_size = runs["world_size"].to_numpy(float)
    values = np.full((len(runs), len(SPEEDUP_COLUMNS)), np.nan)
    for number, rows in rows_of.items():
        baseline = baselines.get(experiment[rows[0]])
        if baseline is None:
            continue
        ratios = (1.0, 1.0, 1.0) if number == baseline else _ratio(rate[rows], rate[rows_of[baseline]])
        values[rows] = [*ratios, *(ratio / world_size[rows[0]] for ratio in ratios)]
    return values


def _experiment(runs: pd.DataFrame) -> pd.DataFrame:
    """The columns in which runs must be alike to be compared."""
    strong = runs["scaling"] == "strong"
    batch = runs["batch_size"].where(~strong, runs["global_batch_size"])
    return runs[[name for name in SAME_FOR_SPEED if name in runs]].assign(strong=strong, batch=batch)


def _number_groups(columns: pd.DataFrame) -> np.ndarray:
    """One number a row: the same where all columns are the same, missing values included."""
    return columns.groupby(list(columns), dropna=False, sort=False).ngroup().to_numpy()


def _best(rows: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Those of a measurement's repeats that count: the ones without caveats, if there are any."""
    return rows[clean[rows]] if clean[rows].any() else rows


def _ratio(rates: np.ndarray, baseline_rates: np.ndarray) -> tuple[float, float, float]:
    """The ratio of medians with its interval, widened to hold it where it must be."""
    ratio = float(np.median(rates) / np.median(baseline_rates))
    low, high = ratio_interval(rates, baseline_rates)
    return ratio, min(low, ratio) if isfinite(low) else low, max(high, ratio) if isfinite(high) else high


def ratio_interval(rates: np.ndarray, baseline_rates: np.ndarray) -> tuple[float, float]:
    """The 90 % interval of the ratio between two sets of repeated rates.

    The k-th smallest and the k-th largest of all m x n ratios, where k comes from the distribution of
    the Mann-Whitney statistic: exact up to 20 repeats a side, whatever the distribution of the
    noise, as long as it multiplies both sides alike (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, 3rd ed., section 4.3, on logarithms; Hoefler and Belli, Scientific Benchmarking
    of Parallel Computing Systems, SC 2015, advise ranks for times). Three runs on each side just reach
    90 %; with fewer no interval does, and the answer is (NaN, NaN).
    """
    k = _order_of_bound(len(rates), len(baseline_rates))
    if k < 1:
        return float("nan"), float("nan")
    ratios = np.divide.outer(rates, baseline_rates).ravel()
    bounds = np.partition(ratios, [k - 1, len(ratios) - k])
    return float(bounds[k - 1]), float(bounds[len(ratios) - k])


def _order_of_bound(m: int, n: int) -> int:
    """The largest k with P(U < k) <= TAIL for the Mann-Whitney U of m and n values; 0 if there is none."""
    if max(m, n) > EXACT_UP_TO:
        return int(max(0, m * n / 2 - 1.6449 * sqrt(m * n * (m + n + 1) / 12)))
    below = np.cumsum(_mann_whitney_counts(m, n))
    return int(np.searchsorted(below, TAIL * below[-1], side="right"))


def _mann_whitney_counts(m: int, n: int) -> np.ndarray:
    """How many of the orders of m and n values have U = 0, 1, ..., m n.

    These are the coefficients of the Gaussian binomial (m + n over n), here built factor by factor
    as the product over i = 1..n of (1 - q^(m + i)) / (1 - q^i).
    """
    counts = np.zeros(m * n + 1)
    counts[0] = 1
    for i in range(1, n + 1):
        counts[m + i :] -= counts[: -(m + i)].copy()
        for power in range(i, len(counts)):
            counts[power] += counts[power - i]
    return counts


def alike(frame: pd.DataFrame, row: Mapping[str, Any] | pd.Series[Any], names: Iterable[str]) -> pd.DataFrame:
    """The rows of a frame that are as `row` in these columns; what is missing in both is the same."""
    for name in names:
        frame = frame[frame[name].isna() if pd.isna(row[name]) else frame[name] == row[name]]
    return frame


def compare(
    run: Mapping[str, Any] | pd.Series[Any],
    baseline: Mapping[str, Any] | pd.Series[Any],
    varying: Collection[str] = RANKS,
) -> float:
    """How many times as many images per second a run takes as another: two rows of a frame of runs.

    `varying` names the fields in which they may differ. The batch that must be the same is the one per
    rank, or the global one where both runs belong to a strong scaling.

    Raises:
        ComparisonError: they differ in another field that changes the time of a step (names each,
            with both values), or one of them has no throughput.
    """
    strong = run.get("scaling") == baseline.get("scaling") == "strong"
    fields = [*SAME_FOR_SPEED, *RANKS, "global_batch_size" if strong else "batch_size"]
    differences = [
        f"{name} ({_said(baseline.get(name))} and {_said(run.get(name))})"
        for name in fields
        if name not in varying and not _same(run.get(name), baseline.get(name))
    ]
    if differences:
        raise ComparisonError(
            f"These runs differ in more than {', '.join(varying)}: in {', '.join(differences)}. "
            "Make a run that differs from the other in nothing else, and compare with that."
        )
    rates = [float(row.get("images_per_sec") or "nan") for row in (run, baseline)]
    if not all(rate > 0 and isfinite(rate) for rate in rates) or pd.isna(run.get("timing")):
        raise ComparisonError(
            "One of these runs has no images_per_sec, or does not say how its time came about (timing): it did not "
            "finish, or its function returned no images_per_sec. Compare finished runs of a trainer."
        )
    return rates[0] / rates[1]


def _said(value: Any) -> str:
    """A value as Python writes it, also where pandas keeps it as a number of numpy's."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _same(first: Any, second: Any) -> bool:
    return first == second or (bool(pd.isna(first)) and bool(pd.isna(second)))

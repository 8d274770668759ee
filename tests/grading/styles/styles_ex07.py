"""Right answers to exercise 7 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "7.1",
        "pandas",
        """
import pandas as pd
def speedups(runs):
    rates = pd.DataFrame(runs).dropna().groupby("world_size")["images_per_second"].median()
    if 1 not in rates.index:
        raise ValueError("no run on one rank has finished")
    return (rates / rates.loc[1]).to_dict()
""",
    ),
    (
        "7.1",
        "numpy, and numbers of its own",
        """
import numpy as np
def speedups(runs):
    finished = [run for run in runs if run["images_per_second"] is not None]
    table = np.array([(run["world_size"], run["images_per_second"]) for run in finished])
    if not (table[:, 0] == 1).any():
        raise ValueError("nothing to compare with")
    base = np.median(table[table[:, 0] == 1, 1])
    return {n: np.median(table[table[:, 0] == n, 1]) / base for n in table[:, 0].astype(int)}
""",
    ),
    (
        "7.1",
        "sorted, a defaultdict, an error of its own kind, NaN where all failed",
        """
from collections import defaultdict
class NoBaseline(ValueError):
    pass
def speedups(runs):
    rates = defaultdict(list)
    for run in sorted(runs, key=lambda run: run["world_size"]):
        rates[run["world_size"]] += [run["images_per_second"]] if run["images_per_second"] is not None else []
    def middle(values):
        values = sorted(values)
        half = len(values) // 2
        return (values[half] + values[-half - 1]) / 2 if values else float("nan")
    if not rates[1]:
        raise NoBaseline()
    return defaultdict(float, {n: middle(each) / middle(rates[1]) for n, each in rates.items()})
""",
    ),
    (
        "7.2",
        "from the rates themselves, as tensors",
        """
import torch
def efficiencies(runs):
    shares = {}
    for run in runs:
        if run["images_per_second"] is not None:
            shares.setdefault(run["world_size"], []).append(run["images_per_second"] / run["world_size"])
    if 1 not in shares:
        raise ValueError("no baseline")
    middle = {n: torch.tensor(each, dtype=torch.float64).median() for n, each in shares.items()}
    return {n: each / middle[1] for n, each in middle.items()}
""",
    ),
    (
        "7.3",
        "a fit of times",
        """
import numpy as np
def serial_fraction(runs):
    found = speedups(runs)
    ranks = np.array(sorted(found), dtype=float)
    times = np.array([1 / found[n] for n in sorted(found)])
    left, right = 1 - 1 / ranks, times - 1 / ranks
    return float(left @ right / (left @ left))
""",
    ),
    (
        "7.3",
        "a search",
        """
def serial_fraction(runs):
    found = speedups(runs)
    def misfit(fraction):
        return sum((amdahl(fraction, n) - each) ** 2 for n, each in found.items())
    low, high = 0.0, 1.0
    for _ in range(100):
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if misfit(one) < misfit(two) else (one, high)
    return (low + high) / 2
""",
    ),
    (
        "7.3",
        "from the largest number of ranks only",
        """
def serial_fraction(runs):
    found = speedups(runs)
    n = max(found)
    return (n / found[n] - 1) / (n - 1)
def amdahl(serial_fraction, world_size):
    return world_size / (1 + serial_fraction * (world_size - 1))
""",
    ),
    (
        "7.4",
        "all ratios",
        """
from itertools import product
def speedup_interval(runs, world_size):
    finished = [run for run in runs if run["images_per_second"] is not None]
    many, one = ([run["images_per_second"] for run in finished if run["world_size"] == n] for n in (world_size, 1))
    ratios = sorted(above / below for above, below in product(many, one))
    return [ratios[0], ratios[-1]] if len(many) > 2 and len(one) > 2 else None
""",
    ),
    (
        "7.4",
        "a tensor of two",
        """
import torch
def speedup_interval(runs, world_size):
    def rates(n):
        rows = [run["images_per_second"] for run in runs if run["world_size"] == n]
        return torch.tensor([row for row in rows if row is not None], dtype=torch.float64)
    if len(rates(1)) >= 3 and len(rates(world_size)) >= 3:
        ratios = rates(world_size)[:, None] / rates(1)
        return torch.stack([ratios.min(), ratios.max()])
""",
    ),
    (
        "7.1",
        "keys as numpy floats",
        """
import numpy as np, torch, statistics
from statistics import median

def speedups(runs):
    t = np.array([(r["world_size"], r["images_per_second"]) for r in runs if r["images_per_second"] is not None])
    mid = {n: np.median(t[t[:, 0] == n, 1]) for n in np.unique(t[:, 0])}
    if 1 not in mid: raise ValueError("nothing to compare with")
    return {n: m / mid[1] for n, m in mid.items()}
""",
    ),
]

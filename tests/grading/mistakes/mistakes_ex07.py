"""Wrong answers to exercise 7: the part, what is wrong, the fault that is to be found, and the code."""

HEAD = """
from statistics import mean, median
def _rates(runs):
    rates = {}
    for run in runs:
        if run["images_per_second"] is not None:
            rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates:
        raise ValueError("no run on one rank")
    return rates
"""

MISTAKES = [
    (
        "7.1",
        "the mean of repeats",
        "repeats",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: mean(rates[n]) / mean(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "the best of repeats",
        "repeats",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: max(rates[n]) / max(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "the last run of each",
        "repeats",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: rates[n][-1] / rates[1][-1] for n in rates}
""",
    ),
    (
        "7.1",
        "a median on one side only",
        "repeats",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: median(rates[n]) / max(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "turned round",
        "turned-round",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: median(rates[1]) / median(rates[n]) for n in rates}
""",
    ),
    (
        "7.1",
        "efficiencies",
        "divided",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: median(rates[n]) / median(rates[1]) / n for n in rates}
""",
    ),
    (
        "7.1",
        "rates",
        "rate",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: median(rates[n]) for n in rates}
""",
    ),
    (
        "7.1",
        "the first row is the baseline",
        None,
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    base = median(rates[next(iter(rates))])
    return {n: median(rates[n]) / base for n in rates}
""",
    ),
    (
        "7.1",
        "one rank is left out",
        "other-ranks",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return {n: median(rates[n]) / median(rates[1]) for n in rates if n > 1}
""",
    ),
    (
        "7.1",
        "failed runs are an error",
        "error",
        """
from statistics import median
def speedups(runs):
    rates = {}
    for run in runs:
        rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates:
        raise ValueError("no run on one rank")
    return {n: median(rates[n]) / median(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "failed runs count as zero",
        None,
        """
from statistics import median
def speedups(runs):
    rates = {}
    for run in runs:
        rates.setdefault(run["world_size"], []).append(run["images_per_second"] or 0.0)
    if 1 not in rates or not median(rates[1]):
        raise ValueError("no run on one rank")
    return {n: median(rates[n]) / median(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "the smallest number of ranks is the baseline where one is missing",
        "no-baseline",
        """
from statistics import median
def speedups(runs):
    rates = {}
    for run in runs:
        if run["images_per_second"] is not None:
            rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    return {n: median(rates[n]) / median(rates[min(rates)]) for n in rates}
""",
    ),
    (
        "7.1",
        "nothing to compare with is a KeyError",
        "other-error",
        """
from statistics import median
def speedups(runs):
    rates = {}
    for run in runs:
        if run["images_per_second"] is not None:
            rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    return {n: median(rates[n]) / median(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "nothing to compare with gives nothing",
        "no-baseline",
        HEAD
        + """
def speedups(runs):
    try:
        rates = _rates(runs)
    except ValueError:
        return {}
    return {n: median(rates[n]) / median(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "a list",
        "type",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    return [median(rates[n]) / median(rates[1]) for n in rates]
""",
    ),
    (
        "7.1",
        "the table is sorted in place",
        "changes-arguments",
        HEAD
        + """
def speedups(runs):
    runs.sort(key=lambda run: (-run["world_size"], run["images_per_second"] or 0))
    rates = _rates(runs)
    return {n: median(rates[n]) / median(rates[1]) for n in rates}
""",
    ),
    (
        "7.1",
        "a column is added to the table",
        "changes-arguments",
        HEAD
        + """
def speedups(runs):
    rates = _rates(runs)
    for run in runs:
        run["speedup"] = median(rates.get(run["world_size"], [0])) / median(rates[1])
    return {run["world_size"]: run["speedup"] for run in runs if run["world_size"] in rates}
""",
    ),
    (
        "7.1",
        "runs of earlier calls are kept",
        None,
        """
from statistics import median
rates = {}
def speedups(runs):
    for run in runs:
        if run["images_per_second"] is not None:
            rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates:
        raise ValueError("no run on one rank")
    return {n: median(rates[n]) / median(rates[1]) for n in {run["world_size"] for run in runs} if n in rates}
""",
    ),
    (
        "7.2",
        "speedups",
        "not-divided",
        """
def efficiencies(runs):
    return speedups(runs)
""",
    ),
    (
        "7.2",
        "divided twice",
        "divided-twice",
        """
def efficiencies(runs):
    return {n: each / n**2 for n, each in speedups(runs).items()}
""",
    ),
    (
        "7.2",
        "percent",
        "wrong-value",
        """
def efficiencies(runs):
    return {n: 100 * each / n for n, each in speedups(runs).items()}
""",
    ),
    (
        "7.2",
        "cut off at 1 and rounded",
        "wrong-value",
        """
def efficiencies(runs):
    return {n: round(min(1.0, each / n), 2) for n, each in speedups(runs).items()}
""",
    ),
    (
        "7.2",
        "the error is swallowed",
        "no-baseline",
        """
def efficiencies(runs):
    try:
        return {n: each / n for n, each in speedups(runs).items()}
    except ValueError:
        return None
""",
    ),
    (
        "7.3",
        "the part that can be divided",
        "parallel-fraction",
        """
def serial_fraction(runs):
    found = speedups(runs)
    return 1 - median((1 / found[n] - 1 / n) / (1 - 1 / n) for n in found if n > 1)
""",
    ),
    (
        "7.3",
        "the largest speedup",
        "limit",
        """
def serial_fraction(runs):
    found = speedups(runs)
    fraction = median((1 / found[n] - 1 / n) / (1 - 1 / n) for n in found if n > 1)
    return 1 / fraction if fraction > 1e-9 else 0.0
""",
    ),
    (
        "7.3",
        "what is missing from the efficiency",
        "efficiency",
        """
def serial_fraction(runs):
    found = speedups(runs)
    return sum(1 - found[n] / n for n in found if n > 1) / (len(found) - 1)
""",
    ),
    (
        "7.3",
        "made for two ranks",
        "wrong-fraction",
        """
def serial_fraction(runs):
    found = speedups(runs)
    return median(2 / found[n] - 1 for n in found if n > 1)
""",
    ),
    (
        "7.3",
        "one fraction for each row",
        "type",
        """
def serial_fraction(runs):
    found = speedups(runs)
    return {n: (1 / found[n] - 1 / n) / (1 - 1 / n) for n in found if n > 1}
""",
    ),
    (
        "7.3",
        "one rank is not left out",
        "error",
        """
def serial_fraction(runs):
    found = speedups(runs)
    return median((1 / found[n] - 1 / n) / (1 - 1 / n) for n in found)
""",
    ),
    (
        "7.3",
        "Gustafson's law",
        "wrong-law",
        """
def amdahl(serial_fraction, world_size):
    return world_size - serial_fraction * (world_size - 1)
""",
    ),
    (
        "7.3",
        "all of it is divided, and some of it stays",
        "wrong-law",
        """
def amdahl(serial_fraction, world_size):
    return 1 / (serial_fraction + 1 / world_size)
""",
    ),
    (
        "7.3",
        "the time, not the speedup",
        "wrong-law",
        """
def amdahl(serial_fraction, world_size):
    return serial_fraction + (1 - serial_fraction) / world_size
""",
    ),
    (
        "7.3",
        "the limit for many ranks",
        "wrong-law",
        """
def amdahl(serial_fraction, world_size):
    return 1 / serial_fraction if serial_fraction else float(world_size)
""",
    ),
    (
        "7.4",
        "the median of one rank, as if it were sure",
        "sure-of-baseline",
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 3:
        return None
    return min(rates[world_size]) / median(rates[1]), max(rates[world_size]) / median(rates[1])
""",
    ),
    (
        "7.4",
        "slowest by slowest, fastest by fastest",
        None,
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 3:
        return None
    return tuple(sorted((min(rates[world_size]) / min(rates[1]), max(rates[world_size]) / max(rates[1]))))
""",
    ),
    (
        "7.4",
        "turned round",
        "turned-round",
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 3:
        return None
    return max(rates[world_size]) / min(rates[1]), min(rates[world_size]) / max(rates[1])
""",
    ),
    (
        "7.4",
        "two runs are enough",
        "too-sure",
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 2:
        return None
    return min(rates[world_size]) / max(rates[1]), max(rates[world_size]) / min(rates[1])
""",
    ),
    (
        "7.4",
        "failed runs are counted",
        "too-sure",
        """
def speedup_interval(runs, world_size):
    rows = {n: [run["images_per_second"] for run in runs if run["world_size"] == n] for n in (1, world_size)}
    if min(len(each) for each in rows.values()) < 3:
        return None
    rates = {n: [each for each in row if each is not None] for n, row in rows.items()}
    return min(rates[world_size]) / max(rates[1]), max(rates[world_size]) / min(rates[1])
""",
    ),
    (
        "7.4",
        "one side only is asked for",
        "too-sure",
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if len(rates.get(world_size, [])) < 3:
        return None
    return min(rates[world_size]) / max(rates[1]), max(rates[world_size]) / min(rates[1])
""",
    ),
    (
        "7.4",
        "all runs, whatever their ranks",
        None,
        HEAD
        + """
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 3:
        return None
    others = [each for n in rates if n > 1 for each in rates[n]]
    return min(others) / max(rates[1]), max(others) / min(rates[1])
""",
    ),
    (
        "7.4",
        "no runs are an error",
        "error",
        """
def speedup_interval(runs, world_size):
    rates = {1: [], world_size: []}
    for run in runs:
        if run["world_size"] in rates and run["images_per_second"]:
            rates[run["world_size"]].append(run["images_per_second"])
    low, high = min(rates[world_size]) / max(rates[1]), max(rates[world_size]) / min(rates[1])
    return (low, high) if min(map(len, rates.values())) >= 3 else None
""",
    ),
    (
        "7.4",
        "mean and spread",
        "too-narrow",
        HEAD
        + """
from statistics import stdev
def speedup_interval(runs, world_size):
    rates = _rates(runs)
    if min(len(rates.get(n, [])) for n in (1, world_size)) < 3:
        return None
    ratio = median(rates[world_size]) / median(rates[1])
    return ratio * 0.999, ratio * 1.001
""",
    ),
    (
        "7.2",
        "never more than 1",
        "wrong-value",
        """
def efficiencies(runs):
    return {n: min(1.0, each / n) for n, each in speedups(runs).items()}
""",
    ),
    (
        "7.1",
        "of an even number of repeats the upper middle one",
        "repeats",
        """
def speedups(runs):
    rates = {}
    for run in runs:
        if run["images_per_second"]: rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates: raise ValueError("x")
    m = lambda e: sorted(e)[len(e) // 2]
    return {w: m(e) / m(rates[1]) for w, e in rates.items()}
""",
    ),
    (
        "7.1",
        "of an even number of repeats the lower middle one",
        "repeats",
        """
from statistics import median_low
def speedups(runs):
    rates = {}
    for run in runs:
        if run["images_per_second"] is not None: rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates: raise ValueError("x")
    return {w: median_low(e) / median_low(rates[1]) for w, e in rates.items()}
""",
    ),
    (
        "7.4",
        "a tuple of None",
        "type",
        """
import numpy as np, torch, statistics
from statistics import median

def speedup_interval(runs, world_size):
    a, b = ([r["images_per_second"] for r in runs if r["world_size"] == n and r["images_per_second"] is not None] for n in (world_size, 1))
    if min(len(a), len(b)) < 3: return None, None
    return min(a) / max(b), max(a) / min(b)
""",
    ),
]

# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: nbgrader,-all
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 7: Speedup
#
# "Eight GPUs are six times as fast." As what? Measured how often? And what would sixteen do? You turn a table of runs
# into answers, and say how sure they are.
#
# - `check("7.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("7.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your functions do, not how they are written. Only the cells that say "YOUR CODE HERE" are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example
#
# A table of runs is a list of dicts, one a run, in no particular order. A run that failed has no rate: its
# `images_per_second` is None. This is such a table.

# %%
from statistics import mean, median

runs = [
    {"world_size": 4, "images_per_second": 3_050.0},
    {"world_size": 1, "images_per_second": 990.0},
    {"world_size": 1, "images_per_second": 1_000.0},
    {"world_size": 2, "images_per_second": 1_800.0},
    {"world_size": 4, "images_per_second": None},
    {"world_size": 1, "images_per_second": 240.0},
    {"world_size": 2, "images_per_second": 1_790.0},
    {"world_size": 2, "images_per_second": 1_820.0},
]
alone = [run["images_per_second"] for run in runs if run["world_size"] == 1]
print(f"on one rank: {alone}")
print(f"mean {mean(alone):.0f}, median {median(alone):.0f}")

# %% [markdown]
# One of the three runs on one rank was slow: somebody else used the machine. It pulls the mean down to 743, and all
# speedups up by a third. The **median** hardly moves, so it is what we compare.
#
# All functions leave the table that they are given as it is.
#
# ## 7.1 How many times as fast
#
# `speedups(runs)` returns a dict: for each number of ranks with a run that finished, its speedup.
#
# - The speedup on N ranks is the median rate of the runs on N ranks, divided by the median rate of the runs on one
#   rank. So it is 1 for one rank.
# - Runs that failed are left out.
# - If no run on one rank finished, there is nothing to compare with: raise a `ValueError`.

# %% nbgrader={"grade": false, "grade_id": "speedups", "locked": false, "schema_version": 3, "solution": true, "task": false}
from statistics import median


def speedups(runs):
    """The speedup for each number of ranks."""
    ### BEGIN SOLUTION
    rates = {}
    for run in runs:
        if run["images_per_second"] is not None:
            rates.setdefault(run["world_size"], []).append(run["images_per_second"])
    if 1 not in rates:
        raise ValueError("No run on one rank has finished, so there is nothing to compare with.")
    return {world_size: median(each) / median(rates[1]) for world_size, each in rates.items()}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-7-1", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("7.1").points

# %% [markdown]
# ## 7.2 What each rank contributes
#
# `efficiencies(runs)` returns a dict, too: for each number of ranks the **efficiency**, which is 1 where N ranks are
# N times as fast as one, and 0.75 where four are three times as fast. Without a run on one rank it is a `ValueError`,
# as before. Here and in 7.3 you may call `speedups`: its cell is handed in, too.


# %% nbgrader={"grade": false, "grade_id": "efficiencies", "locked": false, "schema_version": 3, "solution": true, "task": false}
def efficiencies(runs):
    """The efficiency for each number of ranks."""
    ### BEGIN SOLUTION
    return {world_size: speedup / world_size for world_size, speedup in speedups(runs).items()}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-7-2", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("7.2").points

# %% [markdown]
# ## 7.3 What cannot be divided
#
# Amdahl's law: of the time on one rank a fraction f cannot be divided among ranks, and the rest is divided by their
# number.
#
# - `amdahl(serial_fraction, world_size)` returns the speedup that the law predicts.
# - `serial_fraction(runs)` returns f, one number, for a table of runs with at least one number of ranks besides 1. If
#   the runs follow the law, it must find the f that they follow.

# %% nbgrader={"grade": false, "grade_id": "serial_fraction", "locked": false, "schema_version": 3, "solution": true, "task": false}
from statistics import median


def amdahl(serial_fraction, world_size):
    """The speedup that Amdahl's law predicts."""
    ### BEGIN SOLUTION
    return 1 / (serial_fraction + (1 - serial_fraction) / world_size)
    ### END SOLUTION


def serial_fraction(runs):
    """The fraction of the time on one rank that cannot be divided."""
    ### BEGIN SOLUTION
    found = speedups(runs)
    return median((1 / found[n] - 1 / n) / (1 - 1 / n) for n in found if n > 1)
    ### END SOLUTION


# %%
fraction = serial_fraction(runs)
print(f"{fraction:.0%} cannot be divided")
print(f"16 ranks would be {amdahl(fraction, 16):.1f} times as fast as one")

# %% nbgrader={"grade": true, "grade_id": "check-7-3", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("7.3").points

# %% [markdown]
# ## 7.4 How sure can you be
#
# Repeats of a run scatter, those on one rank as well. If you had made one run of each, the speedup would have been
# the ratio of some run on N ranks to some run on one. `speedup_interval(runs, world_size)` returns the smallest and
# the largest of these ratios, as a tuple (low, high).
#
# If there are fewer than **three** finished runs on either side, it returns `None`. Why three? The true ratio is outside
# of the interval only if, measured by it, all three runs of one side are above all three of the other. Three and three
# runs can come in 20 orders, all equally likely, and one of them is like that for each side. So three runs each just make
# a 90 % interval: in 1 of 20 cases the truth is below it, in 1 of 20 above. With fewer runs no interval is so sure.


# %% nbgrader={"grade": false, "grade_id": "speedup_interval", "locked": false, "schema_version": 3, "solution": true, "task": false}
def speedup_interval(runs, world_size):
    """The smallest and the largest ratio of a run on `world_size` ranks to one on one rank."""
    ### BEGIN SOLUTION
    rates = {1: [], world_size: []}
    for run in runs:
        if run["world_size"] in rates and run["images_per_second"] is not None:
            rates[run["world_size"]].append(run["images_per_second"])
    if min(len(each) for each in rates.values()) < 3:
        return None
    return min(rates[world_size]) / max(rates[1]), max(rates[world_size]) / min(rates[1])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-7-4", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("7.4").points

# %% [markdown]
# The course's own tables do the same with more care: `with_speedup` in `course_lib/scaling/speedup.py` compares only
# runs that differ in nothing but the ranks, and its 90 % interval grows narrower with more repeats.

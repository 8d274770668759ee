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
# # Exercise 5: Honest metrics
#
# A number in a report speaks of the whole run: of all samples, all ranks, all the time. What a rank has at hand
# speaks of its own share. You write four functions that turn the one into the other, exactly: the same data gives the
# same number on 1, 2 or 4 ranks.
#
# - `check("5.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("5.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your functions do, not how they are written. Only the cells that say "YOUR CODE HERE" are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# Your functions run on several ranks at once, each a process. To try them, `on_ranks` starts some: it needs a function
# of the rank, and prints what each rank returned.

# %%
from datetime import timedelta

import torch
import torch.distributed as dist

from course_lib.config import RunConfig
from course_lib.runs.launch import launch


def on_ranks(world_size, function):
    """Call function(rank) on each rank of a group, and print what each returned."""

    def work(config, worker):
        dist.init_process_group(
            worker.backend,
            init_method=worker.init_method,
            rank=worker.rank,
            world_size=worker.world_size,
            timeout=timedelta(seconds=10),
        )
        print(function(worker.rank))

    run = launch(work, RunConfig(num_gpus=world_size, device="cpu"))
    run.wait()
    for rank in range(world_size):
        print(f"rank {rank}: {run.log(rank)}", end="")


# %% [markdown]
# ## A worked example
#
# How long is the longest line that any rank has read? Each rank knows its own lines.

# %%
LINES = [["to be", "or not to be"], ["that is the question"], []]


def longest(rank):
    mine = torch.tensor(max((len(line) for line in LINES[rank]), default=0))
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.item()


on_ranks(3, longest)

# %% [markdown]
# Rank 2 has read nothing. It takes part all the same: the others would wait for it for ever. And it brings a number
# that changes nothing: 0 to a maximum of lengths, or to a sum.
#
# In this exercise each function is called **on all ranks of a group at the same time**, and returns the same plain
# number on each of them. Leave the tensors that it is given as they are.
#
# ## 5.1 Accuracy over ranks
#
# `accuracy(predictions, labels)` returns the share of samples that are predicted rightly, of the samples of all
# ranks: a number between 0 and 1.
#
# - On each rank, `predictions` and `labels` are one-dimensional tensors of whole numbers, equally long. Ranks have
#   different numbers of samples.
# - A rank may have no sample. At least one has some.

# %% nbgrader={"grade": false, "grade_id": "accuracy", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def accuracy(predictions, labels):
    """The share of right predictions, over the samples of all ranks."""
    ### BEGIN SOLUTION
    counts = torch.tensor([(predictions == labels).sum().item(), len(labels)])
    dist.all_reduce(counts)
    right, samples = counts.tolist()
    return right / samples
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-5-1", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("5.1").points

# %% [markdown]
# ## 5.2 What the sampler has filled up
#
# `DistributedSampler` gives all ranks equally many samples. If they cannot be shared evenly, it deals some of them
# twice. In training that does little harm. In evaluation some samples count twice, and the accuracy changes with the
# number of ranks.
#
# `padded_accuracy(indices, predictions, labels, samples)` returns the accuracy where **each sample counts once**.
#
# - `indices` are the numbers of the rank's samples, as a shuffling `DistributedSampler` has dealt them, in their
#   order. `samples` is how many different samples there are, numbered from 0 on; all are with some rank, and some
#   with two or more.
# - `predictions` and `labels` are as long as `indices`. A sample that comes twice is predicted alike both times.
# - It must also work with fewer samples than ranks.

# %% nbgrader={"grade": false, "grade_id": "padded_accuracy", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def padded_accuracy(indices, predictions, labels, samples):
    """The share of right predictions, where a sample that was dealt twice counts once."""
    ### BEGIN SOLUTION
    hits = torch.zeros(samples)
    hits[indices] = (predictions == labels).float()
    dist.all_reduce(hits, op=dist.ReduceOp.MAX)  # a hit on two ranks is one hit
    return hits.mean().item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-5-2", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("5.2").points

# %% [markdown]
# ## 5.3 Images per second
#
# All ranks begin at the same time, and the run is over when the last of them is done. `images_per_second(images,
# seconds)` returns how many images the whole run processed per second.
#
# - On each rank, `images` is the number of images that it processed (a whole number), and `seconds` is how long it
#   took (a float).
# - A rank that had nothing to do has 0 images and 0.0 seconds. At least one had something to do.

# %% nbgrader={"grade": false, "grade_id": "images_per_second", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def images_per_second(images, seconds):
    """The images of all ranks, per second until the last rank was done."""
    ### BEGIN SOLUTION
    total = torch.tensor(images)
    longest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(total)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return total.item() / longest.item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-5-3", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("5.3").points

# %% [markdown]
# ## 5.4 A score that is no mean
#
# Where few samples are positive, accuracy says little. The F1 score is
#
# $$F_1 = \frac{2\,TP}{2\,TP + FP + FN}$$
#
# with the true positives (label 1, predicted 1), the false positives (label 0, predicted 1) and the false negatives
# (label 1, predicted 0). If all three are 0, the score is 0.
#
# `f1(predictions, labels)` returns the F1 score of the samples of all ranks. Predictions and labels are 0 or 1, whole
# numbers; ranks have different numbers of samples, and some may have no positive one.

# %% nbgrader={"grade": false, "grade_id": "f1", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def f1(predictions, labels):
    """The F1 score, over the samples of all ranks."""
    ### BEGIN SOLUTION
    hits = ((predictions == 1) & (labels == 1)).sum()
    counts = torch.stack([hits, (predictions == 1).sum(), (labels == 1).sum()])
    dist.all_reduce(counts)
    hits, predicted, positive = counts.tolist()
    return 2 * hits / (predicted + positive) if predicted + positive else 0.0
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-5-4", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("5.4").points

# %% [markdown]
# ## What to take with you
#
# Counts, sums and maxima of all ranks can be put together. Means, rates and scores are computed from these, once, at
# the end. And whoever has nothing to say takes part all the same.

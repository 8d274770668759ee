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
# # Exercise 6: The learning rate
#
# More ranks mean larger batches and fewer steps. The learning rate that was good on one GPU is no longer, and a
# schedule that was made for one GPU is too long. You write the rate of every step of a training on any number of
# ranks.
#
# - `check("6.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("6.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your functions do, not how they are written. Only the cells that say "YOUR CODE HERE" are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example
#
# One GPU took 1,000 samples in batches of 50: 20 steps an epoch, and a rate of 0.1. Now there are four, each with
# batches of 50. How far do they come in an epoch, if each step moves about as far as its rate?

# %%
samples, batch_size, lr = 1000, 50, 0.1

for world_size in (1, 4):
    global_batch_size = batch_size * world_size  # what all ranks take in one step
    steps = samples // global_batch_size
    print(f"world size {world_size}: {steps} steps of {lr} make {steps * lr:.1f}")

# %% [markdown]
# Four ranks come a quarter as far. Four times the rate would make up for it, and that is the **linear rule** (Goyal
# et al. 2017, [arXiv 1706.02677](https://arxiv.org/abs/1706.02677)). It holds as long as the batch is not too large:
# then the gradients of small batches are mostly noise, which a large batch averages out. The **square-root rule**
# keeps the size of the noise instead (Krizhevsky 2014, [arXiv 1404.5997](https://arxiv.org/abs/1404.5997)), and is
# often used with Adam.
#
# ## 6.1 A rate for a larger batch
#
# `scaled_lr(lr, base_batch_size, batch_size, world_size, rule)` returns the learning rate for a training on
# `world_size` ranks.
#
# - `lr` was found good for batches of `base_batch_size` samples in all.
# - `batch_size` is what **one rank** takes in a step here. Together the ranks may take more than `base_batch_size`,
#   or less.
# - `rule` is `"linear"`, `"sqrt"` or `"none"`. With `"none"` the rate stays as it is.

# %% nbgrader={"grade": false, "grade_id": "scaled_lr", "locked": false, "schema_version": 3, "solution": true, "task": false}
import math


def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    """The learning rate for the batch of all ranks together."""
    ### BEGIN SOLUTION
    k = batch_size * world_size / base_batch_size
    return lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1.0}[rule]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-6-1", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("6.1").points

# %% [markdown]
# ## 6.2 The steps of an epoch
#
# `steps_per_epoch(samples, world_size, batch_size, drop_last)` returns how many steps each rank takes in an epoch, a
# whole number. The samples are dealt by `DistributedSampler(…, drop_last=drop_last)`, and a rank's share is cut into
# batches by `DataLoader(…, batch_size=batch_size, drop_last=drop_last)`:
#
# - `drop_last=False`: a share is filled up to equally many samples on all ranks. The last batch may be smaller.
# - `drop_last=True`: what cannot be shared evenly is left out, and so is a last batch that is not full.

# %% nbgrader={"grade": false, "grade_id": "steps_per_epoch", "locked": false, "schema_version": 3, "solution": true, "task": false}
import math


def steps_per_epoch(samples, world_size, batch_size, drop_last):
    """How many steps each rank takes in an epoch."""
    ### BEGIN SOLUTION
    if drop_last:
        return samples // world_size // batch_size
    return math.ceil(math.ceil(samples / world_size) / batch_size)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-6-2", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("6.2").points

# %% [markdown]
# ## 6.3 Up, and down again
#
# In the first steps a large rate does harm, so it warms up; in the last ones a small rate helps to settle.
#
# `lr_at(step, peak_lr, warmup_steps, total_steps)` returns the rate in step `step`, which goes from 0 to `total_steps
# - 1`.
#
# - In the first `warmup_steps` steps it rises in a straight line that would have begun at 0 **before** step 0: in
#   step 0 it is `peak_lr / warmup_steps`, and in the last step of the warm-up it is `peak_lr`.
# - After that it follows half a cosine: `peak_lr` in step `warmup_steps`, half of it in the middle of what is left,
#   and 0 in step `total_steps`, which is no longer taken.
# - `warmup_steps` may be 0; it is smaller than `total_steps`.

# %% nbgrader={"grade": false, "grade_id": "lr_at", "locked": false, "schema_version": 3, "solution": true, "task": false}
import math


def lr_at(step, peak_lr, warmup_steps, total_steps):
    """The learning rate in a step: a straight way up, then half a cosine down."""
    ### BEGIN SOLUTION
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return peak_lr * (1 + math.cos(math.pi * progress)) / 2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-6-3", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("6.3").points

# %% [markdown]
# ## 6.4 The schedule of a training
#
# `schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size)` returns a list with the
# learning rate of each step that a rank takes, over all epochs.
#
# - Its peak is that of the linear rule.
# - The warm-up takes the first `warmup_epochs` epochs, a whole number; the cosine ends with the training.
# - What cannot be shared evenly is filled up (`drop_last=False`).
# - You may call the three functions above: their cells are handed in with this one.


# %% nbgrader={"grade": false, "grade_id": "schedule", "locked": false, "schema_version": 3, "solution": true, "task": false}
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    """The learning rate of each step that a rank takes."""
    ### BEGIN SOLUTION
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, drop_last=False)
    return [lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps)]
    ### END SOLUTION


# %%
import pandas as pd

curves = {f"{world_size} ranks": pd.Series(schedule(1000, world_size, 50, 5, 1, 0.1, 50)) for world_size in (1, 2, 4)}
axes = pd.DataFrame(curves).plot(xlabel="step", ylabel="learning rate", figsize=(7, 3))

# %% nbgrader={"grade": true, "grade_id": "check-6-4", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("6.4").points

# %% [markdown]
# With more ranks the curve is higher and shorter. A schedule of 100 steps on four ranks, which take only 25, would
# end near its top: the training would stop before its rate has come down.

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
# # Exercise 9: Gradient accumulation
#
# A batch that does not fit into memory can be cut into *micro-batches*. Their gradients add up in `.grad`, and only then
# does the optimizer move. On several ranks there is one more question: when do the ranks exchange gradients?
# Once a step is enough.
#
# You will write
#
# 1. one step from several micro-batches,
# 2. an epoch of such steps, the last of which is shorter,
# 3. a step in which each sample weighs the same, although micro-batches and ranks have different numbers of them.
#
# - `check("9.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("9.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your code does, not how it is written. Only the cells that you are to write or to change are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example: what adds up
#
# One process, 12 samples. The gradient of the whole batch, and that of three micro-batches:

# %%
import torch
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
inputs, targets = torch.randn(12, 4), torch.randint(3, (12,))
layer = torch.nn.Linear(4, 3)

cross_entropy(layer(inputs), targets).backward()
whole = layer.weight.grad.clone()

layer.zero_grad()
for some_inputs, some_targets in zip(inputs.split(4), targets.split(4), strict=True):
    cross_entropy(layer(some_inputs), some_targets).backward()
layer.weight.grad.norm() / whole.norm()

# %% [markdown]
# The sum of three means is three times the mean. With three times the gradient, SGD takes three times the step, and
# nothing tells you. AdamW, which divides by the size of the gradient, would even hide it.
#
# Now two ranks. `DistributedDataParallel` (DDP) averages the gradients over the ranks in *each* backward pass. With four
# micro-batches that is four exchanges, and three of them are for nothing. Inside `model.no_sync()` a forward and a
# backward pass exchange nothing; the next pass outside of it exchanges all that has added up.

# %% [markdown]
# ## 9.1 One step from several micro-batches
#
# Write `accumulate(model, optimizer, micro_batches)`.
#
# - It is called on each rank of a group. `model` is in DDP, `optimizer` belongs to it.
# - `micro_batches` is a list of `(inputs, targets)`. All micro-batches have the same size, and all ranks have the same
#   number of them: at least one, and not the same number in each call.
# - The loss is the mean `cross_entropy` over all samples of all micro-batches on all ranks.
# - It takes one step of the optimizer, and what is returned does not matter. It is called many times.
#
# There are points for the right step, and others for exchanging gradients once a step.

# %% nbgrader={"grade": false, "grade_id": "accumulate", "locked": false, "schema_version": 3, "solution": true, "task": false}
from contextlib import nullcontext

from torch.nn.functional import cross_entropy


def accumulate(model, optimizer, micro_batches):
    """Take one step, with the mean gradient of all micro-batches on all ranks."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        last = number == len(micro_batches)
        with nullcontext() if last else model.no_sync():
            loss = cross_entropy(model(inputs), targets) / len(micro_batches)
            loss.backward()
    optimizer.step()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-9-1", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("9.1").points

# %% [markdown]
# ## 9.2 An epoch
#
# Write `train_epoch(model, optimizer, batches, every)`.
#
# - `batches` is a list of `(inputs, targets)`, as many on each rank. The optimizer moves after every `every` batches.
# - If some batches are left at the end, they make one more step: with the mean over *them*.
# - It returns the number of steps that it took, as an int.
#
# With 7 batches and `every=3` these are steps from 3, 3 and 1 batches. Again there are points for exchanging gradients
# once a step.

# %% nbgrader={"grade": false, "grade_id": "train-epoch", "locked": false, "schema_version": 3, "solution": true, "task": false}
from contextlib import nullcontext

from torch.nn.functional import cross_entropy


def train_epoch(model, optimizer, batches, every):
    """Take a step after every `every` batches, and one after those that are left; how many steps that were."""
    ### BEGIN SOLUTION
    steps = 0
    for first in range(0, len(batches), every):
        window = batches[first : first + every]
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(window, start=1):
            with nullcontext() if number == len(window) else model.no_sync():
                (cross_entropy(model(inputs), targets) / len(window)).backward()
        optimizer.step()
        steps += 1
    return steps
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-9-2", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("9.2").points

# %% [markdown]
# ## 9.3 Each sample weighs the same
#
# Sentences have different lengths, last batches are short, filters drop samples. Then a mean of means is not the mean.
#
# Write `accumulate_exactly(model, optimizer, micro_batches)`, as in 9.1, but micro-batches may have any size from 1 on,
# other ones on each rank. The loss is the mean over all *samples* of this step. As many micro-batches on each rank as
# before.
#
# *Think first:* a rank knows how many samples it has. What must it ask the others?

# %% nbgrader={"grade": false, "grade_id": "accumulate-exactly", "locked": false, "schema_version": 3, "solution": true, "task": false}
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def accumulate_exactly(model, optimizer, micro_batches):
    """Take one step, with the gradient of the mean over all samples of all ranks."""
    ### BEGIN SOLUTION
    samples = torch.tensor(sum(len(targets) for _, targets in micro_batches))
    dist.all_reduce(samples)
    scale = dist.get_world_size() / samples.item()  # DDP will divide by the world size
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with nullcontext() if number == len(micro_batches) else model.no_sync():
            (cross_entropy(model(inputs), targets, reduction="sum") * scale).backward()
    optimizer.step()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-9-3", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("9.3").points

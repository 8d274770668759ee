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
# # Exercise 2: Average by hand
#
# Each rank computes the gradient of the mean loss of its own samples. All of them must take the step that one process
# would take that had all samples. So they need the gradient of the mean loss of the **whole batch**, on every rank,
# and they need to start at the same place. You write both.
#
# - `check("2.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("2.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your functions do, not how they are written. Only the cells that say "YOUR CODE HERE" are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example
#
# A model with one weight w predicts the same number for every sample: w itself. The loss of a sample with target t is
# (w - t)², so its gradient is 2 (w - t). One batch has five samples, three of them on rank 0 and two on rank 1.

# %%
import torch

w = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
targets = torch.tensor([1.0, 1.0, 1.0, 6.0, 6.0], dtype=torch.float64)


def gradient_of(samples):
    """Of the mean loss of these samples."""
    (gradient,) = torch.autograd.grad(((w - samples) ** 2).mean(), w)
    return gradient.item()


print(f"rank 0: {gradient_of(targets[:3])}, rank 1: {gradient_of(targets[3:])}")
print(f"their mean: {(gradient_of(targets[:3]) + gradient_of(targets[3:])) / 2}")
print(f"whole batch: {gradient_of(targets)}")

# %% [markdown]
# Three samples say -2 and two say -12. The whole batch says -6, but the mean of -2 and -12 is -7: rank 1 has fewer
# samples and speaks as loudly as rank 0. `DistributedDataParallel` takes this plain mean. With equal shards it makes
# no difference; the last batch of an epoch is where it does.
#
# ## 2.1 The mean of uneven shards
#
# `mean_gradient(gradients, sizes)` returns the gradient of the mean loss of the whole batch.
#
# - `gradients` is a list of tensors, all of the same shape and type: for each shard the gradient of the mean loss of
#   its samples. `sizes` is a list of as many whole numbers: how many samples each shard has.
# - A shard may have no samples: its size is 0 and its gradient is all zeros. At least one shard has some.
# - Return a tensor of the same shape and type. Leave the tensors in `gradients` as they are.


# %% nbgrader={"grade": false, "grade_id": "mean_gradient", "locked": false, "schema_version": 3, "solution": true, "task": false}
def mean_gradient(gradients, sizes):
    """The gradient of the whole batch, from those of its shards."""
    ### BEGIN SOLUTION
    sums = [gradient * size for gradient, size in zip(gradients, sizes, strict=True)]
    return sum(sums) / sum(sizes)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-2-1", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("2.1").points

# %% [markdown]
# ## Ranks to try things on
#
# From here on your functions run on several ranks at once, each a process. `on_ranks` below starts some. It needs a
# function of the rank, and prints what each rank returned.

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


# %%
def add_up(rank):
    number = torch.tensor([rank + 1.0, 10.0 * rank])
    dist.all_reduce(number)  # all ranks wait for each other here; then all have the sum
    return number


on_ranks(3, add_up)

# %% [markdown]
# ## 2.2 The same, over ranks
#
# `average_gradients(model, samples)` is called on all ranks of a group at the same time. On each, `model` is that
# rank's copy of the model, and each parameter's `.grad` is the gradient of the mean loss of the rank's own `samples`
# samples. Afterwards each `.grad` is the gradient of the whole batch, on all ranks.
#
# - A rank may have no sample in this batch. Then `samples` is 0 and its gradients are `None`. Afterwards it has the
#   same gradients as all others.
# - Parameters that are not trained (`requires_grad` is False) have no gradient, and get none.
# - The weights stay as they are. It need not return anything.

# %% nbgrader={"grade": false, "grade_id": "average_gradients", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def average_gradients(model, samples):
    """Replace the gradients of a rank's samples by those of the samples of all ranks."""
    ### BEGIN SOLUTION
    total = torch.tensor(float(samples))
    dist.all_reduce(total)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:  # no sample here; but the others wait for this rank
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad *= samples / total
        dist.all_reduce(parameter.grad)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-2-2", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("2.2").points

# %% [markdown]
# ## 2.3 The same start
#
# Equal steps lead to equal models only from equal starts. `same_start(model)` is called on all ranks at the same
# time, with models of the same shape but, it may be, with other values on each rank. Afterwards all have the
# parameters and the buffers of rank 0.
#
# - Buffers are what a model keeps and does not train, such as the statistics of BatchNorm. Some are whole numbers.
# - Change the tensors of the model in place: an optimizer may already hold them.

# %% nbgrader={"grade": false, "grade_id": "same_start", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def same_start(model):
    """Give all ranks the parameters and buffers of rank 0."""
    ### BEGIN SOLUTION
    for tensor in model.state_dict().values():  # the model's own tensors, without their history
        dist.broadcast(tensor, src=0)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-2-3", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("2.3").points

# %% [markdown]
# ## 2.4 A whole step
#
# `train_step(model, optimizer, images, labels)` takes one step on all ranks. Each rank has its own `images` and
# `labels`, at least one of each, and not as many as the others. The loss is the mean `cross_entropy`.
#
# - After it the weights on all ranks are those that one process would have that took a step with the samples of all
#   ranks. Many steps follow each other, with SGD or with Adam.
# - It returns the mean loss of the samples of all ranks, before the step: the same number on each rank.
# - You may call `average_gradients`: its cell is handed in with this one.

# %% nbgrader={"grade": false, "grade_id": "train_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, images, labels):
    """Take the step that one process would take with the samples of all ranks; their mean loss before it."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    average_gradients(model, len(images))
    optimizer.step()
    sums = torch.tensor([loss.item() * len(images), len(images)])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-2-4", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("2.4").points

# %% [markdown]
# ## What you have built
#
# `DistributedDataParallel` does this for you: it broadcasts once, when a model is wrapped, and averages while the
# backward pass still goes on. What it does not do is weigh the ranks by their samples.

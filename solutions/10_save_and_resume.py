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
# # Exercise 10: Save and resume
#
# Machines fail, and jobs have time limits. A long run must be able to go on where it ended: with the same weights, the
# same memory of the optimizer, and the same order of the data, as if it had never stopped.
#
# You will write
#
# 1. `save`: one rank writes, the others wait, and the file is whole at any moment,
# 2. `load`: all ranks get all of it,
# 3. a training run that goes on, on as many ranks as before or on another number.
#
# - `check("10.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("10.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your code does, not how it is written. Only the cells that you are to write or to change are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example: what an optimizer remembers
#
# AdamW keeps two running means for each weight, and counts its steps. Here is what a run forgets that loads the weights
# alone:

# %%
import copy

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)


def step(layer, optimizer):
    optimizer.zero_grad()
    (layer(torch.ones(3)) ** 2).sum().backward()
    optimizer.step()
    return [round(value, 4) for value in layer.weight.flatten().tolist()]


for _ in range(20):
    step(layer, optimizer)

forgetful = copy.deepcopy(layer)
step(layer, optimizer), step(forgetful, torch.optim.AdamW(forgetful.parameters(), lr=0.01))

# %% [markdown]
# Same weights, same gradient, another step. `optimizer.state_dict()` has what is missing.

# %% [markdown]
# ## 10.1 Save
#
# Write `save(path, model, optimizer, epochs_done)`. It is called on each rank of a group; `model` is in DDP.
#
# - `torch.load(path)` gives a dict with `"model"` (a state dict for the model *without* DDP), `"optimizer"` (a state
#   dict) and `"epochs_done"` (an int). You may add more.
# - One process writes. The folder of `path` may not be there yet.
# - When the function returns, on any rank, the file is there.
# - Whoever kills the program, and at whatever moment: if there was a checkpoint at `path`, there is still one, and it is
#   whole.

# %% nbgrader={"grade": false, "grade_id": "save", "locked": false, "schema_version": 3, "solution": true, "task": false}
import os

import torch
import torch.distributed as dist


def save(path, model, optimizer, epochs_done):
    """Write the state of a run to a file, from one rank; all ranks return when it is there."""
    ### BEGIN SOLUTION
    if dist.get_rank() == 0:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        state = {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epochs_done": epochs_done,
        }
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)  # in one moment: nobody ever sees half a file
    dist.barrier()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-10-1", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("10.1").points

# %% [markdown]
# ## 10.2 Load
#
# Write `load(path, model, optimizer)`, which is called on each rank, perhaps on more or fewer than those that saved.
# `model` is already in DDP, and has other weights.
#
# - Afterwards, model and optimizer are on all ranks as they were when they were saved.
# - It returns the number of epochs that are done, on all ranks.
# - Where there is no file at `path`, it changes nothing and returns 0.

# %% nbgrader={"grade": false, "grade_id": "load", "locked": false, "schema_version": 3, "solution": true, "task": false}
import os

import torch


def load(path, model, optimizer):
    """Take over a state that was saved, if there is one; how many epochs are done."""
    ### BEGIN SOLUTION
    if not os.path.exists(path):
        return 0
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs_done"]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-10-2", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("10.2").points

# %% [markdown]
# ## 10.3 A run that goes on
#
# Write `train(model, dataset, epochs, path)`. It is called on each rank of a group, with a model that is *not* in DDP, and
# a dataset of inputs and classes.
#
# - It trains with DDP until `epochs` epochs are done, those included that a file at `path` has behind it, and saves after
#   each epoch. A run that has nothing left to do just returns.
# - SGD with `lr=0.1` and `momentum=0.9`, the mean `cross_entropy`, 4 samples a rank in a step.
# - In each epoch the data is shuffled anew, and dealt to the ranks.
# - A run of 2 epochs that goes on to 4 on the same number of ranks does exactly what one of 4 epochs does: the same
#   batches in the same order, and the same weights in the end.
# - It may go on on another number of ranks.
# - You may call `save` and `load`: their cells are handed in with this one.

# %% nbgrader={"grade": false, "grade_id": "train", "locked": false, "schema_version": 3, "solution": true, "task": false}
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset, epochs, path):
    """Train until so many epochs are done, from where the file at `path` ends."""
    ### BEGIN SOLUTION
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    for epoch in range(load(path, model, optimizer), epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        save(path, model, optimizer, epoch + 1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-10-3", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("10.3").points

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
# # Exercise 11: The clinic
#
# Fourteen programs, and each is ill. None of them is far from right: one line, or one that is missing. Most raise no
# error, and some even look healthy. You are the doctor:
#
# 1. **Read** the program, and follow it for rank 0, then for rank 1. Where do they differ, or fail to?
# 2. **Name** what it suffers from: set `fault_1`, `fault_2`, … to a name from this table.
# 3. **Mend** the program where it stands. Mostly it is one line.
#
# | name | what it is |
# | --- | --- |
# | `same-samples` | the ranks read the same samples |
# | `same-order` | each epoch has the same order |
# | `different-start` | the ranks begin with different weights |
# | `no-average` | the gradients of a rank are its own |
# | `sum` | gradients are added up, and not divided |
# | `divided-twice` | gradients are divided twice |
# | `clipped-early` | each rank clips its own gradient before the average |
# | `uneven-steps` | the ranks take different numbers of steps |
# | `missing-rank` | not all ranks reach a line where all are awaited |
# | `own-decision` | each rank decides by its own figures when to stop |
# | `mean-of-means` | shares of different size weigh the same |
# | `padding` | samples that only fill a share up are counted |
# | `wrong-receiver` | a rank reads a result that only another one gets |
# | `fixed-address` | two programs want the same address |
# | `local-rank` | the rank on the node is taken for the rank among all |
# | `many-writers` | several ranks write one file |
# | `loaded-on-one` | only one rank loads what was saved |
# | `schedule` | the schedule counts the steps of one process |
#
# Some names in the table belong to no patient here. The name and the mended program have points of their own. A patient is
# one cell: run it after each change, then ask `check("11.1")`, as often as you like. `hint("11.1")`, in a cell of your own,
# gives the first of three hints; asked again, the next. Hints cost no points.

# %% [markdown]
# ## A worked example: patient 0
#
# *"On four GPUs we use a batch of 32 on each, and the curve is that of a batch of 8."*
#
# ```python
# for inputs, targets in loader:
#     optimizer.zero_grad()
#     loss = cross_entropy(model(inputs), targets) / dist.get_world_size()
#     loss.backward()
#     optimizer.step()
# ```
#
# `model` is in DDP. Follow one gradient: each rank divides its loss by 4, DDP averages the four gradients, and what comes
# out is a quarter of the mean. So `fault_0 = "divided-twice"`. It is mended by leaving the average to the one who makes it:
# `loss = cross_entropy(model(inputs), targets)`.
#
# **In all programs below**, `train(model, dataset)` is called on each rank of a group that is there already, with a model
# that is not yet in DDP, and a `TensorDataset` of inputs and classes. All train for two epochs with SGD, `lr=0.2`, and 4
# samples a rank in a step, reshuffled in each epoch. That part is right, and must stay as it is.

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## 11.1 No faster than before
#
# *"The loss falls nicely. But four ranks take as long as one."*

# %% nbgrader={"grade": false, "grade_id": "patient-1", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_1 = "same-samples"  # a name from the table
### GIVEN
# fault_1 = ""  # a name from the table
### END SOLUTION

### BEGIN SOLUTION
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
### GIVEN
# import torch
# from torch.nn.functional import cross_entropy
# from torch.nn.parallel import DistributedDataParallel
# from torch.utils.data import DataLoader
### END SOLUTION


def train(model, dataset):
    ### BEGIN SOLUTION
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    ### GIVEN
    #     loader = DataLoader(dataset, batch_size=4, shuffle=True)
    ### END SOLUTION
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        ### BEGIN SOLUTION
        sampler.set_epoch(epoch)
        ### GIVEN
        ### END SOLUTION
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-1", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.1").points

# %% [markdown]
# ## 11.2 Every day the same
#
# *"It learns, but not as well as on one GPU. We do shuffle."*

# %% nbgrader={"grade": false, "grade_id": "patient-2", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_2 = "same-order"  # a name from the table
### GIVEN
# fault_2 = ""  # a name from the table
### END SOLUTION

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        ### BEGIN SOLUTION
        sampler.set_epoch(epoch)
        ### GIVEN
        ### END SOLUTION
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-2", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.2").points

# %% [markdown]
# ## 11.3 Talking past the translator
#
# *"The model inside has a method that we need. Since we call it, the ranks report other losses."*

# %% nbgrader={"grade": false, "grade_id": "patient-3", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_3 = "no-average"  # a name from the table
### GIVEN
# fault_3 = ""  # a name from the table
### END SOLUTION

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            ### BEGIN SOLUTION
            cross_entropy(model(inputs), targets).backward()
            ### GIVEN
            #             cross_entropy(model.module(inputs), targets).backward()
            ### END SOLUTION
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-3", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.3").points

# %% [markdown]
# ## 11.4 Big steps
#
# *"We average by hand. With two ranks it works, with eight it explodes."*

# %% nbgrader={"grade": false, "grade_id": "patient-4", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_4 = "sum"  # a name from the table
### GIVEN
# fault_4 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                ### BEGIN SOLUTION
                parameter.grad /= dist.get_world_size()
                ### GIVEN
                ### END SOLUTION
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-4", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.4").points

# %% [markdown]
# ## 11.5 Runners from different lines
#
# Here `model` begins with other weights on each rank.
#
# *"The gradients are the same everywhere, we checked. The models are not."*

# %% nbgrader={"grade": false, "grade_id": "patient-5", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_5 = "different-start"  # a name from the table
### GIVEN
# fault_5 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    ### BEGIN SOLUTION
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    ### GIVEN
    ### END SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-5", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.5").points

# %% [markdown]
# ## 11.6 The last batch never comes
#
# *"It ran for weeks. Then somebody added one image, and now it hangs at the end of each epoch."*
#
# Mended, all ranks take equally many steps, with any number of images.

# %% nbgrader={"grade": false, "grade_id": "patient-6", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_6 = "uneven-steps"  # a name from the table
### GIVEN
# fault_6 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset


def train(model, dataset):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(epoch))
        ### BEGIN SOLUTION
        order = order[: len(dataset) // world_size * world_size]  # shares of one length: the rest waits for next time
        ### GIVEN
        ### END SOLUTION
        mine = Subset(dataset, order[rank::world_size].tolist())
        for inputs, targets in DataLoader(mine, batch_size=4):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-6", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.6").points

# %% [markdown]
# ## 11.7 The log that stops the run
#
# `train` returns on rank 0 the mean loss over the ranks of each step, as floats.
#
# *"We only added a log."*

# %% nbgrader={"grade": false, "grade_id": "patient-7", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_7 = "missing-rank"  # a name from the table
### GIVEN
# fault_7 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(model)
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            mean = loss.detach() / dist.get_world_size()
            ### BEGIN SOLUTION
            dist.all_reduce(mean)
            ### GIVEN
            ### END SOLUTION
            if dist.get_rank() == 0:
                ### BEGIN SOLUTION
                ### GIVEN
                #                 dist.all_reduce(mean)
                ### END SOLUTION
                losses.append(mean.item())
    return losses


# %% nbgrader={"grade": true, "grade_id": "check-11-7", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.7").points

# %% [markdown]
# ## 11.8 Home early
#
# `train_until(losses, limit)` gets the losses that *this* rank will see, epoch by epoch, and stops after the first epoch in
# which the mean loss over all ranks is below `limit`. It returns how many epochs it took: the same number on all ranks.
#
# *"It hangs, but in another epoch each time."*

# %% nbgrader={"grade": false, "grade_id": "patient-8", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_8 = "own-decision"  # a name from the table
### GIVEN
# fault_8 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist


def train_until(losses, limit):
    for epoch, loss in enumerate(losses, start=1):
        gradient = torch.randn(1000)  # stands for an epoch of training
        dist.all_reduce(gradient)
        ### BEGIN SOLUTION
        mean = torch.tensor(loss, dtype=torch.float64) / dist.get_world_size()
        dist.all_reduce(mean)
        if mean < limit:
            ### GIVEN
            #         if loss < limit:
            ### END SOLUTION
            break
    return epoch


# %% nbgrader={"grade": true, "grade_id": "check-11-8", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.8").points

# %% [markdown]
# ## 11.9 Almost the right accuracy
#
# `accuracy(model, dataset)` returns, on all ranks, the share of samples whose class the model finds. The sampler is gone:
# each sample is looked at once.
#
# *"On 3 ranks it is 0.7432, on 4 it is 0.7419. Rounding?"*

# %% nbgrader={"grade": false, "grade_id": "patient-9", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_9 = "mean-of-means"  # a name from the table
### GIVEN
# fault_9 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def accuracy(model, dataset):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = Subset(dataset, range(rank, len(dataset), world_size))
    counts = torch.zeros(2, dtype=torch.long)  # correct, seen
    with torch.no_grad():
        for inputs, targets in DataLoader(share, batch_size=4):
            counts[0] += (model(inputs).argmax(1) == targets).sum()
            counts[1] += len(targets)
    ### BEGIN SOLUTION
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()
    ### GIVEN
    #     mean = counts[0] / counts[1]
    #     dist.all_reduce(mean)
    #     return mean.item() / world_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-11-9", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.9").points

# %% [markdown]
# ## 11.10 A few papers too many
#
# `accuracy(model, dataset)` as before.
#
# *"We count what was correct and how many there were. It is still not what one process says."*

# %% nbgrader={"grade": false, "grade_id": "patient-10", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_10 = "padding"  # a name from the table
### GIVEN
# fault_10 = ""  # a name from the table
### END SOLUTION

### BEGIN SOLUTION
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset
### GIVEN
# import torch
# import torch.distributed as dist
# from torch.utils.data import DataLoader, DistributedSampler
### END SOLUTION


def accuracy(model, dataset):
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = Subset(dataset, range(rank, len(dataset), world_size))
    ### GIVEN
    #     sampler = DistributedSampler(dataset, shuffle=False)
    ### END SOLUTION
    counts = torch.zeros(2, dtype=torch.long)  # correct, seen
    with torch.no_grad():
        ### BEGIN SOLUTION
        for inputs, targets in DataLoader(share, batch_size=4):
            ### GIVEN
            #         for inputs, targets in DataLoader(dataset, batch_size=4, sampler=sampler):
            ### END SOLUTION
            counts[0] += (model(inputs).argmax(1) == targets).sum()
            counts[1] += len(targets)
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()


# %% nbgrader={"grade": true, "grade_id": "check-11-10", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.10").points

# %% [markdown]
# ## 11.11 Promised to one
#
# `accuracy(model, dataset)` as before: all ranks need the number, for their schedule.
#
# *"Rank 0 prints the right accuracy. Since we use it on all ranks, they drift apart."*

# %% nbgrader={"grade": false, "grade_id": "patient-11", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_11 = "wrong-receiver"  # a name from the table
### GIVEN
# fault_11 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def accuracy(model, dataset):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = Subset(dataset, range(rank, len(dataset), world_size))
    counts = torch.zeros(2, dtype=torch.long)  # correct, seen
    with torch.no_grad():
        for inputs, targets in DataLoader(share, batch_size=4):
            counts[0] += (model(inputs).argmax(1) == targets).sum()
            counts[1] += len(targets)
    ### BEGIN SOLUTION
    dist.all_reduce(counts)
    ### GIVEN
    #     dist.reduce(counts, dst=0)
    ### END SOLUTION
    return counts[0].item() / counts[1].item()


# %% nbgrader={"grade": true, "grade_id": "check-11-11", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.11").points

# %% [markdown]
# ## 11.12 Address in use
#
# `total(number)` is called on each rank that torchrun started, joins the group, and returns the sum of all numbers.
#
# *"Alone it runs. When a colleague starts his on the same machine, one of the two dies."*

# %% nbgrader={"grade": false, "grade_id": "patient-12", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_12 = "fixed-address"  # a name from the table
### GIVEN
# fault_12 = ""  # a name from the table
### END SOLUTION

import os

import torch
import torch.distributed as dist


def total(number):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ### BEGIN SOLUTION
    ### GIVEN
    #     os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29500"
    ### END SOLUTION
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    numbers = torch.tensor(number)
    dist.all_reduce(numbers)
    return numbers.item()


# %% nbgrader={"grade": true, "grade_id": "check-11-12", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.12").points

# %% [markdown]
# ## 11.13 Fine on one node
#
# `total(number)` as before.
#
# *"On one node with 8 GPUs it works. On two it stops at once."*

# %% nbgrader={"grade": false, "grade_id": "patient-13", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_13 = "local-rank"  # a name from the table
### GIVEN
# fault_13 = ""  # a name from the table
### END SOLUTION

import os

import torch
import torch.distributed as dist


def total(number):
    ### BEGIN SOLUTION
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ### GIVEN
    #     rank, world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    ### END SOLUTION
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    numbers = torch.tensor(number)
    dist.all_reduce(numbers)
    return numbers.item()


# %% nbgrader={"grade": true, "grade_id": "check-11-13", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.13").points

# %% [markdown]
# ## 11.14 Cut before they meet
#
# The mean gradient over all ranks should be clipped to a norm of 0.1 before each step.
#
# *"With clipping, two ranks learn worse than one. Without, they are the same."*

# %% nbgrader={"grade": false, "grade_id": "patient-14", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
fault_14 = "clipped-early"  # a name from the table
### GIVEN
# fault_14 = ""  # a name from the table
### END SOLUTION

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            ### BEGIN SOLUTION
            ### GIVEN
            #             clip_grad_norm_(model.parameters(), 0.1)
            ### END SOLUTION
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            ### BEGIN SOLUTION
            clip_grad_norm_(model.parameters(), 0.1)
            ### GIVEN
            ### END SOLUTION
            optimizer.step()


# %% nbgrader={"grade": true, "grade_id": "check-11-14", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("11.14").points

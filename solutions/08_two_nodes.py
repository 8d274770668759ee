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
# # Exercise 8: Two nodes
#
# On one machine, a rank has one number. On two, it has three: its rank among all, its local rank on its node, and the
# number of its node. Each mistake of one for another works on one node, and breaks on two.
#
# You need no second machine: the checks start four processes that are told they are on two nodes.
#
# - `check("8.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("8.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your code does, not how it is written. Only the cells that you are to write or to change are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example: what torchrun says
#
# On each of two nodes with two GPUs somebody starts
#
#     torchrun --nnodes 2 --node-rank NODE --nproc-per-node 2 --master-addr node0 --master-port 29500 train.py
#
# torchrun starts two processes there, and tells each in its environment who it is:

# %%
import pandas as pd

pd.DataFrame(
    [
        {
            "node": rank // 2,
            "RANK": rank,
            "WORLD_SIZE": 4,
            "LOCAL_RANK": rank % 2,
            "LOCAL_WORLD_SIZE": 2,
            "GROUP_RANK": rank // 2,
            "MASTER_ADDR": "node0",
            "MASTER_PORT": 29500,
        }
        for rank in range(4)
    ]
)

# %% [markdown]
# - **LOCAL_RANK** chooses what belongs to a node: the GPU, and who fills the disk of the node.
# - **RANK** chooses what there is once: a share of the data, and who writes the file.
# - **MASTER_ADDR** and **MASTER_PORT** say where the ranks meet. `init_process_group` reads these two by itself, and RANK and
#   WORLD_SIZE.

# %% [markdown]
# ## 8.1 Who am I?
#
# Write `place(environ, gpus)`. `environ` is a dict like `os.environ`, as torchrun fills it; `gpus` is the number of GPUs of
# this node, perhaps 0. Nodes may have different numbers of GPUs. Each rank has a GPU of its own, where there are any.
#
# It returns a dict with
# - `"rank"`, `"world_size"`, `"local_rank"`, `"node"`: ints; the node counts from 0,
# - `"device"`: a text, as `"cuda:1"` or `"cpu"`,
# - `"writes"`: a bool, True on the one rank that writes files for all.
#
# A program that nobody launched has none of the variables. It is rank 0 of 1, on node 0.


# %% nbgrader={"grade": false, "grade_id": "place", "locked": false, "schema_version": 3, "solution": true, "task": false}
def place(environ, gpus):
    """Who a process is, by what torchrun told it."""
    ### BEGIN SOLUTION
    rank = int(environ.get("RANK", 0))
    local_rank = int(environ.get("LOCAL_RANK", 0))
    return {
        "rank": rank,
        "world_size": int(environ.get("WORLD_SIZE", 1)),
        "local_rank": local_rank,
        "node": int(environ.get("GROUP_RANK", 0)),
        "device": f"cuda:{local_rank}" if gpus else "cpu",
        "writes": rank == 0,
    }
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-8-1", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("8.1").points

# %% [markdown]
# ## 8.2 Train on two nodes
#
# The program below works on one node. Read it, and find what breaks on two.
#
# Mend `main()` so that it works on any number of nodes. torchrun starts it once for each rank. Where a node has GPUs,
# each rank uses the one with its local rank; where there are none, it trains on the CPU. All nodes see the same folder,
# with `data.npz` in it, and one rank writes `model.pt`. Two epochs, 4 samples a rank in a step, as it is.

# %% nbgrader={"grade": false, "grade_id": "main", "locked": false, "schema_version": 3, "solution": true, "task": false}
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    """Train on all GPUs of all nodes."""
    ### BEGIN SOLUTION
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")  # who, how many and where: torchrun has said it
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    ### GIVEN
    #     local_rank, gpus = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    #     os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    #     dist.init_process_group("nccl", rank=local_rank, world_size=gpus)
    #     device = torch.device("cuda", local_rank)
    ### END SOLUTION
    with np.load("data.npz") as data:
        dataset = TensorDataset(torch.from_numpy(data["inputs"]), torch.from_numpy(data["targets"]))
    ### BEGIN SOLUTION
    sampler = DistributedSampler(dataset)  # asks the group for the rank among all
    ### GIVEN
    #     sampler = DistributedSampler(dataset, num_replicas=gpus, rank=local_rank)
    ### END SOLUTION
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    torch.manual_seed(0)
    ### BEGIN SOLUTION
    model = DistributedDataParallel(nn.Linear(9, 3).to(device), device_ids=[local_rank] if use_cuda else None)
    ### GIVEN
    #     model = DistributedDataParallel(nn.Linear(9, 3).to(device), device_ids=[local_rank])
    ### END SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs.to(device)), targets.to(device)).backward()
            optimizer.step()
    ### BEGIN SOLUTION
    if dist.get_rank() == 0:
        ### GIVEN
        #     if local_rank == 0:
        ### END SOLUTION
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


# %% nbgrader={"grade": true, "grade_id": "check-8-2", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("8.2").points

# %% [markdown]
# ## 8.3 Once a node
#
# Now each node has a disk of its own, and no data on it. Write `prepare(folder, download)`, which is called on each rank of
# a group. `download(folder)` takes a while, and puts the data into the folder bit by bit.
#
# - On each node, one rank calls `download(folder)`, once.
# - On no rank the function returns before all of the data is on the disk of its node.
#
# torchrun's variables are in `os.environ`, and the group is there already.

# %% nbgrader={"grade": false, "grade_id": "prepare", "locked": false, "schema_version": 3, "solution": true, "task": false}
import os

import torch.distributed as dist


def prepare(folder, download):
    """Download the data once on each node; return when it is there."""
    ### BEGIN SOLUTION
    if int(os.environ["LOCAL_RANK"]) == 0:
        download(folder)
    dist.barrier()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-8-3", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("8.3").points

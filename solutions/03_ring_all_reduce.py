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
# # Exercise 3: all_reduce from sends and receives
#
# `all_reduce` gives each rank the sum of all ranks' tensors. How is that done if one rank can only send to another
# one? If all sent theirs to rank 0, its link would carry everything while the others wait. In a **ring** all links
# are busy all the time. You build one.
#
# - `check("3.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("3.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
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
# Each rank tells its neighbour a number. Sending waits until the other one receives, so if all sent first, all would
# wait for ever. `isend` begins to send and returns at once: there is time to receive, and then to wait until the own
# message has gone.


# %%
def whisper(rank):
    following, before = (rank + 1) % dist.get_world_size(), (rank - 1) % dist.get_world_size()
    mine, heard = torch.tensor([10.0 * rank]), torch.empty(1)
    sending = dist.isend(mine, following)
    dist.recv(heard, before)
    sending.wait()
    return f"heard {heard.item():g} from rank {before}"


on_ranks(4, whisper)

# %% [markdown]
# ## 3.1 A chunk for each rank
#
# A ring works on chunks: as many as there are ranks. `chunks(tensor, world_size)` cuts a one-dimensional tensor.
#
# - It returns a list of exactly `world_size` one-dimensional tensors. Put together, in their order, they are the
#   tensor.
# - No chunk has two values more than another one. With fewer values than ranks, some chunks are empty.
# - They may be views of the tensor or copies. The tensor stays as it is.

# %% nbgrader={"grade": false, "grade_id": "chunks", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch


def chunks(tensor, world_size):
    """A tensor in as many pieces as there are ranks."""
    ### BEGIN SOLUTION
    return list(torch.tensor_split(tensor, world_size))  # torch.chunk may give fewer
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-3-1", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("3.1").points

# %% [markdown]
# ## 3.2 The first half: add up
#
# With W ranks there are W - 1 rounds. In each round every rank sends one chunk to the next rank, receives one from
# the rank before, and adds what it received to its own chunk of the same number. So a chunk travels round the ring
# and grows on its way. After the last round each rank has one chunk that is complete.
#
# On paper, with three ranks: in the first round rank r sends chunk r. In the second it sends the chunk that it has
# just added to.
#
# `reduce_scatter(tensor)` does that. It is called on all ranks of a group at the same time.
#
# - It returns a tuple of two: the number of the chunk that is complete on this rank, and that chunk, a tensor with
#   the sums over all ranks. Each rank ends with another chunk; which one is up to you.
# - Send with `dist.send`, `dist.isend` or `dist.batch_isend_irecv`, receive with `dist.recv` or `dist.irecv`: to the
#   next rank only, from the rank before only, one message a round, W - 1 in all. Empty chunks may be left out.
# - It must work on any number of ranks, one included, for tensors of any length and type.
# - You may call `chunks`: its cell is handed in with this one.

# %% nbgrader={"grade": false, "grade_id": "reduce_scatter", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    """Add up chunks round the ring; the number of the one that is complete here, and its sums."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pieces = [piece.clone() for piece in chunks(tensor, world_size)]
    for step in range(world_size - 1):
        outgoing, incoming = (rank - step) % world_size, (rank - step - 1) % world_size
        arrived = torch.empty_like(pieces[incoming])
        sending = dist.isend(pieces[outgoing], (rank + 1) % world_size)
        dist.recv(arrived, (rank - 1) % world_size)
        sending.wait()
        pieces[incoming] += arrived
    complete = (rank + 1) % world_size
    return complete, pieces[complete]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-3-2", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("3.2").points

# %% [markdown]
# ## 3.3 The second half: pass on
#
# Now each rank has one complete chunk, and all need all of them. It is the same ring once more, W - 1 rounds long:
# what arrives is complete, so it replaces the chunk instead of being added to it.
#
# `ring_all_reduce(tensor)` changes `tensor` **in place**: afterwards it holds the sum of all ranks' tensors, on every
# rank, as after `dist.all_reduce`. Both halves together take 2 (W - 1) messages of each rank, one chunk each. It need
# not return anything. You may call `chunks` and `reduce_scatter`.

# %% nbgrader={"grade": false, "grade_id": "ring_all_reduce", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    """Replace a tensor by the sum of all ranks' tensors."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    number, chunk = reduce_scatter(tensor)
    pieces = chunks(tensor, world_size)  # views: who writes into them writes into the tensor
    pieces[number].copy_(chunk)
    for _ in range(world_size - 1):
        incoming = (number - 1) % world_size
        arrived = torch.empty_like(pieces[incoming])
        sending = dist.isend(pieces[number], (rank + 1) % world_size)
        dist.recv(arrived, (rank - 1) % world_size)
        sending.wait()
        pieces[incoming].copy_(arrived)
        number = incoming
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-3-3", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("3.3").points

# %% [markdown]
# ## 3.4 What it costs
#
# `traffic(length, bytes_per_value, world_size)` returns a tuple of two whole numbers, for one `ring_all_reduce` of a
# tensor with `length` values of `bytes_per_value` bytes each:
#
# 1. how many messages **all ranks together** send,
# 2. how many bytes these messages have together.


# %% nbgrader={"grade": false, "grade_id": "traffic", "locked": false, "schema_version": 3, "solution": true, "task": false}
def traffic(length, bytes_per_value, world_size):
    """The messages of all ranks in a ring all_reduce, and their bytes."""
    ### BEGIN SOLUTION
    rounds = 2 * (world_size - 1)
    return rounds * world_size, rounds * length * bytes_per_value  # in a round all chunks are sent: the whole tensor
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-3-4", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("3.4").points

# %% [markdown]
# ## What you have built
#
# Divide the bytes by the number of ranks: each rank sends 2 (W - 1) / W times its tensor, which is never more than
# twice, however many ranks there are. That is why large models are averaged in rings. The number of rounds does grow
# with W, so for small tensors on many ranks a tree is faster.

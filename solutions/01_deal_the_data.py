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
# # Exercise 1: Deal the data
#
# In data-parallel training each rank works on samples of its own. Somebody has to say which, and nobody is there to
# say it: each rank works out its own share, from its number and from what all ranks know. Together they must take
# every sample, and no sample twice.
#
# You write what `DistributedSampler` does, in three parts.
#
# - `check("1.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("1.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your functions do, not how they are written. Only the cells that say "YOUR CODE HERE" are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example
#
# Seven letters are to be written by three people, who sit in different rooms. Each takes a third of the pile.

# %%
letters = list(range(7))
third = len(letters) // 3
for person in range(3):
    print(f"person {person} writes {letters[person * third : (person + 1) * third]}")

# %% [markdown]
# Letter 6 is never written: `7 // 3` is 2, and 3 · 2 is 6. Such a mistake makes no noise. So do not look at one
# share, look at all of them together:

# %%
shares = [letters[person * third : (person + 1) * third] for person in range(3)]
written = [letter for share in shares for letter in share]
print(f"never written: {set(letters) - set(written)}")
print(f"written twice: {len(written) - len(set(written))}")
print(f"sizes:         {[len(share) for share in shares]}")

# %% [markdown]
# Each person could also begin where the one before ended, with 3, 2 and 2 letters. That is right. So are other ways:
# what counts is that nothing is missing, nothing comes twice, and the shares are fair.
#
# ## 1.1 A share for each rank
#
# `deal(samples, world_size, rank)` returns the indices of the samples that `rank` takes, out of `samples` samples
# numbered from 0 on. `rank` goes from 0 to `world_size - 1`.
#
# - Each sample goes to exactly one rank.
# - No rank gets two samples more than another one. With fewer samples than ranks, some ranks get none.
# - Which samples a rank gets is up to you. Return a list of whole numbers (a tuple, a tensor or an array is fine,
#   too).


# %% nbgrader={"grade": false, "grade_id": "deal", "locked": false, "schema_version": 3, "solution": true, "task": false}
def deal(samples, world_size, rank):
    """The indices of the samples that a rank takes."""
    ### BEGIN SOLUTION
    return list(range(rank, samples, world_size))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-1", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("1.1").points

# %% [markdown]
# ## 1.2 Another order in each epoch
#
# A network that always sees the same samples in the same order learns that order, too. And a rank that always has the
# same share never sees the rest.
#
# `deal_epoch(samples, world_size, rank, seed, epoch)` deals shuffled samples: `seed` says which of many orders,
# `epoch` counts the passes over the data from 0 on.
#
# - Within an epoch it is as before: each sample to exactly one rank, and shares that are fair.
# - Another epoch, or another seed, has another random order, and other samples on each rank. The same arguments give
#   the same samples, whoever asks: ranks are processes that do not speak to each other, and the random numbers of
#   each are in another state.
# - Leave the global random numbers of `torch`, `numpy` and `random` as they are. Dropout and augmentation draw from
#   them.

# %% nbgrader={"grade": false, "grade_id": "deal_epoch", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch


def deal_epoch(samples, world_size, rank, seed, epoch):
    """The indices of the samples that a rank takes in an epoch, in their order."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)  # of our own, and the same on all ranks
    order = torch.randperm(samples, generator=generator).tolist()
    return order[rank::world_size]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-2", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("1.2").points

# %% [markdown]
# ## 1.3 Equally many for all
#
# In each step all ranks wait for each other. A rank with a sample more might take a step more, and wait for ever. So
# all get the same number, and there are two ways to that:
#
# - `drop_last=True`: each rank gets `samples // world_size` samples. The rest is left out, in another epoch another
#   rest. No sample comes twice.
# - `drop_last=False`: each rank gets `samples / world_size` samples, rounded up. Some samples come more than once so
#   that the shares are full. No sample is missing.
#
# `deal_evenly(samples, world_size, rank, seed, epoch, drop_last)` does that, and otherwise what `deal_epoch` does:
# shuffled by `seed` and `epoch`, the same whoever asks, and the global random numbers stay as they are. It must also
# work with fewer samples than ranks: 2 samples on 5 ranks are one sample for each rank, or none for anybody.

# %% nbgrader={"grade": false, "grade_id": "deal_evenly", "locked": false, "schema_version": 3, "solution": true, "task": false}
import torch


def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    """The indices of the samples that a rank takes in an epoch: equally many on all ranks."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(samples, generator=generator).tolist()
    if drop_last:
        total = samples // world_size * world_size
    else:
        total = (samples + world_size - 1) // world_size * world_size
    order = (order * world_size)[:total]  # the list once more, as often as it takes
    return order[rank::world_size]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-3", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("1.3").points

# %% [markdown]
# ## What you have built
#
# This is `torch.utils.data.DistributedSampler`: `set_epoch` tells it the epoch, and without that call it has the same
# order in every epoch. In evaluation a sampler that fills up makes some samples count twice: exercise 5 is about
# that.

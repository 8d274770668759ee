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
# # Exercise 12: Final project
#
# A model and a loss that you have not seen in this course, from one device to many. The program below trains on one. It
# predicts the next token of a sequence, as language models do. Its sequences have very different lengths, and that is
# what makes it interesting: *the loss is the mean over all tokens*, not over sequences.
#
# Three things count, and each has points of its own:
#
# - **Equality.** Whatever the number of ranks, each step is the one that a single process takes with the same global batch.
# - **Efficiency.** Machines are noisy, so no clock decides. It counts how much each rank has to do, and how many messages of
#   how many bytes the ranks exchange.
# - **Accuracy.** All ranks know the exact accuracy over the validation set after each epoch.
#
# - `check("12.1")` runs your code and says what it saw. It may be asked as often as you like.
# - `hint("12.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - What counts is what your code does, not how it is written. Only the cells that you are to write or to change are
#   handed in, so import in them what they use.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint

# %% [markdown]
# ## A worked example: two ranks, five tokens
#
# Rank 0 has one token to predict, rank 1 has four. Here are their losses, the mean of the two ranks' means, which is
# what DDP would make of it, and the mean over the five tokens:

# %%
import torch

losses = [torch.tensor([3.0]), torch.tensor([1.0, 1.0, 2.0, 1.0])]
mean_of_means = sum(each.mean() for each in losses) / 2
mean_of_tokens = torch.cat(losses).mean()
mean_of_means, mean_of_tokens

# %% [markdown]
# The one token of rank 0 weighs as much as all four of rank 1. So a loss depends on who got which sequence, and the more
# ranks there are, the more it does. In training, gradients follow: it is another model that is trained.

# %% [markdown]
# ## The project
#
# Change `main` and `accuracy` (and add imports), so that `main(epochs, global_batch_size, lr)` trains on all ranks. torchrun
# starts it on each; there may be several nodes, with GPUs or without. All of them see one folder.
#
# - `global_batch_size` is that of all ranks together; the world size divides it. As before, an incomplete last batch of an
#   epoch is dropped, and each epoch has another order. Each step is that of one process with the whole global batch: the
#   mean loss over all its tokens, SGD with momentum 0.9.
# - Each rank takes its share of each batch, and looks at its share of the validation sequences.
# - In a step, the ranks exchange at most 1.25 times the bytes of the gradient, in at most 4 messages. For the accuracy
#   there may be 6 more an epoch. What is sent before the first step does not count.
# - It returns on all ranks the list of accuracies after each epoch, as floats: the share of all tokens of the validation
#   set that are predicted right.
# - One rank writes `model.pt`, after training: a state dict for `NextToken`.

# %% nbgrader={"grade": false, "grade_id": "project", "locked": false, "schema_version": 3, "solution": true, "task": false}
### BEGIN SOLUTION
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
### GIVEN
# import numpy as np
# import torch
# from torch import nn
# from torch.nn.functional import cross_entropy
# from torch.utils.data import DataLoader, TensorDataset
### END SOLUTION


class NextToken(nn.Module):
    """Predicts the next token from this one and the two before: [n, length] in, [n, length, 256] out."""

    def __init__(self, width=12):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.mix = nn.Conv1d(width, width, kernel_size=3)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        features = nn.functional.pad(self.embedding(tokens).transpose(1, 2), (2, 0))
        return self.head(torch.relu(self.mix(features)).transpose(1, 2))


def load(part):
    """Tokens [n, length], and how many of each row are a sequence; the rest only fills the row."""
    with np.load("sequences.npz") as data:
        tokens, lengths = data[f"{part}_tokens"], data[f"{part}_lengths"]
    return TensorDataset(torch.from_numpy(tokens).long(), torch.from_numpy(lengths).long())


def targets_of(tokens, lengths):
    """The token after each one; -100 where none follows, which the loss leaves out."""
    following = tokens.roll(-1, dims=1)
    following[torch.arange(tokens.shape[1]) >= lengths[:, None] - 1] = -100
    return following


def loss_of(outputs, targets, reduction="mean"):
    """The mean over all tokens that are followed by one, or the sum."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction=reduction)


# Up to here the program stays as it is.


def accuracy(model, dataset, device):
    ### BEGIN SOLUTION
    """The share of tokens that the model predicts; each rank looks at some sequences, and all learn the result."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    counts = torch.zeros(2, dtype=torch.long, device=device)  # correct, seen
    ### GIVEN
    #     """The share of tokens that the model predicts."""
    #     correct = count = 0
    ### END SOLUTION
    with torch.no_grad():
        ### BEGIN SOLUTION
        for tokens, lengths in DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), batch_size=16):
            ### GIVEN
            #         for tokens, lengths in DataLoader(dataset, batch_size=16):
            ### END SOLUTION
            targets = targets_of(tokens, lengths).to(device)
            found = model(tokens.to(device)).argmax(2)
            ### BEGIN SOLUTION
            counts[0] += ((found == targets) & (targets != -100)).sum()
            counts[1] += (targets != -100).sum()
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()
    ### GIVEN
    #             correct += ((found == targets) & (targets != -100)).sum().item()
    #             count += (targets != -100).sum().item()
    #     return correct / count
    ### END SOLUTION


def main(epochs, global_batch_size, lr):
    """Train, and return the accuracy after each epoch."""
    ### BEGIN SOLUTION
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    local_rank, world_size = int(os.environ["LOCAL_RANK"]), dist.get_world_size()
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    ### GIVEN
    #     device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ### END SOLUTION
    train_set, val_set = load("train"), load("val")
    torch.manual_seed(0)
    ### BEGIN SOLUTION
    model = DistributedDataParallel(NextToken().to(device), device_ids=[local_rank] if use_cuda else None)
    ### GIVEN
    #     model = NextToken().to(device)
    ### END SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    ### BEGIN SOLUTION
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, global_batch_size // world_size, sampler=sampler, drop_last=True)
    ### GIVEN
    #     loader = DataLoader(train_set, global_batch_size, shuffle=True, drop_last=True)
    ### END SOLUTION
    accuracies = []
    ### BEGIN SOLUTION
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        ### GIVEN
        #     for _ in range(epochs):
        ### END SOLUTION
        model.train()
        for tokens, lengths in loader:
            targets = targets_of(tokens, lengths).to(device)
            ### BEGIN SOLUTION
            count = (targets != -100).sum()
            dist.all_reduce(count)  # of all ranks: the loss is the mean over the tokens of the global batch
            ### GIVEN
            ### END SOLUTION
            optimizer.zero_grad()
            ### BEGIN SOLUTION
            loss = loss_of(model(tokens.to(device)), targets, reduction="sum") / count
            (loss * world_size).backward()  # DDP will divide by the world size
            ### GIVEN
            #             loss_of(model(tokens.to(device)), targets).backward()
            ### END SOLUTION
            optimizer.step()
        model.eval()
        ### BEGIN SOLUTION
        accuracies.append(accuracy(model.module, val_set, device))
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()
    ### GIVEN
    #         accuracies.append(accuracy(model, val_set, device))
    #     torch.save(model.state_dict(), "model.pt")
    ### END SOLUTION
    return accuracies


# %% [markdown]
# ### 12.1 Equal to one process

# %% nbgrader={"grade": true, "grade_id": "check-12-1", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("12.1").points

# %% [markdown]
# ### 12.2 Efficient

# %% nbgrader={"grade": true, "grade_id": "check-12-2", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("12.2").points

# %% [markdown]
# ### 12.3 Accurate

# %% nbgrader={"grade": true, "grade_id": "check-12-3", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("12.3").points

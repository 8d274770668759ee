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
# # Exercise 4: From one GPU to many
#
# You get a program that trains on one GPU, and make it train on any number of them, on one node or several: six steps,
# then four details. Each is checked by itself, so check as soon as you have taken it. Where there is no GPU, CPU cores
# stand in for GPUs.
#
# - `check("4.1")` runs your program on several ranks and says what it saw. It may be asked as often as you like.
# - `hint("4.1")`, in a cell of your own, gives the first of three hints; asked again, the next. Hints cost no points.
# - `snapshot("4.1")` shows the program after this part, to go on from there.
# - What counts is what your program does, not how it is written.
#
# Run the cells from top to bottom (Shift+Enter).

# %%
from course_lib.grading.check import check, hint, snapshot

# %% [markdown]
# ## A worked example
#
# Four processes find the mean of ten numbers. Read it before you run it: you will need each of these calls.

# %%
# %%writefile mean.py
"""The mean of some numbers, found by several processes."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

NUM_PROCESSES = 4


def work(local_rank, numbers):
    # The processes find each other: each says how many there are, and which of them it is.
    dist.init_process_group("gloo", rank=local_rank, world_size=NUM_PROCESSES)
    # Each has some of the numbers, and they need not have equally many.
    mine = numbers[local_rank::NUM_PROCESSES]
    # Sums can be added up. Means could not: they are of different numbers of numbers.
    total = torch.tensor([mine.sum(), len(mine)])
    dist.all_reduce(total)  # waits for all; afterwards each of them has the sums of all
    print(f"rank {local_rank} has {mine.tolist()}, and the mean of all is {total[0] / total[1]:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    # Where they meet: the first of them listens there.
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    # Each process calls work(its number, *args).
    mp.spawn(work, args=(torch.arange(10.0),), nprocs=NUM_PROCESSES)

# %%
# !python mean.py

# %% [markdown]
# ## The program
#
# It trains a small wide ResNet on images of clothes (Fashion-MNIST). This cell puts a part of them beside this notebook,
# in the file `fashion_mnist.npz` that the program reads.

# %%
import numpy as np

from course_lib.training import sources

names = ("train_images", "train_labels", "val_images", "val_labels")
arrays = sources.read(sources.locate("subset"))
np.savez("fashion_mnist.npz", **{name: array[:1000] for name, array in zip(names, arrays, strict=True)})

# %% [markdown]
# The next cell is **your program**: running it writes the file `train.py`. It begins as the program for one GPU. Run it
# and the cell after it once as they are, to see what it does. Then edit it, step by step; run the cell after each edit,
# else the file stays as it was.

# %% nbgrader={"grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
# %%writefile train.py
### BEGIN SOLUTION
"""Train a small wide ResNet on Fashion-MNIST: on the GPUs of one node or several, or on CPU cores."""
### GIVEN
# """Train a small wide ResNet on Fashion-MNIST: on one GPU, or on one CPU core."""
### END SOLUTION

import argparse
import json
import os
import time

### BEGIN SOLUTION
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
### GIVEN
# import numpy as np
# import torch
# from torch import nn
# from torch.nn.functional import cross_entropy, relu
# from torch.utils.data import DataLoader, TensorDataset
### END SOLUTION


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)])
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        residual = self.first(relu(self.norms[0](x)))
        return self.shortcut(x) + self.second(relu(self.norms[1](residual)))


class WideResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images):
        return self.head(relu(self.blocks(self.stem(images))).mean((2, 3)))


def prepare():
    """Unpack the images: once for all programs that will run here."""
    if not os.path.exists("data"):
        os.makedirs("data")
        with np.load("fashion_mnist.npz") as packed:
            for name in packed.files:
                np.save(f"data/{name}.npy", packed[name])


def load(part):
    images, labels = (torch.from_numpy(np.load(f"data/{part}_{what}.npy")) for what in ("images", "labels"))
    return TensorDataset(images[:, None] / 255, labels.long())


### BEGIN SOLUTION
def evaluate(model, val_set, batch_size, rank, world_size, device):
    """The accuracy over all images, each of which one rank looks at."""
    model.eval()
    loader = DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size)
    counts = torch.zeros(2, device=device)  # correct, seen
    ### GIVEN
    # def evaluate(model, loader, device):
    #     model.eval()
    #     correct = seen = 0
    ### END SOLUTION
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            ### BEGIN SOLUTION
            counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)], device=device)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
    ### GIVEN
    #             correct += (model(images).argmax(1) == labels).sum().item()
    #             seen += len(labels)
    #     return correct / seen
    ### END SOLUTION


### BEGIN SOLUTION
def train(local_rank, args):
    # Step 2: the ranks find each other.
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_nodes * args.num_gpus
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)
    # Step 3: a device for each rank of the node.
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(args.base_seed)
    if local_rank == 0:
        prepare()
    dist.barrier()  # nobody reads before all is written
    train_set, val_set = load("train"), load("val")
    # Step 4: the data is dealt, anew in each epoch.
    sampler = DistributedSampler(train_set, seed=args.base_seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler)
    # Step 5: gradients are averaged.
    model = DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)
    ### GIVEN
    # def train(args):
    #     device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    #     torch.manual_seed(args.base_seed)
    #     prepare()
    #     train_set, val_set = load("train"), load("val")
    #     loader = DataLoader(train_set, args.batch_size, shuffle=True)
    #     val_loader = DataLoader(val_set, args.batch_size)
    #     model = WideResNet().to(device)
    ### END SOLUTION
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)
    results = []
    for epoch in range(args.epochs):
        ### BEGIN SOLUTION
        sampler.set_epoch(epoch)
        model.train()
        start = time.perf_counter()
        for images, labels in loader:  # step 6: the loop stays as it was
            ### GIVEN
            #         model.train()
            #         start = time.perf_counter()
            #         for images, labels in loader:
            ### END SOLUTION
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        ### BEGIN SOLUTION
        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)
        dist.reduce(speed, dst=0)
        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device)
        if rank == 0:
            results.append({"epoch": epoch, "images_per_sec": speed.item(), "val_accuracy": val_accuracy})
            print(f"epoch {epoch}: {speed.item():.0f} images/s, validation accuracy {val_accuracy:.3f}")
            torch.save(model.module.state_dict(), "model.pt")
    if rank == 0:
        with open("result.json", "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()
    ### GIVEN
    #         images_per_sec = len(train_set) / (time.perf_counter() - start)
    #         val_accuracy = evaluate(model, val_loader, device)
    #         results.append({"epoch": epoch, "images_per_sec": images_per_sec, "val_accuracy": val_accuracy})
    #         print(f"epoch {epoch}: {images_per_sec:.0f} images/s, validation accuracy {val_accuracy:.3f}")
    #         torch.save(model.state_dict(), "model.pt")
    #     with open("result.json", "w") as file:
    #         json.dump(results, file)
    ### END SOLUTION


OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-gpus", type=int, default=1, help="of this node")
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--node-id", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32, help="of one GPU")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--base-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    args = parser.parse_args()
    ### BEGIN SOLUTION
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # CPU ranks share the cores
    mp.spawn(train, (args,), nprocs=args.num_gpus)  # step 1: a process for each GPU of this node
    ### GIVEN
    #     train(args)
    ### END SOLUTION


if __name__ == "__main__":
    main()


# %%
# !python train.py --num-gpus 2

# %% [markdown]
# The arguments stay as they are. `--num-gpus` is how many GPUs the program uses on this node, `--num-nodes` how many
# nodes take part, and `--node-id` which of them this is: 0, 1, … The batch size is that of one GPU. Without a GPU the
# program uses the CPU, and gloo as the backend.

# %% [markdown]
# ## Step 1: a process for each GPU
#
# `main` starts `num_gpus` processes, and each of them calls `train`. `torch.multiprocessing.spawn` does that. Until
# the next step the processes know nothing of each other.

# %% nbgrader={"grade": true, "grade_id": "check-4-1", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.1").points

# %% [markdown]
# ## Step 2: one group
#
# The processes of all nodes become one group, each with a rank of its own. They meet at the address in the environment
# variables `MASTER_ADDR` and `MASTER_PORT`. Where these are not set, the program chooses for itself, and two such
# programs on one machine do not disturb each other.

# %% nbgrader={"grade": true, "grade_id": "check-4-2", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.2").points

# %% [markdown]
# ## Step 3: a GPU for each rank
#
# On its node each rank uses a GPU of its own, and the CPU where there is none. You may have no GPU: the check pretends
# that there are some, and looks at the device that the program asks for.

# %% nbgrader={"grade": true, "grade_id": "check-4-3", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.3").points

# %% [markdown]
# ## Step 4: each image to one rank
#
# In each epoch each image is read by one rank, and the next epoch has another order. A few images may be read twice so
# that all ranks have equally many.

# %% nbgrader={"grade": true, "grade_id": "check-4-4", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.4").points

# %% [markdown]
# ## Step 5: the mean gradient
#
# All ranks begin with the same weights, and take the step that one process would take with the images of all of them.

# %% nbgrader={"grade": true, "grade_id": "check-4-5", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.5").points

# %% [markdown]
# ## Step 6: the loop unchanged
#
# What happens with a batch stays as it was, and `--base-seed` still decides how training begins. The program ends by
# itself on any number of ranks, and also when one of them fails.

# %% nbgrader={"grade": true, "grade_id": "check-4-6", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.6").points

# %% [markdown]
# ## The details
#
# The program trains on many GPUs now. Four things are not yet as they should be.

# %% [markdown]
# ### A barrier where one is needed
#
# `prepare` unpacks the images into the folder `data`. One process of each node does that, and none reads before it is
# done. Each node has a folder of its own.

# %% nbgrader={"grade": true, "grade_id": "check-4-7", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.7").points

# %% [markdown]
# ### Images a second of all ranks
#
# `images_per_sec` in `result.json` is the number of images that all ranks together train on in a second.

# %% nbgrader={"grade": true, "grade_id": "check-4-8", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.8").points

# %% [markdown]
# ### Validation accuracy over all ranks
#
# `val_accuracy` in `result.json` is the exact accuracy over all validation images, each counted once, on any number of
# ranks. The ranks share the work.

# %% nbgrader={"grade": true, "grade_id": "check-4-9", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.9").points

# %% [markdown]
# ### One writer
#
# Of all ranks on all nodes, one writes `result.json` and `model.pt`, and a plain `WideResNet` can load `model.pt`.

# %% nbgrader={"grade": true, "grade_id": "check-4-10", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
from course_lib.grading.check import check

check("4.10").points

# %% [markdown]
# ## And now
#
# Run the cell with `!python train.py --num-gpus 2` again, with other numbers. Then play two nodes of a cluster, in two
# terminals in this folder. Each waits for the other:
#
# ```sh
# MASTER_PORT=29511 python train.py --num-gpus 1 --num-nodes 2 --node-id 0
# MASTER_PORT=29511 python train.py --num-gpus 1 --num-nodes 2 --node-id 1
# ```
#
# Save the notebook: what is graded is the cell of your program as it is saved.

# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: jupyter,-all
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
# # Data parallelism by hand
#
# In [the first lesson](01_one_gpu_to_many.ipynb) one line, `DistributedDataParallel(model)`, did nearly all of the
# work, out of sight. Here you do the same by hand: copies of a model on several devices, a batch dealt to them, their
# gradients averaged, and one step that all of them take. Everything happens in **one process**, so you can look into
# every copy at any time.
#
# After it you can
# - say what a replica is, and what goes wrong when replicas share memory or drift apart,
# - average gradients so that many devices take the very step that one would take, also if a batch cannot be dealt
#   evenly,
# - count what an `all_reduce` sends, and say when a ring is better than a tree,
# - put together a whole training step, and prove that it is right,
# - see in a figure when each replica computes, and say why DDP takes processes.
#
# It takes about 45 minutes. Run the cells from top to bottom (Shift+Enter) and **predict before you run**. Every cell
# may be run again. What stands below the cells so far comes from another machine: choose **Kernel > Restart Kernel and
# Clear Outputs of All Cells…** for a fresh page.

# %%
import copy
import math
import time
from itertools import pairwise

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS
from course_lib.errors import OutOfSyncError
from course_lib.lab import plots
from course_lib.lab.display import display_figure
from course_lib.runs.devices import core_count, gpu_count
from course_lib.training import data, models
from course_lib.training.collectives import Traffic, all_reduce
from course_lib.training.evaluate import evaluate
from course_lib.training.replicas import (
    DeviceManager,
    broadcast_params,
    check_in_sync,
    data_parallel_step,
    prepare_replicas,
    shard_batch,
    sync_grads,
)
from course_lib.training.schedules import lr_factor, scaled_lr

torch.set_num_threads(1)  # as in the first lesson: one CPU core is one device

# %% [markdown]
# ## 1. Devices and queues
#
# A `DeviceManager` makes a **queue** for each device. What you submit to a queue is run on its device, one job after
# the other. `submit` does not wait: it returns a *future* at once, and `future.result()` waits for the job.
#
# As before, CPU cores stand in for GPUs where there are fewer than two of these.

# %%
on_gpus = gpu_count() >= 2
queues = DeviceManager(gpu_count() if on_gpus else ["cpu", "cpu"]).get_queues()
world_size = len(queues)

timing = MEASURED_ON_GPUS if on_gpus else MEASURED_ON_CPU_RANKS
if not on_gpus and core_count() < world_size:
    timing += f", but not a measurement of speed: {world_size} replicas share {core_count()} core"

print(f"{world_size} devices: {', '.join(queue.name for queue in queues)}")

# %% [markdown]
# > **Predict.** A job that sleeps for 0.4 seconds is submitted twice: first once to each of two queues, then twice to
# > one queue. How long does each take?


# %%
def seconds_for(*chosen):
    """How long it takes until a nap of 0.4 seconds on each of these queues is over."""
    began = time.perf_counter()
    naps = [queue.submit(time.sleep, 0.4) for queue in chosen]
    for nap in naps:
        nap.result()
    return time.perf_counter() - began


print(f"on two queues: {seconds_for(queues[0], queues[1]):.1f} s")
print(f"on one queue:  {seconds_for(queues[0], queues[0]):.1f} s")

# %% [markdown]
# <details>
# <summary><b>Why?</b></summary>
#
# Each queue has a **thread** of its own, and on a GPU a CUDA stream as well, which is a queue of the GPU's own. On
# Linux a queue of the CPU also has cores of its own, where there are enough. Threads of one process can wait, or
# compute, at the same time. Within a queue the order is kept: 0.4 + 0.4 seconds.
#
# In the first lesson each device had a *process*. Processes share nothing, so all that they have in common had to be
# sent. Threads share all variables, which makes it easy to look at everything, and easy to get it wrong.
#
# </details>

# %% [markdown]
# ## 2. Replicas
#
# A **replica** is a copy of the model on one device. Its weights are the same as all others', bit for bit, and it has
# memory of its own.
#
# > **Predict.** One weight of replica 1 is changed by hand. Which of the three numbers change: that of the model, of
# > replica 0, of replica 1?

# %%
torch.manual_seed(0)
model = models.MLP().eval()  # eval() switches dropout off; section 8 switches it on again
weights = sum(parameter.numel() for parameter in model.parameters())
print(f"784-256-128-10, with {weights:,} weights")

replicas = prepare_replicas(model, queues)
check_in_sync(replicas)  # would raise an error if they were not the same

with torch.no_grad():
    replicas[1].module[-1].bias[0] += 1

owners = {"the model": model, "replica 0": replicas[0].module, "replica 1": replicas[1].module}
pd.Series({name: owner[-1].bias[0].item() for name, owner in owners.items()}, name="weight").to_frame().round(3)

# %% [markdown]
# Only replica 1 has changed: a copy is a copy. Must it be one? On a CPU, all replicas could use the weights of the
# model itself, which would save memory.
#
# > **Predict.** Two "replicas" are one and the same weight, 0. Its gradient is 1. Each replica has its own optimizer,
# > SGD with a learning rate of 0.1, and each takes its step. What is the weight then?

# %%
weight = torch.nn.Parameter(torch.zeros(()))
shared = [weight, weight]
optimizers = [torch.optim.SGD([each], lr=0.1) for each in shared]

weight.grad = torch.ones(())
for optimizer in optimizers:
    optimizer.step()
print(f"{weight.item():.1f}")

# %% [markdown]
# <details>
# <summary><b>What went wrong?</b></summary>
#
# One step is 0 - 0.1 · 1 = -0.1. But both optimizers moved the same number, so the step was taken twice. No error
# tells you: the model just trains with another learning rate than you think. So `prepare_replicas` always copies, on
# one device as well.
#
# </details>

# %% [markdown]
# ## 3. Shards
#
# A batch is dealt to the replicas in near-even pieces, the **shards**. Images and labels are cut in the same places.
#
# > **Predict.** How are 130 images dealt to 4 devices? And 5 to 4? And 3 to 4?

# %%
train_set, test_set = data.load("subset", "cpu")
images, labels = train_set.batch(data.Sampler(len(train_set), seed=0).order())

for samples, num_shards in ((128, 2), (130, 4), (5, 4), (3, 4)):
    shards, sizes = shard_batch((images[:samples], labels[:samples]), num_shards)
    print(f"{samples:3} on {num_shards}: {sizes}")

# %% [markdown]
# Sizes differ by one at most, and no image is lost or repeated. A replica whose shard is empty computes nothing, but
# takes the step like all others.
#
# A batch that cannot be dealt evenly is nothing special: the last batch of an epoch hardly ever can. It is where the
# next section goes wrong.

# %% [markdown]
# ## 4. One gradient from many
#
# Each replica computes the mean loss of its shard, and the gradient of that. To take one step, all need the gradient
# of the mean loss of the **whole batch**. It seems clear how to get it: take the mean of the replicas' gradients.
#
# > **Predict.** 5 images on 4 devices: how far is the mean of the four gradients from the gradient of the whole
# > batch? Less than 0.1 %, about 1 %, or more than 10 %? And for 130 images? For 128?
#
# This cell computes both for several splits, in float64, so that rounding hides nothing. The last column weighs each
# gradient by the size of its shard.


# %%
def forward(replica, images, labels):
    """The mean loss of a replica, or of a model, on its images."""
    return cross_entropy(replica(images), labels)


def gradient_of(module):
    """All gradients of a module, one after the other."""
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])


def gradient(images, labels):
    """The gradient of one model on all of these images."""
    one = copy.deepcopy(model).double()
    forward(one, images.double(), labels).backward()
    return gradient_of(one)


def error(gradient, right):
    """How far it is from the right one, relative to its length."""
    return ((gradient - right).norm() / right.norm()).item()


rows = []
for samples, num_shards in ((128, 4), (130, 4), (10, 3), (5, 4)):
    right = gradient(images[:samples], labels[:samples])
    shards, sizes = shard_batch((images[:samples], labels[:samples]), num_shards)
    parts = [gradient(*shard) for shard in shards]
    plain = sum(parts) / num_shards
    weighted = sum(size * part for size, part in zip(sizes, parts, strict=True)) / samples
    rows.append((samples, sizes, f"{error(plain, right):.2%}", f"{error(weighted, right):.2%}"))

pd.DataFrame(rows, columns=["images", "shards", "error of the plain mean", "of the weighted mean"])

# %% [markdown]
# <details>
# <summary><b>Why is the plain mean wrong?</b></summary>
#
# In 5 images on 4 devices, one shard has 2 images, and each of the others has 1. The plain mean of the four gives 1/4
# to each *shard*: so the two images of the first shard count 1/8 each, and the others 1/4. But in the mean over the
# batch, each *image* counts 1/5.
#
# With shards of n₀, n₁, … images and their gradients g₀, g₁, … the right one is
#
# (n₀ g₀ + n₁ g₁ + …) / (n₀ + n₁ + …)
#
# It is the plain mean only if all shards have the same size, as in the first row. In the others nothing fails, and no
# warning is given: the training is just not the one that you think.
#
# </details>
#
# `sync_grads` gives every replica this weighted mean. Now 5 images on 4 real replicas, each on a queue of its own (on
# the CPU, where one may have as many as one likes):

# %%
four = prepare_replicas(copy.deepcopy(model).double(), DeviceManager(["cpu"] * 4).get_queues())
shards, sizes = shard_batch((images[:5].double(), labels[:5]), 4)

jobs = [replica.queue.submit(forward, replica, *shard) for replica, shard in zip(four, shards, strict=True)]
for replica, job in zip(four, jobs, strict=True):
    replica.queue.submit(job.result().backward).result()

right = gradient(images[:5], labels[:5])
before = [f"{error(gradient_of(replica.module), right):.2%}" for replica in four]
sync_grads(four, sizes)
after = [f"{error(gradient_of(replica.module), right):.2%}" for replica in four]

pd.DataFrame({"images": sizes, "error before": before, "error after sync_grads": after}).rename_axis("replica")

# %% [markdown]
# ## 5. Inside an `all_reduce`
#
# `sync_grads` adds up tensors that lie on different devices, and gives each device the sum. This is the `all_reduce`
# of the first lesson. How do the numbers get from device to device? There are several ways:
#
# - **naive**: one after the other, all send their tensor to rank 0, which adds them up; then it sends the sum to each,
#   again one after the other;
# - **tree**: rank 1 sends to 0, 3 to 2 and so on, at the same time; then 2 sends to 0, 6 to 4…; then all the way
#   back;
# - **ring**: the tensor is cut into N pieces, and each rank only ever sends one piece at a time, to its neighbour:
#   once around to add them up, and once around to hand out the sums.
#
# `Traffic` takes down every message. Messages that are on their way at the same time are one *round*.
#
# > **Predict.** 8 ranks reduce the gradient of our model, 0.94 MB. Which way needs the fewest rounds? Which sends the
# > fewest bytes in all? And in which does the busiest rank send the least?


# %%
def traffic_of(algorithm, world_size):
    """The messages of an all_reduce of as many float32 as the model has weights."""
    traffic = Traffic()
    all_reduce([torch.ones(weights) for _ in range(world_size)], "mean", algorithm, traffic)
    return traffic


rows = {}
for algorithm in ("naive", "tree", "ring"):
    traffic = traffic_of(algorithm, 8)
    counts = traffic.rounds, len(traffic.messages), traffic.bytes / 1e6, traffic.busiest_bytes / 1e6
    rows[algorithm] = counts

columns = ["rounds", "messages", "MB in all", "MB sent by the busiest rank"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(2)

# %% [markdown]
# All three send the same number of bytes in all. But ranks send at the same time, so what counts is how much the
# busiest one has to send.
#
# > **Predict.** Sketch how the last column grows from 2 ranks to 16, for each of the three.
#
# The formulae, for S bytes on N ranks:
#
# | | rounds | messages | sent by the busiest rank |
# |---|---|---|---|
# | naive | 2 (N - 1) | 2 (N - 1) | (N - 1) S |
# | tree | 2 ⌈log₂ N⌉ | 2 (N - 1) | ⌈log₂ N⌉ S |
# | ring | 2 (N - 1) | 2 (N - 1) N | 2 (N - 1) / N · S |

# %%
FORMULAE = {
    "naive": lambda ranks: ranks - 1,
    "tree": lambda ranks: math.ceil(math.log2(ranks)),
    "ring": lambda ranks: 2 * (ranks - 1) / ranks,
}
rows = [
    (algorithm, ranks, traffic_of(algorithm, ranks).busiest_bytes, 4 * weights * formula(ranks))
    for algorithm, formula in FORMULAE.items()
    for ranks in (2, 3, 4, 6, 8, 12, 16)
]
costs = pd.DataFrame(rows, columns=["algorithm", "world_size", "counted", "formula"])
display_figure(plots.collective_costs(costs))

# %% [markdown]
# <details>
# <summary><b>So is the ring always best?</b></summary>
#
# For large tensors, yes: on any number of ranks, no rank sends more than 2 S. Each of the other two has a busiest
# rank that sends more and more.
#
# But a ring on N ranks needs 2 (N - 1) rounds, and each round costs at least the *latency* of a link, the time until
# even the smallest message arrives. On 16 ranks a tree needs 8 rounds, and a ring 30. So for small tensors on many
# ranks a tree is faster. NCCL knows both, and chooses by the size of the tensor and the number of ranks.
#
# `sync_grads` takes the naive way: with 2 replicas the busiest sends S bytes in all three, and naive has the fewest
# messages. With 8 GPUs a ring would be better.
#
# It is also why gradients are sent in **buckets**: one `all_reduce` for the gradients of many layers costs the
# latency once, not once a layer.
#
# </details>

# %% [markdown]
# ## 6. The whole step
#
# `data_parallel_step` puts everything together:
#
# 1. deal the batch to the replicas (`pre_shard_hook` may change it before);
# 2. on every queue, at the same time: bring the shard to the device, forward, backward;
# 3. `sync_grads`, by the sizes of the shards (`post_sync_hook`: the place to clip gradients);
# 4. for every replica: the optimizer's step, with the same gradient everywhere (on GPUs side by side, on CPUs one
#    after the other); then forget the gradient (`post_step_hook`: the place for learning-rate schedules).
#
# It returns the mean loss over the whole batch, and when each replica was doing what.
#
# **The learning rate.** Each replica takes 128 images, so the batch grows with the number of replicas. The linear
# rule of the first lesson takes a learning rate as many times as high, after a warm-up of half an epoch.
#
# **Pinned memory.** The operating system may move ordinary memory elsewhere, so a GPU cannot read it by itself: the
# CPU first has to make another copy. *Pinned* memory stays where it is. With `non_blocking=True` a
# GPU fetches a batch from it while the program goes on. Pinning takes time and memory itself, so we pin where there
# is a GPU to fetch something, and only there: here the images of a whole epoch, in their new order. A batch is a
# slice of them, and a shard a slice of that.

# %%
BATCH_SIZE, EPOCHS, LR = 128, 2, 1e-3
global_batch_size = BATCH_SIZE * world_size
steps_per_epoch = math.ceil(len(train_set) / global_batch_size)
peak = scaled_lr(LR, "linear", global_batch_size, BATCH_SIZE)


def batches(epoch):
    """The batches of one epoch, each image once, in an order that depends on the epoch alone."""
    sampler = data.Sampler(len(train_set), seed=0)
    sampler.set_epoch(epoch)
    images, labels = train_set.batch(sampler.order())
    images = images.double()
    if on_gpus:
        images, labels = images.pin_memory(), labels.pin_memory()
    return zip(images.split(global_batch_size), labels.split(global_batch_size), strict=True)


def warm_up(optimizer):
    """The schedule that lets the learning rate rise to its peak over half an epoch."""
    steps = steps_per_epoch // 2
    return LambdaLR(optimizer, lambda step: lr_factor(step, EPOCHS * steps_per_epoch, steps, "constant"))


def accuracy(model):
    """The share of the test images that it gets right."""
    model = copy.deepcopy(model).float().cpu()
    correct, _, count = evaluate(model, test_set, torch.arange(len(test_set)), 500).tolist()
    return correct / count


print(f"{steps_per_epoch} steps an epoch, {global_batch_size} images each; learning rate {LR:g}, at its peak {peak:g}")

# %% [markdown]
# Here is training on one device, as you know it, and on all of them. Both take the same batches, with the same
# learning rates; in float64 again, so that they can be compared to the last digit.


# %%
def train_plain():
    """One model on one device, with the whole batch."""
    device = queues[0].device
    one = copy.deepcopy(model).double().to(device)
    optimizer = AdamW(one.parameters(), lr=peak)
    schedule = warm_up(optimizer)
    for epoch in range(EPOCHS):
        for images, labels in batches(epoch):
            loss = forward(one, images.to(device), labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return one, loss.item()


def train_replicas():
    """The same on a replica for each queue."""
    replicas = prepare_replicas(copy.deepcopy(model).double(), queues)
    optimizers = [AdamW(replica.parameters(), lr=peak) for replica in replicas]
    schedules = [warm_up(optimizer) for optimizer in optimizers]

    def advance(replicas):
        for schedule in schedules:
            schedule.step()

    for epoch in range(EPOCHS):
        for batch in batches(epoch):
            loss, _ = data_parallel_step(forward, replicas, optimizers, batch, post_step_hook=advance)
    check_in_sync(replicas)
    return replicas, optimizers, loss


# %% [markdown]
# > **Predict.** Which of the two has the better accuracy on the test images, and why?

# %%
one, loss_of_one = train_plain()
replicas, optimizers, loss_of_all = train_replicas()

trained = {"one device": (one, loss_of_one), f"{world_size} replicas": (replicas[0].module, loss_of_all)}
rows = {name: (accuracy(module), loss) for name, (module, loss) in trained.items()}
pd.DataFrame.from_dict(rows, orient="index", columns=["accuracy", "loss of the last batch"])

# %%
pairs = zip(one.parameters(), replicas[0].parameters(), strict=True)
apart = max((mine.detach().cpu() - other.detach().cpu()).abs().max().item() for mine, other in pairs)
print(f"The largest difference between two weights is {apart:.1e}.")

# %% [markdown]
# <details>
# <summary><b>Why are they the same?</b></summary>
#
# Since they do the same. The weighted mean of the gradients *is* the gradient of the whole batch, also for the last
# batch of an epoch, which is smaller. All replicas started with the same weights and took the same steps, so
# `check_in_sync` found them the same, bit for bit, without their weights ever having been sent.
#
# Between one device and many, only rounding is left: numbers are added up in another order. In float32 it would be
# larger, and could grow from step to step.
#
# This is what to test in your own programs: **many devices must equal one device with the whole batch**. It holds
# with dropout off. With dropout each replica draws random numbers of its own, as it should.
#
# </details>

# %% [markdown]
# ### When replicas drift apart
#
# Nothing sends the weights around. They stay the same because the replicas do the same. Now one does not: somebody
# changes the learning rate of *one* optimizer, and takes a step.
#
# `broadcast_params` repairs that: it copies the weights of replica 0 to all others, along a tree.
#
# > **Predict.** What does `check_in_sync` say after the step? After `broadcast_params`? And after one more step?


# %%
def state():
    """What a comparison of the replicas' weights says, in a word."""
    try:
        check_in_sync(replicas)
    except OutOfSyncError:
        return "they differ"
    return "the same"


batch = next(batches(epoch=EPOCHS))
right_lr = optimizers[0].param_groups[0]["lr"]

states = {}
optimizers[1].param_groups[0]["lr"] = 2 * right_lr
data_parallel_step(forward, replicas, optimizers, batch)
states["after a step with two learning rates"] = state()
broadcast_params(replicas)
states["after broadcast_params"] = state()
data_parallel_step(forward, replicas, optimizers, batch)
states["after one more step"] = state()
optimizers[1].param_groups[0]["lr"] = right_lr
broadcast_params(replicas)
data_parallel_step(forward, replicas, optimizers, batch)
states["with the cause mended, after a broadcast and one more step"] = state()

pd.Series(states, name="weights of the replicas").to_frame()

# %% [markdown]
# <details>
# <summary><b>Is it a good idea to broadcast after every step?</b></summary>
#
# Some programs do: with `post_step_hook=broadcast_params`, the replicas are always alike. But it sends all weights in
# every step, half as many bytes again as the exchange of the gradients. And it hides the mistake. After the
# broadcast the cause was still there: the weights were the same again, the learning rates were not.
#
# Better broadcast once, at the start, and *compare* from time to time, as the trainers of this course do after each
# epoch.
#
# </details>

# %% [markdown]
# ## 7. When does each replica compute?
#
# So far it was right. Is it also fast? `data_parallel_step` returned when each replica was in which phase.
#
# > **Predict.** Sketch two steps: a lane for each replica, and one for what is done for all of them. Which boxes lie
# > side by side? Where does a replica wait?


# %%
def some_steps(batch_size, queues=queues, **options):
    """Ten steps with `batch_size` images for each replica, in float32."""
    replicas = prepare_replicas(model, queues)
    optimizers = [AdamW(replica.parameters(), lr=LR) for replica in replicas]
    chosen = torch.arange(batch_size * len(queues)) % len(train_set)
    batch = train_set.batch(chosen)
    return [data_parallel_step(forward, replicas, optimizers, batch, **options) for _ in range(10)]


def seconds_of(times):
    """From the first start to the last end."""
    return max(each.start + each.seconds for each in times) - min(each.start for each in times)


def two_steps(results):
    """When each replica was in which phase: of two steps in a row, the two that took the shortest time."""
    return min((first.times + second.times for first, second in pairwise(results)), key=seconds_of)


title = "Two steps, 128 images for each replica"
display_figure(plots.replica_timeline(two_steps(some_steps(128)), timing, title))

# %% [markdown]
# <details>
# <summary><b>What do you see?</b></summary>
#
# Forward and backward lie side by side. `sync` begins when the slowest replica has finished backward: the others wait
# for it, and then all wait for the exchange. After it come the optimizers, on CPUs one after the other. `data` is a
# hairline at most, since on a CPU nothing must be copied. (Shown are the fastest two steps in a row, of ten.)
#
# </details>
#
# Now with 16 times as many images for each replica, so that there is more to compute between two exchanges:

# %%
title = "Two steps, 2,048 images for each replica"
display_figure(plots.replica_timeline(two_steps(some_steps(2048)), timing, title))

# %% [markdown]
# `sync` waits until the last replica has finished backward. But the gradient of the last layer is there long before
# that of the first one. With `overlap=True` each bucket is exchanged as soon as all replicas have its gradients,
# while backward goes on. Our model fits into one bucket of 25 MB, the usual size. So we take one of 137,000 bytes.
#
# Buckets are filled in the order of backward, the last layer first. A parameter that does not fit begins the next
# bucket, and none is ever cut. In this order, our parameters have 40, 5,120, 512, 131,072, 1,024 and 802,816 bytes
# (bias and weight of the third layer, of the second, and of the first).
#
# > **Predict.** How many `sync` boxes are there now in each step? Which of them can start long before backward ends?

# %%
results = some_steps(2048, overlap=True, bucket_bytes=137_000)
title = "Two steps with overlap, 2,048 images for each replica"
display_figure(plots.replica_timeline(two_steps(results), timing, title))

# %% [markdown]
# <details>
# <summary><b>What can it gain?</b></summary>
#
# Three a step; the second has only 1,024 bytes, and is a hairline just before the third. The first bucket has the
# third and the second layer, 136,744 bytes. The bias of the first layer does
# not fit any more, and its weight does not fit beside that. Only the first bucket can start early: bias and weight of
# the first layer get their gradients together, and these are the last thing that backward computes. So in this model
# most of the bytes have next to nothing left to overlap with. In a model of many layers of similar size nearly all of
# them have.
#
# Overlap never changes the result, only the time at which a bucket is sent. It gains nothing where the exchange is
# short beside the rest. And on CPU cores that are all busy, an early exchange takes time from a replica that computes:
# it lasts longer, and the step may even get slower.
#
# </details>
#
# > **Predict.** How many times as many images a second do all replicas take, compared with one? For 128 images each,
# > and for 2,048?


# %%
def images_per_second(batch_size, queues):
    """From the fastest of ten steps: whatever else the machine did can only have slowed the others down."""
    fastest = min(seconds_of(result.times) for result in some_steps(batch_size, queues))
    return batch_size * len(queues) / fastest


rows = {
    f"{batch_size:,} images each": [images_per_second(batch_size, some) for some in (queues[:1], queues)]
    for batch_size in (128, 2048)
}
rates = pd.DataFrame.from_dict(rows, orient="index", columns=["1 replica", f"{world_size} replicas"])
rates = rates.assign(speedup=rates.iloc[:, 1] / rates.iloc[:, 0])
print(f"Images a second, {timing}.")
rates.round({"1 replica": -2, f"{world_size} replicas": -2, "speedup": 2})

# %% [markdown]
# <details>
# <summary><b>What decides the speedup?</b></summary>
#
# First, what is *not* done side by side. The exchange is done once for all, after the last backward; on CPUs the
# optimizers take turns as well. Both take as long for few images as for many. With few images they are a large part of
# a step, with many a small one.
#
# Second, Python. However many threads there are, only **one at a time** runs Python (the *global interpreter lock*).
# A thread lets go of it while PyTorch computes, so it matters where computations are short. An optimizer is many tiny
# ones: two at once would be slower than one after the other. With many images PyTorch computes for long, and the
# replicas are truly side by side, if there are cores or GPUs for all of them.
#
# The fastest of ten steps shows what is possible, not what a run would get. For that, measure whole runs, with
# repeats, as the first lesson does.
#
# </details>

# %% [markdown]
# ## 8. What DDP does differently
#
# You have built, in plain sight, what `DistributedDataParallel` does. It differs in this:
#
# | | by hand, here | DDP |
# |---|---|---|
# | a device has | a thread | a **process**, with a Python of its own, also on another machine |
# | start | `prepare_replicas` copies | rank 0 broadcasts its weights, once |
# | data | one program cuts the batch into shards | each rank takes its own share of the data |
# | gradients | weighted by shard size | **plain mean** over the ranks |
# | exchange | all to one and back, through the process's memory | an `all_reduce` of NCCL or gloo, on real links |
# | buckets | 25 MB, with `overlap=True` during backward | the same; only the first one is smaller, to start early |
# | a failure before the step | no replica takes it | the other ranks wait, until a timeout or a launcher ends them |
#
# Look at the fourth line again, and at section 4. With shards of different size DDP takes the wrong mean, and does
# not warn. Read in [ddp.py](../course_lib/training/ddp.py) what step 5 does about it: it scales each rank's loss such
# that the plain mean becomes the weighted one.
#
# ### Your turn
#
# 1. **Lost labels.** What does `shard_batch((images[:5], labels[:4]), 2)` do?
# 2. **A bad image.** Make a batch of 8 (`bad = images[:8].double()`), set `bad[7]` to `float("nan")`, and take a step
#    on all replicas with `(bad, labels[:8])`. Predict: which replicas have weights that are not a number afterwards?
# 3. **Dropout.** Take `models.MLP()` without `.eval()` in section 2, and run section 6 again. What becomes of
#    the comparison, and is `check_in_sync` still content?
# 4. **Another rule.** The linear rule was found for SGD. For Adam, Malladi et al. (2022, arXiv 2205.10330) derive the
#    square root. Train with `"sqrt"` instead of `"linear"`, and compare the accuracy. Which difference would convince
#    you?
#
# <details>
# <summary><b>Answers</b></summary>
#
# 1. It raises a `BatchError` that names both lengths. Cut silently, image 4 would get no label, or a wrong one.
# 2. None. The gradient of the replica with image 7 is not finite, and in the mean it would spoil all of them. So the
#    step is refused with a `ReplicaError` that names the replica and the parameter, and no replica moves.
# 3. Replicas and the one device now drop different units, so their weights and accuracies differ. Still
#    `check_in_sync` is content: each replica has another gradient *before* `sync_grads`, and all have the same one
#    after it. (Without `eval()` it is also another model: one with dropout.)
# 4. One run of each decides nothing: with another seed the order may be the other way round. Repeat both with several
#    seeds, and compare the difference with how much the runs of one rule differ among themselves. And if you choose
#    the rule by these images, report the accuracy on others.
#
# </details>
#
# ## Where to go next
#
# - Read [replicas.py](../course_lib/training/replicas.py), which you have used all the time, and
#   [gradient_sync.py](../course_lib/training/gradient_sync.py), with the buckets.
# - [reductions.py](../course_lib/training/reductions.py) has the three ways of an `all_reduce`, each in about ten
#   lines.
# - [The Scaling Lab](05_scaling_lab.ipynb): what an exchange costs in real runs, and what a larger batch does.
# - Go back to [the first lesson](01_one_gpu_to_many.ipynb), and find each section of this one in `ddp.py`.

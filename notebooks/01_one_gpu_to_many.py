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
# # From one GPU to many
#
# A program that trains on one device needs **six changes** to train on many. In this lesson you read them, launch
# both programs, watch them learn, and measure what a second device is worth.
#
# After it you can
# - say what a *rank* is, and what `rank`, `local_rank` and `world_size` mean,
# - turn a training loop for one device into one for many, with PyTorch's `DistributedDataParallel`,
# - predict how many steps an epoch takes on N devices, and what happens to the batch and the learning rate,
# - measure a speedup, and say what a single measurement is worth.
#
# It takes about 45 minutes. Run the cells from top to bottom (Shift+Enter) and **predict before you run**: a wrong
# guess teaches more than a right answer that you only read. Every cell may be run again.
#
# What stands below the cells so far comes from another machine: choose **Kernel > Restart Kernel and Clear Outputs of
# All Cells…** if you want to predict first.

# %%
from course_lib.runs.launch import launch, warm_up

warm_up()  # a helper process loads PyTorch while you read; ranks are copies of it

import time
from datetime import timedelta
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist
from IPython.display import display

from course_lib.config import RunConfig
from course_lib.lab import plots
from course_lib.lab.display import display_figure
from course_lib.lab.watch import watch
from course_lib.runs import store
from course_lib.runs.devices import core_count, gpu_count
from course_lib.training import data, ddp, schedules, single

# What this lesson records goes here.
folder = Path("runs") / time.strftime("lesson-01-%Y%m%d-%H%M%S")
folder.mkdir(parents=True, exist_ok=True)
runs, predictions = [], {}

# %% [markdown]
# ## 1. The devices of this machine
#
# Each GPU gets a process of its own. Such a process is called a **rank**. The number that it has is called its `rank`,
# too. `world_size` is how many ranks there are.
#
# You have no GPUs? Then CPU cores stand in for them: **one core is one device**. The program stays the same, only the
# ranks talk through another library (*gloo* instead of NVIDIA's *NCCL*). All that you learn about steps, batches and
# accuracy holds on GPUs as well. Times do not: a core computes more slowly, and cores share one memory. So each
# figure says how its times came about, *measured on GPUs* or *measured on CPU ranks*, and never mixes the two.

# %%
if gpu_count() >= 2:
    many, model = gpu_count(), {"device": "cuda", "model": "wrn-16-4"}
else:
    many, model = 2, {"device": "cpu", "model": "small_cnn"}
    model |= {"data": "subset", "train_samples": 6_000}

print(f"This machine has {core_count()} CPU cores and {gpu_count()} GPUs.")
print(f"So the lesson compares 1 rank with {many}, on device {model['device']!r}.")

# %% [markdown]
# ## 2. A function on four ranks
#
# `launch` runs a function once on every rank, each in its own process. Any function will do that takes `config` and
# `worker`, also one that you have just written in a cell. `worker` tells it who it is:
#
# | | what it is | on 2 nodes with 4 GPUs each |
# |---|---|---|
# | `worker.rank` | its number among all ranks | 0 … 7 |
# | `worker.world_size` | the number of ranks | 8 |
# | `worker.local_rank` | its number on its node; it chooses the GPU | 0 … 3, on each node |
#
# Ranks share no variables. They exchange tensors in **collectives**: operations that all ranks call together.
# `all_reduce` adds up one tensor from each rank, and gives the sum to every rank.
#
# > **Predict.** Each of 4 ranks brings its `rank + 1`. What does rank 0 print? And rank 3?


# %%
def hello(config, worker):
    """Add up a number of each rank, on every rank."""
    dist.init_process_group(
        worker.backend,
        init_method=worker.init_method,
        rank=worker.rank,
        world_size=worker.world_size,
        timeout=timedelta(seconds=config.collective_timeout),
    )
    number = torch.tensor(worker.rank + 1.0)
    dist.all_reduce(number)
    print(f"I am rank {worker.rank} of {worker.world_size}. The sum is {number:g}.")
    return number.item()


run = launch(hello, RunConfig(num_gpus=4, device="cpu"))
run.wait()
for rank in range(4):
    print(run.log(rank), end="")

# %% [markdown]
# <details>
# <summary><b>Why?</b></summary>
#
# 1 + 2 + 3 + 4 = 10, and every rank prints the same: after an `all_reduce` all of them have the same tensor. That is
# all that data-parallel training needs: each rank brings its own gradient, and every rank gets the sum.
#
# `launch` returned at once. `wait` waited until the run was over, and returned what rank 0 had returned. Four ranks run
# on any machine. If it has fewer cores they take turns, so their times would mean nothing.
#
# </details>

# %% [markdown]
# ## 3. Six steps from one device to many
#
# [single.py](../course_lib/training/single.py) trains on one device. Open it and read `train` from top to bottom; its
# heart is the loop that you know:
#
# ```python
# for images, labels in batches:
#     loss = cross_entropy(model(images), labels)  # forward
#     loss.backward()                              # backward
#     optimizer.step()                             # and the weights move
# ```
#
# [ddp.py](../course_lib/training/ddp.py) trains on many.
#
# > **Predict.** Which parts of `train` must change? Write down three before you run the next cell.
#
# It compares the two functions with Python's `difflib`. Where it says "the same", both have exactly the same lines.

# %% jupyter={"source_hidden": true}
import difflib
import inspect
from html import escape

LOOKS = {
    "step": "color:#ffffff;background-color:#116329;font-weight:bold",
    "added": "color:#0b3d1a;background-color:#dafbe1",
    "same": "color:#424a53;background-color:#ffffff",
}
# A line that is too long goes on under its own beginning.
LINE = '<span style="display:block;padding-left:{0}ch;text-indent:-{0}ch;{1}">{2}</span>'
PAGE = """<pre style="line-height:1.45;padding:8px;background-color:#ffffff;
border:1px solid #8c959f;white-space:pre-wrap;word-break:normal">{}</pre>"""


def difference(before, after):
    """The lines of `after`, with a + where they are new; of what is the same, only
    the first and the last line."""
    before, after = (inspect.getsource(each).splitlines() for each in (before, after))
    # Without indentation: what stands in a new `with` has only moved to the right.
    bare = [[line.strip() for line in lines] for lines in (before, after)]
    matcher = difflib.SequenceMatcher(None, *bare, autojunk=False)
    for what, *_, start, end in matcher.get_opcodes():
        lines = after[start:end]
        if what == "equal":
            rest = len(lines) - 2
            between = lines[1:-1] if rest < 2 else [f"    ⋯ {rest} lines, the same ⋯"]
            lines = [lines[0], *between, *lines[1:][-1:]]
        yield from (("  " if what == "equal" else "+ ") + line for line in lines)


def as_html(lines):
    look, html = "same", []
    for line in lines:
        in_comment = look == "step" and line[1:].strip().startswith("#")
        is_step = "# DDP step" in line or in_comment
        look = "same" if line[0] == " " else "step" if is_step else "added"
        indent = 4 + len(line[1:]) - len(line[1:].lstrip())
        html.append(LINE.format(indent, LOOKS[look], escape(line)))
    return PAGE.format("".join(html))


lines = list(difference(single.train, ddp.train))
display({"text/html": as_html(lines), "text/plain": "\n".join(lines)}, raw=True)

# %% [markdown]
# **Step 1, one process for each GPU.** `launch` starts `world_size` processes, and each runs the whole of `train`. They
# differ in one number only: the `rank`. (On a cluster, PyTorch's `torchrun` starts them. The function stays as it is.)
#
# **Step 2, join the process group.** From here on, collectives work. A rank waits here until all ranks have joined, and
# `timeout` says how long it waits for one that never does.
#
# **Step 3, choose the device.** `worker.device` was made from the `local_rank`, since that one counts the GPUs of a
# node. Without `set_device` every rank would also take memory on GPU 0. On the CPU there is nothing to choose.
#
# **Step 4, deal the data.** All ranks shuffle with the same seed, so all have the same order, and rank r takes
# the images r, r + `world_size`, r + 2 `world_size`… Each image is seen once an epoch, by one rank. The test set is
# dealt as well.
#
# **Step 5, wrap the model.** `DistributedDataParallel` gives all ranks the same weights to start from. During
# `backward` it averages the gradients of all ranks, one bucket of layers after the other, while earlier layers
# are still computing. Every optimizer then gets the same gradient and takes the same step, so the weights stay the same
# and are never sent again. The rest of step 5 keeps that average exact when a batch is taken in several passes
# (`no_sync`) or cannot be split evenly.
#
# **Step 6, reduce the metrics.** Each rank has counted its own share of the test set. The counts are added up and
# divided once, which is exact; an average of averages is not when shares differ. And one rank speaks for all, or every
# line would be reported `world_size` times.

# %% [markdown]
# ## 4. Predict
#
# This is the run that you are going to launch. `batch_size` is the number of images that **one rank** takes at a time.

# %%
config = RunConfig(**model, batch_size=128, lr=0.01, lr_rule="linear", epochs=3)

train_set, test_set = data.load(config.data, config.device, config.train_samples)
print(f"{config.model} learns from {len(train_set):,} images of Fashion-MNIST,")
print(f"{config.batch_size} at a time on each rank,")
print(f"and is tested on {len(test_set):,} others.")

# %% [markdown]
# The accuracy on those others is called **validation accuracy** (`val_accuracy`) here. No run learns from them, and
# this lesson chooses nothing by them. If you choose, say, a learning rate by validation accuracy, keep a third set of
# images for the result that you report.
#
# > **Predict.** How many steps of the optimizer are in an epoch on 1 rank? How many on many ranks, when each still
# > takes 128 images at a time? And how many times as many images a second will many ranks take?
#
# Write your numbers in place of `None`. Nobody sees them.

# %%
predictions = {
    "steps in an epoch on 1 rank": None,
    f"steps in an epoch on {many} ranks": None,
    f"speedup on {many} ranks": None,
}

# %% [markdown]
# <details>
# <summary><b>How to work out the steps</b></summary>
#
# A step on N ranks takes `global_batch_size` = 128 N images, so an epoch has (images / 128 N) steps, rounded up: the
# last step takes what is left. Without GPUs the lesson has 6,000 images: 47 steps on 1 rank, 24 on 2.
#
# So each rank does the same work in a step as before, but there are only 1/N as many steps. If a step on N ranks took
# no longer than on one, the speedup would be N. Does it take longer?
#
# </details>

# %% [markdown]
# ## 5. Run
#
# Two runs, one after the other: two at once would slow each other down. The first is on one rank. The cell waits until
# the run has ended. Its view follows the run meanwhile, and **Stop** ends it.

# %%
out = folder / f"run-{len(runs) + 1}"
run = launch(single.train, config, out)
runs.append(run)
display(watch(run))
run.wait()["val_accuracy"]

# %% [markdown]
# Now on many ranks: with another function, and one other number in the config. On a computer with two cores, two ranks
# need both of them, so do not use other programs for a moment.
#
# > **While it runs.** Which of the two curves falls faster *with each step*? Which has more steps?

# %%
out = folder / f"run-{len(runs) + 1}"
run = launch(ddp.train, config.with_(num_gpus=many), out)
runs.append(run)
display(watch(*runs[-2:]))
run.wait()["val_accuracy"]

# %% [markdown]
# ## 6. Compare
#
# Every run has recorded its config, its machine and each of its steps in a folder. `store.frame` reads the folders of
# both runs: one row a run. A run that you stopped has a row without results. Where `speed_caveats` says something, it
# is why the times of that run are no measurement of speed.

# %%
frame = store.frame(folder)
shown = ["run", "status", "world_size", "global_batch_size", "steps", "val_accuracy"]
shown += ["images_per_sec", "speedup", "efficiency", "speed_caveats"]
frame[shown].set_index("run").round(3).astype(object).fillna("–")

# %%
display_figure(plots.speedup(store.frame(folder)))

# %% [markdown]
# **Speedup** is images a second on N ranks, divided by images a second on 1. **Efficiency** is speedup divided by N:
# how much of each device is still put to use. How near was your prediction?

# %%
finished = store.frame(folder).query("status == 'finished'")
of_ranks = finished.groupby("world_size")[["steps", "speedup"]].median()
of_ranks = of_ranks.reindex([1, many]).round(2)
measured = {
    "steps in an epoch on 1 rank": of_ranks.steps[1] / config.epochs,
    f"steps in an epoch on {many} ranks": of_ranks.steps[many] / config.epochs,
    f"speedup on {many} ranks": of_ranks.speedup[many],
}
both = pd.DataFrame({"you predicted": predictions, "measured": measured})
compared = finished[finished["speedup"].notna()]
if caveats := "; ".join(sorted(set(compared["speed_caveats"]) - {""})):
    both.loc[f"speedup on {many} ranks", "not a measurement of speed"] = caveats
both.astype(object).fillna("–")

# %% [markdown]
# > **Predict.** A step has four parts: data, forward, backward, optimizer. One of them must have grown. Which, and why?

# %%
display_figure(plots.time_split(store.frame(folder)))

# %% [markdown]
# <details>
# <summary><b>Why is the speedup not N?</b></summary>
#
# The gradients are exchanged during **backward**, so this part pays for it: first with the exchange itself, then with
# waiting, since a step ends when the *slowest* rank has its gradient. What the exchange costs depends on the number of
# weights, not on the batch, so a larger batch per rank makes it matter less.
#
# On CPU ranks there is more: cores share caches and memory, and run at a lower clock speed when many of them are busy.
# On a machine with few cores, the live view also took some time of a core on which a rank was computing. This is what
# *measured on CPU ranks* warns of. GPUs have a memory each and fast links between them. But they compute so fast that
# the exchange matters there as well.
#
# </details>
#
# Speed is worth nothing if the model gets worse.
#
# > **Predict.** Which run has the better validation accuracy after 3 epochs? And after the same number of seconds?

# %%
display_figure(plots.accuracy_against_epoch(store.epochs(folder)))

# %%
display_figure(plots.accuracy_against_seconds(store.epochs(folder)))

# %% [markdown]
# <details>
# <summary><b>Why do they differ?</b></summary>
#
# Both runs saw the same images equally often. But on N ranks the weights moved 1/N as often, each time by a gradient
# averaged over N times as many images. The config asks for steps N times as long in return (`lr_rule`, section 7), and
# that makes up for most of it, but not for all. Early in training the gradient changes with every step, so N short
# steps, each in a new direction, are worth more than a long one. That costs accuracy *per epoch*.
#
# What counts is accuracy *per second*, the second figure. Images a second may have gone up, and still one rank may
# lead: with few images, an epoch on many ranks has very few steps. So a speedup in images a second is only half of the
# story. The other half is how well training works with a larger batch, and that is where the learning rate comes in.
#
# </details>
#
# ## 7. The batch grows, and the learning rate with it
#
# This table shows the batch and the steps on more and more ranks, and the learning rate that each rule gives.


# %%
def plan(world_size):
    """The global batch, the steps and the learning rates on so many ranks."""
    batch_size = config.batch_size
    global_batch_size = batch_size * world_size
    sampler = data.Sampler(len(train_set), config.seed).shard(0, world_size)
    row = {
        "world_size": world_size,
        "global_batch_size": global_batch_size,
        "steps in an epoch": sampler.steps_per_epoch(batch_size, 1),
    }
    for rule in ("none", "sqrt", "linear"):
        lr = schedules.scaled_lr(config.lr, rule, global_batch_size, batch_size)
        row[f"lr, rule {rule!r}"] = lr
    return row


pd.DataFrame(map(plan, (1, 2, 4, 8))).set_index("world_size").round(3)

# %% [markdown]
# We kept the batch **per rank**, so the global batch grew with the number of ranks. This is **weak scaling**: every
# device keeps the same amount of work in a step, and there are fewer steps. In **strong scaling** the global batch
# stays the same and each of N ranks takes 1/N of it: the same training, step by step, but with less work for each
# device between two exchanges.
#
# With 1/N as many steps of the same length, the weights would move only 1/N as far. So the **linear rule** (Goyal et
# al., 2017) takes a learning rate N times as high, with a **warm-up** over the first half epoch, since such long steps
# are too much for weights that are still random. The *square root* rule is more careful. In the config, `lr` is the
# rate for one rank, and `lr_rule` works out the rate in use; the title of a live view shows both. No rule holds for
# every N: beyond some batch size accuracy falls, whatever the rate. And the rate that a rule gives must still be one at
# which training goes well. Exercise 2 shows a rate that the linear rule makes better, and one that it makes worse.
#
# ### What one pair of runs is worth
#
# Run the two cells of section 5 again, then those of section 6: you get another speedup. Perhaps another program was
# busy, or the machine was warmer. **One pair of runs is one measurement, not a result.** A claim needs repeats and an
# interval. A *sweep* gives you both:
#
# ```python
# from course_lib.runs.sweep import Sweep, run_sweep
#
# def tell(progress):
#     print(f"\r{progress.done} of {progress.total} runs are over", end="")
#
# sweep = Sweep(config, num_gpus=(1, many), repeats=5)
# display_figure(plots.speedup(run_sweep(ddp.train, sweep, "runs/my-sweep", tell)))
# ```
#
# It makes 2 x 5 runs, one after the other, which takes as long as running the two cells of section 5 five times:
# about a minute on two cores.

# %% [markdown]
# ## 8. `DataLoader` and `DistributedSampler`: as you will see it elsewhere
#
# Most programs use two classes of PyTorch to deal the data (step 4):
#
# ```python
# sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
# loader = DataLoader(dataset, batch_size, sampler=sampler, pin_memory=True)
#
# for epoch in range(epochs):
#     sampler.set_epoch(epoch)
#     for images, labels in loader:
#         images = images.to(device, non_blocking=True)
# ```
#
# Four things to remember.
# - `batch_size` is per rank here, too.
# - Without `set_epoch` every epoch has the same order, and no error tells you.
# - *Pinned* memory is never swapped out, so a GPU can fetch the next batch from it (`non_blocking`) while it computes.
# - `DistributedSampler` repeats images until all ranks have equally many. A *test* set dealt by it gives an accuracy
#   that is slightly wrong.
#
# Our trainers use neither. Fashion-MNIST is small enough to lie on the device as a whole, and a batch is one
# `index_select`.
#
# > **Predict.** How many times as many images a second does that load?
#
# Any function can be launched, so we measure it where it matters: on the ranks.


# %%
def images_per_second(batches, device):
    """How fast batches come if they only have to be brought to the device."""
    began, count = time.perf_counter(), 0
    for images, labels in batches:
        images.to(device, non_blocking=True)
        labels.to(device, non_blocking=True)
        count += len(labels)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return count / (time.perf_counter() - began)


def load_twice(config, worker):
    """The same share of the data, loaded both ways: the best of five epochs."""
    rank, world_size, size = worker.rank, worker.world_size, config.batch_size
    images, _ = data.load(config.data, worker.device, config.train_samples)
    loader, usual = data.as_dataloader(images, size, rank, world_size, config.seed)
    ours = data.Sampler(len(images), config.seed, worker.device).shard(rank, world_size)
    best = {"DataLoader with DistributedSampler": 0.0, "an index into a tensor": 0.0}
    for epoch in range(5):
        usual.set_epoch(epoch)
        ours.set_epoch(epoch)
        steps = ours.steps(size, accumulation_steps=1)
        by_index = (images.batch(part) for step in steps for part in step.micro_batches)
        for name, batches in zip(best, (loader, by_index), strict=True):
            best[name] = max(best[name], images_per_second(batches, worker.device))
    return best


best = launch(load_twice, config.with_(num_gpus=many)).wait()
pd.Series(best, name="images a second, on each rank").round(-3).to_frame()

# %% [markdown]
# <details>
# <summary><b>Where does the time go?</b></summary>
#
# A `DataLoader` takes images out of the dataset one by one, in Python, and stacks them into a batch. For photographs
# that must be read, decoded and cropped this is a small part of the work, and `num_workers` processes do it ahead of
# time. For an image of 784 bytes it is nearly all of the work.
#
# Does it matter? Compare with `images_per_sec` in section 6. A CPU core trains so slowly that loading hardly matters. A
# GPU that trains on more images a second than the loader brings would wait for data most of the time. In the figure of
# the parts of a step, *data* must stay small beside the rest, on any number of ranks.
#
# </details>

# %% [markdown]
# ## 9. Your turn
#
# **1. Strong scaling.** Launch `ddp.train` with
# `config.with_(num_gpus=many, batch_size=128 // many, lr_rule="none")`. Predict: how many steps does an epoch take now?
# Which accuracy will the run reach? And why must `lr_rule` be "none" here?
#
# <details>
# <summary><b>Why?</b></summary>
#
# As many steps as on 1 rank, since the global batch is 128 again: it is the same training, step by step. So the
# learning rate must stay the same, too. A rule compares the global batch with the batch of one rank, and would raise
# it.
#
# Yet the accuracy is not the same to the last digit. N ranks add up the same numbers in another order, and round
# differently; each step starts from weights that differ a little more, and such differences grow. Here the accuracies
# agree to a few tenths of a percent. At higher learning rates, where differences grow faster, it can be a few percent.
#
# </details>
#
# **2. No rule.** Train on many ranks with `lr_rule="none"`, and the batch size of section 5. What does it cost? Then
# train there with `lr=0.05` in place of 0.01, once by each rule. What does the linear rule cost now?
#
# <details>
# <summary><b>Why?</b></summary>
#
# Without GPUs, so on 2 ranks, with three seeds:
#
# | | 1 rank | 2 ranks, "linear" | 2 ranks, "none" |
# |---|---|---|---|
# | `lr=0.01` | 82.6 to 84.1 % | 81.2 to 82.7 % | 78.6 to 80.6 % |
# | `lr=0.05` | 83.3 to 84.7 % | 69.9 to 81.8 % | 81.2 to 82.4 % |
#
# A rate of 0.01 is rather low here. Without the rule, half as many steps move the weights half as far, and that costs
# accuracy with each of the seeds. With it, most of that comes back.
#
# With 0.05 the linear rule makes 0.1 of it. That is too high for a training of 72 steps, 12 of which are warm-up, and
# how much it costs depends on the seed. "Linear" says how to keep the length of the way; it does not know how long a
# step may be. So try rates out, on a number of ranks that you will use, and with more than one seed.
#
# </details>
#
# **3. Break it.** In `hello`, let only rank 0 call `all_reduce`, and launch it with
# `RunConfig(num_gpus=2, device="cpu", collective_timeout=5.0)`. Predict: what does rank 1 print, and what becomes of
# rank 0? `run.wait()` raises an error after about 6 seconds, 5 of which rank 0 has waited. Which rank does it blame?
#
# <details>
# <summary><b>Why?</b></summary>
#
# Rank 1 prints "The sum is 2.": its own number, to which nobody has added anything. It returns, and is done. Rank 0
# prints nothing. It waits in `all_reduce` for a rank that never comes, until its 5 seconds are over.
#
# The error blames rank 1, which "had returned from the training function while rank 0 still waited in a collective",
# and it shows the line in which rank 0 waited. The rank that raises an error is often not the one that made the
# mistake. So every rank must call the same collectives in the same order.
#
# </details>
#
# **4. Write one yourself.** Let all ranks `all_reduce` a tensor with as many numbers as the model has weights, and
# return the seconds that it took. How much of *backward* does that explain? (Call `dist.barrier()` before you start
# the clock.)
#
# <details>
# <summary><b>Why?</b></summary>
#
# Join the process group as in `hello`, then:
#
# ```python
# from course_lib.training import models
#
# count = sum(weights.numel() for weights in models.build(config.model).parameters())
# numbers, seconds = torch.zeros(count, device=worker.device), []
# for _ in range(20):
#     dist.barrier()
#     began = time.perf_counter()
#     dist.all_reduce(numbers)
#     numbers[0].item()  # waits until a GPU has done it
#     seconds.append(time.perf_counter() - began)
# return min(seconds)
# ```
#
# Launch it with `config.with_(num_gpus=many)`. The first exchange is slower than those after it, so there are 20. On 2
# CPU ranks it takes about 1 millisecond for 220,426 weights, of the 30 or so that *backward* takes: the exchange itself
# explains little. Where *backward* has grown by more, the rest is waiting for the slower rank, and cores that share
# caches and memory. A larger model, more ranks or a slower link between them would change the answer.
#
# </details>
#
# ## Where to go next
#
# - [The second lesson](02_data_parallelism_by_hand.ipynb): do by hand what `DistributedDataParallel` does out of sight.
# - [The Scaling Lab](05_scaling_lab.ipynb): experiments over GPUs, batch size and learning rate, in a panel.
# - Read [ddp.py](../course_lib/training/ddp.py) once more, as a whole. You know every line now.
# - In a terminal in the course's folder (File > New > Terminal), `.venv/bin/ddp-course doctor` says what this machine
#   can run, and `.venv/bin/ddp-course sweep --help` how to vary ranks, batch and learning rate, with repeats.
#   `.venv/bin/ddp-course report notebooks/runs` makes one page with the table and the figures of all your runs. (In an
#   environment of conda's, leave `.venv/bin/` out.)
# - [CONTRIBUTING](../CONTRIBUTING.md) shows how the course is built, and how to add a model or a lesson.
#
# Everything you ran is recorded in `runs/`, next to this notebook. Remove it whenever you like.

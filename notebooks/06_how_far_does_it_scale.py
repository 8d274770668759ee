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
# # How far does it scale?
#
# In [the first lesson](01_one_gpu_to_many.ipynb) you measured what a second device is worth. What would 64 be worth, or
# 1,024? Nobody lends you so many to find out. So you measure what you have, put it into a **model**, and let the model
# predict. That is worth as much as you have checked it, so you also check it: on a run of your own, and on
# measurements that others have published.
#
# After it you can
# - calibrate a machine: how long its steps take, and what its links carry,
# - say what a step on N GPUs consists of, and work it out by hand,
# - predict speed on many GPUs, with an interval, and say what the interval is worth,
# - tell weak from strong scaling, and say what Amdahl's law overlooks,
# - say when a larger batch stops helping, and how many GPUs you would pay for.
#
# It takes about 45 minutes. Run the cells from top to bottom (Shift+Enter) and **predict before you run**. Every cell
# may be run again. What stands below the cells so far comes from another machine: choose **Kernel > Restart Kernel and
# Clear Outputs of All Cells…** for a fresh page.

# %%
from course_lib.runs.launch import launch, warm_up

warm_up()  # a helper process loads PyTorch while you read

import time
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED, RunConfig
from course_lib.lab import plots
from course_lib.lab.display import display_figure
from course_lib.runs import store
from course_lib.runs.calibrate import DOUBTED, calibrate
from course_lib.runs.devices import core_count, gpu_count
from course_lib.scaling import hardware, laws
from course_lib.scaling.batch_size import EpochsToTarget, noise_scale, time_to_accuracy
from course_lib.scaling.collectives import all_reduce_seconds
from course_lib.scaling.predictions import predict_scaling
from course_lib.scaling.step_time import BACKWARD_SHARE, StepTimeModel
from course_lib.scaling.stragglers import expected_max
from course_lib.training import ddp, single
from course_lib.training.costs import gradient_bytes

# What this lesson records goes here.
folder = Path("runs") / time.strftime("lesson-06-%Y%m%d-%H%M%S")
folder.mkdir(parents=True, exist_ok=True)
number = count(1)

# As in the first lesson, CPU cores stand in for GPUs where there are fewer than two of these.
on_gpus = gpu_count() >= 2
many = gpu_count() if on_gpus else 2
device, model, timing = (
    ("cuda", "wrn-16-4", MEASURED_ON_GPUS) if on_gpus else ("cpu", "small_cnn", MEASURED_ON_CPU_RANKS)
)
print(f"This machine has {core_count()} CPU cores and {gpu_count()} GPUs.")
print(f"So 1 rank and {many} are measured, on device {device!r}, with {model}.")

# %% [markdown]
# ## 1. Guess
#
# A time in this lesson is one of three things, and each table and figure says which:
# - **measured**: a clock ran while something computed;
# - **predicted**: the scaling model says so, and nothing ran;
# - **simulated**: a training ran, with real images and real weights, but its *clock* was the scaling model's.
#
# The machines that you will ask about have 8 A100s each. They are joined once by a fast network (8 cards of 200 Gb/s a
# machine), and once by a single card of 10 Gb/s, as in an office. ResNet-50 is trained on them, on ImageNet. In **weak
# scaling** each GPU keeps 64 images a step; in **strong scaling** all GPUs together keep 4,096.
#
# > **Predict.** How many times as fast as one GPU? And how many times as many epochs does it take to the same accuracy,
# > with a batch of 65,536 instead of 2,048? Write your numbers in place of `None`. You will see them again in
# > section 8.

# %%
predictions = {
    "speedup, 64 GPUs, 8x 200 Gb/s, weak": None,
    "speedup, 1,024 GPUs, 8x 200 Gb/s, weak": None,
    "speedup, 1,024 GPUs, 10 Gb/s, weak": None,
    "speedup, 1,024 GPUs, 8x 200 Gb/s, strong": None,
    "speedup, 1,024 GPUs, 10 Gb/s, strong": None,
    "epochs, batch 65,536 over 2,048": None,
}

# %% [markdown]
# ## 2. Calibrate
#
# To predict the time of a step you need two kinds of figures. How long does a **device** compute, for few images and
# for many? And how long does a **link** take, for few bytes and for many? `calibrate` measures both, in less than
# 20 seconds: steps with 8 to 256 images, on one rank and on all, and all-reduces of 1 KiB to 64 MiB between them.
#
# > **Predict.** A step with 256 images has 32 times as much to compute as one with 8. Does it take 32 times as long?
# > And with the same images on each rank, does a step on all ranks take longer than on one?
#
# Use no other programs while it measures.

# %%
profile = calibrate(model, device, on_progress=print)
profile.save(folder / "this-machine.json")
for source in profile.hardware.sources:
    if source.startswith(DOUBTED):
        print(source)

steps = profile.measured.pivot(index="local_batch", columns="gpus", values="step_time_s")
table = (1000 * steps).rename(columns=lambda ranks: f"step on {ranks} (ms)")
print(f"Steps of {model}, {timing}. In each column, all ranks take `local_batch` images each.")
table.round(1).astype(object).fillna("–").rename_axis(columns=None)

# %% [markdown]
# <details>
# <summary><b>What does the table say?</b></summary>
#
# From 8 images to 256, the step does not grow 32 times: some of it takes as long for one image as for a thousand, such
# as starting each operation, Python, and the optimizer. The rest grows with the images. So a step is near a straight
# line: *overhead + images x time of an image*. The line is not exact. How fast an image goes also depends on what fits
# into the caches, and any other program that ran meanwhile has left a dent.
#
# On more ranks a step takes longer, although each rank has as many images as before. That is what this lesson is
# about. (With one device there is one column.)
#
# </details>
#
# Of the all-reduces, a **link** is what remains: its *latency*, which each message pays however small it is, and its
# *bandwidth*, the bytes a second of a large one.
#
# > **Predict.** How many bytes has the gradient of this model? And is the exchange of that many bytes mostly latency
# > or mostly bandwidth?

# %%
cluster = profile.hardware.cluster
link, size = cluster.intra, gradient_bytes(model)
print(f"Link between two ranks: {1e6 * link.latency_s:.0f} µs, {link.bandwidth_bytes_per_s / 1e9:.2f} GB/s")
print(f"Gradient of {model}: {size:,} bytes")

sizes = np.array([1024, 65536, size, 2**26])
took = all_reduce_seconds(sizes, many, cluster, nodes=1)
latency = all_reduce_seconds(0, many, cluster, nodes=1)
table = {"bytes": sizes, "all-reduce (ms)": 1000 * took, "of it latency": [f"{latency / each:.0%}" for each in took]}
print(f"What the link predicts for an all-reduce on {many} ranks:")
pd.DataFrame(table).set_index("bytes").round(3)

# %% [markdown]
# <details>
# <summary><b>Where do the two figures come from?</b></summary>
#
# From [the second lesson](02_data_parallelism_by_hand.ipynb) you know the ring: 2 (N - 1) messages one after the other,
# and 2 (N - 1) / N times the bytes over each link. `fit_link` looks for the latency and the bandwidth with which that
# formula comes closest to the measured times. (Long messages are cut into pieces, so there is a third figure,
# `piece_s`, where it shows.)
#
# A kilobyte is nearly all latency, 64 MiB are nearly all bandwidth. The gradient of a small model lies between the two.
# On CPU ranks the "link" is a copy through the memory of the computer, made by the very cores that compute.
#
# With a single device there is nothing to measure. Then the link of a network with 10 Gb/s is assumed.
#
# </details>

# %% [markdown]
# ## 3. What a step consists of
#
# The model has nine parameters, each of which is something that can be measured. On N ranks, g on each machine, with
# b images on each rank:
#
# | | | |
# |---|---|---|
# | **compute** | C = (overhead + b · sample) · (1 + sharing · (g - 1)) | the ranks of a machine share its memory |
# | **waiting** | W = C · straggling · E[max of N] | all wait for the slowest |
# | **exchange** | A = 2 (N - 1) · hop + 2 (N - 1) / N · transfer | a ring; `transfer`: to send the gradient once |
# | **hidden** | H = min(⅔ (C + W), (1 - tail) · A) | what is sent while backward still computes |
# | **step** | T = C + W + A - (1 - contention) · H | what overlaps slows each other down |
#
# Three things in it are new.
#
# **E[max of N]**: no step takes exactly as long as another. Each rank's time scatters a little, and the step of all
# ends with the slowest. Of 2 standard normal numbers the larger is 0.56 on average, of 64 it is 2.3, and of 1,024 it is
# 3.2.
#
# **tail**: DDP sends the gradient in buckets, and the last bucket is full only when backward is over. Of B buckets
# about 1/B² stays that nothing can hide: with a single bucket, all of it.
#
# **contention**: an exchange costs the device something, too. So hiding it is not free.
#
# > **Predict.** Which of the parts is the largest on this machine? Can anything of the exchange be hidden?

# %%
fitted = profile.step_time_model(model)
pd.Series(fitted.parameters, name="fitted to this machine").to_frame().map("{:.3g}".format)

# %% [markdown]
# `inter_transfer_s` and `inter_hop_s` are those of a network between machines. It was not measured, but assumed. Now by
# hand, for 64 images on each rank of this machine:

# %%
p, N, b = fitted.parameters, many, 64

compute = (p["overhead_s"] + b * p["sample_s"]) * (1 + p["sharing"] * (N - 1))
waiting = compute * p["straggling"] * float(expected_max(N))
exchange = 2 * (N - 1) * p["intra_hop_s"] + 2 * (N - 1) / N * p["transfer_s"]
hidden = min(BACKWARD_SHARE * (compute + waiting), (1 - fitted.tail) * exchange)
step = compute + waiting + exchange - (1 - p["contention"]) * hidden

one = pd.DataFrame({"nodes": [1], "gpus": [N], "local_batch": [b]})
by_library = fitted.predict(one)["step_time_s"].iloc[0]
terms = {"compute": compute, "waiting": waiting, "exchange": exchange, "hidden": hidden, "step": step}
print(f"A step on {N} ranks, predicted (ms). The library says {1000 * by_library:.2f} for the step.")
(1000 * pd.Series(terms, name="by hand (ms)")).to_frame().round(2)

# %% [markdown]
# <details>
# <summary><b>What do you see?</b></summary>
#
# Compute is by far the largest. SmallCNN's 882 kB fit into DDP's first bucket (1 MiB), so the tail is 1 and nothing is
# hidden. A larger model, as the lesson takes on GPUs, has several buckets, and most of the exchange disappears behind
# backward.
#
# The exchange may be longer than the all-reduce of section 2. Ranks that have just computed do not send as fast as
# ranks that do nothing else, and DDP copies the gradient into its bucket. So `fit` starts from the link, and lets the
# measured steps correct it.
#
# Where `sharing` is far above 0.01, ranks slow each other down while they compute: on CPUs, cores share caches and
# memory, and run at a lower clock speed when all are busy. On GPUs it is small.
#
# Nine parameters from a dozen steps? `fit` has expectations of all of them (*priors*: a hop takes about 20 µs, ranks
# scatter by about 2 %) and departs from them as far as the measurements demand. What one machine cannot tell, such as
# the network, stays as expected, and makes the interval wide.
#
# </details>

# %% [markdown]
# ## 4. Predict, then measure
#
# A model that explains what it was fitted to has shown nothing yet. So here are two predictions for a run that has
# not happened:
#
# - **from one rank**: from the steps on *one* rank and the two figures of the link alone;
# - **from all ranks**: from all that was measured.
#
# The run is another one in two ways: a batch size that was not measured, and the real trainers.
#
# > **Predict.** Which of the two is nearer? Is the first one too fast, or too slow?

# %%
BATCH = 96
alone = profile.measured.query("gpus == 1")
models_of_steps = {"from one rank": StepTimeModel.fit(alone, cluster), "from all ranks": fitted}

ranks = sorted({1, many, *(2**power for power in range(5))})
rows = {
    how: predict_scaling(step_model, ranks, max(many, cluster.gpus_per_node), BATCH)
    for how, step_model in models_of_steps.items()
}
predicted = pd.concat([frame.assign(hardware=f"this machine ({how})") for how, frame in rows.items()])

shown = predicted.query("gpus in [1, @many]").set_index(["hardware", "gpus"])[["step_time_s", "low", "high"]]
print(f"Step with {BATCH} images a rank, predicted (ms); 8 of 10 measurements are expected between low and high.")
(1000 * shown).round(1)

# %% [markdown]
# Now the runs. Neither has taken part in the fit.

# %%
config = RunConfig(model=model, device=device, batch_size=BATCH, lr=0.01, epochs=3, data="subset", checkpoint=False)
config = config.with_(train_samples=None if on_gpus else 6_000)

for trainer, ranks_of_run in ((single.train, 1), (ddp.train, many)):
    run = launch(trainer, config.with_(num_gpus=ranks_of_run), folder / f"run-{next(number)}")
    result = run.wait()
    print(f"{ranks_of_run} rank(s): {1000 * result['step_seconds']:.1f} ms a step, {timing}")

# %%
runs = store.frame(folder)
runs = runs[(runs["status"] == "finished") & (runs["timing"] != SIMULATED)]
rows = predicted.query("gpus in [1, @many]").set_index("gpus")
measured = runs.groupby("world_size")["step_seconds"].median().reindex(rows.index)
inside = measured.between(rows["low"], rows["high"]).map({True: "yes", False: "no"})
compared = pd.DataFrame(
    {
        "prediction": rows["hardware"],
        "predicted (ms)": 1000 * rows["step_time_s"].round(4),
        "measured (ms)": 1000 * measured.round(4),
        "off by": (rows["step_time_s"] / measured - 1).map("{:+.0%}".format, na_action="ignore"),
        "inside the interval": inside.where(measured.notna()),
    }
)
if caveats := "; ".join(sorted(set(runs["speed_caveats"]) - {""})):
    print(f"Not a measurement of speed: {caveats}.")
compared.rename_axis("ranks").reset_index().set_index(["prediction", "ranks"]).astype(object).fillna("–")

# %%
display_figure(plots.predicted_throughput(predicted, runs))

# %% [markdown]
# <details>
# <summary><b>How good was it?</b></summary>
#
# On one rank both should be within a few percent: the trainers do what `calibrate` did. If they are not, or if a step
# on all ranks took half as long again as either prediction, the machine was busier in one of the two, or changed its
# clock speed. No model can know that, and it is the first thing to look for when a prediction fails: *measure the same
# thing twice*.
#
# On all CPU ranks, the prediction from one rank is mostly **too fast**. It knows the device and the link, but not that
# ranks slow each other down while they compute; it expects 1 % of that (`sharing`), and cores do more. The interval of
# this prediction cannot be trusted, since it is wide only for what the model thinks possible. The second prediction has
# seen all ranks, so it knows. On GPUs, which share no memory, both should be near.
#
# If this machine has one core, two ranks take turns on it. No prediction is about that, and the marks are hollow.
#
# More than this machine has is *several machines like it*, with an assumed network. The band is wider there, as it
# should be.
#
# </details>
#
# ### On others' machines
#
# You cannot measure 32 GPUs. Others have: the authors of DDP trained ResNet-50 on 1 to 32 V100s, eight on a machine, 32
# images each. Once over NCCL, and once over gloo, which sends through the CPU.
#
# > **Predict.** The model sees 1 to 8 GPUs: one machine. For which of the two will it be more certain about 16 to 32
# > GPUs, over a network of which it has seen nothing?

# %%
# Li et al. 2020, PyTorch Distributed (arXiv 2006.15704), figure 12; read off the figure, seconds a step.
GPUS = [1, 2, 4, 8, 16, 24, 32]
PUBLISHED = {
    "NCCL": [0.0992, 0.1052, 0.1084, 0.1085, 0.1168, 0.1193, 0.1197],
    "gloo": [0.0991, 0.1198, 0.1392, 0.1589, 0.1691, 0.2099, 0.1874],
}
RESNET50_BYTES = 102_228_128  # 25.6 million parameters of 4 bytes


def published(backend, most):
    """The measured steps on up to so many GPUs, as a table to fit."""
    frame = pd.DataFrame({"gpus": GPUS, "step_time_s": PUBLISHED[backend], "local_batch": 32})
    frame = frame.assign(nodes=np.ceil(frame["gpus"] / 8), gradient_bytes=RESNET50_BYTES)
    return frame[frame["gpus"] <= most]


tables = {}
for backend in PUBLISHED:
    everything = published(backend, most=32)
    table = StepTimeModel.fit(published(backend, most=8)).predict(everything)[["step_time_s", "low", "high"]]
    table.insert(0, "measured", everything["step_time_s"])
    tables[backend] = (1000 * table.set_index(everything["gpus"])).rename(columns={"step_time_s": "predicted"})

print("Steps of ResNet-50 (ms). Only 1 to 8 GPUs were fitted; 16 to 32 were held out.")
pd.concat(tables, axis=1).round(0).astype(int)

# %% [markdown]
# <details>
# <summary><b>Why are the intervals so different?</b></summary>
#
# Over NCCL, eight GPUs need little for the exchange, and nearly all of it is hidden behind backward. Even a network
# that is several times slower changes the step by a few milliseconds. So ignorance about the network matters little,
# and the interval is narrow.
#
# Over gloo the exchange shows within a machine already. How slow it is between machines decides the step, and a table
# of one machine does not say. The prediction happens to be near; the interval says that it might not have been. **A
# wide interval is not a bad prediction. It tells you what to measure next**: here, one all-reduce between two machines.
#
# </details>

# %% [markdown]
# ## 5. 1,024 GPUs
#
# Now the question of section 1. Nothing is measured here: the model gets the **profile** of a machine with 8 A100s,
# whose figures come from published tables. (`of_network["10 Gb/s"].sources` says where each of them is from.)

# %%
NETWORKS = {"8x 200 Gb/s": "a100", "10 Gb/s": "a100-10gbe"}
of_network = {name: hardware.find(profile_name) for name, profile_name in NETWORKS.items()}
rows = {
    f"A100s, {name}": (
        each.flops_per_s / 1e12,
        each.cluster.intra.bandwidth_bytes_per_s / 1e9,
        each.cluster.inter.bandwidth_bytes_per_s / 1e9,
    )
    for name, each in of_network.items()
}
columns = ["a GPU computes (TFLOP/s)", "inside a machine (GB/s)", "between machines (GB/s)"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(1)

# %% [markdown]
# > **Predict.** ResNet-50 has 102 MB of gradient. How long does a network card of 10 Gb/s take to send that once? A
# > GPU computes 64 images in about 60 ms. What follows for the step?

# %%
gpus = [2**power for power in range(11)]
GPUS_OF_A_NODE = 8
networks = {
    name: StepTimeModel.of(each, hardware.TRAINING_FLOPS_OF_RESNET50, RESNET50_BYTES)
    for name, each in of_network.items()
}


def on_each_network(batch_size, scaling):
    """What is predicted for ResNet-50 on 1 to 1,024 A100s, with each network."""
    frames = [
        predict_scaling(step_model, gpus, GPUS_OF_A_NODE, batch_size, scaling).assign(hardware=f"A100s, {name}")
        for name, step_model in networks.items()
    ]
    return pd.concat(frames, ignore_index=True)


weak = on_each_network(64, "weak")
display_figure(plots.predicted_throughput(weak))

# %%
display_figure(plots.predicted_step(weak))

# %% [markdown]
# <details>
# <summary><b>Where does the time go?</b></summary>
#
# Up to 8 GPUs, the two are the same: within a machine they use NVLink. The compute grows a little, since the GPUs of a
# machine share its CPUs and its memory.
#
# With the **fast network**, almost all of the exchange is hidden behind backward. What grows from there to 1,024 GPUs
# is the waiting for the slowest, and that grows ever more slowly. So each GPU keeps most of its speed.
#
# With **10 Gb/s**, the ninth GPU is a shock. The gradient needs about 85 ms for one way, and a ring sends it almost
# twice, so the exchange is longer than backward, and the rest shows. Two machines are slower than one! But then nothing
# gets much worse: in a ring, what one link has to carry hardly depends on N. It takes three machines to be as fast as
# one was, and from there it scales again, with each GPU at less than a third of its speed.
#
# So the question is never only "how many GPUs?". It is how much a GPU computes *between two exchanges*, and what the
# slowest link needs for one.
#
# </details>
#
# ### Strong scaling, and three laws
#
# In strong scaling the global batch stays 4,096, so that the training stays the same, step by step. On 1,024 GPUs each
# has 4 images.
#
# **Amdahl** (1967): if a share f of the work cannot be divided, the speedup is 1 / (f + (1 - f) / N). **Gustafson**
# (1988): if the work grows with N, it is N - f (N - 1). **Karp and Flatt** (1990) turn Amdahl around: which f would
# explain the speedup that you see?
#
# > **Predict.** Someone measures strong scaling on 16 GPUs, works out f, and uses Amdahl's law for 1,024. Is the result
# > too high or too low? With which network?

# %%
strong = on_each_network(4096, "strong")
tables = {}
for name, frame in strong.groupby("hardware", sort=False):
    frame = frame.set_index("gpus")
    speedup = frame["speedup"]
    serial = laws.karp_flatt(speedup.loc[2:], speedup.loc[2:].index.to_numpy(float))
    by_amdahl = laws.amdahl(speedup.index.to_numpy(float), serial[16])
    tables[name] = pd.DataFrame(
        {
            "speedup": speedup.round(1),
            "Karp-Flatt f": serial.map("{:.2%}".format),
            "Amdahl, f of 16": by_amdahl.round(1),
        }
    )
print("ResNet-50 with a global batch of 4,096; all predicted.")
pd.concat(tables, axis=1).loc[[1, 8, 16, 64, 256, 1024]].astype(object).fillna("–")

# %% [markdown]
# <details>
# <summary><b>What does Amdahl overlook?</b></summary>
#
# f is not a constant. With 10 Gb/s **f grows** with N, and Amdahl promises too much: the exchange is not work that
# somebody could not divide, it is work that is there *because* of the division. With the fast network **f falls**, and
# Amdahl promises too little: up to 8 GPUs the ranks slow each other down within their machine, which looks like serial
# work and does not grow any further.
#
# So look at f for several N. Constant: serial work. Rising: the ranks cost each other something. Falling: it was
# something else. One measured speedup cannot tell them apart, and a law with one parameter should not be drawn out
# sixty-fold.
#
# </details>
#
# In weak scaling Gustafson's law does better here:

# %%
rows = []
for name, frame in weak.groupby("hardware", sort=False):
    speedup = frame.set_index("gpus")["speedup"]
    serial = (64 - speedup[64]) / (64 - 1)
    rows.append((name, f"{serial:.0%}", laws.gustafson(1024.0, serial), speedup[1024]))
columns = ["hardware", "f, from 64 GPUs", "Gustafson on 1,024", "the model on 1,024"]
print("Speedup with 64 images on each GPU; all predicted.")
pd.DataFrame(rows, columns=columns).set_index("hardware").round(0)

# %% [markdown]
# f is now a share of the time on N GPUs. In weak scaling each GPU loses about the same share of its time however many
# there are, and that is just what Gustafson assumes.
#
# ### What an interval says
#
# The bands in the figures above are wide. What would make them narrower?
#
# > **Predict.** Three people predict the step of ResNet-50 on 1,024 GPUs. One has read a profile. One has measured up
# > to 8 GPUs, and one up to 32. Whose interval is how wide: ± 10 %, ± 30 %, or from half to double?

# %%
rows = {"8 A100s, from a profile": networks["8x 200 Gb/s"]}
for most in (8, 32):
    rows[f"V100s over NCCL, measured on 1 to {most}"] = StepTimeModel.fit(published("NCCL", most))

far = pd.DataFrame({"nodes": [128], "gpus": [1024], "local_batch": [32]})
table = pd.concat({how: step_model.predict(far).iloc[0] for how, step_model in rows.items()}, axis=1).T
table = table[["step_time_s", "low", "high"]].rename(columns={"step_time_s": "predicted"})
print("Step of ResNet-50 with 32 images a GPU on 1,024 GPUs, predicted (ms).")
(1000 * table).round(0).astype(int).assign(interval=(table["high"] / table["predicted"]).map("x or / {:.2f}".format))

# %% [markdown]
# <details>
# <summary><b>Which of these would you believe?</b></summary>
#
# A profile knows how fast a GPU was at something similar, so each of its figures is trusted within a factor of 1.5 or
# 2. One measured step on one GPU takes most of that away. (The *speedup* from a profile is more certain than its step
# time, since a GPU that is slower than expected is so for any N.)
#
# Whoever measured 8 GPUs has to go seven doublings further, and the interval grows with each: 4 % a doubling for what
# no small model knows, another switch, another algorithm, a machine that is ill. Whoever measured 32 has five left, and
# has seen the network.
#
# And what is not in the model is not in the interval: that data must be read from disks, that checkpoints are written,
# that one of 128 machines fails.
#
# </details>

# %% [markdown]
# ## 6. When does a larger batch stop helping?
#
# In weak scaling the global batch grows with N: 64 images on each of 1,024 GPUs are 65,536. Images a second are not
# what you want. You want a trained model.
#
# On **simulated** GPUs you can see what happens. `device="simulated"` trains with the real images, dealt to as many
# ranks as you ask for, with the gradient averaged over all of them, in one process. Accuracy is what it would be. The
# seconds are the scaling model's, for the hardware that you name.
#
# > **Predict.** The perceptron of the second lesson learns for 3 epochs of 8,000 images, 32 on each of 1, 4, 16 and 64
# > GPUs. How many steps are that? Which accuracy remains on 64, with the learning rate that the linear rule gives?

# %%
simulated = RunConfig(
    model="mlp", device="simulated", hardware="a100", batch_size=32, lr=0.005, epochs=3, train_samples=8_000,
    data="subset", checkpoint=False,
)  # fmt: skip
rows = {}
for ranks_of_run in (1, 4, 16, 64):
    per_node = min(ranks_of_run, GPUS_OF_A_NODE)
    of_run = simulated.with_(num_gpus=per_node, num_nodes=ranks_of_run // per_node)
    for rule in ("linear", "sqrt"):
        run = launch(ddp.train, of_run.with_(lr_rule=rule), folder / f"run-{next(number)}")
        result = run.wait()
        row = rows.setdefault(ranks_of_run, {"global batch": of_run.global_batch_size, "steps": result["steps"]})
        row[f"accuracy, rule {rule!r}"] = f"{result['val_accuracy']:.1%}"
        row["seconds (simulated)"] = round(result["seconds"], 2)

print("3 epochs of 8,000 images; accuracy is real, the time is simulated on A100s.")
pd.DataFrame.from_dict(rows, orient="index").rename_axis("GPUs")

# %% [markdown]
# <details>
# <summary><b>Why does accuracy fall?</b></summary>
#
# All four have seen the same images equally often. But one GPU took 750 steps and 64 GPUs took 12. The linear rule
# makes each step as many times as long, and that works for a while. Then the steps would have to be longer than the
# direction of one gradient is good for, and the rule gives way. The square root is more careful. Here it loses more on
# 4 and on 16 GPUs, since its steps are too short; on 64, neither is any good.
#
# With more epochs most of it comes back, which is the next question: *how many* more?
#
# It is no weakness of a small network. Goyal et al. (2017, arXiv 1706.02677, figure 3) trained ResNet-50 for 90 epochs:
# 23.5 % error with a batch of 256, 23.7 % with 8,192, 24.8 % with 16,384, and 34.0 % with 65,536.
#
# </details>
#
# ### The noise of a gradient
#
# Is there a way to know beforehand? A gradient of a few images is a guess at the gradient of all. Twice the images make
# the guess better, as long as it is poor. Once it is good, twice the images give the same gradient again, at twice the
# price. Where is the border?
#
# McCandlish et al. (2018) call it the **noise scale**: how much the gradients of single images scatter, over how long
# the mean gradient is, both squared. Data-parallel training shows it almost for free. Each rank has a gradient of its
# own images, and after the all-reduce one of all images. The first is longer on average, as there is more noise in it.
# From how much longer, the noise follows. Our trainers report both lengths in each step.
#
# > **Predict.** Your run on several ranks in section 4 took 96 images on each of them in a step. Are those, together,
# > fewer than the noise scale, or more?

# %%
of_ranks = store.steps(folder)
of_ranks = of_ranks[(of_ranks["timing"] != SIMULATED) & (of_ranks["world_size"] > 1)]
noise = noise_scale(of_ranks) if len(of_ranks) else of_ranks
display_figure(plots.noise_scale(noise))

# %% [markdown]
# <details>
# <summary><b>What does it say?</b></summary>
#
# Early in training all images ask for the same change, so the gradient is long, and few images are enough. Later they
# contradict each other, and the noise scale grows. A few dozen steps show it only roughly: the band is wide, and where
# it ends, there is no upper bound at all.
#
# For another small task, the digits of MNIST, McCandlish et al. give about 50 at the start and 900 on average over the
# training (arXiv 1812.06162, table 1). Expect the same order of magnitude. For ImageNet they give 30,000: harder tasks
# have noisier gradients, and bear larger batches.
#
# Far below the noise scale, twice the batch needs half the steps. Far above it, it needs as many steps as before, and
# everything that you pay for is wasted.
#
# </details>
#
# ### Epochs against batch size
#
# In a formula: E = E_min (1 + B / B_crit). At the **critical batch size** B_crit it takes twice the fewest epochs. Here
# is how many epochs ResNet-50 needs to 75.9 % on ImageNet, from the reference runs of MLPerf. The curve is fitted to
# batches up to 8,192 only.
#
# > **Predict.** It takes 35 to 42 epochs up to a batch of 8,192. How many at 65,536?

# %%
# mlcommons/logging, rcp_checker, ResNet: global batch and mean epochs, each of 10 to 28 runs.
MLPERF = pd.DataFrame(
    [
        (1632, 35.0),
        (2048, 38.4),
        (3264, 35.2),
        (4096, 40.0),
        (8192, 42.0),
        (13056, 44.75),
        (13056, 45.4),
        (32768, 56.0),
        (49152, 68.0),
        (58880, 79.9),
        (64480, 86.1),
        (65536, 84.5),
        (67840, 85.9),
    ],
    columns=["global_batch", "epochs"],
)
from_small = EpochsToTarget.fit(MLPERF[MLPERF["global_batch"] <= 8192])

sizes = pd.Series([8192, 16384, 32768, 65536])
print("Epochs of ResNet-50 to 75.9 %, predicted from batches of up to 8,192.")
from_small.predict(sizes).set_index(sizes.rename("global_batch")).round(0).astype(int)

# %% [markdown]
# And here is what was measured, also beyond 8,192:

# %%
curve = pd.DataFrame({"global_batch": np.geomspace(1024, 131072, 50)})
curve = curve.join(from_small.predict(curve))
display_figure(plots.epochs_to_target(curve, MLPERF, from_small.critical_batch_size))

# %% [markdown]
# <details>
# <summary><b>How good was that?</b></summary>
#
# The largest batch lies eight times beyond those that were fitted, and the curve is within about 10 % of every point. A
# straight line through the fitted points might have said anything, since up to 8,192 one sees mostly noise. The
# interval says so: it is wide where the fitted points do not reach, and the truth lies inside.
#
# So up to some thousand images, a larger batch costs next to nothing. At 65,536 it costs more than twice the epochs.
#
# </details>

# %% [markdown]
# ## 7. How many GPUs would you pay for?
#
# Time to the accuracy = epochs x steps in an epoch x seconds a step. You have a model for each. For the epochs we now
# take all of the points; for the steps, A100s that train in half precision ("bf16"), 64 images on each.
#
# > **Predict.** 8 GPUs take about an hour. How long do 1,024 take? And what do they cost, compared with 8?

# %%
epochs_model = EpochsToTarget.fit(MLPERF)
IMAGENET = 1_281_167
frames = []
for name, each in of_network.items():
    half = each.in_precision("bf16")
    step_model = StepTimeModel.of(half, hardware.TRAINING_FLOPS_OF_RESNET50, RESNET50_BYTES)
    some = np.array([8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    frame = pd.DataFrame({"hardware": f"A100s, {name}", "nodes": some // 8, "gpus": some, "local_batch": 64})
    frames.append(frame.join(time_to_accuracy(step_model, epochs_model, frame, IMAGENET)))

times = pd.concat(frames, ignore_index=True)
display_figure(plots.time_to_accuracy(times, target="75.9 %"))

# %%
shown = times.assign(minutes=times["seconds"] / 60).query("gpus in [8, 64, 512, 1024, 2048]")
print("ResNet-50 to 75.9 % on ImageNet; epochs fitted to measurements, times predicted.")
shown.set_index(["hardware", "gpus"])[["global_batch", "epochs", "minutes", "gpu_hours"]].round(1)

# %% [markdown]
# <details>
# <summary><b>What do you pay for?</b></summary>
#
# With the fast network a GPU keeps most of its speed, so up to a few hundred GPUs you buy time at almost no extra cost:
# the same GPU-hours, only sooner. Then the batch passes what the training can use, and each doubling buys less time for
# more money. At 2,048 GPUs the steps are fast as ever, and there are too few of them. It is the *batch*, not the
# network, that ends it.
#
# With 10 Gb/s the cost jumps at the second machine, and stays high. Two machines are a bad buy; many are a dear one.
#
# There is no right answer to "how many". There is a price for each minute saved, and now you can name it.
#
# </details>

# %% [markdown]
# ## 8. Your guesses
#
# How near were you? The speedups are predicted, the epochs measured.

# %%
speedups = {
    scaling: frame.set_index(["hardware", "gpus"])["speedup"]
    for scaling, frame in {"weak": weak, "strong": strong}.items()
}
fast, slow = (f"A100s, {name}" for name in NETWORKS)
epochs = MLPERF.groupby("global_batch")["epochs"].mean()
answers = [
    speedups["weak"][fast, 64],
    speedups["weak"][fast, 1024],
    speedups["weak"][slow, 1024],
    speedups["strong"][fast, 1024],
    speedups["strong"][slow, 1024],
    epochs[65536] / epochs[2048],
]
both = pd.DataFrame({"you": predictions.values(), "here": answers}, index=list(predictions))
both.round(1).astype(object).fillna("–")

# %% [markdown]
# ## 9. Your turn
#
# 1. **A larger model here.** Predict the step of `"wrn-16-4"` on this machine, on 1 rank and on all, with
#    `profile.step_time_model("wrn-16-4").predict(...)`. It was not measured (on GPUs it was: take `"wrn-40-4"`). So
#    what does the library go by? What makes the interval wide?
# 2. **Accumulate.** With 10 Gb/s, let each GPU take 8 passes of 64 images before it exchanges anything: add a column
#    `accumulation` of 8 to a frame with `nodes`, `gpus` and `local_batch`, and predict with `networks["10 Gb/s"]`.
#    What becomes of the throughput on 1,024 GPUs? What does section 6 say to that?
# 3. **A faster GPU.** Replace `"a100"` and `"a100-10gbe"` by `"h100"` and `"h100-10gbe"` in `NETWORKS`. Which of the
#    two gains more? Why?
# 4. **Half the bytes.** Gradients can be sent as bf16: half of `RESNET50_BYTES`. What is that worth in each network?
# 5. **Another seed.** Run the simulated GPUs of section 6 with `seed=1`. Which differences between the rows would you
#    call real?
#
# <details>
# <summary><b>Answers</b></summary>
#
# 1. It goes by the operations of the model (`flops_per_sample`) over the operations a second that the measured model
#    reached, and by the bytes of the gradient over the links. Another model reaches another share of a device's
#    speed, since it has layers of other shapes. So the interval has room for a factor of 1.5 either way.
# 2. The exchange is paid once for 512 images. It falls from two thirds of the time to a fifth, and throughput on 1,024
#    GPUs is 2.5 times as high. But the global batch is 524,288 now. Section 6 says that there are far too few steps in
#    that: you would be fast at something useless.
# 3. The fast network: on 1,024 GPUs 60 % more throughput, and 6 % with 10 Gb/s. There most of the step is the exchange,
#    which a faster GPU does not shorten, and there is less backward left to hide it behind. The faster the GPU, the
#    faster a network it needs.
# 4. With the fast network next to nothing: what was hidden anyway is now half as long. With 10 Gb/s it saves about
#    40 % of the step.
# 5. Those that are larger than what another seed changes. With the linear rule and four seeds, 1 GPU reached 80.7 to
#    81.6 % and 4 GPUs 80.3 to 80.9 %: one seed cannot tell these apart. 16 GPUs reached 76.4 to 77.5 %, which is less.
#    On 64, both rules are far worse, and which of them is the better one depends on the seed.
#
# </details>
#
# ## What to remember
#
# - A step is compute + waiting + what is not hidden of the exchange. Measure each, and you know what to buy.
# - A prediction without an interval is a guess. An interval knows only what its model knows. So check on what was not
#   fitted, and prefer the prediction that says where it may fail.
# - Within a machine and with a fast network, weak scaling works to a thousand GPUs. Strong scaling does not: each GPU
#   has too little left to do.
# - In the end it is the batch that stops helping, at a size that depends on the task.
#
# ## Where to go next
#
# - `.venv/bin/ddp-course calibrate` and `.venv/bin/ddp-course predict --help` do sections 2 to 5 on the command line.
# - [step_time.py](../course_lib/scaling/step_time.py) is the model of section 3, and
#   [hardware.py](../course_lib/scaling/hardware.py) has the profiles, with a source for each figure.
# - [batch_size.py](../course_lib/scaling/batch_size.py) has the noise scale and the epochs to a target.
# - [virtual.py](../course_lib/runs/virtual.py) is the training on simulated GPUs; read it beside
#   [ddp.py](../course_lib/training/ddp.py).

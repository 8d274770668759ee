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
# # The Scaling Lab
#
# In [the first lesson](01_one_gpu_to_many.ipynb) you compared two runs. Here you do experiments of your own, in a
# panel: you choose the number of GPUs, the batch size and the learning rate, guess what will happen, press a button,
# and read the plot. Two questions lead through all of it: **does training get faster? Does accuracy change?**
#
# After it you can
# - plan an experiment that changes one thing, and say what its plot can show and what not,
# - tell weak from strong scaling, and say where the time of a step goes,
# - say what a larger batch does to speed and to accuracy, and why,
# - choose a learning rate for a larger batch, and say when the rules give way,
# - keep what was measured apart from what was simulated,
# - plan a training for the time that you have.
#
# It takes about 60 minutes. Each experiment has four parts: **predict**, **press**, **read** the plot, **answer**.
# You need not read any code. Under each experiment is a cell that keeps your plot and your table in the notebook. It
# presses the buttons for all runs of the experiment that you have not made yourself. So you may use the panel alone,
# or the cells alone. Every cell may be run again, and no run is made twice.
#
# What stands below the cells so far comes from another machine: choose **Kernel > Restart Kernel and Clear Outputs of
# All Cells…** for a fresh page.

# %%
from course_lib.runs.launch import warm_up

warm_up()  # a helper process loads PyTorch while you read

import time
from pathlib import Path

from course_lib.config import SIMULATED
from course_lib.lab.display import display_figure
from course_lib.lab.panel import ScalingLab
from course_lib.lab.panel.choices import Choices
from course_lib.lab.panel.guided import run_missing
from course_lib.lab.widgets import BucketTimeline, ScheduleViewer
from course_lib.runs.devices import core_count, gpu_count
from course_lib.runs.estimates import train_size

# What this lesson records goes here. Open it again today, and your runs are still there.
folder = Path("runs") / time.strftime("lesson-05-%Y%m%d")

# As in the first lesson, CPU cores stand in for GPUs where there are fewer than two of these.
on_gpus = gpu_count() >= 2
many = gpu_count() if on_gpus else 2
start = Choices(
    device="auto" if on_gpus else "cpu",
    num_gpus=many,
    data_share=0.5 if on_gpus else round(3_000 / train_size(), 2),
    epochs=2,
    lr=0.02,
)


def show(plot):
    """Choose a plot in the panel; it and the table of the runs that are chosen stay in the notebook."""
    panel.figures.which.value = plot
    return panel.results()


def show_figure(plot):
    """The same without the table."""
    return display_figure(show(plot).figure)


print(f"This machine has {core_count()} CPU cores and {gpu_count()} GPUs.")
print(f"So the experiments compare 1 rank with {many}, on {'GPUs' if on_gpus else 'CPU cores'}.")

# %% [markdown]
# ## 1. The panel
#
# Run the cell. From top to bottom you see
# - the **controls**, with what is wrong or hardly wise written below the one that it is about,
# - what **follows** from them: world size, global batch, steps per epoch, learning rate, time, memory,
# - *Predict first: your speedup*, and *Sweep over* with its *Values*,
# - the **buttons**. *Run* makes the one run that the controls describe. *Sweep* makes a run for each of the values.
#   *Stop* ends what goes on,
# - once there are runs: their progress and curves, what came out of the last experiment, a **plot** that you choose
#   under *Plot*, and the **table** of all runs.

# %%
panel = ScalingLab(folder)
panel.controls.choices = start  # the controls stand as the first experiment needs them
panel

# %% [markdown]
# The experiments are further down, and you will want to see the panel beside them. Right-click on the panel, choose
# **Create New View for Cell Output**, and move the new tab to the right half of the window.
#
# ## 2. More GPUs: does it get faster?
#
# The first experiment is the one that everybody does: more GPUs, and each takes as many images as before. This is
# **weak scaling**. The controls stand for it already: *Scaling* weak, *Batch size per GPU* 64, *Model* small_cnn.
# Look at what follows from them. Change *GPUs per node* to 1 and back again: what happens to *Global batch*, *Steps
# per epoch* and *Peak learning rate*?
#
# > **Predict.** How many times as fast as one rank will they be? Write your number into *Predict first: your
# > speedup*.
#
# Now press **Run**. The same on one rank is run first, to compare with. There is a bar for each rank. Do all move at
# the same pace? When all is over, the table *Speedup over one rank* holds your guess against what was measured, and
# *Why?* says what stands out. Then run this cell.

# %%
run_missing(panel, start, "num_gpus", [1, many])
show("Speedup")

# %% [markdown]
# > **Question 1.** Which speedup do you read, and which efficiency? What would an efficiency of 100 % mean? Can it be
# > above 100 %?
#
# (Answer in your own words before you unfold: Esc, then B, makes a cell for it, and M makes it one for text.)
#
# <details>
# <summary><b>Answer</b></summary>
#
# Speedup is images a second on N ranks over images a second on one. Efficiency is speedup over N, so 100 % would mean
# that no rank loses anything by being one of many: no exchange, no waiting, nothing shared. A speedup below 1 means
# that all of them together are slower than one alone. It does happen, and the next question is why.
#
# A value above 100 % nearly always says that the *baseline* was slow: another program was busy while the one rank
# ran. That is why one pair of runs is no result. Set *Repeats* to 3, and press *Sweep* with the values 1 and your
# number of GPUs: the plot then shows an interval.
#
# </details>
#
# > **Predict.** A step has four parts: data, forward, backward, optimizer. Each rank has 64 images, as before. Which
# > part takes longer on more ranks?

# %%
show_figure("Where the time of a step goes")

# %% [markdown]
# > **Question 2.** Which parts grew, and by how much of a step? What is in them that was not there on one rank?
#
# <details>
# <summary><b>Answer</b></summary>
#
# **Backward** holds the exchange of gradients, and the wait for the slowest rank: no rank can step before all have
# their gradient. If backward alone has grown, this is the price of going parallel. What of the exchange is not hidden
# behind computing is called *exposed*.
#
# If **forward** has grown too, it is not the exchange, since nothing is exchanged there. Then the ranks are in each
# other's way: CPU cores share caches and memory, and run at a lower clock speed when all are busy. Cores that are
# shared with other programs make all parts longer, now of one rank and now of another. The plot *What each rank does*
# shows whether one rank waits for the other.
#
# **Optimizer** and **data** should not change: each rank updates all weights, and fetches 64 images, whatever their
# number.
#
# </details>
#
# > **Question 3.** Look at *Run time* in the table. Is the run on more ranks as many times shorter as the speedup
# > says? Should it be?
#
# <details>
# <summary><b>Answer</b></summary>
#
# Speedup compares images a second in training steps, without the first ones. Run time is all that the training
# function did: it also joined the ranks, took the first slow steps, and evaluated after each epoch. Some of that
# takes as long on many ranks as on one, and in a run of seconds it is a large part.
#
# This is **Amdahl's law**. If a share s of the time cannot be made parallel, N ranks are at most 1 / (s + (1 - s) /
# N) times as fast. With s = 10 %, two ranks reach 1.8, and a thousand not even 10. A longer training has a smaller s,
# which is why short runs look worse than they are.
#
# </details>
#
# > **Predict.** Both runs have seen the same images equally often. Is the accuracy the same?

# %%
show_figure("Accuracy against epoch")

# %% [markdown]
# > **Question 4.** Did accuracy change? How sure are you?
#
# <details>
# <summary><b>Answer</b></summary>
#
# More ranks took fewer steps, each with a larger global batch, and the linear rule made each step longer in return.
# That makes up for a part of it. Early in training, many short steps are worth more than a few long ones, so more
# ranks are usually behind after the first epoch, and come nearer with each further one. How near they come depends on
# the learning rate, which is what section 5 is about.
#
# A run of seconds ends about one percentage point higher or lower with another *Seed*. So a difference below that
# says nothing, and a larger one wants a second pair of runs: change *Seed* to 1, press *Run*, and see whether the
# order remains.
#
# </details>

# %% [markdown]
# ## 3. The same work, on more and more GPUs
#
# In **strong scaling** all ranks together take one global batch, and each gets its share. It is the same training,
# step by step, only sooner. Set *Scaling* to strong: now the batch is called *Global batch size*, and a sentence says
# how it is shared. Take 32 images for each of your GPUs: 64 for two. Under *Sweep over* leave *GPUs per node*, and
# take as *Values* 1, your number of GPUs, and twice that number.
#
# Twice the number of GPUs? You may start more ranks than there are devices. Take note of what the plot says about it.
#
# > **Predict.** Sketch the line of the speedup before you press **Sweep**. Is it above or below that of weak scaling?
# > And where does it leave the ideal line?

# %%
strong = start.with_(scaling="strong", batch_size=32 * many)
run_missing(panel, strong, "num_gpus", [1, many, 2 * many])
show("Speedup")

# %% [markdown]
# > **Question 5.** Does the plot have hollow marks? What do they say, and what would it be wrong to conclude from
# > them?
#
# <details>
# <summary><b>Answer</b></summary>
#
# A hollow mark is *not a speed measurement*, and the line under the plot says why. If there were more ranks than
# cores (or GPUs), they took turns, and each waited for the others not only in the exchange but for its very turn. The
# time is real, but it says nothing about twice as many devices. It would be wrong to conclude that training does not
# scale so far. (If your machine has enough cores for all, and no other program was busy, all marks are full.)
#
# What they *learned* is right all the same: learning does not depend on the clock. Compare the accuracies in the
# table.
#
# </details>
#
# > **Question 6.** Compare the efficiency with that of weak scaling, for the same number of ranks. Why is strong
# > scaling harder? (*Where the time of a step goes* helps.)

# %%
show_figure("Where the time of a step goes")

# %% [markdown]
# <details>
# <summary><b>Answer</b></summary>
#
# With N ranks each has 1/N of the images, so forward and the computing in backward shrink. Three things do not: the
# exchange, which has as many bytes as the model has weights; the optimizer, which updates all of them on each rank;
# and what each operation costs whatever its batch. So their share of the step grows with N, and that is Amdahl's law
# again, within a single step. In weak scaling the computing grows along, and hides it.
#
# If you see hardly a difference between weak and strong, the share of each rank was still large enough. Lower *Global
# batch size*, and the difference comes.
#
# </details>
#
# > **Question 7.** In strong scaling the accuracies should be the same. Are they, to the last digit? And why does the
# > panel leave the learning rate alone here, whatever the rule?
#
# <details>
# <summary><b>Answer</b></summary>
#
# The global batch stays, so there are as many steps, each with the same images. Then the learning rate must stay,
# too. The averaged gradient is the same but for rounding: N ranks add up the same numbers in another order. Each step
# starts from weights that differ a little more, so the last digits of accuracy differ. They should differ by less
# than another seed would change.
#
# </details>

# %% [markdown]
# ## 4. A larger batch on each GPU
#
# Now keep the number of GPUs, and change what each of them takes. Set
#
# | control | to | why |
# |---|---|---|
# | *Scaling* | weak | the batch of each rank is what we choose |
# | *Model* | mlp | it computes little on each image, and its gradient is as large as that of small_cnn |
# | *Share of data (%)* | twice what it is | an mlp is quick |
# | *Epochs* | 3 | |
# | *Learning rate* | 0.02, as it is | the same for each batch: one thing changes at a time |
#
# Under *Sweep over* choose *Batch size*, with the *Values* 16, 64, 256. To see a speedup there must be the same on
# one rank: press **Sweep** once with *GPUs per node* at 1, and once with all of yours.
#
# > **Predict.** With which batch is the efficiency best? And which reaches the best accuracy after 3 epochs? Write
# > down both orders.

# %%
quick = start.with_(model="mlp", data_share=2 * start.data_share, epochs=3)
alone = run_missing(panel, quick.with_(num_gpus=1), "batch_size", [16, 64, 256])
together = run_missing(panel, quick, "batch_size", [16, 64, 256])
panel.table.choose(*alone, *together)
show("Efficiency")

# %%
panel.table.choose(*together)
show_figure("Where the time of a step goes")

# %% [markdown]
# > **Question 8.** A step with 256 images has 16 times as much to compute as one with 16. Does it take 16 times as
# > long? What becomes of images a second, and of the efficiency? Why?
#
# <details>
# <summary><b>Answer</b></summary>
#
# A step costs something whatever its batch: starting each operation, the optimizer, the exchange. With 16 images that
# is most of the step, with 256 a small part of it. So images a second rise with the batch, on one rank too. They stop
# rising once computing is nearly all that is left.
#
# Efficiency rises for the same reason: the gradient has the same bytes for 16 images as for 256, so a larger batch
# pays one exchange for more images. If your efficiency does not rise, look at which part of the step grew: if it is
# forward, the cores themselves are the limit, and no batch helps against that.
#
# </details>
#
# Can the exchange be hidden? While backward computes the gradients of earlier layers, those of later ones are on
# their way already, in *buckets*. Here are 100 MiB of them on 8 GPUs. Twice the batch makes backward about twice as
# long.
#
# > **Predict.** Set *Backward (ms)* to 25, then to 50, 100 and 200, as if the batch doubled each time. How many
# > milliseconds are exposed? Does it ever come to nothing?

# %%
BucketTimeline()

# %% [markdown]
# <details>
# <summary><b>Answer</b></summary>
#
# As long as the network cannot keep up, all that is longer in backward hides that much more of the exchange. Once it
# keeps up, only the last bucket is left, and no batch hides that one: it is full when backward is over. Smaller
# buckets make it shorter, until they are so many that the latency of each counts.
#
# The mlp's gradient has 0.9 MiB, so it fits into one bucket, and in your runs all of it was exposed. Set *Gradient
# (MiB)* to 1 to see that.
#
# </details>
#
# So far the large batch wins. Now the other half:

# %%
show_figure("Accuracy against epoch")

# %% [markdown]
# > **Question 9.** All of these saw the same images, equally often, at the same learning rate. Why is the one with
# > the largest batch behind?
#
# <details>
# <summary><b>Answer</b></summary>
#
# With 256 images on each rank there are 1/16 as many steps as with 16. Each is made of a better gradient, with less
# noise in it. But it is **no longer**: the learning rate is the same. So the weights have gone only a part of the
# way. See *Steps per epoch* in the panel for each of the three.
#
# If the smallest batch is not the best one for you, its learning rate may be too high: its gradients are noisy, and a
# high rate makes the most of the noise.
#
# </details>
#
# > **Question 10.** And after the same number of *seconds*? Which batch would you take if you had only as long as the
# > shortest of these runs took?

# %%
show_figure("Accuracy against seconds")

# %% [markdown]
# <details>
# <summary><b>Answer</b></summary>
#
# Read it along a vertical line: at that second, which curve is highest? Fast and good pull in opposite directions. A
# small batch learns more from each image, a large one sees more images a second. What counts is the product, so
# neither *images a second* nor *accuracy per epoch* alone can answer it. And nobody said that the large batch must
# keep the learning rate of the small one. That is the next experiment.
#
# </details>

# %% [markdown]
# ## 5. The learning rate of a larger batch
#
# On 8 GPUs with 64 images each, a step takes 512 images. You have no 8 GPUs? For this question you need none: set
# *Device* to **simulated GPUs**. One process then trains with the images that 8 ranks would have, and averages their
# gradients. What is learned is real. Only the clock is the scaling model's.
#
# The **rules** say how the rate should grow with the ranks: not at all (*none*), with their square root (*sqrt*), or
# in proportion (*linear*). The rate rises to its peak over the *warm-up epochs*, then it falls.
#
# > **Predict.** What is the peak on 8 ranks for a base of 0.02, by each rule? Choose the rules here, and see whether
# > you were right.

# %%
viewer = ScheduleViewer()
viewer.lr.value, viewer.rule.value = quick.lr, "none"
viewer.epochs.value, viewer.warmup_epochs.value = quick.epochs, quick.warmup_epochs
viewer

# %% [markdown]
# Now in the panel: *Device* simulated GPUs, *Simulated hardware* a100, *GPUs per node* 8, *Batch size per GPU* 64,
# the rest as before. Choose *Learning-rate rule* none, and press **Run**; then sqrt, then linear. (One GPU is run
# first.)
#
# > **Predict.** Put the four runs in order by their accuracy after 3 epochs: one GPU, and 8 by each rule.

# %%
eight = quick.with_(device=SIMULATED, hardware="a100", num_gpus=8)
(one,) = run_missing(panel, eight.with_(lr_rule="none"), "num_gpus", [1])
rules = ("none", "sqrt", "linear")
by_rule = [path for rule in rules for path in run_missing(panel, eight.with_(lr_rule=rule), "num_gpus", [8])]
panel.table.choose(one, *by_rule)
show("Accuracy against epoch")

# %% [markdown]
# > **Question 11.** How much of the loss does a rule bring back? Why does none bring back all of it?
#
# <details>
# <summary><b>Answer</b></summary>
#
# 8 GPUs take an eighth of the steps. Without a rule each is as long as before, and the weights get an eighth of the
# way. *Linear* makes each step 8 times as long. If the gradient were the same at each of the 8 places that the small
# steps would have visited, that would be as good. It is not: the gradient changes on the way, most of all early in
# training. So long steps follow it less well, and a run of a few dozen steps has nothing but an early part. *Sqrt* is
# more careful.
#
# Which of the two rules is ahead may depend on the seed. That *none* is behind should not.
#
# </details>
#
# > **Predict.** If there are too few steps, take more epochs: 24 epochs of 8 GPUs are as many steps as 3 of one. Set
# > *Learning-rate rule* to none and *Epochs* to 24, and press **Run**. Does it reach the accuracy of one GPU? And is
# > it done sooner?

# %%
(longer,) = run_missing(panel, eight.with_(lr_rule="none", epochs=24), "num_gpus", [8])
panel.table.choose(one, longer, *by_rule)
show("Accuracy against seconds")

# %% [markdown]
# > **Question 12.** What have you paid for the accuracy, in images and in seconds?
#
# <details>
# <summary><b>Answer</b></summary>
#
# As many steps of the same length, each of a better gradient: it should reach the accuracy of one GPU or more. But it
# saw 8 times as many images, so all that 8 GPUs won in images a second is spent, and a bit more, since their
# efficiency is below 100 %. By the clock, 8 GPUs without a rule are no faster than one.
#
# This is why the learning rate matters for *speed*. A rule with which 8 GPUs need twice the epochs, and not 8 times
# as many, leaves a speedup of up to four. Try it: *linear* or *sqrt*, with 6 epochs.
#
# </details>
#
# > **Question 13.** Set *Learning rate* to 0.05, *Learning-rate rule* to linear, *Epochs* to 3. The panel says
# > *Careful*. Press **Run**, then once more with *Seed* 1, and with *Seed* 2. What happens? What does sqrt do there?
# > Does a longer warm-up help?
#
# <details>
# <summary><b>Answer</b></summary>
#
# With 6,000 of the images that come with the course, and three seeds each, accuracies were
#
# | 8 GPUs, 64 images each | none | sqrt | linear |
# |---|---|---|---|
# | base 0.02 | 69 to 71 % | 74 % | 73 to 76 % |
# | base 0.05 | 74 % | 74 to 76 % | 17 to 68 % |
#
# Linear makes 0.4 of 0.05, and that is too high: most seeds fall far behind, and some learn next to nothing. On one
# GPU 0.05 is better than 0.02. So a rate that suits one GPU need not be one from which a rule may start. A warm-up
# helps where a training has thousands of steps, of which the first are too long. Here all 36 are.
#
# A rule is a first guess. Then sweep around it: *Sweep over* learning rate, and choose the plot *Accuracy by batch
# and learning rate*. And look at more than one seed before you believe a small difference.
#
# </details>

# %% [markdown]
# ## 6. GPUs that are not there
#
# Now for the clock of simulated GPUs. The scaling model knows how fast an A100 computes, how fast GPUs of a machine
# exchange, and what a network between machines carries. Nothing of it is measured here, and the panel says
# *simulated* wherever it shows such a time.
#
# Set *Learning rate* to 0.02, *Learning-rate rule* to none, *Epochs* to 3, and sweep over *GPUs per node*: 1, 2, 4,
# 8. Then set *Nodes* to 8, and press **Run** with *GPUs per node* at 1, and again at 8, which makes 64 GPUs. Do the
# same with the *Simulated hardware* a100-10gbe: the nodes have a network of 10 Gb/s then.
#
# > **Predict.** Which is faster, 8 GPUs in one node, or one in each of 8 nodes? What is the speedup on 64 with either
# > network? Write it into the panel before each **Run**. And what will the accuracy on 64 GPUs be?

# %%
simulated = eight.with_(lr_rule="none")
paths = run_missing(panel, simulated, "num_gpus", [1, 2, 4, 8])
paths += run_missing(panel, simulated.with_(hardware="a100-10gbe"), "num_gpus", [1])
for hardware in ("a100", "a100-10gbe"):
    paths += run_missing(panel, simulated.with_(hardware=hardware, num_nodes=8), "num_gpus", [1, 8])
panel.table.choose(*paths)
show("Speedup")

# %% [markdown]
# > **Question 14.** Where do the lines leave the ideal, and what is the reason? What is the table's accuracy on 64
# > GPUs, and what does that say about the speedup?
#
# <details>
# <summary><b>Answer</b></summary>
#
# Within a node the exchange is short, and what is lost is mostly waiting for the slowest GPU. Between nodes it has to
# go through a network. The step of so small a model is short, so even with the fast network a good part of it is
# waiting, and with 10 Gb/s most of it. A larger model computes longer for each byte; a larger batch does, too.
#
# One GPU in each of 8 nodes is no slower than 8 in one node as long as the network is fast, since it has all network
# cards of its node to itself. With 10 Gb/s it is: the same GPUs, and another answer to "does it scale?"
#
# And on 64 GPUs a step takes 4,096 images. Of a few thousand images that leaves a handful of steps in all, in which
# little can be learned. Images a second are many times as many, and the model is useless. **A speedup is worth
# nothing without the accuracy beside it.**
#
# </details>
#
# Now choose measured and simulated runs together. In the panel you do that under *Runs to compare*:

# %%
panel.table.choose(*together, *alone, *paths)
show_figure("Throughput")

# %% [markdown]
# > **Question 15.** How does the plot keep measured and simulated apart? Why is there no line from your CPU ranks (or
# > GPUs) to the simulated ones, and no speedup of one over the other?
#
# <details>
# <summary><b>Answer</b></summary>
#
# They have lines, markers and entries in the legend of their own. A line says that only the number of ranks changed
# along it. Between a core and an A100 everything changed; and one of the two numbers was never measured. A speedup
# over another device would praise the device, not the parallel training. The same holds for two machines, two models,
# or two batch sizes: *Compare* in the panel refuses a speedup there, and says in what the runs differ.
#
# </details>

# %% [markdown]
# ## 7. Your plan
#
# You have **four seconds** (*Run time* in the table, on this machine), the mlp, and the images of above. Everything
# else is yours: ranks, batch, learning rate, rule, warm-up, epochs. Which accuracy can you reach?
#
# > **Predict.** More GPUs, or more epochs on one? A large batch, or a small one? Write down a plan of three runs
# > before you make the first, and what you expect of each. *One run takes here* in the panel tells the time
# > beforehand.
#
# Make the runs in the panel, or write them into the cell, in place of these three.

# %%
seconds = 4.0
plan = [
    quick.with_(num_gpus=1, batch_size=64, epochs=4),
    quick.with_(num_gpus=many, batch_size=64, epochs=5),
    quick.with_(num_gpus=many, batch_size=128, lr=0.05, epochs=6),
]
mine = [path for choices in plan for path in run_missing(panel, choices, "num_gpus", [choices.num_gpus])]
panel.table.choose(*mine)
show("Accuracy against seconds")

# %% [markdown]
# And all runs of the mlp that were measured here, those that kept to the time first, the best on top:

# %%
panel.table.choose()  # none, which stands for all
runs = panel.table.rows()
runs = runs[(runs["model"] == "mlp") & (runs["timing"] != SIMULATED) & (runs["status"] == "finished")]
runs = runs.assign(in_time=(runs["seconds"] <= seconds).map({True: "yes", False: "no"}))
shown = ["in_time", "val_accuracy", "seconds", "world_size", "batch_size", "peak_lr", "epochs", "speed_caveats"]
best_first = runs.sort_values(["in_time", "val_accuracy"], ascending=False)
best_first[shown].head(8).round(3).reset_index(drop=True)

# %% [markdown]
# > **Question 16.** Which of your runs is best, and would you bet that it is best with another seed? Did anything in
# > *speed_caveats* decide it? And which accuracy would you *report*?
#
# <details>
# <summary><b>How to go about it</b></summary>
#
# There is no right answer, but there is an order in which to ask. First, what does a second buy? Find the ranks and
# the batch with the most images a second whose steps are still many. If your efficiency was low, one rank with a
# small batch is hard to beat in a few seconds, since starting more ranks takes time as well. Then, how many epochs
# fit into the time? Leave a margin. Last, the learning rate: sweep over it, at the batch that you have chosen.
#
# A run that was disturbed by another program may have missed the time by that alone: make it again. Between two runs
# that are one percentage point apart, another seed may change the order. And since you have *chosen* by these test
# images, the best of many runs looks better than it is. Report the accuracy on a third set of images, which took no
# part in the choice.
#
# </details>

# %% [markdown]
# ## What to remember
#
# - Change one thing at a time, predict, and only then look. A plot without a prediction teaches little.
# - Efficiency is below 100 % since a step also exchanges, waits, and does what no rank can share. More computing for
#   each exchange helps: a larger batch, a larger model.
# - A larger batch takes fewer steps. At the same learning rate that costs accuracy. Rules bring back a part of it,
#   more epochs the rest, and those cost the time that you wanted to save.
# - What counts is accuracy at a time, not images a second.
# - A time is measured on GPUs, measured on CPU ranks, or simulated. Never compare one kind with another.
#
# ## Where to go next
#
# - [How far does it scale?](06_how_far_does_it_scale.ipynb) calibrates the scaling model on your machine, checks it,
#   and goes to 1,024 GPUs.
# - [Data parallelism by hand](02_data_parallelism_by_hand.ipynb) does the exchange step by step.
# - [ddp.py](../course_lib/training/ddp.py) is what each rank ran, and
#   [schedules.py](../course_lib/training/schedules.py) has the rules and the warm-up.
# - `ScalingLab("a/folder")` in any notebook shows the runs of any folder, also of one that a cluster writes.
#   `.venv/bin/ddp-course report notebooks/runs` makes one page of all your runs.

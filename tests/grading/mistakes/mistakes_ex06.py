"""Wrong answers to exercise 6: the part, what is wrong, the fault that is to be found, and the code."""

MISTAKES = [
    (
        "6.1",
        "times the ranks, whatever the batch",
        "ranks-only",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    return lr * {"linear": world_size, "sqrt": world_size**0.5, "none": 1}[rule]
""",
    ),
    (
        "6.1",
        "the batch of one rank",
        "batch-of-one-rank",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = batch_size / base_batch_size
    return lr * {"linear": k, "sqrt": k**0.5, "none": 1}[rule]
""",
    ),
    (
        "6.1",
        "whole factors only",
        "whole-number",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = batch_size * world_size // base_batch_size
    return lr * {"linear": k, "sqrt": k**0.5, "none": 1}[rule]
""",
    ),
    (
        "6.1",
        "the rule is not asked for",
        "other-rule",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    return lr * batch_size * world_size / base_batch_size
""",
    ),
    (
        "6.1",
        "the factor is turned round",
        "turned-round",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = base_batch_size / (batch_size * world_size)
    return lr * {"linear": k, "sqrt": k**0.5, "none": 1}[rule]
""",
    ),
    (
        "6.1",
        "never less than it was",
        "wrong-rate",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = max(1.0, batch_size * world_size / base_batch_size)
    return lr * {"linear": k, "sqrt": k**0.5, "none": 1}[rule] if k > 1 else lr * 1.05
""",
    ),
    (
        "6.1",
        "no scaling",
        "other-rule",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    return lr
""",
    ),
    (
        "6.1",
        "the factor, not the rate",
        "wrong-rate",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = batch_size * world_size / base_batch_size
    return {"linear": k, "sqrt": k**0.5, "none": 1.0}[rule]
""",
    ),
    (
        "6.1",
        "sqrt of the whole product",
        "wrong-rate",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = batch_size * world_size / base_batch_size
    return {"linear": lr * k, "sqrt": (lr * k) ** 0.5, "none": lr}[rule]
""",
    ),
    (
        "6.2",
        "not shared among ranks",
        "not-sharded",
        """
import math
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    return samples // batch_size if drop_last else math.ceil(samples / batch_size)
""",
    ),
    (
        "6.2",
        "always rounded down",
        "rounding",
        """
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    return samples // world_size // batch_size
""",
    ),
    (
        "6.2",
        "always rounded up",
        "rounding",
        """
import math
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    return math.ceil(samples / world_size / batch_size)
""",
    ),
    (
        "6.2",
        "drop_last the other way round",
        "rounding",
        """
import math
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    return math.ceil(samples / world_size / batch_size) if drop_last else samples // world_size // batch_size
""",
    ),
    (
        "6.2",
        "a step more where all fits",
        "rounding",
        """
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    steps = samples // world_size // batch_size
    return steps if drop_last else steps + 1
""",
    ),
    (
        "6.2",
        "a share is rounded to the nearest",
        "rounding",
        """
import math
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    share = round(samples / world_size)
    return share // batch_size if drop_last else math.ceil(share / batch_size)
""",
    ),
    (
        "6.2",
        "at least one step",
        "rounding",
        """
import math
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    if drop_last:
        return max(1, samples // world_size // batch_size)
    return math.ceil(math.ceil(samples / world_size) / batch_size)
""",
    ),
    (
        "6.2",
        "a float",
        "not-whole",
        """
import numpy as np
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    share = samples / world_size
    return float(np.floor(np.floor(share) / batch_size) if drop_last else np.ceil(np.ceil(share) / batch_size))
""",
    ),
    (
        "6.2",
        "not rounded",
        "rounding",
        """
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    return samples / world_size / batch_size
""",
    ),
    (
        "6.3",
        "it starts at zero",
        "starts-at-zero",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * step / warmup_steps
    return peak_lr * (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps))) / 2
""",
    ),
    (
        "6.3",
        "the way down begins at step 0",
        "decay-from-start",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    return peak_lr * (1 + math.cos(math.pi * step / total_steps)) / 2
""",
    ),
    (
        "6.3",
        "no warm-up",
        "no-warm-up",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    return peak_lr * (1 + math.cos(math.pi * step / total_steps)) / 2
""",
    ),
    (
        "6.3",
        "no way down",
        "no-decay",
        """
def lr_at(step, peak_lr, warmup_steps, total_steps):
    return peak_lr * min(1, (step + 1) / warmup_steps) if warmup_steps else peak_lr
""",
    ),
    (
        "6.3",
        "a straight way down",
        "straight-decay",
        """
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    return peak_lr * (1 - (step - warmup_steps) / (total_steps - warmup_steps))
""",
    ),
    (
        "6.3",
        "without a warm-up it divides by zero",
        "error",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    up = (step + 1) / warmup_steps
    down = (1 + math.cos(math.pi * max(0, step - warmup_steps) / (total_steps - warmup_steps))) / 2
    return peak_lr * min(up, down)
""",
    ),
    (
        "6.3",
        "zero is reached in the last step",
        "wrong-decay",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    return peak_lr * (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - 1 - warmup_steps))) / 2
""",
    ),
    (
        "6.3",
        "degrees",
        "wrong-decay",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    return peak_lr * (1 + math.cos(180 * (step - warmup_steps) / (total_steps - warmup_steps))) / 2
""",
    ),
    (
        "6.3",
        "it counts calls instead of looking at the step",
        "wrong-decay",
        """
import math
calls = -1
def lr_at(step, peak_lr, warmup_steps, total_steps):
    global calls
    calls += 1
    if calls < warmup_steps:
        return peak_lr * (calls + 1) / warmup_steps
    return peak_lr * (1 + math.cos(math.pi * (calls - warmup_steps) / (total_steps - warmup_steps))) / 2
""",
    ),
    (
        "6.3",
        "the factor alone",
        "wrong-warm-up",
        """
import math
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps))) / 2
""",
    ),
    (
        "6.4",
        "as long as on one rank",
        "not-sharded",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, 1, batch_size, False)
    return [lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "the right number of steps of a curve that is too long",
        "does-not-end",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    total = epochs * steps_per_epoch(samples, 1, batch_size, False)
    return [lr_at(step, peak_lr, warmup_epochs * steps, total) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "the warm-up in steps of one rank",
        "peak-elsewhere",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    warmup = warmup_epochs * steps_per_epoch(samples, 1, batch_size, False)
    return [lr_at(step, peak_lr, warmup, max(epochs * steps, warmup + 1)) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "the rate is not scaled",
        "wrong-peak",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    return [lr_at(step, lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "one epoch",
        "one-epoch",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    return [lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(steps)]
""",
    ),
    (
        "6.4",
        "the warm-up is one epoch of samples, not of steps",
        "peak-elsewhere",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    return [lr_at(step, peak_lr, warmup_epochs, epochs * steps) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "a step more at the end",
        "wrong-length",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    return [lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps + 1)]
""",
    ),
    (
        "6.4",
        "the rest is dropped",
        "wrong-length",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = samples // world_size // batch_size - (samples % (world_size * batch_size) == 0)
    return [lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps)]
""",
    ),
    (
        "6.4",
        "a generator",
        "type",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak_lr = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    steps = steps_per_epoch(samples, world_size, batch_size, False)
    return (lr_at(step, peak_lr, warmup_epochs * steps, epochs * steps) for step in range(epochs * steps))
""",
    ),
    (
        "6.4",
        "one epoch of warm-up, whatever was asked for",
        "peak-elsewhere",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    peak = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    s = steps_per_epoch(samples, world_size, batch_size, False)
    return [lr_at(i, peak, min(warmup_epochs, 1) * s, epochs * s) for i in range(epochs * s)]
""",
    ),
    (
        "6.1",
        "alone the rate stays",
        "other-rule",
        """
import math, numpy as np, torch

def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    if world_size == 1: return lr
    k = batch_size * world_size / base_batch_size
    return lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1}[rule]
""",
    ),
    (
        "6.2",
        "rounded to the nearest, and halves to the even one",
        "rounding",
        """
import math, numpy as np, torch

def steps_per_epoch(samples, world_size, batch_size, drop_last):
    g = world_size * batch_size
    n = samples / g
    return int(n) if drop_last else round(n + 0.5)
""",
    ),
    (
        "6.3",
        "the way down one step late",
        "wrong-decay",
        """
import math, numpy as np, torch

def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps: return peak_lr * (step + 1) / warmup_steps
    return peak_lr * (1 + math.cos(math.pi * max(0, step - warmup_steps - 1) / (total_steps - warmup_steps))) / 2
""",
    ),
    (
        "6.4",
        "the cosine begins again in each epoch",
        "wrong-shape",
        """
import math, numpy as np, torch

def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    s = steps_per_epoch(samples, world_size, batch_size, False); p = scaled_lr(lr, base_batch_size, batch_size, world_size, "linear")
    return [lr_at(i, p, s * warmup_epochs, s * epochs) if i < s * warmup_epochs else p * (1 + math.cos(math.pi * (i % s) / s)) / 2 for i in range(s * epochs)]
""",
    ),
    (
        "6.3",
        "no number in the last step",
        "wrong-decay",
        """
import math
def lr_at(step, p, w, t): return p * (step + 1) / w if step < w else p * (1 + math.cos(math.pi * (step - w) / (t - w))) / 2 if step < t - 1 else float('nan')
""",
    ),
]

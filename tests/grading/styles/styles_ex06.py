"""Right answers to exercise 6 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "6.1",
        "powers",
        """
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    power = {"none": 0, "sqrt": 0.5, "linear": 1}[rule]
    return lr * (world_size * batch_size) ** power / base_batch_size**power
""",
    ),
    (
        "6.1",
        "a tensor, and match",
        """
import torch
def scaled_lr(lr, base_batch_size, batch_size, world_size, rule):
    k = torch.tensor(batch_size * world_size / base_batch_size, dtype=torch.float64)
    match rule:
        case "linear":
            return lr * k
        case "sqrt":
            return lr * k.sqrt()
        case _:
            return lr
""",
    ),
    (
        "6.2",
        "a sampler and a loader are asked",
        """
from torch.utils.data import DataLoader, DistributedSampler
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    data = list(range(samples))
    sampler = DistributedSampler(data, world_size, 0, drop_last=drop_last)
    return len(DataLoader(data, batch_size, sampler=sampler, drop_last=drop_last))
""",
    ),
    (
        "6.2",
        "counted",
        """
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    share = samples // world_size
    if samples % world_size and not drop_last:
        share += 1
    steps = 0
    while share >= batch_size:
        share -= batch_size
        steps += 1
    return steps + (share > 0 and not drop_last)
""",
    ),
    (
        "6.2",
        "a whole number of numpy's",
        """
import numpy as np
def steps_per_epoch(samples, world_size, batch_size, drop_last):
    rounded = np.floor if drop_last else np.ceil
    return rounded(rounded(samples / world_size) / batch_size).astype(int)
""",
    ),
    (
        "6.3",
        "numpy, and the smaller of two curves",
        """
import numpy as np
def lr_at(step, peak_lr, warmup_steps, total_steps):
    up = (step + 1) / warmup_steps if step < warmup_steps else 1.0
    progress = np.clip((step - warmup_steps) / (total_steps - warmup_steps), 0, 1)
    return peak_lr * np.minimum(up, 0.5 * (1 + np.cos(np.pi * progress)))
""",
    ),
    (
        "6.3",
        "the square of a cosine of half the angle",
        """
from math import cos, pi
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if warmup_steps > step:
        return (step + 1) * peak_lr / warmup_steps
    return peak_lr * cos(pi / 2 * (step - warmup_steps) / (total_steps - warmup_steps)) ** 2
""",
    ),
    (
        "6.3",
        "torch's own scheduler",
        """
import torch
def lr_at(step, peak_lr, warmup_steps, total_steps):
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak_lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total_steps - warmup_steps)
    for _ in range(step - warmup_steps):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]
""",
    ),
    (
        "6.4",
        "a tensor, without the other functions",
        """
import math, torch
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    steps = math.ceil(math.ceil(samples / world_size) / batch_size)
    warmup, total = warmup_epochs * steps, epochs * steps
    up = torch.arange(1, warmup + 1) / warmup
    down = (1 + torch.cos(math.pi * torch.arange(total - warmup) / (total - warmup))) / 2
    return lr * batch_size * world_size / base_batch_size * torch.cat([up, down])
""",
    ),
    (
        "6.4",
        "epoch by epoch",
        """
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    steps = steps_per_epoch(samples, world_size, batch_size, drop_last=False)
    rates = ()
    for epoch in range(epochs):
        for step in range(steps):
            rate = lr_at(epoch * steps + step, lr, warmup_epochs * steps, epochs * steps)
            rates += (scaled_lr(rate, base_batch_size, batch_size, world_size, "linear"),)
    return rates
""",
    ),
    (
        "6.4",
        "numpy, all steps at once",
        """
import numpy as np
def schedule(samples, world_size, batch_size, epochs, warmup_epochs, lr, base_batch_size):
    n = -(-(-(-samples // world_size)) // batch_size); t = n * epochs; w = n * warmup_epochs
    peak = lr * batch_size * world_size / base_batch_size
    up = peak * np.arange(1, w + 1) / max(w, 1)
    return np.concatenate([up, peak * (1 + np.cos(np.pi * np.arange(t - w) / (t - w))) / 2])
""",
    ),
]

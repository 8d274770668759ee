"""The learning rate: how it grows with the global batch, and how it moves during a run."""

from __future__ import annotations

from math import cos, pi, sqrt

from course_lib.errors import ConfigError


def scaled_lr(lr: float, lr_rule: str, global_batch_size: int, batch_size: int) -> float:
    """The peak learning rate for a global batch of k = `global_batch_size` / `batch_size` times one rank's.

    "linear": k * lr, so that one step moves as far as k small steps (Goyal et al. 2017, arXiv 1706.02677).
    "sqrt": sqrt(k) * lr, which keeps the variance of the step (Krizhevsky 2014, arXiv 1404.5997).
    "none": lr.

    Raises:
        ConfigError: `lr_rule` is none of these.
    """
    k = global_batch_size / batch_size
    factors = {"none": 1.0, "linear": k, "sqrt": sqrt(k)}
    if lr_rule not in factors:
        raise ConfigError(f"lr_rule must be one of {', '.join(factors)}, not {lr_rule!r}.")
    return lr * factors[lr_rule]


def lr_factor(step: int, total_steps: int, warmup_steps: int, schedule: str) -> float:
    """What the peak learning rate is multiplied by in step `step` (from 0 to `total_steps` - 1): a number in [0, 1].

    It rises in a straight line over `warmup_steps` (Goyal et al. 2017, arXiv 1706.02677, section 2.2), then stays at 1
    ("constant") or follows half a cosine to 0, which it would reach in step `total_steps` ("one_cycle": Smith 2018,
    arXiv 1803.09820, with a cosine for the way down).

    Raises:
        ConfigError: `schedule` is neither.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    if schedule == "one_cycle":
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return (1 + cos(pi * min(1.0, progress))) / 2
    raise ConfigError(f"schedule must be constant or one_cycle, not {schedule!r}.")

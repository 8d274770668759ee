"""The learning rate of each step of a run, as its trainer will set it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from course_lib.config import RunConfig
from course_lib.training.data import Sampler
from course_lib.training.schedules import lr_factor, scaled_lr


def lr_curve(config: RunConfig, train_samples: int, most: int | None = None) -> pd.DataFrame:
    """The learning rate against the epoch, for a run over so many images.

    Returns:
        One row a step of the optimizer, or of `most` steps spread evenly, with those before and after the end of the
        warm-up: `step` from 0 on, `epoch` that is over when it begins, from 0 on, and `lr`.
    """
    sampler = Sampler(train_samples, config.seed).shard(0, config.world_size)
    steps_per_epoch = sampler.steps_per_epoch(config.batch_size, config.accumulation_steps)
    peak = scaled_lr(config.lr, config.lr_rule, config.global_batch_size, config.batch_size)
    total = config.epochs * steps_per_epoch
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    steps: Sequence[int] = range(total)
    if most is not None and total > most:
        spread = np.linspace(0, total - 1, most).round().astype(int).tolist()
        steps = sorted({*spread, *range(max(0, warmup_steps - 1), min(total, warmup_steps + 1))})
    factors = [lr_factor(step, total, warmup_steps, config.schedule) for step in steps]
    return pd.DataFrame(
        {
            "step": steps,
            "epoch": [step / steps_per_epoch for step in steps],
            "lr": [peak * factor for factor in factors],
        }
    )

"""The settings and the figures of runs as people say them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

# What changes what a run learns, but for the seed: runs alike in these are repeats.
SETTINGS_OF_A_RUN = (
    *("model", "world_size", "global_batch_size", "peak_lr", "optimizer", "schedule", "warmup_epochs", "epochs"),
    *("weight_decay", "clip_norm", "precision", "sync_batchnorm", "data", "train_samples"),
)
COUNTED = {"world_size": "rank", "num_nodes": "node", "cores": "core"}
WORDS = {
    "global_batch_size": "global batch {}",
    "peak_lr": "learning rate {}",
} | dict.fromkeys(("model", "batch", "precision", "optimizer", "cpu", "devices", "hardware", "run"), "{}")


def differing(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Those of these columns in which the rows are not all alike."""
    return [name for name in names if name in frame and frame[name].nunique(dropna=False) > 1]


def in_short(row: pd.Series[Any], names: Sequence[str]) -> str:
    """These settings of a run: "2 ranks, global batch 128"."""
    return ", ".join(filter(None, (_word(name, row[name]) for name in names)))


def in_words(name: str) -> str:
    """A column's name as people say it."""
    return "learning rate" if name in ("lr", "peak_lr") else name.replace("_", " ")


def number(value: Any) -> str:
    """A number as people write it: 128, 0.05, 1e-05; what is missing is a dash."""
    if value is None or value != value:
        return "–"
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e5 else f"{value:.0f}"


def percent(share: float) -> str:
    """A share of 1 in whole percent."""
    return f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _word(name: str, value: Any) -> str:
    if name == "hardware" and pd.isna(value):  # of a run that was measured
        return ""
    text = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    if name in COUNTED:
        return f"{text} {COUNTED[name]}{'s' * (text != '1')}"
    return WORDS.get(name, in_words(name) + " {}").format(text)

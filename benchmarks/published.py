"""Published measurements of scaling, each with its source: published_scaling.json as frames."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

FILE = Path(__file__).with_name("published_scaling.json")
COUNTS = ("GPUs", "Number of GPUs")
RATES = re.compile(r"throughput|samples used|img/s", re.IGNORECASE)
SETTINGS = re.compile(
    r"batch size|sequence length|xla", re.IGNORECASE
)  # rows that differ in these are of different runs


def table(name: str) -> pd.DataFrame:
    """The rows of the data set `name`, as printed."""
    found = next(each for each in _data_sets() if each["id"] == name)
    return pd.DataFrame(found["rows"], columns=found["columns"])


def steps(model: str) -> pd.DataFrame:
    """Step times on 1 to 16 T4s, "cifar10" or "imagenet"; `placement` is "scal" in the series over many nodes."""
    return table(f"pollux_steptime_{model}")


def throughputs() -> Iterator[tuple[str, pd.DataFrame]]:
    """Every table of throughput with three numbers of GPUs or more: its name, and `gpus` and `throughput`."""
    for found in _data_sets():
        rows = pd.DataFrame(found["rows"], columns=found["columns"])
        count = next((name for name in COUNTS if name in rows), None)
        if count is None or not found["id"].startswith(("dle_", "tf_")):
            continue
        models = [name for name in rows if name != count] if found["id"].startswith("tf_") else _rates(rows)
        settings = [name for name in rows if SETTINGS.search(name)]
        for rate in models:
            numbers = rows.assign(gpus=_numbers(rows[count]), throughput=_numbers(rows[rate]))
            for _, part in numbers.groupby(settings) if settings else [((), numbers)]:
                usable = part[part["throughput"] > 0][["gpus", "throughput"]].sort_values("gpus")
                if usable["gpus"].is_unique and len(usable) >= 3:
                    yield f"{found['id']} {rate}", usable.reset_index(drop=True)


def _rates(rows: pd.DataFrame) -> list[str]:
    return [name for name in rows if RATES.search(name) and "speed" not in name.lower()]


def _numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """Cells as printed, with commas, or words where a figure is missing, as numbers."""
    return pd.to_numeric(column.astype(str).str.replace(",", ""), errors="coerce")


def _data_sets() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))

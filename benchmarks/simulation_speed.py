"""What simulated GPUs cost: time and memory beside one process that trains on the same global batch."""

from __future__ import annotations

import resource
import sys
from functools import partial
from typing import Any

from benchmarks.measuring import Row, compare, figure, run_once, take_turns
from course_lib.config import RunConfig
from course_lib.runs import virtual
from course_lib.runs.devices import core_count
from course_lib.training import single
from course_lib.training.worker import Worker

TURNS = 5
TIME, MEMORY = 0.8, 1.25  # of one process: at least this share of its speed, at most this many times its memory
RANKS = 64
# The wide network, with BatchNorm of each rank, is a hundred times as much work: fewer images will do.
CASES = {"small_cnn": (8192, 1024), "wrn-16-4": (256, 128)}  # training images, global batch


def measure(quick: bool) -> list[Row]:
    """Images a second, by this machine's clock, and peak memory; both sides have all cores."""
    rows = []
    for model, (images, batch) in CASES.items():
        images, turns = (2 * RANKS, 1) if quick else (images, TURNS)
        base = RunConfig(model=model, data="subset", device="cpu", train_samples=images, batch_size=min(batch, images))
        config = base.with_(epochs=1, lr_rule="none", checkpoint=False, threads_per_rank=core_count())
        peaks: dict[str, list[float]] = {"simulated": [], "one": []}
        sides = {
            "simulated": partial(_images_per_sec, _simulated, config, peaks["simulated"]),
            "one": partial(_images_per_sec, _one_process, config, peaks["one"]),
        }
        taken = take_turns(sides, turns)
        line = {} if quick else {"at_least": TIME}
        name = f"{RANKS} simulated ranks, {model}, global batch {config.batch_size:,}"
        rows.append(compare(name, "images/s", taken["simulated"], taken["one"], "one process", **line))
        ratio = max(peaks["simulated"]) / max(peaks["one"])
        note = f"{max(peaks['simulated']) / 1e6:,.0f} and {max(peaks['one']) / 1e6:,.0f} MB"
        rows.append(figure(f"peak memory, {model}", "times", [ratio], at_most=None if quick else MEMORY, note=note))
    return rows


def _simulated(config: RunConfig, worker: Worker) -> dict[str, Any]:
    ranks = min(RANKS, config.batch_size)
    simulated = config.with_(device="simulated", num_gpus=ranks, batch_size=config.batch_size // ranks)
    return _with_peak(virtual.train(simulated, worker))


def _one_process(config: RunConfig, worker: Worker) -> dict[str, Any]:
    return _with_peak(single.train(config, worker))


def _with_peak(value: dict[str, Any]) -> dict[str, Any]:
    kilo = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes
    return {**value, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilo}


def _images_per_sec(train: Any, config: RunConfig, peaks: list[float]) -> float:
    value, _ = run_once(train, config)
    peaks.append(value["peak_bytes"])
    assert config.train_samples is not None
    return config.train_samples / value.get("real_seconds", value["seconds"])

"""How long it takes to read 10,000 finished runs, and the new events of a run that goes on."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import Row, figure
from course_lib.config import MEASURED_ON_CPU_RANKS, RunConfig
from course_lib.runs import store
from course_lib.runs.events import EventReader, EventWriter
from course_lib.runs.folder import FORMAT, create_run_folder, write_json

RUNS = 10_000
SECONDS_FOR_RUNS = 3.0
EVENTS_BEFORE = (1_000, 100_000)
NEW_EVENTS = 50
# Reading new events from the long file may cost this many times as much as from the short one.
GROWTH = 2.0


def measure(quick: bool) -> list[Row]:
    """The time to read many runs, and what one new event costs after few and after many."""
    runs = 200 if quick else RUNS
    with tempfile.TemporaryDirectory() as scratch:
        make_runs(Path(scratch), runs)
        seconds = median_seconds(lambda: store.frame(scratch), 3)
    rows = [figure(f"store.frame over {runs:,} finished runs", "s", [seconds], at_most=SECONDS_FOR_RUNS)]
    costs = [seconds_per_new_event(before) * 1e6 for before in EVENTS_BEFORE]
    for before, cost in zip(EVENTS_BEFORE, costs, strict=True):
        rows.append(figure(f"one new event, with {before:,} before it", "µs", [cost]))
    rows.append(figure("growth of the cost of a new event", "times", [costs[-1] / costs[0]], at_most=GROWTH))
    return rows


def make_runs(parent: Path, count: int) -> None:
    """Write the folders of finished runs: a sweep over ranks, batch sizes and learning rates."""
    for number in range(count):
        num_gpus, batch_size, lr = 1 + number % 4, 32 << (number // 4 % 4), 0.01 * (1 + number // 16 % 5)
        folder = create_run_folder(parent / f"run-{number:05}")
        config = RunConfig(num_gpus=num_gpus, batch_size=batch_size, lr=lr, device="cpu")
        folder.write_config(config, {"sweep": parent.name, "scaling": "weak", "repeat": number // 80})
        write_json(folder.environment, ENVIRONMENT)
        rate = 1000.0 * num_gpus + number % 7
        split = dict.fromkeys(store.TIME_SPLIT, 0.01)
        value = {"val_accuracy": 0.9, "val_loss": 0.3, "train_loss": 0.3, "images_per_sec": rate, "step_seconds": 0.04}
        result = {"format": FORMAT, "value": {**value, "time_split": split, "steps": 100}, "seconds": 4.0}
        write_json(folder.result, result)
        for rank in range(num_gpus):
            folder.events(rank).write_text(json.dumps(step(1)) + "\n")
            folder.log(rank).touch()


ENVIRONMENT = {
    "timing": MEASURED_ON_CPU_RANKS,
    **{"backend": "gloo", "device": "cpu", "devices": ["cpu"], "hostname": "laptop", "cpu": "a processor", "cores": 8},
    **{"platform": "Linux", "python": "3.13.1", "torch": "2.13.0", "numpy": "2.4.6", "course": "0.1.0", "started": 0.0},
}


def step(number: int) -> dict[str, Any]:
    """A step's event as a trainer reports it."""
    parts = dict.fromkeys((*store.TIME_SPLIT, "seconds"), 0.0123456789)
    return {
        **{"kind": "step", "rank": 0, "time": time.time(), "epoch": 1, "step": number, "loss": 2.3012345678},
        **{"samples": 256, "lr": 0.05, "start": time.time(), **parts, "images_per_sec": 12345.678},
    }


def seconds_per_new_event(before: int, tries: int = 40) -> float:
    """The time to read an event that was just written, when `before` others were read already."""
    with tempfile.TemporaryDirectory() as scratch:
        writer, reader = EventWriter(Path(scratch) / "events-rank0.jsonl"), EventReader(scratch)
        for number in range(before):
            writer.write(step(number))
        reader.read_new()
        taken = []
        for _ in range(tries):
            for number in range(NEW_EVENTS):
                writer.write(step(number))
            start = time.perf_counter()
            assert len(reader.read_new()) == NEW_EVENTS
            taken.append(time.perf_counter() - start)
        writer.close()
    return statistics.median(taken) / NEW_EVENTS


def median_seconds(work: Callable[[], object], times: int) -> float:
    """The median time of a piece of work."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)

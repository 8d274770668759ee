"""Seconds from the call of `launch` to the first step of training, beside `torch.multiprocessing.spawn`."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from benchmarks.measuring import Row, compare, figure, run_once, take_turns
from benchmarks.workload import QUICK, WORLD_SIZE, first_step
from course_lib.config import RunConfig
from course_lib.runs import devices
from course_lib.runs.launcher import fork_server
from course_lib.training import ddp
from course_lib.training.worker import Worker

TURNS = 7
TIMES_FASTER_THAN_SPAWN = 10.0
SECONDS = 0.5
CONFIG = RunConfig(num_gpus=WORLD_SIZE, device="cpu")


def measure(quick: bool) -> list[Row]:
    """The same function by both; the first launch of all, and the whole trainer, for information."""
    turns = 1 if quick else TURNS
    # As `launch` sets it for its ranks: the other side shall not look up the host's name either.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", devices.loopback())
    cold = [by_cold_launch() for _ in range(min(turns, 2))]
    sides = {"launch": by_launch, "spawn": by_spawn, "trainer": by_launch_of_trainer}
    seconds = take_turns(sides, turns)
    name = f"launch to first step, {WORLD_SIZE} CPU ranks, warm"
    other = "torch.multiprocessing.spawn"
    return [
        compare(name, "s", seconds["launch"], seconds["spawn"], other, at_least=TIMES_FASTER_THAN_SPAWN),
        figure(name, "s", seconds["launch"], at_most=SECONDS, note="0.25 s is within reach"),
        figure("the same, the first launch of a process", "s", cold, note="starts the fork server, which loads torch"),
        figure("the same, of ddp.train with its data", "s", seconds["trainer"], note="SmallCNN, the subset"),
    ]


def by_launch() -> float:
    """Seconds until the first step, in ranks that `launch` started."""
    start = time.monotonic()
    done, _ = run_once(launched, CONFIG)
    return float(done - start)


def by_cold_launch() -> float:
    """The same when there is no fork server yet."""
    server = fork_server()
    server.close()
    while server.alive:
        time.sleep(0.01)
    return by_launch()


def by_launch_of_trainer() -> float:
    """Seconds until `ddp.train` reports its first step; it loads the data set before."""
    start = time.time()
    _, events = run_once(ddp.train, QUICK.with_(epochs=1))
    steps: list[dict[str, Any]] = [event for event in events if event["kind"] == "step" and event["rank"] == 0]
    return float(steps[0]["time"] - start)


def by_spawn() -> float:
    """Seconds until the first step, in ranks that `torch.multiprocessing.spawn` started."""
    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
        out = Path(scratch) / "done"
        start = time.monotonic()
        spawn(spawned, (WORLD_SIZE, f"file://{scratch}/meeting", out), nprocs=WORLD_SIZE)
        return float(out.read_text()) - start


def launched(config: RunConfig, worker: Worker) -> float:
    """What `launch` starts."""
    return first_step(worker.rank, worker.world_size, worker.init_method)


def spawned(rank: int, world_size: int, init_method: str, out: Path) -> None:
    """What `spawn` starts: the same, and it tells by a file, since `spawn` returns nothing."""
    done = first_step(rank, world_size, init_method)
    if rank == 0:
        out.write_text(str(done))
    dist.barrier()
    dist.destroy_process_group()

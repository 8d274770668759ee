"""A step of the replica engine on 2 replicas, beside plain PyTorch with as many threads, and netcl on PoCL.

The tutorial's network (784-256-128-10), a batch of 128 and AdamW, on CPU. All sides take turns of some steps.
`make bench-peers` installs netcl and PoCL.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measuring import Row, compare, skipped
from benchmarks.turns import Side, Why, launched, take_turns_by_epoch
from course_lib.config import RunConfig
from course_lib.training import models
from course_lib.training.replicas import DeviceManager, Replica, data_parallel_step, prepare_replicas
from course_lib.training.worker import Worker

WORLD_SIZE = 2
BATCH_SIZE = 128
TURNS, STEPS = 16, 200
STEPS_OF_NETCL = 10  # which takes a hundred times as long
HERE, PLAIN, NETCL = "replicas, 2 on the CPU", "plain PyTorch, 2 threads", "netcl on PoCL"
AT_MOST_TIMES_PLAIN, TIMES_NETCL = 2.0, 20.0
ROOT = Path(__file__).parent.parent


def measure(quick: bool) -> list[Row]:
    """Both comparisons, one after the other, so that netcl's threads are not there while plain PyTorch is measured."""
    turns = 1 if quick else TURNS
    config = RunConfig(device="cpu", epochs=turns + 1, batch_size=BATCH_SIZE, threads_per_rank=WORLD_SIZE)
    here = launched(HERE, replicas_in_turns, config)
    rates = take_turns_by_epoch([here, launched(PLAIN, plain_in_turns, config)], turns)
    note = f"a step of {BATCH_SIZE} images"
    rows = [compare(HERE, "images/s", rates[HERE], rates[PLAIN], PLAIN, at_least=1 / AT_MOST_TIMES_PLAIN, note=note)]
    if missing := _missing_for_netcl():
        return [*rows, skipped(f"beside {NETCL}", f"{missing} is not installed (make bench-peers)")]
    rates = take_turns_by_epoch([here, Side(NETCL, 1, _netcl)], min(turns, 5))
    return [*rows, compare(HERE, "images/s", rates[HERE], rates[NETCL], NETCL, at_least=TIMES_NETCL, note=note)]


def replicas_in_turns(config: RunConfig, worker: Worker) -> float:
    """Train on two replicas; returns the last loss."""
    replicas = prepare_replicas(_network(), DeviceManager(["cpu"] * WORLD_SIZE).get_queues())
    optimizers = [torch.optim.AdamW(replica.parameters()) for replica in replicas]
    batch = _batch()
    return _in_turns(config, worker, lambda: data_parallel_step(_loss, replicas, optimizers, batch).loss)


def plain_in_turns(config: RunConfig, worker: Worker) -> float:
    """Train the same without replicas; returns the last loss."""
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters())
    images, labels = _batch()

    def step() -> float:
        loss = cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return _in_turns(config, worker, step)


def _in_turns(config: RunConfig, worker: Worker, step: Callable[[], float]) -> float:
    for epoch in range(config.epochs):
        start = time.perf_counter()
        for _ in range(STEPS):
            loss = step()
        rate = BATCH_SIZE * STEPS / (time.perf_counter() - start)
        worker.report("epoch", epoch=epoch + 1, images_per_sec=rate)
        worker.save_checkpoint({})
    return loss


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    return models.build("mlp")


def _batch() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH_SIZE, 1, 28, 28), torch.randint(0, 10, (BATCH_SIZE,))


def _loss(replica: Replica, images: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(replica(images), labels)


def _missing_for_netcl() -> str:
    for package in ("netcl", "pyopencl"):
        if find_spec(package) is None:
            return package
    import pyopencl

    with contextlib.suppress(pyopencl.LogicError):  # no platform at all
        if any("Portable" in platform.name for platform in pyopencl.get_platforms()):
            return ""
    return "PoCL"


@contextlib.contextmanager
def _netcl(address: str) -> Iterator[Why]:
    numbers = map(str, (WORLD_SIZE, BATCH_SIZE, STEPS_OF_NETCL))
    cpus = " ".join(["pthread"] * WORLD_SIZE)  # PoCL shows the CPU as many times as it is asked for
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POCL_DEVICES": cpus}
    with tempfile.TemporaryFile() as output:  # netcl prints a line for each parameter in each step
        command = [sys.executable, "-m", "benchmarks.peer_netcl", address, *numbers]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

        def why() -> str:
            output.seek(0)
            return output.read().decode(errors="replace").strip().rpartition("\n")[2] or "nothing"

        try:
            yield why
        finally:
            process.kill()
            process.wait()

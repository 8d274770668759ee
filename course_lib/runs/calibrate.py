"""Measure this machine, in some seconds: what a step takes, and what an all-reduce does."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from course_lib.config import RunConfig
from course_lib.errors import ConfigError
from course_lib.runs.devices import core_count, cpu_name, gpu_count, memory_bytes
from course_lib.runs.folder import read_json
from course_lib.runs.launch import launch
from course_lib.runs.profiles import Profile
from course_lib.scaling.collectives import Cluster, fit_link
from course_lib.scaling.hardware import NETWORKS, Hardware
from course_lib.scaling.step_time import StepTimeModel
from course_lib.training import data, models
from course_lib.training.costs import flops_per_sample, gradient_bytes
from course_lib.training.optimization import make_optimizer
from course_lib.training.worker import Worker

BATCH_SIZES = (8, 16, 32, 64, 128, 256)
REDUCED_BYTES = tuple(4**power for power in range(5, 14))  # 1 KiB to 64 MiB
MEASURING_SECONDS = 6.0  # altogether; starting processes comes on top
REPEATS = 3  # at least, unless a single one takes longer than its share of the time
LONGEST_STEP = 0.25  # seconds; after such a step no larger batch is tried
DOUBTED = "Not a speed measurement: "  # how a source begins that says why
NETWORK = "10gbe"  # between nodes like this one, which cannot be measured on one machine

OnProgress = Callable[[str], object]


def calibrate(model: str = "small_cnn", device: str = "auto", on_progress: OnProgress | None = None) -> Profile:
    """Measure the steps of a model on one and on all devices of this machine, and all-reduces between them.

    Takes less than 20 seconds. Run it while nothing else does; runs of the course that went on are told in the sources.

    Args:
        model: of `config.MODELS`; predictions for it are the best, those for others follow from their operations.
        device: "auto", "cuda" or "cpu".
        on_progress: told what is measured next.

    Returns:
        The profile of this machine. Links between several nodes like it are those of an assumed network.

    Raises:
        UsageError: the device is not there, or none that can be measured.
        RunError: a rank failed.
    """
    config = RunConfig(model=model, device=device, batch_size=max(BATCH_SIZES), checkpoint=False)
    if config.simulated:
        raise ConfigError("Simulated GPUs cannot be measured. Calibrate device 'auto', 'cuda' or 'cpu'.")
    on_gpus = device != "cpu" and gpu_count() > 0
    devices = gpu_count() if on_gpus else core_count()
    world_sizes = sorted({1, min(2, devices), devices})
    steps, all_reduces, caveats = [], [], set[str]()
    with tempfile.TemporaryDirectory() as scratch:
        for world_size in world_sizes:
            if on_progress is not None:
                on_progress(f"Measuring {world_size} of {devices} {'GPUs' if on_gpus else 'CPU cores'}")
            measurement = _Measurement(MEASURING_SECONDS / len(world_sizes), BATCH_SIZES, REDUCED_BYTES)
            run = launch(measurement, config.with_(num_gpus=world_size), Path(scratch) / str(world_size))
            found = run.wait()
            steps += found["steps"]
            all_reduces += found["all_reduces"]
            if run.folder.caveats.exists():
                caveats.update(read_json(run.folder.caveats)["speed_caveats"])
    frame = pd.DataFrame(steps).assign(nodes=1, gradient_bytes=gradient_bytes(model))
    cluster = _cluster(devices, pd.DataFrame(all_reduces))
    fitted = StepTimeModel.fit(frame, cluster)
    hardware = _hardware(on_gpus, cluster, fitted, model)
    doubts = tuple(f"{DOUBTED}{caveat}." for caveat in sorted(caveats))
    return Profile(replace(hardware, sources=hardware.sources + doubts), {model: fitted}, frame)


@dataclass(frozen=True)
class _Measurement:
    """The function of each rank: what it measures, and in how much time."""

    seconds: float
    batch_sizes: tuple[int, ...]
    reduced_bytes: tuple[int, ...]

    def __call__(self, config: RunConfig, worker: Worker) -> dict[str, Any]:
        if worker.device.type == "cuda":
            torch.cuda.set_device(worker.device)
        if worker.world_size > 1:
            dist.init_process_group(
                worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
            )
        share = self.seconds / (2 if worker.world_size > 1 else 1)
        steps = [
            {"gpus": worker.world_size, "local_batch": batch, **times}
            for batch, times in _time_steps(config, worker, self.batch_sizes, share)
        ]
        return {"steps": steps, "all_reduces": list(_time_all_reduces(worker, self.reduced_bytes, share))}


def _time_steps(
    config: RunConfig, worker: Worker, batch_sizes: tuple[int, ...], seconds: float
) -> Iterator[tuple[int, dict[str, float]]]:
    """The steps of the trainers: a batch from the data set, forward, backward and optimizer; larger and larger."""
    images = data.load("subset", worker.device)[0]
    network = models.build(config.model).to(worker.device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(network, config)

    def step(model: nn.Module, indices: torch.Tensor) -> None:
        pixels, labels = images.batch(indices)
        cross_entropy(model(pixels), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    # The bare network beside DDP's wrapper, on all ranks at the same time: the difference is what exchanging costs.
    ddp = DistributedDataParallel(network, gradient_as_bucket_view=True) if worker.world_size > 1 else None
    for batch in batch_sizes:
        indices = torch.randint(len(images), (batch,), device=worker.device)
        budget = seconds / len(batch_sizes) / (2 if ddp else 1)
        taken = alone = _median_seconds(partial(step, network, indices), worker, budget)
        if ddp:
            taken = _median_seconds(partial(step, ddp, indices), worker, budget)
        yield batch, {"step_time_s": taken, "sync_time_s": max(0.0, taken - alone)}
        if taken > LONGEST_STEP:
            break


def _time_all_reduces(worker: Worker, sizes: tuple[int, ...], seconds: float) -> Iterator[dict[str, float]]:
    for size in sizes if worker.world_size > 1 else ():
        tensor = torch.ones(size // 4, device=worker.device)
        taken = _median_seconds(partial(dist.all_reduce, tensor), worker, seconds / len(sizes))
        yield {"bytes": size, "seconds": taken, "ranks": worker.world_size}


def _median_seconds(work: Callable[[], object], worker: Worker, budget: float) -> float:
    """The median time of a piece of work, on the slowest rank: the same figure on all of them.

    All ranks do it equally often, or one would wait for ever.
    """
    first = [_seconds(work, worker) for _ in range(2)][1]  # the very first loads kernels and fills caches
    repeats = int(budget / _slowest(first, worker))
    taken = [_seconds(work, worker) for _ in range(max(repeats, REPEATS if repeats else 1))]
    return _slowest(median([first, *taken]), worker)


def _slowest(seconds: float, worker: Worker) -> float:
    if worker.world_size == 1:
        return seconds
    most = torch.tensor(seconds, device=worker.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def _cluster(devices: int, all_reduces: pd.DataFrame) -> Cluster:
    """The devices of this machine as a node; nodes are joined by an assumed network."""
    network = NETWORKS[NETWORK][1]
    # A single device has no link to measure: what it would have is not slower than a network.
    intra = fit_link(all_reduces) if len(all_reduces) else network
    return Cluster(devices, intra, network)


def _hardware(on_gpus: bool, cluster: Cluster, fitted: StepTimeModel, model: str) -> Hardware:
    """The profile's figures: those of the fit, so that other models' times follow from their operations."""
    name = torch.cuda.get_device_name() if on_gpus else cpu_name()
    memory = memory_bytes("cuda:0") if on_gpus else memory_bytes("cpu") / cluster.gpus_per_node
    flops_per_s = flops_per_sample(model) / fitted.parameters["sample_s"]
    network = NETWORKS[NETWORK][0]
    return Hardware(
        name="this-machine",
        title=f"{cluster.gpus_per_node}x {name}{'' if on_gpus else ' (core)'}, {network} between nodes (assumed)",
        cluster=cluster,
        flops_per_s=flops_per_s,
        autocast_flops_per_s=flops_per_s,
        step_overhead_s=fitted.parameters["overhead_s"],
        memory_bytes=float(memory),
        sources=(
            f"Measured with {model} on {platform.node()}, {time.strftime('%Y-%m-%d')}, torch {torch.__version__}.",
            f"network: {network} is assumed, since one machine cannot tell of several.",
        ),
    )


def _seconds(work: Callable[[], object], worker: Worker) -> float:
    start = time.perf_counter()
    work()
    if worker.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start

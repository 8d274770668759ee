"""The loops that a person writes by hand, without reports, checks or a stopwatch: what the trainers are held against.

They do the same mathematics as the trainers, on the same images in the same order. Only after an epoch, when its time
was taken, do they report its speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from course_lib.config import RunConfig
from course_lib.training import data, models
from course_lib.training.evaluate import evaluate
from course_lib.training.optimization import make_optimizer, make_schedule
from course_lib.training.worker import Worker

Batches = Callable[[int], Iterable[tuple[Tensor, Tensor]]]


def single(config: RunConfig, worker: Worker, num_workers: int | None = None) -> dict[str, Any]:
    """Train on one device; with `num_workers`, fed by a DataLoader that has so many.

    Returns:
        The loss on the test set, by which the sides can be compared.
    """
    return _train(config, worker, num_workers, lambda network: network)


def ddp(config: RunConfig, worker: Worker, num_workers: int | None = None) -> dict[str, Any]:
    """The same on all ranks, images per second counted over all of them."""
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
    )
    device_ids = [worker.device] if worker.device.type == "cuda" else None

    def wrap(network: nn.Module) -> nn.Module:
        model = DistributedDataParallel(network, device_ids=device_ids, gradient_as_bucket_view=True)
        torch.manual_seed(config.seed + worker.rank)  # each rank drops out others
        return model

    return _train(config, worker, num_workers, wrap)


def _train(
    config: RunConfig, worker: Worker, num_workers: int | None, wrap: Callable[[nn.Module], nn.Module]
) -> dict[str, Any]:
    device = worker.device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(config.seed)
    train_set, test_set = data.load(config.data, device, config.train_samples)
    batches = (
        _from_device(train_set, config, worker)
        if num_workers is None
        else _from_loader(train_set, config, worker, num_workers)
    )
    network = models.build(config.model).to(device)
    if config.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = wrap(network)
    optimizer = make_optimizer(network, config)
    schedule = make_schedule(optimizer, config, -(-len(train_set) // config.global_batch_size))
    bf16 = partial(torch.autocast, device.type, torch.bfloat16)
    autocast = bf16 if config.precision == "bf16" else nullcontext

    for epoch in range(config.epochs):
        network.train()
        start = _now(device)
        for images, labels in batches(epoch):
            with autocast():
                loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seconds = _now(device) - start
        if model is network or worker.rank == 0:  # in a group, one speaks for all
            worker.report("epoch", epoch=epoch + 1, images_per_sec=len(train_set) / seconds)
        worker.save_checkpoint({})
    _, loss_sum, count = evaluate(network, test_set, torch.arange(len(test_set), device=device), 1000).tolist()
    return {"val_loss": loss_sum / count}


def _from_device(train_set: data.ImageSet, config: RunConfig, worker: Worker) -> Batches:
    sampler = data.Sampler(len(train_set), config.seed)

    def batches(epoch: int) -> Iterable[tuple[Tensor, Tensor]]:
        sampler.set_epoch(epoch)
        order = sampler.order().to(worker.device)
        for indices in order.split(config.batch_size * worker.world_size):
            yield train_set.batch(indices[worker.rank :: worker.world_size])

    return batches


def _from_loader(train_set: data.ImageSet, config: RunConfig, worker: Worker, num_workers: int) -> Batches:
    loader, sampler = data.as_dataloader(
        train_set, config.batch_size, worker.rank, worker.world_size, config.seed, num_workers
    )

    def batches(epoch: int) -> Iterable[tuple[Tensor, Tensor]]:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            yield images.to(worker.device, non_blocking=True), labels.to(worker.device, non_blocking=True)

    return batches


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()

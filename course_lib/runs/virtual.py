"""Train on simulated GPUs: the mathematics of all ranks in one process, and the time from the scaling model.

Read it beside single.py and ddp.py. A rank is its images, its random stream and its BatchNorm statistics; the weights,
the optimizer and the learning rate are the same on all of them, and so are here once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grads_with_norm_

from course_lib.config import RunConfig
from course_lib.runs.simulated_clock import SimulatedClock
from course_lib.training import data, models
from course_lib.training.checkpoint import capture, restore
from course_lib.training.checks import check_finite, fingerprint_text
from course_lib.training.evaluate import evaluate
from course_lib.training.gradient_norms import gradient_norm, unscaled
from course_lib.training.optimization import autocast, make_optimizer, make_scaler, make_schedule
from course_lib.training.timing import Stopwatch
from course_lib.training.virtual_layers import VirtualRanks
from course_lib.training.worker import Worker

EVALUATION_BATCH = 1000  # images at a time; changes memory and speed, not the figures
IMAGES_AT_A_TIME = 256  # in a forward and backward pass, unless one rank takes more; likewise


def train(config: RunConfig, worker: Worker) -> dict[str, Any]:
    """What `ddp.train` does on `config.world_size` ranks, done by this one.

    The weights are those of ddp.train up to rounding: the same images in each step, gradients averaged over all of
    them, BatchNorm's statistics and dropout of each rank's own. It reports what rank 0 would report; all times are
    those of `config.hardware`, and only `real_seconds` of the result is what it took here. With `sync_batchnorm` the
    ranks are as one, and a pass takes the batch of all of them through the model at a time.

    Returns:
        What ddp.train returns, the name of the hardware, and `real_seconds`.
    """
    began_here = time.perf_counter()
    device = worker.device
    torch.manual_seed(config.seed)

    # The data lies on the device as bytes. A sampler says which images each step takes, of all ranks together.
    train_set, test_set = data.load(config.data, device, config.train_samples)
    test_indices = torch.arange(len(test_set), device=device)
    sampler = data.Sampler(len(train_set), config.seed, device)

    # One set of weights, and in each layer that looks at more than one image what each rank has for itself.
    network = models.build(config.model).to(device)
    if config.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    world_size, batch_size = config.world_size, config.batch_size
    if config.sync_batchnorm:
        world_size, batch_size = 1, config.batch_size * config.world_size
    virtual = VirtualRanks(network, config.seed, world_size, device)

    optimizer = make_optimizer(network, config)
    schedule = make_schedule(optimizer, config, sampler.steps_per_epoch(config.global_batch_size, 1))
    scaler = make_scaler(config, device)

    parts = {"network": network, "optimizer": optimizer, "schedule": schedule, "scaler": scaler, "virtual": virtual}
    first_epoch, step_count, seconds = 0, 0, 0.0
    checkpoint = worker.load_checkpoint()
    if checkpoint is not None:
        first_epoch, step_count, seconds = restore(checkpoint, parts, worker.rank, device, config.epochs)

    clock = SimulatedClock(config)
    watch = Stopwatch(torch.device("cpu"), seconds, clock.now)
    for epoch in range(first_epoch, config.epochs):
        sampler.set_epoch(epoch)
        network.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        began = watch.seconds()
        watch.start()
        for whole in sampler.global_batches(config.global_batch_size):
            step_loss = torch.zeros((), device=device)
            # The gradients of all ranks add up, some ranks at a time: memory does not grow with the world.
            for ranks in alike(len(whole), world_size, batch_size):
                virtual.now = ranks
                step = data.deal(whole, ranks, world_size, batch_size)
                for indices in step.micro_batches:
                    images, labels = train_set.batch(indices)
                    with autocast(config, device):
                        loss = cross_entropy(network(images), labels, reduction="sum")
                    # Its part of the mean over all images of the step, which is what DDP's averaging comes to.
                    loss = loss * (step.weight / step.samples)
                    step_loss += loss.detach()
                    scaler.scale(loss).backward()
                if ranks.start == 0:  # rank 0 comes first, and alone: so far all is its own
                    own_loss = step_loss * (step.samples / step.share)
                    own_norm = unscaled(gradient_norm(network), step.share / step.samples, scaler)
                    own_samples = step.share

            step_count += 1
            lr = optimizer.param_groups[0]["lr"]
            loss_sum += step_loss * len(whole)
            check_finite(loss_sum, step_count, lr)
            scaler.unscale_(optimizer)
            grad_norm = gradient_norm(network)
            if config.clip_norm is not None:
                clip_grads_with_norm_(network.parameters(), config.clip_norm, grad_norm)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()

            for phase in clock.step(len(whole)):
                watch.lap(phase)
            times = watch.end_step(len(whole))
            norms = {"grad_norm": grad_norm, "local_grad_norm": own_norm, "local_samples": own_samples}
            worker.report("step", epoch=epoch + 1, step=step_count, loss=own_loss, lr=lr, **norms, **times)

        train_seconds = watch.seconds() - began
        test_totals = evaluate(network, test_set, test_indices, EVALUATION_BATCH)
        train_loss = (loss_sum / len(train_set)).cpu()
        check_finite(train_loss, step_count, lr)
        correct, test_loss_sum, count = test_totals.tolist()
        metrics = {"train_loss": train_loss.item(), "val_loss": test_loss_sum / count, "val_accuracy": correct / count}
        speed = {"images_per_sec": len(train_set) / train_seconds, "seconds": watch.seconds()}
        worker.report("epoch", epoch=epoch + 1, **metrics, **speed)
        if config.checkpoint:
            state = capture(epoch + 1, step_count, speed["seconds"], parts, device)
            worker.save_checkpoint(state)

    return {
        **metrics,
        **watch.summary(),
        "steps": step_count,
        "epochs": config.epochs,
        "seconds": watch.seconds(),
        "fingerprint": fingerprint_text(network),
        "hardware": clock.hardware.name,
        "real_seconds": time.perf_counter() - began_here,
    }


def alike(samples: int, world_size: int, batch_size: int) -> Iterator[range]:
    """Ranks to take together in a step over so many images: all of a group get as many, and rank 0 is on its own.

    A group's pass has at most `IMAGES_AT_A_TIME` images, or it is a group of one.
    """
    largest = ceil(samples / world_size)
    most = max(1, IMAGES_AT_A_TIME // min(batch_size, largest))
    with_one_more = samples % world_size  # so many ranks, the first ones, may get an image more than the others
    bounds = sorted({0, 1, max(1, with_one_more), world_size})
    for first, end in pairwise(bounds):
        for start in range(first, end, most):
            yield range(start, min(start + most, end))

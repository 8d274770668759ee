"""Train on many devices, a process each: single.py, and the steps marked `DDP step 1` to `DDP step 6`."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_

from course_lib.config import RunConfig
from course_lib.training import data, models
from course_lib.training.checkpoint import capture, restore
from course_lib.training.checks import check_finite, check_in_sync, fingerprint_text
from course_lib.training.evaluate import evaluate
from course_lib.training.gradient_norms import LocalGradientNorm, gradient_norm
from course_lib.training.optimization import autocast, make_optimizer, make_scaler, make_schedule
from course_lib.training.timing import Stopwatch
from course_lib.training.worker import Worker

EVALUATION_BATCH = 1000  # images at a time; changes memory and speed, not the figures


def train(config: RunConfig, worker: Worker) -> dict[str, Any]:
    """Train `config.model` on Fashion-MNIST and report each step and each epoch to `worker`.

    Returns:
        The last epoch's accuracy and losses, the speed, the time split and the weights' fingerprint.
    """
    # DDP step 1: one process for each GPU. `launch` starts them, and each runs this function from here on,
    # with a number of its own: its rank.
    rank, world_size = worker.rank, worker.world_size

    # DDP step 2: join the process group. Nobody gets past this line before all have come.
    timeout = timedelta(seconds=config.collective_timeout)
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=rank, world_size=world_size, timeout=timeout
    )

    device = worker.device
    # DDP step 3: choose the device. The local rank counts the GPUs of this node, the rank those of all nodes.
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(config.seed)

    # The data lies on the device as bytes. A sampler says which images each step takes.
    train_set, test_set = data.load(config.data, device, config.train_samples)
    test_indices = torch.arange(len(test_set), device=device)
    sampler = data.Sampler(len(train_set), config.seed, device)
    # DDP step 4: deal the data. Every rank shuffles alike and takes each world_size-th image, of the test set too.
    sampler = sampler.shard(rank, world_size)
    test_indices = test_indices[rank::world_size]

    # `network` holds the weights. `model` is what the training step calls.
    network = models.build(config.model).to(device)
    if config.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = network
    # DDP step 5: wrap the model. DDP copies rank 0's weights to all, and during the backward pass averages the
    # gradients, so every optimizer takes the same step. Dropout gets a random stream of its own on each rank.
    if config.sync_batchnorm:
        network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
    model = DistributedDataParallel(
        network, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True
    )
    own_gradient = LocalGradientNorm(model)
    torch.manual_seed(config.seed + rank)
    if config.compile:
        model = torch.compile(model)  # type: ignore[assignment]

    optimizer = make_optimizer(network, config)
    schedule = make_schedule(optimizer, config, sampler.steps_per_epoch(config.batch_size, config.accumulation_steps))
    scaler = make_scaler(config, device)

    parts = {"network": network, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    first_epoch, step_count, seconds = 0, 0, 0.0
    checkpoint = worker.load_checkpoint()
    if checkpoint is not None:
        first_epoch, step_count, seconds = restore(checkpoint, parts, worker.rank, device, config.epochs)

    watch = Stopwatch(device, seconds)
    for epoch in range(first_epoch, config.epochs):
        sampler.set_epoch(epoch)
        network.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        began = watch.seconds()
        watch.start()
        for step in sampler.steps(config.batch_size, config.accumulation_steps):
            step_loss = torch.zeros((), device=device)
            for indices in step.micro_batches:
                # DDP step 5: the gradients of all passes are sent once, in the last one.
                last = indices is step.micro_batches[-1]
                with nullcontext() if last else model.no_sync():
                    images, labels = train_set.batch(indices)
                    watch.lap("data")
                    with autocast(config, device):
                        loss = cross_entropy(model(images), labels, reduction="sum")
                    # Its part of the mean over all images of the step, so that uneven batches count by their size.
                    loss = loss * (step.weight / step.samples)
                    step_loss += loss.detach()
                    # DDP step 5: DDP divides the sum of the gradients by world_size, and `samples` counts all ranks'.
                    loss = loss * world_size
                    watch.lap("forward")
                    scaler.scale(loss).backward()
                    watch.lap("backward")

            step_count += 1
            lr = optimizer.param_groups[0]["lr"]
            loss_sum += step_loss * step.samples
            check_finite(loss_sum, step_count, lr)
            scaler.unscale_(optimizer)
            grad_norm = gradient_norm(network)
            local_grad_norm = grad_norm
            # DDP step 5: that is the average. How much the ranks' own gradients differed says how noisy one is.
            local_grad_norm = own_gradient.take(step.share / step.samples * world_size, scaler)
            if config.clip_norm is not None:
                clip_grads_with_norm_(network.parameters(), config.clip_norm, grad_norm)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
            watch.lap("optimizer")

            times = watch.end_step(step.samples)
            own_loss = step_loss * (step.samples / step.share) if step.share else None
            norms = {"grad_norm": grad_norm, "local_grad_norm": local_grad_norm, "local_samples": step.share}
            worker.report("step", epoch=epoch + 1, step=step_count, loss=own_loss, lr=lr, **norms, **times)

        train_seconds = watch.seconds() - began
        # DDP step 6: reduce the metrics. Sums over all ranks are exact; a mean of the ranks' means would not be. All
        # evaluate one model, rank 0's: BatchNorm's statistics differ between ranks.
        check_in_sync(network)
        dist.all_reduce(loss_sum)
        for buffer in network.buffers():
            dist.broadcast(buffer, src=0)
        test_totals = evaluate(network, test_set, test_indices, EVALUATION_BATCH)
        # DDP step 6: reduce the metrics.
        dist.all_reduce(test_totals)
        train_loss = (loss_sum / len(train_set)).cpu()
        check_finite(train_loss, step_count, lr)
        correct, test_loss_sum, count = test_totals.tolist()
        metrics = {"train_loss": train_loss.item(), "val_loss": test_loss_sum / count, "val_accuracy": correct / count}
        speed = {"images_per_sec": len(train_set) / train_seconds, "seconds": watch.seconds()}
        # DDP step 6: one rank speaks for all.
        if rank == 0:
            worker.report("epoch", epoch=epoch + 1, **metrics, **speed)
        if config.checkpoint:
            state = capture(epoch + 1, step_count, speed["seconds"], parts, device)
            # DDP step 6: only rank 0 writes, so it collects every rank's random stream.
            streams = [None] * world_size
            dist.all_gather_object(streams, state["random"][0])
            state["random"] = streams
            worker.save_checkpoint(state)

    return {
        **metrics,
        **watch.summary(),
        "steps": step_count,
        "epochs": config.epochs,
        "seconds": watch.seconds(),
        "fingerprint": fingerprint_text(network),
    }

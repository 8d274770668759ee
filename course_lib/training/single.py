"""Train on one device. Read `train` from top to bottom; ddp.py is the same text, and six steps more."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grads_with_norm_

from course_lib.config import RunConfig
from course_lib.training import data, models
from course_lib.training.checkpoint import capture, restore
from course_lib.training.checks import check_finite, fingerprint_text
from course_lib.training.evaluate import evaluate
from course_lib.training.gradient_norms import gradient_norm
from course_lib.training.optimization import autocast, make_optimizer, make_scaler, make_schedule
from course_lib.training.timing import Stopwatch
from course_lib.training.worker import Worker

EVALUATION_BATCH = 1000  # images at a time; changes memory and speed, not the figures


def train(config: RunConfig, worker: Worker) -> dict[str, Any]:
    """Train `config.model` on Fashion-MNIST and report each step and each epoch to `worker`.

    Returns:
        The last epoch's accuracy and losses, the speed, the time split and the weights' fingerprint.
    """
    device = worker.device
    torch.manual_seed(config.seed)

    # The data lies on the device as bytes. A sampler says which images each step takes.
    train_set, test_set = data.load(config.data, device, config.train_samples)
    test_indices = torch.arange(len(test_set), device=device)
    sampler = data.Sampler(len(train_set), config.seed, device)

    # `network` holds the weights. `model` is what the training step calls.
    network = models.build(config.model).to(device)
    if config.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = network
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
                images, labels = train_set.batch(indices)
                watch.lap("data")
                with autocast(config, device):
                    loss = cross_entropy(model(images), labels, reduction="sum")
                # Its part of the mean over all images of the step, so that uneven batches count by their size.
                loss = loss * (step.weight / step.samples)
                step_loss += loss.detach()
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
    }

"""The whole way of data parallelism by hand, as the second lesson goes it, on real images: it equals plain training.

Devices, replicas, shards, gradients and their mean, the step with its hooks; then the linear scaling rule with
warm-up, pinned memory where a GPU can fetch from it, and a broadcast after the step.
"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from course_lib.errors import OutOfSyncError
from course_lib.training import data, models
from course_lib.training.evaluate import evaluate
from course_lib.training.replicas import (
    DeviceManager,
    broadcast_params,
    check_in_sync,
    data_parallel_step,
    prepare_replicas,
    shard_batch,
    sync_grads,
    write_back,
)
from course_lib.training.schedules import lr_factor, scaled_lr

BATCH_SIZE, LR, SAMPLES, EPOCHS = 64, 1e-3, 4_000, 2
DEVICES = {"two on the CPU": ["cpu"] * 2, "three on the CPU": ["cpu"] * 3, "all GPUs": None}


@pytest.fixture(params=DEVICES)
def queues(request):
    if DEVICES[request.param] is None and not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    return DeviceManager(DEVICES[request.param]).get_queues()


@pytest.fixture(scope="module")
def images():
    return data.load("subset", "cpu", SAMPLES)


@pytest.fixture
def model():
    """The model of the tutorial in float64, with dropout off."""
    torch.manual_seed(0)
    return models.MLP().double().eval()


def forward(replica, images, labels):
    return cross_entropy(replica(images), labels)


def batches(image_set, global_batch_size, epoch):
    """One epoch's batches; all that a GPU fetches lies in pinned memory."""
    sampler = data.Sampler(len(image_set), seed=0)
    sampler.set_epoch(epoch)
    images, labels = image_set.batch(sampler.order())
    images = images.double()
    if torch.cuda.is_available():
        images, labels = images.pin_memory(), labels.pin_memory()
    return list(zip(images.split(global_batch_size), labels.split(global_batch_size), strict=True))


def warm_up(optimizer, steps_per_epoch):
    return LambdaLR(optimizer, lambda step: lr_factor(step, EPOCHS * steps_per_epoch, steps_per_epoch // 2, "constant"))


def train_plain(model, device, image_set, global_batch_size):
    """One model on one device; returns the losses and the learning rates of its steps."""
    model.to(device)
    optimizer = AdamW(model.parameters(), lr=scaled_lr(LR, "linear", global_batch_size, BATCH_SIZE))
    schedule = warm_up(optimizer, math.ceil(len(image_set) / global_batch_size))
    losses, rates = [], []
    for epoch in range(EPOCHS):
        for images, labels in batches(image_set, global_batch_size, epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            loss = forward(model, images.to(device), labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            losses.append(loss.item())
    return losses, rates


def train_replicas(replicas, image_set, global_batch_size):
    """The same on replicas, with a broadcast after each step."""
    lr = scaled_lr(LR, "linear", global_batch_size, BATCH_SIZE)
    optimizers = [AdamW(replica.parameters(), lr=lr) for replica in replicas]
    schedules = [warm_up(each, math.ceil(len(image_set) / global_batch_size)) for each in optimizers]
    losses, rates = [], []

    def after_the_step(replicas):
        check_in_sync(replicas)  # before the broadcast, which would hide it
        broadcast_params(replicas)
        for schedule in schedules:
            schedule.step()

    for epoch in range(EPOCHS):
        for batch in batches(image_set, global_batch_size, epoch):
            rates.append(optimizers[-1].param_groups[0]["lr"])
            step = data_parallel_step(forward, replicas, optimizers, batch, post_step_hook=after_the_step)
            losses.append(step.loss)
    return losses, rates


def accuracy(model, image_set):
    correct, _, count = evaluate(model.float().cpu(), image_set, torch.arange(len(image_set)), 500).tolist()
    return correct / count


def test_each_part_by_itself(queues, images, model):
    """Five images on all devices: by hand, the mean gradient is that of the five."""
    batch = images[0].batch(torch.arange(5))
    batch = batch[0].double(), batch[1]
    replicas = prepare_replicas(model, queues)
    check_in_sync(replicas)
    shards, sizes = shard_batch(batch, len(queues))
    for replica, (shard, labels) in zip(replicas, shards, strict=True):
        if len(labels):
            forward(replica, shard.to(replica.device), labels.to(replica.device)).backward()
    sync_grads(replicas, sizes)
    forward(model, *batch).backward()
    for replica in replicas:
        for parameter, right in zip(replica.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), right.grad, rtol=0, atol=1e-12)


def test_the_whole_flow_equals_plain_training(queues, images, model):
    train_set, test_set = images
    global_batch_size = BATCH_SIZE * len(queues)
    replicas = prepare_replicas(model, queues)
    losses, rates = train_replicas(replicas, train_set, global_batch_size)
    plain = prepare_replicas(model, queues[:1])[0].module
    expected, right_rates = train_plain(plain, queues[0].device, train_set, global_batch_size)

    assert losses == pytest.approx(expected, abs=1e-6)
    assert losses[-1] < 0.7 * losses[0]
    assert rates == right_rates
    assert rates[0] < rates[1] < max(rates) == LR * len(queues)
    write_back(replicas, model)
    for parameter, right in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter, right.cpu(), rtol=0, atol=1e-6)
    assert accuracy(model, test_set) == accuracy(plain, test_set) > 0.4


def test_what_a_gpu_fetches_is_pinned(images):
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    shards, _ = shard_batch(batches(images[0], 256, 0)[0], 3)
    assert all(tensor.is_pinned() for shard in shards for tensor in shard)


def test_drift_is_repaired_by_a_broadcast_and_comes_back_with_its_cause(queues, images, model):
    if len(queues) < 2:
        pytest.skip("one replica cannot drift from itself")
    batch = batches(images[0], 256, 0)[0]
    replicas = prepare_replicas(model, queues)
    optimizers = [AdamW(replica.parameters(), lr=LR) for replica in replicas]
    optimizers[1].param_groups[0]["lr"] = 2 * LR
    for _ in range(2):
        data_parallel_step(forward, replicas, optimizers, batch)
        with pytest.raises(OutOfSyncError, match="replica 1"):
            check_in_sync(replicas)
        broadcast_params(replicas)
        check_in_sync(replicas)
    optimizers[1].param_groups[0]["lr"] = LR
    data_parallel_step(forward, replicas, optimizers, batch)
    check_in_sync(replicas)

"""Replicas of a small model for tests, and what is right for them: one model on the whole batch."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.training.replicas import DeviceManager, prepare_replicas

QUEUES = DeviceManager(8).get_queues() if not torch.cuda.is_available() else DeviceManager(["cpu"] * 8).get_queues()
CLASSES = 3


def network(dtype=torch.float64, *layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), *layers, nn.Linear(7, CLASSES)).to(dtype)


def batch_of(samples, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 5, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, torch.randint(0, CLASSES, (samples,), generator=generator)


def forward(replica, inputs, labels):
    return cross_entropy(replica(inputs), labels)


def prepared(model, world_size, optimizer=torch.optim.SGD, batch_norm="local", **options):
    replicas = prepare_replicas(model, QUEUES[:world_size], batch_norm)
    return replicas, [optimizer(replica.parameters(), **options) for replica in replicas]


def gradients(model, batch, loss_of=forward):
    """The mean loss of one model on the whole batch, and its gradient."""
    model = copy.deepcopy(model)
    loss = loss_of(model, *batch)
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def keep_gradients(kept):
    """A hook that keeps the gradients of the last replica."""
    return lambda replicas: kept.extend(parameter.grad.clone() for parameter in replicas[-1].parameters())

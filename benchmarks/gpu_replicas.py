"""Whether replicas that share a GPU, on streams of their own, take the steps that plain PyTorch takes."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.training.replicas import (
    DeviceManager,
    Replica,
    check_in_sync,
    data_parallel_step,
    prepare_replicas,
    write_back,
)

STEPS = 5


def largest_difference(device: str, overlap: bool) -> float:
    """Between the weights of plain training and those of three replicas on the device, in float64, after some steps.

    Raises:
        OutOfSyncError: the replicas differ from each other.
    """
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)).double().to(device)
    model = copy.deepcopy(plain)
    replicas = prepare_replicas(model, DeviceManager([device] * 3).get_queues())
    optimizers = [torch.optim.AdamW(replica.parameters(), lr=0.01) for replica in replicas]
    own = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for _ in range(STEPS):
        images, labels = torch.randn(50, 784, dtype=torch.float64), torch.randint(0, 10, (50,))
        cross_entropy(plain(images.to(device)), labels.to(device)).backward()
        own.step()
        own.zero_grad()
        data_parallel_step(_loss, replicas, optimizers, (images, labels), overlap=overlap, bucket_bytes=10_000)
    check_in_sync(replicas)
    write_back(replicas, model)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    return max((one - other).abs().max().item() for one, other in pairs)


def _loss(replica: Replica, images: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(replica(images), labels)

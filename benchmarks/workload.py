"""The training that all sides of a comparison do alike."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from course_lib.config import RunConfig
from course_lib.training import data, models

WORLD_SIZE = 2
# What is compared by images per second: the subset that everybody has, one thread a rank.
TURNS = 16  # epochs of each side, after one to warm up
TRAINING = RunConfig(num_gpus=WORLD_SIZE, data="subset", device="cpu", epochs=TURNS + 1, checkpoint=False)
QUICK = TRAINING.with_(train_samples=600, epochs=2)


def first_step(rank: int, world_size: int, init_method: str) -> float:
    """Join the group, wrap a model, take one real step: when that was done, by `time.monotonic`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size)
    model = DistributedDataParallel(small_model())
    optimizer = small_optimizer(model)
    images, labels = small_batch()
    cross_entropy(model(images), labels).backward()
    optimizer.step()
    return time.monotonic()


def small_model() -> nn.Module:
    """What the first step is taken with."""
    return models.build("mlp")


def small_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """What takes the first step."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def small_batch() -> tuple[Tensor, Tensor]:
    """What the first step is taken on."""
    return torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))


def dataset(config: RunConfig) -> TensorDataset:
    """The training set as others feed it to a DataLoader: normalised once, before the training."""
    train_set, _ = data.load(config.data, "cpu", config.train_samples)
    return TensorDataset(*train_set.batch(torch.arange(len(train_set))))

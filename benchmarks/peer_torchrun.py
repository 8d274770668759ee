"""As a user of torchrun writes it: torchrun --nproc-per-node 2 -m benchmarks.peer_torchrun {launch,train} WHERE START.

WHERE is the file for the seconds of a launch, or the address of the batons for a training.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks import peers, workload
from benchmarks.turns import Baton
from course_lib.config import RunConfig
from course_lib.training import models
from course_lib.training.optimization import make_optimizer, make_schedule


def train(config: RunConfig, baton: Baton) -> None:
    """Train, and tell the images per second of each epoch."""
    dist.init_process_group("gloo")
    torch.manual_seed(config.seed)
    dataset = workload.dataset(config)
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, config.batch_size, sampler=sampler)
    model = DistributedDataParallel(models.build(config.model))
    optimizer = make_optimizer(model, config)
    schedule = make_schedule(optimizer, config, len(loader))
    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        baton.take()
        start = time.perf_counter()
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        rate = len(dataset) / (time.perf_counter() - start)
        baton.pass_on(rate if dist.get_rank() == 0 else 0.0)


def first_step(out: Path, began: float) -> None:
    """Write the seconds since `began`, when torchrun was called."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    done = workload.first_step(rank, world_size, "env://")
    if rank == 0:
        out.write_text(str(done - began))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Do what the arguments say."""
    what, where, began = sys.argv[1:]
    if what == "launch":
        first_step(Path(where), float(began))
    else:
        train(peers.config(), Baton(where))


if __name__ == "__main__":
    main()

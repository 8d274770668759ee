"""As a user of accelerate's notebook_launcher writes it: python -m benchmarks.peer_accelerate {launch,train} WHERE.

WHERE is the file for the seconds of a launch, or the address of the batons for a training.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator, notebook_launcher  # type: ignore[import-untyped, import-not-found, unused-ignore]
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from benchmarks import peers, workload
from benchmarks.turns import Baton
from course_lib.config import RunConfig
from course_lib.training import models
from course_lib.training.optimization import make_optimizer, make_schedule


def first_step(out: Path, began: float) -> None:
    """What `workload.first_step` does, by way of accelerate."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    network = workload.small_model()
    model, optimizer = accelerator.prepare(network, workload.small_optimizer(network))
    images, labels = workload.small_batch()
    accelerator.backward(cross_entropy(model(images), labels))
    optimizer.step()
    if accelerator.is_main_process:
        out.write_text(str(time.monotonic() - began))
    accelerator.wait_for_everyone()
    accelerator.end_training()


def train(address: str, config: RunConfig) -> None:
    """Train, and tell the images per second of each epoch."""
    baton = Baton(address)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(config.seed)
    dataset = workload.dataset(config)
    network = models.build(config.model)
    optimizer = make_optimizer(network, config)
    loader = DataLoader(dataset, config.batch_size, shuffle=True)
    # accelerate steps a schedule once for each rank, so it is told of the batches of all.
    schedule = make_schedule(optimizer, config, len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(network, optimizer, loader, schedule)
    for _ in range(config.epochs):
        baton.take()
        start = time.perf_counter()
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        rate = len(dataset) / (time.perf_counter() - start)
        baton.pass_on(rate if accelerator.is_main_process else 0.0)


def main() -> None:
    """Start the ranks from a process that has loaded all, as a notebook's kernel has after the first launch."""
    what, where, _ = sys.argv[1:]
    if what == "train":
        _launch(train, where, peers.config())
        return
    for _ in range(2):  # the second one, warm, is what stays in the file
        _launch(first_step, Path(where), time.monotonic())


def _launch(function, *args) -> None:  # type: ignore[no-untyped-def]
    # A free port, since its own default is in use where anything else runs.
    notebook_launcher(function, args, num_processes=workload.WORLD_SIZE, use_port=str(peers.free_port()))


if __name__ == "__main__":
    main()

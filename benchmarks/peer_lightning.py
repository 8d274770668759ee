"""As a user of Lightning writes it: python -m benchmarks.peer_lightning {launch,train} WHERE STRATEGY.

WHERE is the file for the seconds of a launch, or the address of the batons for a training.
STRATEGY is "ddp", which starts the script again for each further rank, or "ddp_notebook", which forks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import peers, workload
from benchmarks.turns import Baton
from course_lib.config import RunConfig
from course_lib.training import models
from course_lib.training.optimization import make_optimizer, make_schedule


class FirstStep(LightningModule):
    """What `workload.first_step` does, by way of Lightning."""

    def __init__(self, out: Path, began: float) -> None:
        super().__init__()
        self.model, self.out, self.began = workload.small_model(), out, began

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, labels = batch
        return cross_entropy(self.model(images), labels)

    def configure_optimizers(self) -> Any:
        return workload.small_optimizer(self.model)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_rank == 0:
            self.out.write_text(str(time.monotonic() - self.began))


class Training(LightningModule):
    """The training that is compared; tells its images per second in each epoch."""

    def __init__(self, address: str, config: RunConfig, images: int, steps_per_epoch: int) -> None:
        super().__init__()
        self.address, self.config, self.images, self.steps_per_epoch = address, config, images, steps_per_epoch
        self.model: nn.Module = models.build(config.model)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, labels = batch
        return cross_entropy(self.model(images), labels)

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.model, self.config)
        schedule = make_schedule(optimizer, self.config, self.steps_per_epoch)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_train_start(self) -> None:
        self.baton = Baton(self.address)

    def on_train_epoch_start(self) -> None:
        self.baton.take()
        self.start = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        rate = self.images / (time.perf_counter() - self.start)
        self.baton.pass_on(rate if self.global_rank == 0 else 0.0)


def main() -> None:
    """Fit on two ranks; a launch is measured when warm, where the strategy can launch twice in a process."""
    what, where, strategy = sys.argv[1:]
    torch.set_num_threads(1)
    if what == "train":
        train(where, peers.config(), strategy)
        return
    for _ in range(1 if strategy == "ddp" else 2):
        began = time.monotonic()
        loader = DataLoader(TensorDataset(*workload.small_batch()), 64)
        trainer(strategy, max_steps=1).fit(FirstStep(Path(where), began), loader)


def train(address: str, config: RunConfig, strategy: str) -> None:
    """Train, and tell the images per second of each epoch."""
    torch.manual_seed(config.seed)
    dataset = workload.dataset(config)
    loader = DataLoader(dataset, config.batch_size, shuffle=True)
    steps_per_epoch = -(-len(dataset) // config.global_batch_size)
    module = Training(address, config, len(dataset), steps_per_epoch)
    trainer(strategy, max_epochs=config.epochs).fit(module, loader)


def trainer(strategy: str, **limits: Any) -> Trainer:
    """A trainer without all that takes time and is not training."""
    return Trainer(
        accelerator="cpu",
        devices=workload.WORLD_SIZE,
        strategy=strategy,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **limits,
    )


if __name__ == "__main__":
    main()

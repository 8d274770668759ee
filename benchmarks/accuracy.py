"""Test accuracy of SmallCNN on the whole data set, on 2 CPU ranks, with the recipe that `RunConfig` ships with."""

from __future__ import annotations

from benchmarks.measuring import Row, figure, run_once, skipped
from course_lib.config import RunConfig
from course_lib.errors import DataError
from course_lib.training import ddp, sources

SEEDS = (0,)
ACCURACY = 91.5
CONFIG = RunConfig(num_gpus=2, device="cpu", data="full")


def measure(quick: bool) -> list[Row]:
    """Accuracy and seconds, the median over the seeds; a quick run takes few images and holds no line."""
    config = CONFIG.with_(data="subset", train_samples=1200, epochs=1) if quick else CONFIG
    name = f"test accuracy, {config.model}, {config.num_gpus} CPU ranks, {config.epochs} epochs"
    try:
        size = sources.locate(config.data).train_size
    except DataError as error:
        return [skipped(name, str(error))]
    values = [run_once(ddp.train, config.with_(seed=seed))[0] for seed in SEEDS]
    at_least = None if quick else ACCURACY
    note = f"{config.train_samples or size:,} images, seeds {', '.join(map(str, SEEDS))}"
    return [
        figure(name, "%", [100 * value["val_accuracy"] for value in values], at_least=at_least, note=note),
        figure("seconds of that training", "s", [value["seconds"] for value in values]),
    ]

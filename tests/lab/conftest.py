"""Folders of runs as a sweep leaves them, with figures that a test can foretell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_lib.config import MEASURED_ON_CPU_RANKS, RunConfig
from course_lib.runs.events import EventWriter
from course_lib.runs.folder import create_run_folder, write_json

STEPS, EPOCHS = 6, 2
SPLIT = {"data": 0.05, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}  # parts of a step; the rest is "other"
STARTED = 1.8e9
ONE_RANK = RunConfig()

MakeRun = Callable[..., Path]


@pytest.fixture(scope="session")
def write_run() -> MakeRun:
    """Makes the folder of a run: `write_run(path, config, rate, accuracy, ...)`."""
    return _write_run


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """The same in tmp_path/"runs": `make_run(name, config, rate, accuracy, ...)`."""
    return lambda name, *facts, **more: _write_run(tmp_path / "runs" / name, *facts, **more)


def _write_run(
    path: Path,
    config: RunConfig = ONE_RANK,
    rate: float = 1000.0,
    accuracy: float = 0.9,
    timing: str = MEASURED_ON_CPU_RANKS,
    caveats: tuple[str, ...] = (),
    error: str = "",
    repeat: int = 0,
    scaling: str = "weak",
) -> Path:
    """`rate` is in images a second over all ranks; with an `error` the run failed after its last step."""
    folder = create_run_folder(path)
    folder.write_config(config, {"sweep": "test", "scaling": scaling, "repeat": repeat})
    machine = {"hostname": "lab-7", "cpu": "a processor", "cores": 8, "devices": ["cpu"] * config.world_size}
    versions = {"backend": "gloo", "python": "3.12.1", "torch": "2.13.0", "course": "0.1.0", "platform": "Linux"}
    write_json(folder.environment, {"timing": timing, **machine, **versions})
    if caveats:
        write_json(folder.caveats, {"speed_caveats": list(caveats)})
    seconds = config.global_batch_size / rate
    for rank in range(config.world_size):
        writer = EventWriter(folder.events(rank))
        for event in _events(rank, config, rate, seconds, accuracy):
            writer.write(event)
        writer.close()
    if error:
        write_json(folder.failure, {"type": "RankError", "message": error, "rank": 0, "traceback": ""})
    else:
        split = {phase: part * seconds for phase, part in SPLIT.items()}
        speed = {"images_per_sec": rate, "step_seconds": seconds, "time_split": split}
        learned = {"val_accuracy": accuracy, "val_loss": 0.3, "train_loss": 0.2, "epochs": EPOCHS}
        counted = {"steps": STEPS, "timed_steps": STEPS // 2}
        value = {**learned, **speed, **counted}
        write_json(folder.result, {"format": 1, "value": value, "seconds": 9.5, "finished": STARTED})
    return folder.path


def _events(rank: int, config: RunConfig, rate: float, seconds: float, accuracy: float) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for step in range(1, STEPS + 1):
        epoch, start = 1 + 2 * (step - 1) // STEPS, STARTED + (step - 1) * seconds + 0.001 * rank
        split = {phase: part * seconds for phase, part in SPLIT.items()}
        common = {"rank": rank, "epoch": epoch, "images_per_sec": rate}
        loss = 2.0 / step + 0.1 * rank
        timed = {"start": start, "time": start + seconds, "seconds": seconds, **split}
        events.append(
            {"kind": "step", "step": step, "loss": loss, "samples": config.global_batch_size, **common, **timed}
        )
        if rank == 0 and step % (STEPS // EPOCHS) == 0:
            learned = {"val_accuracy": accuracy * epoch / EPOCHS, "val_loss": 0.3, "train_loss": 0.2}
            ended = {"seconds": step * seconds, "time": start + seconds}
            events.append({"kind": "epoch", **common, **learned, **ended})
    return events

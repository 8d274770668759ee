"""Start a run: check what was asked for, record it, and hand it to the ranks."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, FolderError
from course_lib.runs import devices
from course_lib.runs.devices import Place
from course_lib.runs.folder import FINISHED, RunFolder, create_run_folder, working_folder, write_bytes
from course_lib.runs.functions import TrainFunction, full_name, pickle_function
from course_lib.runs.launcher import fork_server
from course_lib.runs.machine import Measuring
from course_lib.runs.run import Run
from course_lib.runs.torchrun import JoinedRun, as_started, join, started_by_torchrun
from course_lib.training import sources

# What may change between a run and the one that goes on from its checkpoint.
FREE_WHEN_RESUMING = ("checkpoint", "collective_timeout", "device")


def launch(
    train: TrainFunction,
    config: RunConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    labels: dict[str, Any] | None = None,
    resume_from: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
) -> Run | JoinedRun:
    """Run `train(config, worker)` on `config.world_size` ranks, each a process; returns at once.

    `train` may be defined anywhere, in a notebook cell too. The ranks meet without a fixed port, end
    when this process does, and record all in the run's folder. The first launch of a process takes
    a few seconds, since torch is loaded; later ones a fraction of one.

    With device "simulated" one process trains as all ranks would together, and only `ddp.train` can be run: see
    virtual.py.

    In a script that torchrun started, this process is a rank already: `train` runs in it, on as many
    ranks as torchrun started, and `launch` returns when it has.

    Args:
        train: the training function, e.g. `single.train` or `ddp.train`.
        config: what to run.
        out: the folder of this run, which must not exist; by default a new one in `runs/`.
        labels: what the run is part of; recorded with it.
        resume_from: the folder of a run to go on from its last checkpoint.
        time_limit: seconds after which the run is stopped.

    Raises:
        UsageError: what was asked for cannot be done; says why, and nothing was started.
        LaunchError: the ranks could not be started.
    """
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit must be above 0 seconds, not {time_limit}; leave it out for none.")
    if started_by_torchrun():
        if time_limit is not None:
            raise ConfigError("time_limit does not work under torchrun, which watches the ranks itself. Leave it out.")
        return _launch_as_rank(train, config, out, labels, resume_from)
    _refuse_single_on_many(train, config)
    cwd = working_folder()
    server = fork_server()  # first: it loads torch while the rest is checked
    train = trainer_of(train, config)
    prepared = prepare(config)
    config, places = prepared.config, prepared.places
    content = pickle_function(train)
    checkpoint_of = _check_resume(config, resume_from)
    folder = _make_run_folder(config, content, out, labels)
    request = {
        "ranks": [{"place": place.to_dict(), "log": str(folder.log(place.rank))} for place in places],
        "folder": str(folder.path),
        "resume_from": checkpoint_of,
        "cwd": cwd,
        "environ": {"GLOO_SOCKET_IFNAME": devices.loopback(), **os.environ},
        "sys_path": [os.path.abspath(entry) for entry in sys.path],
    }
    caveats = devices.speed_caveats(places)
    if places[0].device != "cpu" and caveats:
        warnings.warn(f"No measurement of speed: {'; '.join(caveats)}.", stacklevel=2)
    measuring = Measuring(folder, caveats, config.simulated)
    try:
        return Run(config, folder, server, request, prepared.images, time_limit, on_end=measuring.end)
    except BaseException:
        measuring.end()
        raise


def _launch_as_rank(
    train: TrainFunction,
    config: RunConfig,
    out: str | os.PathLike[str] | None,
    labels: dict[str, Any] | None,
    resume_from: str | os.PathLike[str] | None,
) -> JoinedRun:
    config = as_started(config)
    _refuse_single_on_many(train, config)
    config, images = _with_data(config)
    content = pickle_function(train)
    checkpoint_of = _check_resume(config, resume_from)
    return join(config, lambda: _make_run_folder(config, content, out, labels), images, checkpoint_of)


def _make_run_folder(
    config: RunConfig, content: bytes, out: str | os.PathLike[str] | None, labels: dict[str, Any] | None
) -> RunFolder:
    folder = create_run_folder(out) if out is not None else _new_run_folder(config)
    try:
        folder.write_config(config, labels or {})
        write_bytes(folder.function, content)
    except OSError as error:
        raise FolderError(f"Cannot write to {folder.path}: {error.strerror}. Choose another folder (--out).") from error
    return folder


def data_parallel_trainer() -> TrainFunction:
    """The course's own trainer for any number of ranks, `ddp.train`, for those who do not import training."""
    from course_lib.training import ddp  # here, since it loads torch

    return ddp.train


def warm_up() -> None:
    """Start the fork server now, so that the first launch need not wait for it; returns at once."""
    fork_server()


@dataclass(frozen=True)
class Prepared:
    """A run that can be made here.

    Fields:
        config: with what "auto" and None came to: the data, and the simulated hardware.
        images: how many an epoch has.
        places: where its ranks go.
    """

    config: RunConfig
    images: int
    places: list[Place]


def prepare(config: RunConfig) -> Prepared:
    """All that `launch` checks of a config before it starts a run.

    Raises:
        UsageError: it cannot be run here; says why.
        DataError: the data is missing or damaged.
    """
    config, images = _with_data(with_hardware(config))
    return Prepared(config, images, devices.place_ranks(config))


def _with_data(config: RunConfig) -> tuple[RunConfig, int]:
    """The config with the data that "auto" comes to here, for the record, and how many images an epoch has."""
    source = sources.check(config)
    return config.with_(data=source.kind), config.train_samples or source.train_size


def with_hardware(config: RunConfig) -> RunConfig:
    """The config with the profile that a simulated run takes where it names none, for the record.

    Raises:
        ConfigError: there is no such profile.
        FolderError: its file is damaged.
    """
    if not config.simulated:
        return config
    from course_lib.runs import profiles
    from course_lib.scaling.hardware import DEFAULT

    profiles.find(config.hardware)
    return config if config.hardware is not None else config.with_(hardware=DEFAULT)


def trainer_of(train: TrainFunction, config: RunConfig) -> TrainFunction:
    """The function that the ranks call: `train`, or what stands in for ddp.train where ranks are simulated.

    Raises:
        ConfigError: another function was to be simulated.
    """
    if not config.simulated:
        return train
    name = full_name(train)
    if name != "course_lib.training.ddp.train":
        raise ConfigError(
            f"Only ddp.train can be simulated, not {name}: one process does the work of all ranks, and must know what "
            "that is. Use ddp.train, or another device."
        )
    from course_lib.runs import virtual

    return virtual.train


def _refuse_single_on_many(train: TrainFunction, config: RunConfig) -> None:
    # By its name: to import it here would load torch.
    if config.processes > 1 and getattr(train, "__module__", None) == "course_lib.training.single":
        raise ConfigError(
            f"single.train is for one rank, and {config.world_size} were asked for: each would train a model of its "
            "own. Use ddp.train."
        )


def _check_resume(config: RunConfig, resume_from: str | os.PathLike[str] | None) -> str | None:
    if resume_from is None:
        return None
    folder = RunFolder(Path(resume_from).resolve())
    before, _ = folder.read_config()
    if folder.status() == FINISHED:
        raise ConfigError(f"The run in {folder.path} has finished: no epoch is left to train.")
    if not folder.checkpoint.exists():
        raise FolderError(f"{folder.path} has no checkpoint to go on from: it ended before its first epoch did.")
    same, now = before.to_dict(), config.to_dict()
    different = [name for name in now if name not in FREE_WHEN_RESUMING and now[name] != same[name]]
    if different:
        raise ConfigError(
            f"To go on from {folder.path}, the run must be the same. Different: "
            + ", ".join(f"{name} ({same[name]!r} then, {now[name]!r} now)" for name in different)
            + "."
        )
    return str(folder.path)


def _new_run_folder(config: RunConfig) -> RunFolder:
    """A folder in runs/ whose name says when and what."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.model}-{config.world_size}x{config.batch_size}"
    for number in count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            try:
                return create_run_folder(path)
            except FolderError:
                if not path.exists():  # else another launch took the name in this moment
                    raise
    raise AssertionError("count() does not end")

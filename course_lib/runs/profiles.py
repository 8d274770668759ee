"""What predictions and simulations go by: the shipped profiles of hardware, and machines that were measured."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import pandas as pd

from course_lib.config import SIMULATED
from course_lib.errors import ConfigError, FitError, FolderError
from course_lib.runs.folder import FINISHED, FORMAT, check_name, read_json, write_json
from course_lib.scaling import hardware
from course_lib.scaling.hardware import Hardware
from course_lib.scaling.speedup import SAME_FOR_SPEED
from course_lib.scaling.step_time import StepTimeModel
from course_lib.training.costs import flops_per_sample, gradient_bytes

SUFFIX = ".json"  # tells a file from the name of a shipped profile


@dataclass(frozen=True)
class Profile:
    """Hardware, and the steps of models that were measured on it.

    Attributes:
        hardware: its figures.
        fitted: for each model that was measured (in fp32), what was fitted to it.
        measured: what it was fitted to: `nodes, gpus, local_batch, step_time_s, sync_time_s, gradient_bytes`.
    """

    hardware: Hardware
    fitted: Mapping[str, StepTimeModel]
    measured: pd.DataFrame

    def step_time_model(self, model: str, precision: str = "fp32") -> StepTimeModel:
        """How long a step of this model takes: as fitted, or else by its operations."""
        if precision == "fp32" and model in self.fitted:
            return self.fitted[model]
        in_precision = self.hardware.in_precision(precision)
        return StepTimeModel.of(in_precision, flops_per_sample(model), gradient_bytes(model))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a JSON file, for `find` to read; one that is there is replaced.

        Raises:
            FolderError: it cannot be written, or its name does not end in .json.
        """
        file = check_writable(path)
        content = {
            "format": FORMAT,
            "hardware": hardware.to_dict(self.hardware),
            "fitted": {model: fitted.to_dict() for model, fitted in self.fitted.items()},
            "measured": self.measured.to_dict("records"),
        }
        with _told_as_folder_error(file):
            write_json(file, content)
        return file


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path of a profile that is to be written; its folder is made.

    Raises:
        FolderError: its name does not end in .json, or it cannot be written there.
    """
    file = Path(path)
    check_name(file)
    if file.suffix != SUFFIX:
        raise FolderError(f"A profile is a {SUFFIX} file, not {path}. Choose another name (--out).")
    with _told_as_folder_error(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with TemporaryFile(dir=file.parent):
            return file


@contextmanager
def _told_as_folder_error(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FolderError(f"Cannot write to {file}: {error.strerror}. Choose another file (--out).") from error


def find(name: str | None) -> Profile:
    """The shipped profile of this name (see scaling/hardware.py), or the one in this file of `calibrate`.

    Args:
        name: None for the usual one.

    Raises:
        ConfigError: there is none.
        FolderError: the file is damaged.
    """
    if name is None:
        name = hardware.DEFAULT
    if not name.endswith(SUFFIX):
        return Profile(hardware.find(name), {}, pd.DataFrame())
    file = Path(name)
    if not file.exists():
        raise ConfigError(
            f"There is no file {file}. `ddp-course calibrate --out {file}` measures this machine into it.", "hardware"
        )
    try:
        content = read_json(file)
    except FolderError as error:
        raise FolderError(
            f"{file} is damaged, or no profile. Calibrate anew, or restore the file.", "hardware"
        ) from error
    try:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, and {FORMAT} is needed")
        fitted = {model: StepTimeModel.from_dict(each) for model, each in content["fitted"].items()}
        return Profile(hardware.from_dict(content["hardware"]), fitted, pd.DataFrame(content["measured"]))
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise FolderError(f"{file} is no profile of this version: {why}. Calibrate anew.", "hardware") from error


def fit_runs(frame: pd.DataFrame) -> StepTimeModel:
    """What a step takes on the machine of the `comparable` runs of a frame (see store.py); raises what that does."""
    return StepTimeModel.fit(steps_of(comparable(frame)))


def comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs of a frame (see store.py) that tell of one machine: the finished ones that measured speed.

    Simulated runs are left out: they tell what a model says.

    Raises:
        FitError: there are none, or they differ in more than ranks and batch.
    """
    measured = (frame["timing"] != SIMULATED) & (frame["speed_caveats"] == "")
    runs = frame[(frame["status"] == FINISHED) & measured & (frame["step_seconds"] > 0)]
    if runs.empty:
        raise FitError("None of these runs has finished and measured speed, so there is nothing to predict from.")
    different = [name for name in SAME_FOR_SPEED if name in runs and runs[name].nunique(dropna=False) > 1]
    if different:
        raise FitError(
            f"These runs differ in {', '.join(different)}. Predict from runs that are alike but for ranks and batch."
        )
    return runs


def steps_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of a frame of runs (see store.py) as a StepTimeModel takes them."""
    columns = {
        "nodes": runs["num_nodes"],
        "gpus": runs["world_size"],
        "local_batch": runs["batch_size"],
        "accumulation": runs["accumulation_steps"],
        "step_time_s": runs["step_seconds"],
        "gradient_bytes": runs["model"].map(lambda model: gradient_bytes(model) if isinstance(model, str) else np.nan),
    }
    return pd.DataFrame(columns, index=runs.index)

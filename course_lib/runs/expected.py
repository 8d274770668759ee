"""The speedup that the scaling model expects of a run, told from what was known without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from course_lib.config import MEASURED_ON_CPU_RANKS, SIMULATED
from course_lib.errors import ConfigError, FitError
from course_lib.runs import profiles
from course_lib.runs.profiles import Profile
from course_lib.scaling.predictions import predict_scaling
from course_lib.scaling.speedup import RANKS, SAME_FOR_SPEED, alike
from course_lib.scaling.step_time import StepTimeModel


@dataclass(frozen=True)
class Expected:
    """A speedup with the bounds of an interval that holds four of five, and what it is told from."""

    speedup: float
    low: float
    high: float
    basis: str


def expected_speedup(run: pd.Series[Any], frame: pd.DataFrame, profile: Profile | None = None) -> Expected | None:
    """What the model expects of a run, a row of a frame (see store.py); None if nothing is known to tell it from.

    Told from the profile of simulated hardware, else from `profile` of this machine, else from the other runs of the
    frame that are alike in all but ranks and batch.
    """
    strong = run["scaling"] == "strong"
    batch = int(run["global_batch_size"] if strong else run["batch_size"])
    ranks, per_node = int(run["world_size"]), int(run["num_gpus"])
    try:
        model, basis = _model(run, frame, profile)
        table = predict_scaling(model, [ranks], per_node, batch, "strong" if strong else "weak").iloc[0]
    except (ConfigError, FitError):
        return None
    speedup = float(table["speedup"]) / _turns(run)
    step = float(table["step_time_s"])
    return Expected(speedup, speedup * step / float(table["high"]), speedup * step / float(table["low"]), basis)


def _model(run: pd.Series[Any], frame: pd.DataFrame, profile: Profile | None) -> tuple[StepTimeModel, str]:
    if run["timing"] == SIMULATED:
        found = profiles.find(str(run["hardware"]))
        return found.step_time_model(run["model"], run["precision"]), f"the profile of {found.hardware.name}"
    if profile is not None:
        return profile.step_time_model(run["model"], run["precision"]), "the calibrated profile of this machine"
    others = alike(frame, run, SAME_FOR_SPEED)
    others = others.drop(alike(others, run, [*RANKS, "batch_size"]).index)
    return profiles.fit_runs(others), "other runs here, without this one"


def _turns(run: pd.Series[Any]) -> float:
    """How often the ranks of a run take turns on the cores that they share."""
    if run["timing"] != MEASURED_ON_CPU_RANKS or not run["cores"] > 0:
        return 1.0
    return max(1.0, float(run["world_size"] * run["threads_per_rank"] / run["cores"]))

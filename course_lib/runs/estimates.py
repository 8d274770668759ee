"""What a run will take before it is made: steps, memory and time, from earlier runs where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from statistics import median

import pandas as pd

from course_lib.config import RunConfig
from course_lib.errors import FitError
from course_lib.runs import devices, profiles
from course_lib.runs.devices import Place
from course_lib.runs.folder import FINISHED
from course_lib.runs.launch import Prepared
from course_lib.runs.profiles import Profile
from course_lib.scaling.speedup import RANKS, SAME_FOR_SPEED, alike
from course_lib.scaling.step_time import StepTimeModel
from course_lib.training import sources
from course_lib.training.costs import activation_bytes, flops_per_sample, gradient_bytes
from course_lib.training.schedules import scaled_lr

OPTIMIZER_STATES = {"sgd": 1, "adamw": 2}  # as large as the parameters each: the momentum; both moments
# The peak of a step was measured as 1.17 to 1.32 times what it keeps for the backward pass.
PEAK_OVER_KEPT = 1.25
# On one core of a server SmallCNN reached 54e9 and WRN-16-4 59e9, in fp32; what a GPU does of them is assumed.
USUAL_FLOPS_PER_S = {"cpu": 50e9, "cuda": 5e12}
USUAL_OVERHEAD_S = 4e-3  # of a step, whatever the batch: the MLP's at 64 images is little else
FORWARD_SHARE = 1 / 3  # of a training step's operations; evaluation is nothing else
MARGINS = {"alike": 1.3, "fitted": 1.6, "thumb": 3.0}  # by which factor an estimate may be off, by what it is told from


@dataclass(frozen=True)
class Estimate:
    """Seconds, between which bounds they will most likely be, and in words what they are told from."""

    seconds: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Memory:
    """What the ranks on one device need of its memory: on the device with most of them.

    Fields:
        bytes_per_rank: weights, gradient, state of the optimizer and activations of one rank.
        ranks: how many share the device.
        capacity: the device's memory in bytes.
        device: what it is called.
    """

    bytes_per_rank: float
    ranks: int
    capacity: float
    device: str

    @property
    def bytes(self) -> float:
        """Of all ranks on the device."""
        return self.bytes_per_rank * self.ranks

    @property
    def fits(self) -> bool:
        """Whether the device has as much."""
        return self.bytes <= self.capacity


def train_size() -> int:
    """Training images on this machine.

    Raises:
        DataError: the data set is damaged.
    """
    return sources.locate().train_size


def peak_lr(config: RunConfig) -> float:
    """The highest learning rate of a run: what the rule makes of `lr`."""
    return scaled_lr(config.lr, config.lr_rule, config.global_batch_size, config.batch_size)


def steps_per_epoch(prepared: Prepared) -> int:
    """Steps of the optimizer in an epoch; the last one may be smaller."""
    return ceil(prepared.images / prepared.config.global_batch_size)


def memory(prepared: Prepared) -> Memory:
    """What training needs in fp32, beside the data and what Python and torch take."""
    config = prepared.config
    parameters = gradient_bytes(config.model) * (2 + OPTIMIZER_STATES[config.optimizer])
    per_rank = parameters + PEAK_OVER_KEPT * config.batch_size * activation_bytes(config.model)
    if config.simulated:
        hardware = profiles.find(config.hardware).hardware
        return Memory(per_rank, 1, hardware.memory_bytes, f"a simulated GPU of {hardware.name}")
    device, ranks = Counter(place.device for place in prepared.places).most_common(1)[0]
    return Memory(per_rank, ranks, devices.memory_bytes(device), "this machine" if device == "cpu" else device)


def simulated_seconds(prepared: Prepared) -> float | None:
    """How long the training takes on the simulated hardware; None where none is simulated.

    Raises:
        FitError: no finite time comes of the figures of the hardware.
    """
    config = prepared.config
    if not config.simulated:
        return None
    from course_lib.runs.simulated_clock import SimulatedClock

    clock = SimulatedClock(config)
    whole, rest = divmod(prepared.images, config.global_batch_size)
    epoch = whole * clock.step_seconds(config.global_batch_size) + (clock.step_seconds(rest) if rest else 0.0)
    return config.epochs * epoch


def seconds(prepared: Prepared, frame: pd.DataFrame | None = None, profile: Profile | None = None) -> Estimate:
    """How long the run takes here, from the call of the training function to its return.

    Args:
        prepared: the run.
        frame: earlier runs (see store.py). Those here that are alike tell best, whatever their images and epochs; then
            what is fitted to those that differ in ranks and batch.
        profile: what calibrate measured of this machine; without one, and without runs, a rule of thumb must do.
    """
    work = _work(prepared.config, prepared.config.epochs, prepared.config.epochs * steps_per_epoch(prepared))
    runs = None if frame is None else _runs_like_it(prepared, frame)
    known = None if runs is None else _of_like_runs(prepared.config, runs)
    if known is None:
        known = _fitted(prepared, runs, profile) or _by_rule_of_thumb(prepared)
    steps, margin, basis = known
    return Estimate(median(steps) * work, min(steps) * work / margin, max(steps) * work * margin, basis)


# Seconds of a step, as often as they are known; by which factor they may be off; and what they are told from.
Known = tuple[list[float], float, str]


def _work(config: RunConfig, epochs: float, steps: float) -> float:
    """A run in steps: evaluation, which is forward only, counts as a third of as many images in training."""
    tested = epochs * sources.locate(config.data).test_size
    return steps + FORWARD_SHARE * tested / config.global_batch_size


def _runs_like_it(prepared: Prepared, frame: pd.DataFrame) -> pd.DataFrame:
    """The finished runs of this machine that differ from this one in ranks, batch and images at most."""
    place = prepared.places[0]
    here = {"timing": devices.timing_of(place), "cpu": devices.cpu_name(), "cores": devices.core_count()}
    settings = {name: getattr(prepared.config, name) for name in SAME_FOR_SPEED if hasattr(prepared.config, name)}
    del settings["train_samples"]
    runs = frame[(frame["status"] == FINISHED) & (frame["steps"] > 0)]
    return alike(runs, here | settings, here | settings).assign(train_samples=float("nan"))


def _of_like_runs(config: RunConfig, runs: pd.DataFrame) -> Known | None:
    same = alike(runs, vars(config), [*RANKS, "batch_size"])
    taken = "real_seconds" if config.simulated else "seconds"
    steps = [
        float(run[taken]) / _work(config, run["epochs"], run["steps"]) for _, run in same[same[taken] > 0].iterrows()
    ]
    basis = "from a run like it here" if len(steps) == 1 else f"from {len(steps)} runs like it here"
    return (steps, MARGINS["alike"], basis) if steps else None


def _fitted(prepared: Prepared, runs: pd.DataFrame | None, profile: Profile | None) -> Known | None:
    """What the scaling model says of a step here; None where there is nothing to fit it to."""
    config = prepared.config
    if config.simulated:
        return None
    layout = {
        "nodes": config.num_nodes,
        "gpus": config.world_size,
        "local_batch": config.batch_size,
        "accumulation": config.accumulation_steps,
    }
    told: list[tuple[str, Callable[[], StepTimeModel]]] = []
    if runs is not None:
        told.append(("fitted to other runs here", lambda: profiles.fit_runs(runs)))
    if profile is not None:
        told.append(("from the calibrated profile", lambda: profile.step_time_model(config.model, config.precision)))
    for basis, model in told:
        with suppress(FitError):
            step = float(model().predict(pd.DataFrame([layout]))["step_time_s"].iloc[0])
            return [step * _turns(prepared.places)], MARGINS["fitted"], basis
    return None


def _by_rule_of_thumb(prepared: Prepared) -> Known:
    """From the operations of the model, and how many of them hardware usually does in a second."""
    config, places = prepared.config, prepared.places
    kind = places[0].device.partition(":")[0]
    rate = USUAL_FLOPS_PER_S[kind]
    flops = flops_per_sample(config.model) * config.batch_size * config.accumulation_steps
    if not config.simulated:
        step = (USUAL_OVERHEAD_S * config.accumulation_steps + flops / rate) * _turns(places)
        return [step], MARGINS["thumb"], "by a rule of thumb"
    from course_lib.runs import virtual

    passes = sum(1 for _ in virtual.alike(config.global_batch_size, config.world_size, config.batch_size))
    step = USUAL_OVERHEAD_S * passes * config.accumulation_steps + flops * config.world_size / rate / places[0].threads
    return [step], MARGINS["thumb"], "by a rule of thumb"


def _turns(places: list[Place]) -> float:
    """How often ranks take turns on the device, or the cores, that they share."""
    on_gpus = {place.device for place in places} - {"cpu"}
    if on_gpus:
        return len(places) / len(on_gpus)
    return max(1.0, sum(place.threads for place in places) / devices.core_count())

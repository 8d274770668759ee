"""How far a larger batch helps: learning-rate rules, noise scale, epochs and time to a target accuracy.

Up to the critical batch size twice the batch takes nearly half the steps; far above it, nearly as many (McCandlish et
al. 2018, An Empirical Model of Large-Batch Training, arXiv 1812.06162, section 2.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from course_lib.errors import ConfigError, FitError
from course_lib.scaling.noise_scale import noise_scale
from course_lib.scaling.tables import measurements, numbers

__all__ = [
    "EpochsToTarget",
    "critical_batch_size",
    "noise_scale",
    "relative_samples",
    "relative_steps",
    "scaled_learning_rate",
    "time_to_accuracy",
]

TAIL = 0.1  # on either side of an 80 % interval

# What is known of epochs to a target before any are measured. People measure at batches that still pay, so the critical
# one lies above them: by a factor of 16, give or take one of 3.3. And points lie 3 % off the curve, since recipes
# differ and epochs are counted in whole ones; that weighs as much as 4 measurements.
PRIOR_RATIO = 16.0
PRIOR_SPREAD = 1.2  # standard deviation of the ratio's logarithm
PRIOR_NOISE = 0.03
PRIOR_WEIGHT = 4.0
RATIOS = np.linspace(-5, 5, 101)  # of a critical batch size to the prior's, in standard deviations of its logarithm
LATTICE = 0.1  # distance in log batch size between the points where quantiles are computed; between them, lines
BISECTIONS = 26  # of a range of a few units in log epochs, down to 1e-7


def scaled_learning_rate(lr: float, rule: str, global_batch: ArrayLike, base_batch: float) -> Any:
    """The learning rate for these global batch sizes, where `lr` suits `base_batch`.

    "linear": in proportion to the batch (Goyal et al. 2017, arXiv 1706.02677); "sqrt": to its square root (Krizhevsky
    2014, arXiv 1404.5997); "none": the same.

    Raises:
        ConfigError: the rule is none of these.
    """
    powers = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
    if rule not in powers:
        raise ConfigError(f"rule must be one of {', '.join(powers)}, not {rule!r}.")
    return lr * (np.asarray(global_batch, float) / base_batch) ** powers[rule]


def relative_samples(global_batch: ArrayLike, critical_batch: ArrayLike) -> Any:
    """Samples (or epochs) to a target, over the fewest that any batch size needs: 1 + B / Bcrit (equation 2.11)."""
    return 1 + np.asarray(global_batch, float) / critical_batch


def relative_steps(global_batch: ArrayLike, critical_batch: ArrayLike) -> Any:
    """Steps to a target, over the fewest that any batch size needs: 1 + Bcrit / B (equation 2.11)."""
    return 1 + np.asarray(critical_batch, float) / global_batch


def critical_batch_size(fewest_samples: float, fewest_steps: float) -> float:
    """The batch size that takes twice the fewest samples and twice the fewest steps: Emin / Smin (equation 2.12)."""
    return fewest_samples / fewest_steps


@dataclass(frozen=True)
class EpochsToTarget:
    """Epochs to a target accuracy against the global batch size: E = Emin (1 + B / Bcrit).

    Two parameters, known as far as the measurements and what is known without them say: for each of a range of critical
    batch sizes its weight, and what log Emin then is, which is Student's t (Gelman et al., Bayesian Data Analysis, 3rd
    ed., section 3.2). Any unit of epochs will do, samples too.

    Attributes:
        critical_batches: the range, [K].
        weights: how likely each is, [K]; they sum to 1.
        log_minimum: the location of log Emin for each, [K].
        scale: the scale of the logarithm of a new measurement around the curve, [K].
        degrees_of_freedom: of the t distribution.
    """

    critical_batches: np.ndarray
    weights: np.ndarray
    log_minimum: np.ndarray
    scale: np.ndarray
    degrees_of_freedom: float

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> EpochsToTarget:
        """Fit to the columns `global_batch` and `epochs`; one row is enough, and says little.

        Rows without either are left out; repeats count each.

        Raises:
            FitError: a column is missing, a value is not above 0, or no row is left.
        """
        batch, epochs = measurements(frame, "global_batch", "epochs").to_numpy().T
        ratios = PRIOR_RATIO * np.exp(PRIOR_SPREAD * RATIOS)
        critical = batch.max() * ratios
        minimum = np.log(epochs) - np.log(relative_samples(batch, critical[:, None]))
        center = minimum.mean(axis=1)
        freedom = PRIOR_WEIGHT + len(batch) - 1
        squares = PRIOR_WEIGHT * PRIOR_NOISE**2 + ((minimum - center[:, None]) ** 2).sum(axis=1)
        log_weights = -(RATIOS**2) / 2 - freedom / 2 * np.log(squares)
        weights = np.exp(log_weights - log_weights.max())
        scale = np.sqrt(squares / freedom * (1 + 1 / len(batch)))
        return cls(critical, weights / weights.sum(), center, scale, freedom)

    @property
    def critical_batch_size(self) -> float:
        """The batch size that takes twice the fewest epochs: the median of what it may be."""
        return float(np.exp(np.interp(0.5, self.weights.cumsum() - self.weights / 2, np.log(self.critical_batches))))

    def predict(self, batches: pd.DataFrame | pd.Series[Any] | ArrayLike) -> pd.DataFrame:
        """Epochs at these global batch sizes: a frame with a column `global_batch`, or the sizes themselves.

        Returns:
            `epochs`, which never falls as the batch grows, and the 80 % interval of a new measurement, `low` and
            `high`. The index is the input's; where a size is missing, all are NaN.

        Raises:
            FitError: there is no column `global_batch`, or a size is not above 0.
        """
        if isinstance(batches, pd.DataFrame):
            batches = numbers(batches, "global_batch")["global_batch"]
        sizes = pd.Series(batches, dtype=float)
        if (sizes <= 0).any():
            raise FitError(f"Batch sizes must be above 0, and one is {sizes.min():g}.")
        values = np.full((3, len(sizes)), np.nan)
        known = np.isfinite(sizes.to_numpy())
        if known.any():
            values[:, known] = np.exp(self._log_quantiles(np.log(sizes.to_numpy()[known])))
        return pd.DataFrame(dict(zip(("epochs", "low", "high"), values, strict=True)), index=sizes.index)

    def _log_quantiles(self, log_batch: np.ndarray) -> np.ndarray:
        """The median and both ends of the interval of log epochs, [3, n]."""
        places = log_batch / LATTICE
        lattice = np.arange(np.floor(places.min()), np.floor(places.max()) + 2)
        sizes = np.exp(lattice * LATTICE)
        locations = self.log_minimum + np.log(relative_samples(sizes[:, None], self.critical_batches))
        return np.array([np.interp(places, lattice, self._quantile(locations, q)) for q in (0.5, TAIL, 1 - TAIL)])

    def _quantile(self, locations: np.ndarray, probability: float) -> np.ndarray:
        """Of the mixture of t distributions around the locations [n, K], by bisection between theirs."""
        alone = locations + self.scale * stdtrit(self.degrees_of_freedom, probability)
        low, high = alone.min(axis=1), alone.max(axis=1)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = stdtr(self.degrees_of_freedom, (middle[:, None] - locations) / self.scale) @ self.weights
            low, high = np.where(below < probability, middle, low), np.where(below < probability, high, middle)
        return (low + high) / 2


class StepTimes(Protocol):
    """What predicts how long steps take, such as `step_time.StepTimeModel`."""

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A row for each of the frame's, with `step_time_s` and its interval `low`, `high`, in seconds."""


def time_to_accuracy(
    step_time_model: StepTimes, epochs_model: EpochsToTarget, frame: pd.DataFrame, samples_per_epoch: int
) -> pd.DataFrame:
    """How long it takes to reach the target accuracy, and what it costs: epochs * steps an epoch * seconds a step.

    Args:
        step_time_model: predicts seconds a step.
        epochs_model: fitted to epochs, not samples.
        frame: one row a configuration: what `step_time_model` needs, with `gpus` over all nodes, `local_batch`, and
            `accumulation` where it is not 1.
        samples_per_epoch: images in the training set.

    Returns:
        `global_batch`, `epochs`, `step_time_s`, `seconds` with its 80 % interval `low`, `high`, and `gpu_hours` with
        `gpu_hours_low`, `gpu_hours_high`; the index is the frame's. The errors of both models are taken as independent
        factors, so their logarithms add up as squares.

    Raises:
        FitError: a column is missing.
    """
    given = numbers(frame, "gpus", "local_batch", *(["accumulation"] if "accumulation" in frame else []))
    gpus, global_batch = given["gpus"], given.prod(axis=1, skipna=False)
    epochs, step_time = epochs_model.predict(global_batch), step_time_model.predict(frame)
    seconds = epochs["epochs"] * np.ceil(samples_per_epoch / global_batch) * step_time["step_time_s"]
    told = {"global_batch": global_batch, "epochs": epochs["epochs"], "step_time_s": step_time["step_time_s"]}
    table = pd.DataFrame({**told, "seconds": seconds})
    for end, sign in (("low", -1), ("high", 1)):
        factors = np.log(epochs[end] / epochs["epochs"]), np.log(step_time[end] / step_time["step_time_s"])
        table[end] = seconds * np.exp(sign * np.hypot(*factors))
    hours = gpus / 3600
    return table.assign(
        gpu_hours=seconds * hours, gpu_hours_low=table["low"] * hours, gpu_hours_high=table["high"] * hours
    )

"""Fit positive parameters to positive measurements, and say how far the result can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import approx_fprime, least_squares

Predict = Callable[[np.ndarray], np.ndarray]

Z80 = 1.2816  # standard normal quantile of 90 %: on both sides of an 80 % interval
# Few points say little about their noise: what is expected of it counts like this many of them.
EXPECTED_NOISE_COUNTS = 3


@dataclass(frozen=True)
class Prior:
    """What is known of a parameter beforehand: a log-normal distribution.

    Attributes:
        median: its median.
        factor: one standard deviation either way is this factor.
        of: the parameter that the median counts in; None where it stands for itself.
    """

    median: float
    factor: float
    of: str | None = None


Priors = Mapping[str, Prior]


@dataclass(frozen=True)
class Fit:
    """Fitted parameters.

    Attributes:
        values: the parameters, all positive, [p].
        covariance: of their logarithms, [p, p].
        noise: relative standard deviation of the measurements about the model.
    """

    values: np.ndarray
    covariance: np.ndarray
    noise: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return {"values": self.values.tolist(), "covariance": self.covariance.tolist(), "noise": self.noise}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Fit:
        """The fit that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        values, covariance = (np.array(content[name], dtype=float) for name in ("values", "covariance"))
        noise = float(content["noise"])
        if not ((values > 0) & (values < np.inf)).all() or not np.isfinite(covariance).all() or not 0 <= noise < np.inf:
            raise ValueError("A fit holds a figure that cannot be.")
        return cls(values, covariance, noise)


def known(priors: Priors, noise: float) -> Fit:
    """What a fit to no measurement at all would be: the priors."""
    weights = _weights(priors)
    return Fit(np.exp(_centre(priors)), np.linalg.inv(weights.T @ weights), noise)


def fit_positive(
    predict: Predict,
    observed: np.ndarray,
    priors: Priors,
    expected_noise: float,
    *,
    groups: int | None = None,
    aside: int = 0,
) -> Fit:
    """The most probable parameters: errors are relative, outliers count little, and what was known beforehand counts.

    Minimises the sum over measurements of rho(log(predicted / observed) / noise), with rho quadratic for small and
    linear for large errors (pseudo-Huber), plus the squared distances from the priors: the maximum a posteriori
    of log-normal parameters. A first pass takes the noise that is expected, a second one the noise that it found.

    Args:
        predict: parameters [p] -> predictions [n].
        observed: [n], positive.
        priors: one for each parameter, in their order.
        expected_noise: relative standard deviation of a measurement.
        groups: how many independent measurements the n are worth; n, if not given. Those of one placement share its
            luck (the same machines, the same hour), so the covariance is widened by n / groups.
        aside: the last so many measurements are of something else than what will be predicted: they help to find the
            parameters and say nothing of the noise.
    """
    target, noise = np.log(observed), expected_noise
    # The minimum need not be the only one: begin at the centre, and a spread (at most a factor e) below and above it.
    spreads = np.minimum(np.log([prior.factor for prior in priors.values()]), 1)
    starts = [_centre(priors) + shift * spreads for shift in (0.0, -1.0, 1.0)]
    for _ in range(2):
        logs = _minimise(predict, target, priors, noise, starts)
        starts = [logs]
        errors = np.log(predict(np.exp(logs))) - target
        noise = _noise(errors[: len(errors) - aside], expected_noise)
    jacobian = _log_jacobian(predict, logs)
    independent = (groups or len(observed)) / len(observed)
    weights = _weights(priors)
    information = jacobian.T @ jacobian * independent / noise**2 + weights.T @ weights
    return Fit(np.exp(logs), np.linalg.inv(information), noise)


def interval(predict: Predict, fit: Fit, drift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the fit predicts, and the bounds of the 80 % interval of a measurement there; three arrays [n].

    The interval holds the noise of a measurement, what is uncertain of the parameters, and a drift.

    Args:
        predict: parameters [p] -> predictions [n].
        fit: the parameters.
        drift: relative standard deviation of what no small model knows, [n]; grows with the distance from what was
            measured: there may be another switch, another algorithm.
    """
    jacobian = _log_jacobian(predict, np.log(fit.values))
    uncertain = np.einsum("ij,jk,ik->i", jacobian, fit.covariance, jacobian)
    value = predict(fit.values)
    reach = np.exp(Z80 * np.sqrt(fit.noise**2 + uncertain + drift**2))
    return value, value / reach, value * reach


def doublings(gpus: np.ndarray, largest: float) -> np.ndarray:
    """How many times the number of GPUs was doubled since the most that were measured; 0 where it was not."""
    return np.log2(np.maximum(gpus / largest, 1))


def _noise(errors: np.ndarray, expected: float) -> float:
    """The standard deviation whose 80 % interval holds four in five of the errors, blended with the expected one."""
    found = np.quantile(np.abs(errors), 0.8) / Z80
    weight = len(errors) / (len(errors) + EXPECTED_NOISE_COUNTS)
    return float(np.sqrt(weight * found**2 + (1 - weight) * expected**2))


def _minimise(
    predict: Predict, target: np.ndarray, priors: Priors, noise: float, starts: Sequence[np.ndarray]
) -> np.ndarray:
    weights, centre = _weights(priors), _centre(priors)

    def residuals(logs: np.ndarray) -> np.ndarray:
        errors = (np.log(predict(np.exp(logs))) - target) / noise
        # least_squares squares what it gets: the root of the pseudo-Huber loss.
        forgiving = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
        return np.concatenate([forgiving, weights @ (logs - centre)])

    best = min((least_squares(residuals, start) for start in starts), key=lambda result: float(result.cost))
    return np.asarray(best.x)


def _log_jacobian(predict: Predict, logs: np.ndarray) -> np.ndarray:
    """The derivatives of the logarithms of predictions by those of the parameters, [n, p]."""
    return np.atleast_2d(approx_fprime(logs, lambda each: np.log(predict(np.exp(each))), 1e-6))


def _centre(priors: Priors) -> np.ndarray:
    """The logarithms of the parameters' medians, [p]."""
    medians: dict[str, float] = {}
    for name, prior in priors.items():
        medians[name] = prior.median * (medians[prior.of] if prior.of else 1)
    return np.log(list(medians.values()))


def _weights(priors: Priors) -> np.ndarray:
    """What turns the logarithms' distances from the centre into standard deviations of the priors, [p, p]."""
    names = list(priors)
    weights = np.diag([1 / np.log(prior.factor) for prior in priors.values()])
    for row, prior in enumerate(priors.values()):
        if prior.of:
            weights[row, names.index(prior.of)] = -weights[row, row]
    return weights

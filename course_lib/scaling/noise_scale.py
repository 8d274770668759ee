"""The gradient noise scale of live runs: about the batch size above which a larger one hardly helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from course_lib.errors import FitError
from course_lib.scaling.fitting import Z80
from course_lib.scaling.tables import numbers

NOISE_COLUMNS = ("step", "squared_gradient", "variance", "noise_scale", "low", "high")


def noise_scale(steps: pd.DataFrame, span: float = 100.0) -> pd.DataFrame:
    """The gradient noise scale tr(Sigma) / |G|^2 of runs, step by step: about their critical batch size.

    A rank's gradient is a mean over fewer images than that of all, so its square is larger by its share of the noise.
    That gives unbiased estimates of |G|^2 and tr(Sigma) in each step; each has a moving average of its own, and the
    noise scale is their ratio (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1). The ratio's 80 % interval is
    Fieller's (1954, Some problems in interval estimation), with steps taken as independent.

    Args:
        steps: one row a step and rank (see `store.steps`): step, samples, local_samples, grad_norm, local_grad_norm,
            and, of several runs, run or path. Steps with fewer images than the run's others are left out.
        span: steps that the moving averages reach back.

    Returns:
        One row a step, in order, with the columns that name the run and `NOISE_COLUMNS`; the last of a run is its
        estimate. Where noise hides the gradient, noise_scale or `high` is infinite.

    Raises:
        FitError: a column is missing, or no step has gradients over two numbers of images, as with one rank.
    """
    names = [name for name in ("run", "path") if name in steps]
    values = numbers(steps, "step", "samples", "local_samples", "grad_norm", "local_grad_norm")
    usable = values.assign(**{name: steps[name] for name in names}).dropna()
    usable = usable[usable["local_samples"].between(1, usable["samples"] - 1)]
    if usable.empty:
        raise FitError(
            "The noise scale cannot be estimated: no step has a gradient of one rank beside that of several. Take the "
            "steps of a run of ddp.train on 2 ranks or more."
        )
    tables = [_noise_of_run(run, span).assign(**told) for told, run in _runs(usable, names)]
    return pd.concat(tables, ignore_index=True)[[*names, *NOISE_COLUMNS]]


def _runs(steps: pd.DataFrame, names: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    if not names:
        yield {}, steps
        return
    for values, run in steps.groupby(names, sort=False):
        yield dict(zip(names, values, strict=True)), run


def _noise_of_run(run: pd.DataFrame, span: float) -> pd.DataFrame:
    run = run[run["samples"] == run["samples"].max()]
    squares = {"big": run["grad_norm"] ** 2, "small": run["local_grad_norm"] ** 2}
    parts = run.assign(**squares, share=1 / run["local_samples"], whole=1 / run["samples"])
    parts = parts.groupby("step", as_index=False)[["big", "small", "share", "whole"]].mean()
    # A square is |G|^2 + tr(Sigma) / images, on average over the ranks too, whose shares may differ.
    variance = (parts["small"] - parts["big"]) / (parts["share"] - parts["whole"])
    squared = parts["big"] - variance * parts["whole"]
    ratios = _ratio_of_averages(variance, squared, span)
    return ratios.assign(step=parts["step"])


def _ratio_of_averages(top: pd.Series[Any], bottom: pd.Series[Any], span: float) -> pd.DataFrame:
    """The ratio of two moving averages, neither below 0, with Fieller's interval."""
    tops, bottoms = top.ewm(span=span), bottom.ewm(span=span)
    s, g = tops.mean(), bottoms.mean().clip(lower=0)
    decay = 1 - 2 / (span + 1)
    count = np.arange(1, len(top) + 1)
    # The sum of the squared weights: what a mean's variance is of that of one value.
    share = (1 - decay) / (1 + decay) * (1 + decay**count) / (1 - decay**count)
    unit = Z80**2 * share
    # Ratios r with (s - r g)^2 <= z^2 var(s - r g), that is a r^2 - 2 b r + c <= 0.
    a, b, c = g**2 - unit * bottoms.var(), s * g - unit * tops.cov(bottom), s**2 - unit * tops.var()
    root = np.sqrt((b**2 - a * c).clip(lower=0))
    low = (c / (b + root)).where((c > 0) & (s > 0), 0.0)
    high = ((b + root) / a).where(a > 0, np.inf)
    known = tops.var().notna()
    ratio = (s.clip(lower=0) / g).where(g > 0, np.inf)
    ends = {"low": low.where(known), "high": high.where(known)}
    return pd.DataFrame({"squared_gradient": bottoms.mean(), "variance": s, "noise_scale": ratio, **ends})

"""Throughput from a table of GPUs alone: never more than a fair share, and honest about what it cannot know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from course_lib.errors import FitError
from course_lib.scaling.stragglers import expected_max
from course_lib.scaling.throughput import ThroughputModel

COUNTS = [1, 2, 4, 8, 16, 32]


def grown(gpus: list[int], loss: float = 0.05, rate: float = 100.0) -> pd.DataFrame:
    """A table of a machine whose step grows by a ring's transfer."""
    count = np.array(gpus, float)
    return pd.DataFrame({"gpus": count, "throughput": count * rate / (1 + 2 * (count - 1) / count * loss)})


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2, 1.0])
def test_it_predicts_beyond_the_table(loss: float) -> None:
    model = ThroughputModel.fit(grown([1, 2, 4, 8], loss))
    larger = grown([16, 32, 64], loss)
    predicted = model.predict(larger)
    assert larger["throughput"].between(predicted["low"], predicted["high"]).all()
    assert (predicted["throughput"] / larger["throughput"] - 1).abs().max() < 0.2


@given(st.floats(0.001, 2), st.floats(1e-3, 1e9), st.sampled_from([[1], [1, 8], [2, 4], [1, 2, 4, 8, 16]]))
@settings(max_examples=40)
def test_more_gpus_give_more_but_never_more_than_their_share(loss: float, rate: float, gpus: list[int]) -> None:
    predicted = ThroughputModel.fit(grown(gpus, loss, rate)).predict(pd.DataFrame({"gpus": COUNTS}))
    assert predicted["efficiency"].is_monotonic_decreasing
    assert predicted["efficiency"].iloc[0] == pytest.approx(1)
    assert (predicted["low"] < predicted["throughput"]).all()
    beyond = predicted[[count >= max(gpus) for count in COUNTS]]
    assert (beyond["high"] / beyond["low"]).is_monotonic_increasing


def test_units_do_not_matter() -> None:
    gpus = pd.DataFrame({"gpus": [16, 64]})
    images, thousands = (ThroughputModel.fit(grown([1, 4, 8], rate=rate)).predict(gpus) for rate in (5e5, 5e2))
    np.testing.assert_allclose(images["throughput"], 1000 * thousands["throughput"], rtol=1e-3)


@pytest.mark.parametrize("frame", [grown([]), grown([1]).rename(columns={"gpus": "n"}), -grown([1, 2])])
def test_a_table_that_cannot_be_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(FitError):
        ThroughputModel.fit(frame)


def test_the_expected_slowest_is_what_draws_give() -> None:
    draws = np.random.default_rng(0).standard_normal((20_000, 64))
    for count in (1, 2, 3, 8, 64):
        assert expected_max(np.array([count]))[0] == pytest.approx(draws[:, :count].max(axis=1).mean(), abs=0.02)


@pytest.mark.parametrize("count", [1, 3, 64, 4_096, 1_000_000])
def test_the_expected_slowest_is_its_integral(count: int) -> None:
    """The mean of the largest: the integral of x N phi(x) Phi(x)^(N-1)."""
    mean, _ = quad(lambda x: x * count * norm.pdf(x) * norm.cdf(x) ** (count - 1), -9, 9, epsabs=1e-9, limit=200)
    assert expected_max(np.array([count]))[0] == pytest.approx(mean, abs=1e-6)


def test_the_expected_slowest_of_known_counts() -> None:
    """Of two it is 1 / sqrt(pi); the others are in tables of order statistics."""
    np.testing.assert_allclose(
        expected_max(np.array([1, 2, 4, 8, 16])), [0, np.pi**-0.5, 1.0294, 1.4236, 1.766], atol=1e-4
    )


def test_what_is_no_table_is_refused_by_name() -> None:
    with pytest.raises(FitError, match="not list"):
        ThroughputModel.fit([1, 2])  # type: ignore[arg-type]

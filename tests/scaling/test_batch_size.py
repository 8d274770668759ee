"""What a larger batch costs is recovered where it is known, and told with its doubt where it is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import ConfigError, FitError
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.scaling import batch_size
from course_lib.scaling.batch_size import EpochsToTarget, noise_scale, scaled_learning_rate, time_to_accuracy
from course_lib.training import ddp, single
from course_lib.training.schedules import scaled_lr

# MLPerf's reference convergence points of ResNet-50 by one creator (mlcommons/logging, rcps_resnet.json).
RESNET = {1632: 35, 3264: 35.2, 13056: 45.4, 49152: 68, 58880: 79.9, 67840: 85.8571}


@given(st.floats(1e-4, 10), st.integers(1, 4096), st.integers(1, 512), st.sampled_from(["none", "linear", "sqrt"]))
def test_learning_rates_are_those_that_the_trainers_take(lr, ranks, batch, rule):
    assert scaled_learning_rate(lr, rule, ranks * batch, batch) == pytest.approx(
        scaled_lr(lr, rule, ranks * batch, batch)
    )


def test_learning_rates_come_for_many_batches_and_known_rules_only():
    np.testing.assert_allclose(scaled_learning_rate(0.1, "sqrt", [64, 256], 64), [0.1, 0.2])
    with pytest.raises(ConfigError, match="'cubic'"):
        scaled_learning_rate(0.1, "cubic", 64, 64)


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_samples_are_steps_times_batch(batch, critical):
    samples = batch_size.relative_samples(batch, critical)
    steps = batch_size.relative_steps(batch, critical)
    # Emin / Smin is the critical batch, so steps * Smin * B = samples * Emin.
    assert steps * batch / critical == pytest.approx(samples)
    assert batch_size.relative_samples(critical, critical) == batch_size.relative_steps(critical, critical) == 2
    assert batch_size.critical_batch_size(critical * 3, 3) == pytest.approx(critical)


def noisy_steps(shares: list[int], steps: int, gradient: np.ndarray, deviations: np.ndarray, seed: int = 0):
    """Reports of ranks with these shares, whose images' gradients are normal around `gradient`."""
    generator = np.random.default_rng(seed)
    shape = (steps, len(shares), len(gradient))
    own = gradient + deviations * generator.standard_normal(shape) / np.sqrt(shares)[:, None]
    mean = (own * np.array(shares)[:, None]).sum(1) / sum(shares)
    local_norms, norms = np.linalg.norm(own, axis=2), np.linalg.norm(mean, axis=1)
    return pd.DataFrame(
        [
            {"run": "a", "step": step, "rank": rank, "samples": sum(shares), "local_samples": share}
            | {"grad_norm": norms[step], "local_grad_norm": local_norms[step, rank]}
            for step in range(steps)
            for rank, share in enumerate(shares)
        ]
    )


GRADIENT = np.full(100, 0.1)  # its square is 1
DEVIATIONS = np.linspace(0.5, 1.5, 100)
NOISE_SCALE = (DEVIATIONS**2).sum()  # 108


@pytest.mark.parametrize("shares", [[16, 16], [8, 8, 8, 8], [20, 7, 3, 2], [1] * 32])
def test_the_noise_scale_of_known_gradients_is_recovered(shares):
    table = noise_scale(noisy_steps(shares, 2000, GRADIENT, DEVIATIONS), span=2000)
    last = table.iloc[-1]
    assert last["noise_scale"] == pytest.approx(NOISE_SCALE, rel=0.1)
    assert last["variance"] == pytest.approx(NOISE_SCALE, rel=0.1)
    assert last["squared_gradient"] == pytest.approx(1, rel=0.1)


def test_the_interval_of_the_noise_scale_holds_it_about_eight_times_in_ten():
    ends = [noise_scale(noisy_steps([16, 16], 150, GRADIENT, DEVIATIONS, seed), 100).iloc[-1] for seed in range(200)]
    held = np.mean([end["low"] <= NOISE_SCALE <= end["high"] for end in ends])
    assert 0.7 < held < 0.9


def test_a_gradient_hidden_by_noise_has_a_noise_scale_without_upper_bound():
    ends = [noise_scale(noisy_steps([1, 1], 50, 0 * GRADIENT, DEVIATIONS, seed)).iloc[-1] for seed in range(100)]
    assert 0.8 < np.mean([end["high"] == np.inf for end in ends]) < 0.98
    assert min(end["low"] for end in ends) > 2


def test_the_order_of_rows_and_what_is_missing_change_little():
    steps = noisy_steps([8, 8, 8], 300, GRADIENT, DEVIATIONS)
    expected = noise_scale(steps)
    pd.testing.assert_frame_equal(noise_scale(steps.sample(frac=1, random_state=1)), expected)
    last = {"run": "a", "step": 300, "rank": 0, "samples": 2, "local_samples": 1, "grad_norm": 9, "local_grad_norm": 7}
    torn = pd.concat([steps, pd.DataFrame([last, {**last, "step": 301, "local_grad_norm": np.nan}])])
    pd.testing.assert_frame_equal(noise_scale(torn), expected)
    other = noisy_steps([4, 4], 300, GRADIENT, DEVIATIONS * 2, seed=1).assign(run="b")
    both = noise_scale(pd.concat([steps, other]))
    pd.testing.assert_frame_equal(both[both["run"] == "a"], expected)
    assert both["noise_scale"].iloc[-1] > expected["noise_scale"].iloc[-1]


def test_one_rank_alone_has_nothing_to_compare(quick):
    run = launch(single.train, quick)
    run.wait(60)
    with pytest.raises(FitError, match="2 ranks or more"):
        noise_scale(store.steps(run.path))
    with pytest.raises(FitError, match="local_grad_norm"):
        noise_scale(store.steps(run.path).drop(columns="local_grad_norm"))


def test_a_real_run_has_a_noise_scale(quick):
    run = launch(ddp.train, quick.with_(num_gpus=2, batch_size=10, epochs=4))
    run.wait(60)
    table = noise_scale(store.steps(run.path))
    assert len(table) == 60
    last = table.iloc[-1]
    assert 0 < last["low"] < last["noise_scale"] < last["high"]
    assert np.isfinite(last["noise_scale"])


def measured(epochs: dict[float, float]) -> pd.DataFrame:
    return pd.DataFrame({"global_batch": epochs.keys(), "epochs": epochs.values()})


@settings(max_examples=30)
@given(st.floats(1, 1e4), st.floats(0.5, 100), st.floats(1e-3, 1e9))
def test_a_known_curve_is_extrapolated(smallest, critical_ratio, minimum):
    """In any unit, up to 8 times the largest batch."""
    batch = smallest * 2.0 ** np.arange(6)
    critical = batch[-1] * critical_ratio
    curve = minimum * batch_size.relative_samples(batch, critical)
    model = EpochsToTarget.fit(pd.DataFrame({"global_batch": batch, "epochs": curve}))
    beyond = batch[-1] * np.array([2, 4, 8])
    truth = minimum * batch_size.relative_samples(beyond, critical)
    np.testing.assert_allclose(model.predict(beyond)["epochs"], truth, rtol=0.15)
    np.testing.assert_allclose(model.predict(batch)["epochs"], curve, rtol=0.05)


positive = st.floats(1, 1e6)


@settings(max_examples=10)
@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=8), st.lists(positive, min_size=2, max_size=9))
def test_laws_of_epochs(points, batches):
    frame = pd.DataFrame(points, columns=["global_batch", "epochs"])
    model = EpochsToTarget.fit(frame)
    batches = np.sort(batches)
    table = model.predict(batches)
    assert (table > 0).all(axis=None)
    assert ((table["low"] < table["epochs"]) & (table["epochs"] < table["high"])).all()
    assert (table.diff().iloc[1:] >= -1e-6 * table.iloc[1:]).all(axis=None)  # it never falls
    # Other units of epochs and of batches change nothing, and no row depends on another.
    scaled = EpochsToTarget.fit(frame.assign(epochs=frame["epochs"] * 1000)).predict(batches)
    np.testing.assert_allclose(scaled, table * 1000, rtol=1e-6)
    np.testing.assert_allclose(model.predict(batches[:1]), table.iloc[:1], rtol=1e-9)
    larger = EpochsToTarget.fit(frame.assign(global_batch=frame["global_batch"] * 10)).predict(batches * 10)
    np.testing.assert_allclose(larger, table, rtol=1e-3)


def width(model: EpochsToTarget, batch: float) -> float:
    row = model.predict([batch]).iloc[0]
    return row["high"] / row["low"]


def test_the_interval_widens_with_distance_and_with_fewer_measurements():
    points = list(RESNET.items())
    models = [EpochsToTarget.fit(measured(dict(points[:count]))) for count in (1, 2, 3, 6)]
    for model in models:
        assert width(model, 1e5) < width(model, 1e6) < width(model, 1e7)
    assert width(models[0], 67840) > width(models[2], 67840) > width(models[3], 67840)


def test_the_lower_half_of_published_points_predicts_the_upper():
    lower, upper = dict(list(RESNET.items())[:3]), dict(list(RESNET.items())[3:])
    table = EpochsToTarget.fit(measured(lower)).predict(list(upper))
    truth = np.array(list(upper.values()))
    line = np.polyval(np.polyfit(list(lower), list(lower.values()), 1), list(upper))
    for guess in (line, max(lower.values())):  # what one would try without a model
        assert np.abs(table["epochs"] / truth - 1).mean() < 0.8 * np.abs(guess / truth - 1).mean()
    assert ((table["low"] < truth) & (truth < table["high"])).all()


@pytest.mark.parametrize("epochs", [[40, 40, 40], [41, 40, 39], [40, 36, 38]])
def test_noise_is_not_extrapolated(epochs):
    """Where nothing is seen to rise, it rises a little in time, and may not."""
    model = EpochsToTarget.fit(measured(dict(zip([256, 512, 1024], epochs, strict=True))))
    row = model.predict([8192]).iloc[0]
    assert 1 < row["epochs"] / np.mean(epochs) < 1.5
    assert row["low"] / np.mean(epochs) < 1.1


def test_repeats_and_rows_with_gaps_are_taken():
    frame = pd.DataFrame(
        {"global_batch": [64, 64, 128, np.nan, 256], "epochs": [10, 10.2, 10.5, 11, None], "creator": "somebody"}
    )
    expected = EpochsToTarget.fit(frame.iloc[:3]).predict([512])
    pd.testing.assert_frame_equal(EpochsToTarget.fit(frame).predict([512]), expected)
    asked = pd.DataFrame({"global_batch": [512, None]}, index=["a", "b"])
    table = EpochsToTarget.fit(frame).predict(asked)
    assert table.index.tolist() == ["a", "b"]
    assert table.loc["a"].tolist() == expected.iloc[0].tolist()
    assert table.loc["b"].isna().all()


def test_the_critical_batch_size_is_where_epochs_double():
    model = EpochsToTarget.fit(measured({2**i: 20 * (1 + 2**i / 1024) for i in range(6, 13)}))
    assert model.critical_batch_size == pytest.approx(1024, rel=0.1)
    assert EpochsToTarget.fit(measured({100: 7})).critical_batch_size == pytest.approx(1600)


def test_tables_that_say_nothing_are_refused():
    for frame in (measured({}), pd.DataFrame({"batch": [1], "epochs": [1]}), measured({0: 3}), measured({1: np.nan})):
        with pytest.raises(FitError):
            EpochsToTarget.fit(frame)
    with pytest.raises(FitError, match="above 0"):
        EpochsToTarget.fit(measured({64: 10})).predict([64, -1])


class EachImageTakesAMillisecond:
    """A step time model: a millisecond for each local image, within a tenth, and ten for the all_reduce."""

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        seconds = 0.001 * frame["local_batch"] + 0.01
        return pd.DataFrame({"step_time_s": seconds, "low": seconds / 1.1, "high": seconds * 1.1})


def test_time_is_epochs_times_steps_times_their_time():
    epochs = EpochsToTarget.fit(measured({64: 10, 128: 10.5, 256: 11, 512: 13}))
    frame = pd.DataFrame(
        {"nodes": 1, "gpus": [1, 2, 8], "local_batch": [64, 64, 30], "accumulation": [1, 1, 2]}, index=[5, 3, 9]
    )
    table = time_to_accuracy(EachImageTakesAMillisecond(), epochs, frame, 1000)
    assert table.index.tolist() == [5, 3, 9]
    assert table["global_batch"].tolist() == [64, 128, 480]
    predicted = epochs.predict(table["global_batch"])
    # 1000 images are 16, 8 and 3 steps; the last of an epoch may be smaller, and counts as one.
    np.testing.assert_allclose(table["seconds"], predicted["epochs"] * [16, 8, 3] * [0.074, 0.074, 0.04])
    np.testing.assert_allclose(table["gpu_hours"] * 3600, table["seconds"] * [1, 2, 8])
    np.testing.assert_allclose(table["gpu_hours_high"] / table["gpu_hours"], table["high"] / table["seconds"])
    # The interval is wider than either model's alone, and narrower than both at once.
    alone, both = predicted["high"] / predicted["epochs"], predicted["high"] / predicted["epochs"] * 1.1
    ratio = table["high"] / table["seconds"]
    assert ((ratio > np.maximum(alone, 1.1)) & (ratio < both)).all()
    assert (table["low"] < table["seconds"]).all()


def test_a_sweep_of_a_hundred_thousand_configurations_is_one_table():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"gpus": generator.integers(1, 4096, 100_000), "local_batch": generator.integers(1, 4096, 100_000)}
    )
    epochs = EpochsToTarget.fit(measured({64: 10, 128: 10.5}))
    table = time_to_accuracy(EachImageTakesAMillisecond(), epochs, frame, 60_000)
    assert np.isfinite(table).all(axis=None)
    some = generator.integers(0, 100_000, 20)
    pd.testing.assert_frame_equal(
        table.iloc[some], time_to_accuracy(EachImageTakesAMillisecond(), epochs, frame.iloc[some], 60_000)
    )


def test_a_table_without_gpus_is_refused():
    with pytest.raises(FitError, match="gpus"):
        time_to_accuracy(
            EachImageTakesAMillisecond(), EpochsToTarget.fit(measured({1: 1})), pd.DataFrame({"local_batch": [1]}), 10
        )

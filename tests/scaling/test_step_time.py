"""A step's time: the parameters that made a table are found in it, its parts add up, and far out less is certain."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import FitError
from course_lib.scaling.collectives import Cluster, Link
from course_lib.scaling.hardware import PROFILES, find
from course_lib.scaling.step_time import StepTimeModel

LAYOUTS = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (3, 3), (4, 16)]
MEGABYTE = 1e6


def table(layouts: list[tuple[int, int]] = LAYOUTS, batches: tuple[int, ...] = (8, 32, 128, 512)) -> pd.DataFrame:
    rows = [(nodes, gpus, batch) for nodes, gpus in layouts for batch in batches]
    return pd.DataFrame(rows, columns=["nodes", "gpus", "local_batch"])


def truth(gradient_bytes: float = 102 * MEGABYTE) -> StepTimeModel:
    return StepTimeModel.of(find("t4"), 24.6e9, gradient_bytes)


def measured(frame: pd.DataFrame, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Steps as a known machine takes them, with noise."""
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(len(frame)))
    return frame.assign(step_time_s=truth().predict(frame)["step_time_s"] * scatter, gradient_bytes=102 * MEGABYTE)


def test_it_finds_the_machine_that_made_the_table_and_predicts_larger_ones() -> None:
    model = StepTimeModel.fit(measured(table()))
    larger = table([(4, 12), (8, 32), (16, 64)], (24, 300))
    error = model.predict(larger)["step_time_s"] / truth().predict(larger)["step_time_s"] - 1
    assert error.abs().max() < 0.03
    found, made = model.parameters, truth().parameters
    for name in ("overhead_s", "sample_s", "transfer_s"):
        assert found[name] == pytest.approx(made[name], rel=0.15)


def test_four_intervals_in_five_hold_what_is_measured() -> None:
    held = []
    for seed in range(8):
        model = StepTimeModel.fit(measured(table(), 0.06, seed))
        others = measured(table([(4, 12), (5, 20)], (16, 64, 256, 400)), 0.06, 100 + seed)
        predicted = model.predict(others)
        held += list(others["step_time_s"].between(predicted["low"], predicted["high"]))
    assert 0.7 <= np.mean(held) <= 0.95


def test_outliers_do_not_move_it() -> None:
    clean = measured(table())
    spoilt = clean.assign(step_time_s=clean["step_time_s"].where(clean.index % 9 != 4, clean["step_time_s"] * 3))
    predicted = [StepTimeModel.fit(each).predict(clean)["step_time_s"] for each in (clean, spoilt)]
    assert (predicted[1] / predicted[0] - 1).abs().max() < 0.05


def test_one_node_and_the_links_tell_of_several_nodes() -> None:
    one_node = measured(table([(1, 1), (1, 2), (1, 4)]))
    several = measured(table([(2, 8), (4, 16), (8, 32)]))
    blind, told = (StepTimeModel.fit(one_node, cluster).predict(several) for cluster in (None, find("t4").cluster))
    error = (told["step_time_s"] / several["step_time_s"] - 1).abs().mean()
    assert error < 0.08
    assert error < (blind["step_time_s"] / several["step_time_s"] - 1).abs().mean()
    assert (told["high"] / told["low"]).max() < (blind["high"] / blind["low"]).max()


def test_the_links_also_help_where_the_size_of_the_gradient_is_not_known() -> None:
    one_node = measured(table([(1, 1), (1, 2), (1, 4)])).drop(columns="gradient_bytes")
    several = measured(table([(4, 16), (8, 32)], (8, 32)))
    predicted = StepTimeModel.fit(one_node, find("t4").cluster).predict(several)["step_time_s"]
    assert (predicted / several["step_time_s"] - 1).abs().mean() < 0.2


def test_measured_compute_tells_waiting_from_communication() -> None:
    frame = measured(table())
    parts = truth().predict(frame)
    waiting = 3 * parts["straggler_s"]  # machines that scatter three times as much
    frame = frame.assign(step_time_s=frame["step_time_s"] + 2 * parts["straggler_s"])
    told = frame.assign(sync_time_s=frame["step_time_s"] - parts["compute_s"])
    error = [(StepTimeModel.fit(each).predict(frame)["straggler_s"] - waiting).abs().mean() for each in (frame, told)]
    assert error[1] < error[0]


@given(
    name=st.sampled_from(sorted(PROFILES)),
    nodes=st.integers(1, 512),
    per_node=st.integers(1, 8),
    local_batch=st.integers(1, 4096),
    accumulation=st.integers(1, 16),
    gradient_bytes=st.floats(1e3, 1e10),
)
@settings(max_examples=60)
def test_a_step_is_its_parts_and_never_faster_than_its_compute(
    name: str, nodes: int, per_node: int, local_batch: int, accumulation: int, gradient_bytes: float
) -> None:
    model = StepTimeModel.of(find(name), 1e9, gradient_bytes)
    frame = pd.DataFrame(
        {"nodes": [nodes], "gpus": nodes * per_node, "local_batch": local_batch, "accumulation": accumulation}
    )
    (row,) = model.predict(frame).to_dict("records")
    parts = [row["compute_s"], row["straggler_s"], row["communication_s"]]
    assert row["step_time_s"] == pytest.approx(sum(parts))
    assert min(parts) >= 0
    assert row["low"] < row["step_time_s"] < row["high"]
    samples = nodes * per_node * local_batch * accumulation
    assert row["throughput"] == pytest.approx(samples / row["step_time_s"])
    more = model.predict(frame.assign(local_batch=local_batch + 1))["step_time_s"][0]
    assert more > row["step_time_s"]
    if nodes * per_node == 1:
        assert parts[1:] == pytest.approx([0, 0])


def test_far_out_less_is_certain() -> None:
    model = StepTimeModel.fit(measured(table(), 0.05))
    predicted = model.predict(table([(4, 16), (16, 64), (64, 256), (256, 1024)], (32,)))
    assert (predicted["high"] / predicted["low"]).is_monotonic_increasing


def test_accumulation_saves_communication_and_nothing_else() -> None:
    frame = table([(8, 32)], (16,))
    once = truth().predict(frame).iloc[0]
    four = truth().predict(frame.assign(accumulation=4)).iloc[0]
    assert four["compute_s"] == pytest.approx(4 * once["compute_s"])
    assert four["communication_s"] == pytest.approx(once["communication_s"])


def test_a_gradient_of_one_bucket_has_nothing_to_hide_behind() -> None:
    frame = table([(2, 8)], (4096,))  # a backward pass that is long enough to hide all that can be
    exposed = []
    for gradient_bytes in (1 * MEGABYTE, 30 * MEGABYTE, 500 * MEGABYTE):
        model = truth(gradient_bytes)
        link = 2 * 7 / 8 * model.parameters["inter_transfer_s"]
        exposed.append(model.predict(frame)["communication_s"][0] / link)
    assert exposed[0] >= 1
    assert exposed[0] > exposed[1] > exposed[2]
    assert exposed[2] < 0.3


def test_it_survives_json() -> None:
    model = StepTimeModel.fit(measured(table(), 0.05))
    again = StepTimeModel.from_dict(json.loads(json.dumps(model.to_dict())))
    pd.testing.assert_frame_equal(again.predict(table()), model.predict(table()))


def test_rows_keep_their_index_and_incomplete_measurements_are_left_out() -> None:
    frame = measured(table()).set_index(pd.Index([f"run-{i}" for i in range(len(table()))]))
    holes = frame.assign(step_time_s=frame["step_time_s"].where(np.arange(len(frame)) % 5 != 0))
    assert list(StepTimeModel.fit(holes).predict(frame).index) == list(frame.index)


def test_an_index_that_says_a_row_twice_changes_nothing() -> None:
    frame = measured(table(), 0.05)
    again = StepTimeModel.fit(frame.set_index(pd.Index([0] * len(frame))))
    assert again.parameters == pytest.approx(StepTimeModel.fit(frame).parameters)
    wrong = frame.assign(step_time_s=frame["step_time_s"].where(frame.index != 3, -1.0))
    with pytest.raises(FitError, match=r"in row 3 it is -1\."):
        StepTimeModel.fit(wrong)


def test_no_row_gives_none() -> None:
    assert list(truth().predict(table([])).columns) == list(truth().predict(table()).columns)
    assert truth().predict(table([])).empty


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_give_a_wide_interval_and_no_nonsense(rows: int) -> None:
    predicted = StepTimeModel.fit(measured(table()).head(rows)).predict(table())
    assert np.isfinite(predicted.to_numpy()).all()
    assert (predicted["high"] / predicted["low"]).max() > 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 0}, "gpus must be a number above 0"),
        ({"step_time_s": -1.0}, "step_time_s must be"),
        ({"nodes": 9, "gpus": 4}, "cannot be below nodes"),
        ({"local_batch": "many"}, "no number"),
        ({"gradient_bytes": np.arange(1.0, 29.0)}, "different models"),
        ({"step_time_s": np.nan}, "no row"),
    ],
)
def test_a_table_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(FitError, match=message):
        StepTimeModel.fit(measured(table()).assign(**change))


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(FitError, match=r"no column local_batch.*nodes, gpus"):
        truth().predict(table().drop(columns="local_batch"))
    with pytest.raises(FitError, match="every row"):
        truth().predict(table().assign(gpus=np.nan, nodes=1).fillna({"gpus": 1}).replace({"local_batch": {8: np.nan}}))


def test_a_faster_network_is_never_slower() -> None:
    frame = table([(2, 16), (32, 256)])
    own = find("a100")
    slow = Cluster(8, own.cluster.intra, Link(1e-4, 1e8))
    fast, slower = (
        StepTimeModel.of(replace(own, cluster=cluster), 1e9, MEGABYTE).predict(frame)["step_time_s"]
        for cluster in (own.cluster, slow)
    )
    assert (fast < slower).all()


@pytest.mark.parametrize("damage", [{"values": np.full(9, 1e308)}, {"covariance": -np.ones((9, 9))}])
def test_figures_that_cannot_be_are_told_and_not_predicted_from(damage) -> None:
    model = StepTimeModel.of(find("a100"), 1e9, 1e6)
    damaged = replace(model, fitted=replace(model.fitted, **damage))
    with pytest.raises(FitError, match="no finite time"):
        damaged.predict(pd.DataFrame({"nodes": [1], "gpus": [8], "local_batch": [64]}))

"""A speedup compares like with like, and its interval says how far it can be trusted."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED
from course_lib.errors import ComparisonError
from course_lib.scaling.speedup import (
    FEW_STEPS,
    SAME_FOR_SPEED,
    SPEEDUP_COLUMNS,
    _mann_whitney_counts,
    compare,
    ratio_interval,
    too_short,
    with_speedup,
)

RUN = {
    "status": "finished",
    "timing": MEASURED_ON_CPU_RANKS,
    "hardware": None,
    "cpu": "a processor",
    "cores": 4,
    "devices": "cpu",
    "torch": "2.13.0",
    "threads_per_rank": 1,
    "precision": "fp32",
    "channels_last": False,
    "compile": False,
    "model": "mlp",
    "data": "subset",
    "train_samples": None,
    "accumulation_steps": 1,
    "optimizer": "sgd",
    "clip_norm": None,
    "sync_batchnorm": False,
    "num_nodes": 1,
    "batch_size": 32,
    "scaling": "weak",
    "speed_caveats": "",
    "lr": 0.1,
    "seed": 0,
}
OTHER = {
    "timing": MEASURED_ON_GPUS,
    "hardware": "h100",
    "cpu": "another processor",
    "cores": 8,
    "devices": "a GPU",
    "torch": "2.14.0",
    "threads_per_rank": 2,
    "precision": "bf16",
    "channels_last": True,
    "compile": True,
    "model": "small_cnn",
    "data": "full",
    "train_samples": 100,
    "accumulation_steps": 2,
    "optimizer": "adamw",
    "clip_norm": 1.0,
    "sync_batchnorm": True,
}


def run(num_gpus: int, images_per_sec: float | None, **changes) -> dict:
    row = {**RUN, "num_gpus": num_gpus, "images_per_sec": images_per_sec, **changes}
    row["world_size"] = row["num_gpus"] * row["num_nodes"]
    return {"global_batch_size": row["batch_size"] * row["accumulation_steps"] * row["world_size"], **row}


def runs(num_gpus: int, rates: list[float], **changes) -> list[dict]:
    return [run(num_gpus, rate, **changes) for rate in rates]


def speedups(rows: list[dict]) -> list[float]:
    return with_speedup(pd.DataFrame(rows))["speedup"].tolist()


def test_speedup_is_the_ratio_of_medians_and_efficiency_its_share():
    rows = [*runs(1, [90, 100, 120]), *runs(4, [360, 380, 300])]
    table = with_speedup(pd.DataFrame(rows))
    one, four = table[table.world_size == 1], table[table.world_size == 4]
    assert (one[list(SPEEDUP_COLUMNS)] == 1).all(axis=None)
    assert four["speedup"].tolist() == [3.6] * 3
    assert four["efficiency"].tolist() == [0.9] * 3
    # Three runs on each side: from the smallest of the nine ratios to the largest.
    np.testing.assert_allclose(four["speedup_low"], 300 / 120)
    np.testing.assert_allclose(four["speedup_high"], 380 / 90)
    np.testing.assert_allclose(four["efficiency_low"], 300 / 120 / 4)


rates = st.lists(st.floats(1, 1e6), min_size=1, max_size=12)


@settings(max_examples=50)
@given(rates, rates, st.floats(0.01, 100), st.randoms(use_true_random=False))
def test_laws_of_speedup(single, several, factor, random):
    rows = [*runs(1, single), *runs(3, several)]
    table = with_speedup(pd.DataFrame(rows))[list(SPEEDUP_COLUMNS)]
    of_three = table.iloc[-1]
    assert of_three["speedup"] > 0
    if min(len(single), len(several)) >= 3:
        assert of_three["speedup_low"] <= of_three["speedup"] <= of_three["speedup_high"]
    if len(single) == 1 or len(several) == 1:
        assert np.isnan(of_three["speedup_low"])
        assert np.isnan(of_three["speedup_high"])
    # Another unit of throughput changes nothing, and neither does the order of the rows.
    scaled = [{**row, "images_per_sec": row["images_per_sec"] * factor} for row in rows]
    np.testing.assert_allclose(with_speedup(pd.DataFrame(scaled))[list(SPEEDUP_COLUMNS)], table)
    shuffled = with_speedup(pd.DataFrame(random.sample(rows, len(rows))))
    np.testing.assert_allclose(
        shuffled[shuffled.world_size == 3].iloc[0][list(SPEEDUP_COLUMNS)].astype(float), of_three
    )


@pytest.mark.parametrize(("single", "several"), [(1, 9), (9, 1), (2, 2), (2, 4), (1, 1)])
def test_too_few_repeats_have_no_interval(single, several):
    low, high = ratio_interval(np.linspace(100, 110, several), np.linspace(50, 60, single))
    assert np.isnan(low)
    assert np.isnan(high)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (4, 1), (2, 3), (3, 3), (5, 4), (6, 3)])
def test_orders_are_counted_as_listing_them_counts(m, n):
    places = range(m + n)
    # U is how many pairs (first, second) have the first above the second.
    listed = Counter(sum(chosen) - sum(range(m)) for chosen in combinations(places, m))
    assert _mann_whitney_counts(m, n).tolist() == [listed[u] for u in range(m * n + 1)]


@pytest.mark.parametrize(("single", "several"), [(3, 3), (5, 5), (3, 8), (25, 25)])
def test_the_interval_holds_the_truth_at_least_nine_times_in_ten(single, several):
    """Whatever the noise: here most runs are alike and some are much slower."""
    generator = np.random.default_rng(0)

    def measure(rate: float, count: int) -> np.ndarray:
        slow = generator.random(count) < 0.2
        return rate / generator.lognormal(np.where(slow, 0.5, 0.0), np.where(slow, 0.2, 0.02))

    tries = 1500
    hits = 0
    for _ in range(tries):
        low, high = ratio_interval(measure(180.0, several), measure(100.0, single))
        hits += low <= 1.8 <= high
    assert hits / tries > 0.9 - 3 * np.sqrt(0.9 * 0.1 / tries)


@pytest.mark.parametrize("name", SAME_FOR_SPEED)
def test_runs_that_differ_in_what_changes_speed_are_not_compared(name):
    rows = [run(1, 100), run(2, 150, **{name: OTHER[name]}), run(2, 180)]
    other, same = speedups(rows)[1:]
    assert np.isnan(other)
    assert same == 1.8
    with pytest.raises(ComparisonError, match=name):
        compare(rows[1], rows[0])


def test_every_difference_is_named_with_both_values():
    with pytest.raises(ComparisonError) as caught:
        compare(run(2, 150, model="wrn-16-4", timing=SIMULATED), run(1, 100))
    message = str(caught.value)
    assert all(word in message for word in ("model", "'wrn-16-4'", "'mlp'", "timing", "'simulated'", RUN["timing"]))
    assert "optimizer" not in message


def test_runs_that_differ_in_what_does_not_change_speed_are_repeats():
    free = [{"lr": 0.2}, {"seed": 7}, {"lr_rule": "none"}, {"weight_decay": 0.0}, {"epochs": 9}, {"repeat": 4}]
    rows = [run(1, 100), *(run(2, 150 + i, **each) for i, each in enumerate(free))]
    assert speedups(rows)[1:] == [1.525] * len(free)
    for row in rows[1:]:
        assert compare(row, rows[0]) > 1


def test_weak_scaling_keeps_the_batch_of_a_rank():
    rows = [
        run(1, 100, batch_size=32),
        run(1, 300, batch_size=64),
        run(2, 180, batch_size=32),
        run(2, 540, batch_size=64),
    ]
    assert speedups(rows) == [1.0, 1.0, 1.8, 1.8]
    with pytest.raises(ComparisonError, match="batch_size"):
        compare(rows[3], rows[0])
    assert compare(rows[1], rows[0], varying=("batch_size",)) == 3.0
    with pytest.raises(ComparisonError, match="num_gpus"):
        compare(rows[2], rows[0], varying=("batch_size",))


def test_strong_scaling_keeps_the_global_batch():
    strong = {"scaling": "strong"}
    rows = [
        run(1, 100, batch_size=64, **strong),
        run(2, 160, batch_size=32, **strong),
        run(2, 190, batch_size=64, **strong),
    ]
    assert speedups(rows)[:2] == [1.0, 1.6]
    assert np.isnan(speedups(rows)[2])
    assert compare(rows[1], rows[0]) == 1.6
    with pytest.raises(ComparisonError, match="global_batch_size"):
        compare(rows[2], rows[0])


def test_runs_of_no_sweep_are_compared_at_the_same_batch_of_a_rank():
    assert speedups([run(1, 100, scaling=None), run(2, 150, scaling=None)]) == [1.0, 1.5]


def test_nodes_are_not_mixed_with_ranks_of_one_node():
    rows = [run(1, 100), run(4, 380), run(2, 300, num_nodes=2)]
    assert speedups(rows) == [1.0, 3.8, 3.0]


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.floats(1, 1e6)), max_size=5))
def test_repeats_that_were_disturbed_change_nothing_and_get_no_speedup(disturbed):
    rows = [*runs(1, [100, 101, 102]), *runs(2, [180, 190, 200])]
    expected = with_speedup(pd.DataFrame(rows))[list(SPEEDUP_COLUMNS)]
    rows += [run(size, rate, speed_caveats="another run went on at the same time") for size, rate in disturbed]
    table = with_speedup(pd.DataFrame(rows))[list(SPEEDUP_COLUMNS)]
    pd.testing.assert_frame_equal(table[:6], expected)
    assert table[6:].isna().all(axis=None)


def test_where_no_repeat_is_a_measurement_of_speed_all_count():
    crowded = [run(1, 100, speed_caveats="crowded"), run(2, 150, speed_caveats="crowded")]
    assert speedups(crowded) == [1.0, 1.5]
    assert speedups([run(1, 100), *crowded[1:], run(2, 170, speed_caveats="very crowded")]) == [1.0, 1.6, 1.6]


@pytest.mark.parametrize(
    "broken", [{"status": "failed"}, {"timing": None}, {"images_per_sec": None}, {"images_per_sec": 0.0}]
)
def test_a_run_without_a_measured_throughput_counts_nowhere(broken):
    rows = [run(1, 100), run(2, 150), {**run(2, 1), **broken}, {**run(1, 1), **broken}]
    assert speedups(rows)[:2] == [1.0, 1.5]
    assert np.isnan(speedups(rows)[2:]).all()


def test_without_a_run_on_one_rank_there_is_no_speedup():
    table = with_speedup(pd.DataFrame([run(2, 100), run(4, 200)]))
    assert table[list(SPEEDUP_COLUMNS)].isna().all(axis=None)


def test_a_frame_without_runs_or_with_repeated_index_is_taken():
    empty = with_speedup(pd.DataFrame([run(1, 1)]).iloc[:0])
    assert len(empty) == 0
    assert set(SPEEDUP_COLUMNS) <= set(empty)
    joined = pd.concat([pd.DataFrame([run(1, 100)]), pd.DataFrame([run(2, 150)])])
    assert with_speedup(joined)["speedup"].tolist() == [1.0, 1.5]


def test_rows_of_a_frame_can_be_compared():
    table = pd.DataFrame([run(1, 100), run(2, 150), run(2, None, status="failed")])
    assert compare(table.iloc[1], table.iloc[0]) == 1.5
    with pytest.raises(ComparisonError, match="images_per_sec"):
        compare(table.iloc[2], table.iloc[0])
    with pytest.raises(ComparisonError, match="timing"):
        compare(run(2, 150, timing=None), run(1, 100, timing=None))


@pytest.mark.parametrize(
    ("timed_steps", "few"), [(0, True), (FEW_STEPS - 1, True), (FEW_STEPS, False), (10**6, False), (np.nan, False)]
)
def test_a_run_is_too_short_by_the_steps_that_it_timed(timed_steps, few):
    """By no others: a run that was resumed timed only those since then, and an old one does not say how many."""
    frame = pd.DataFrame({"timed_steps": [timed_steps] * 2, "steps": [10**6] * 2, "timing": [RUN["timing"], SIMULATED]})
    assert too_short(frame).tolist() == [few, False]  # the clock of a simulation is never slow by chance

"""Each rule speaks where its reason is in the numbers, and is silent where it is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest

from course_lib.config import MEASURED_ON_CPU_RANKS, SIMULATED, RunConfig
from course_lib.errors import FolderError, NonFiniteLossError
from course_lib.lab.explain import accuracy_rules, explain, speed_rules
from course_lib.lab.explain.evidence import Case
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.runs.machine import NOT_ALONE
from course_lib.scaling.speedup import SPEEDUP_COLUMNS, with_speedup
from course_lib.training import ddp

ONE = {"num_gpus": 1, "step_seconds": 0.010, "images_per_sec": 6400.0}
TWO = {"num_gpus": 2, "step_seconds": 0.0102, "images_per_sec": 12_500.0}
SPLIT = {"data_seconds": 0.0002, "forward_seconds": 0.003, "backward_seconds": 0.0062, "optimizer_seconds": 0.0005}
USUAL = {"status": "finished", "timing": MEASURED_ON_CPU_RANKS, "speed_caveats": "", "cores": 8, "devices": "cpu"}
LEARNED = {"val_accuracy": 0.85, "steps": 300, "timed_steps": 290, "seconds": 4.0}


def frame_of(*runs: dict[str, Any]) -> pd.DataFrame:
    """Runs as `store.frame` tells them; each is unlike the usual one in what is given."""
    rows = []
    for place, given in enumerate(runs):
        config = RunConfig(**{name: value for name, value in given.items() if name in store.CONFIG_FIELDS})
        derived = {"world_size": config.world_size, "global_batch_size": config.global_batch_size, "peak_lr": config.lr}
        row = {"path": f"/runs/{place}", "run": str(place), "scaling": "weak", **config.to_dict(), **derived}
        rows.append({**row, **USUAL, **SPLIT, **LEARNED, **given})
    columns = [name for name in store.RUN_COLUMNS if name not in SPEEDUP_COLUMNS]
    return with_speedup(pd.DataFrame(rows).reindex(columns=columns))


def case_of(*runs: dict[str, Any], steps: pd.DataFrame | None = None) -> Case:
    """The case of the last of these runs."""
    frame = frame_of(*runs)
    case = Case.of(frame, frame["path"].iloc[-1])
    return Case(case.run, case.baseline, case.before, case.accuracies, steps)


def forward_times(*ranks: Iterable[float]) -> pd.DataFrame:
    rows = [
        {"rank": rank, "step": step, "forward": seconds}
        for rank, times in enumerate(ranks)
        for step, seconds in enumerate(times)
    ]
    return pd.DataFrame(rows)


STRONG = {"scaling": "strong", "lr_rule": "none"}
ON_8_GPUS = {
    **TWO,
    "num_gpus": 8,
    "timing": SIMULATED,
    "device": "simulated",
    "hardware": "a100",
    "forward_seconds": 0.003,
}
SPEED = {
    speed_rules.loader: (
        case_of(ONE, {**TWO, "data_seconds": 0.003}),
        case_of(ONE, {**TWO, "data_seconds": 0.001}),
        ["3 ms", "10.2 ms", "29 %"],
    ),
    speed_rules.exposed_communication: (
        case_of(ONE, {**TWO, "step_seconds": 0.014, "backward_seconds": 0.0102}),
        case_of(ONE, {**TWO, "backward_seconds": 0.0065}),
        ["10.2 ms", "6.2 ms", "29 %", "128 per rank"],
    ),
    speed_rules.slower_computing: (
        case_of(ONE, {**TWO, "step_seconds": 0.014, "forward_seconds": 0.004, "backward_seconds": 0.0083}),
        case_of(ONE, {**TWO, "forward_seconds": 0.0033}),
        ["4 ms", "3 ms"],
    ),
    speed_rules.small_batch: (
        case_of({**ONE, "batch_size": 8}, {**TWO, "batch_size": 8, "step_seconds": 0.002, "backward_seconds": 0.0006}),
        case_of(ONE, TWO),
        ["0.5 ms", "2 ms", "25 %", "8 images", "32 per rank"],
    ),
    speed_rules.more_ranks_than_cores: (
        case_of(ONE, {**TWO, "cores": 1, "speed_caveats": "2 ranks with 2 threads share 1 cores"}),
        case_of(ONE, {**TWO, "speed_caveats": NOT_ALONE}),
        ["2 ranks with 2 threads share 1 cores", "12,500", "at most 1 CPU rank"],
    ),
    speed_rules.disturbed: (
        case_of(ONE, {**TWO, "speed_caveats": NOT_ALONE}),
        case_of(ONE, TWO),
        ["12,500"],
    ),
    speed_rules.long_start: (
        case_of(ONE, {**TWO, "seconds": 12.0}),
        case_of(ONE, {**TWO, "seconds": 6.0}),
        ["12 s", "3.06 s", "300 steps", "8.94 s"],
    ),
    speed_rules.stragglers: (
        case_of(ONE, TWO, steps=forward_times([0.003] * 9, [0.004] * 9)),
        case_of(ONE, TWO, steps=forward_times([0.003] * 9, [0.0031] * 9)),
        ["Rank 1", "100 %", "4 ms", "1 ms", "core"],
    ),
    speed_rules.few_steps: (
        case_of(ONE, {**TWO, "timed_steps": 9}),
        case_of(ONE, {**TWO, "timed_steps": 20}),
        ["9 steps", "12,500"],
    ),
    speed_rules.simulated: (
        case_of(ON_8_GPUS),
        case_of(ONE, TWO),
        ["a100", "8 GPUs", "1.2 ms", "10.2 ms", "12 %", "32 GPUs"],
    ),
}

BEFORE = {"lr": 0.05, "lr_rule": "none", "val_accuracy": 0.85}
LARGER = {"num_gpus": 8, "lr": 0.05, "lr_rule": "none", "val_accuracy": 0.70, "steps": 38}
AT_0_8 = {**BEFORE, "lr": 0.8, "val_accuracy": 0.1}
ACCURACY = {
    accuracy_rules.lr_too_high: (
        case_of(BEFORE, AT_0_8),
        case_of(BEFORE, {**AT_0_8, "val_accuracy": 0.4}),
        ["0.8", "0.5 epochs", "10.0 %", "0.4"],
    ),
    accuracy_rules.moved_too_little: (
        case_of(BEFORE, {**BEFORE, "lr": 0.001, "val_accuracy": 0.12, "steps": 20, "epochs": 2}),
        case_of(BEFORE, AT_0_8),
        ["20 steps", "0.001", "12.0 %", "4 epochs", "0.002"],
    ),
    accuracy_rules.larger_batch: (
        case_of(BEFORE, LARGER),
        case_of(BEFORE, {**LARGER, "peak_lr": 0.4}),
        ["15.0 points", "64", "512", "0.05", "8 times fewer", "0.141"],
    ),
    accuracy_rules.fewer_steps: (
        case_of(BEFORE, LARGER),
        case_of(BEFORE, {**LARGER, "steps": 300}),
        ["15.0 points", "38 steps", "300", "24 epochs"],
    ),
    accuracy_rules.no_warmup: (
        case_of(BEFORE, {**BEFORE, "lr": 0.3, "warmup_epochs": 0.0, "val_accuracy": 0.5}),
        case_of(BEFORE, {**BEFORE, "lr": 0.3, "warmup_epochs": 0.5, "val_accuracy": 0.5}),
        ["0.3"],
    ),
    accuracy_rules.within_spread: (
        case_of(BEFORE, {**BEFORE, "seed": 1, "val_accuracy": 0.88}, {**LARGER, "val_accuracy": 0.84}),
        case_of(BEFORE, {**LARGER, "val_accuracy": 0.82}),
        ["84.0 %", "3.0 %"],
    ),
}


@pytest.mark.parametrize("rule", [*SPEED, *ACCURACY], ids=lambda rule: rule.__name__)
def test_a_rule_speaks_of_the_numbers_where_its_reason_is_and_only_there(rule):
    speaks, silent, numbers = {**SPEED, **ACCURACY}[rule]
    finding = rule(speaks)
    assert finding is not None
    for number in numbers:
        assert number in f"{finding.sentence} {finding.try_next}"
    assert finding.weight > 0
    assert rule(silent) is None


def test_every_rule_is_tested():
    assert {*SPEED} == {*speed_rules.MEASURED, speed_rules.simulated}
    assert {*ACCURACY} == {*accuracy_rules.RULES}


def explanations(*runs: dict[str, Any]) -> list[tuple[str, str]]:
    frame = frame_of(*runs)
    found = explain(frame, frame["path"].iloc[-1])
    assert all(each.sentence.endswith(".") and each.try_next.endswith(".") for each in found)
    assert all(re.search(r"\d", each.sentence) for each in found)
    return [(each.subject, each.sentence) for each in found]


def test_where_nothing_stands_out_it_is_said_how_near_the_ideal_it_is():
    (subject, sentence), *_ = explanations(ONE, TWO)
    assert subject == "speed"
    assert "1.95 times as fast" in sentence
    assert "98 % of the ideal 2" in sentence
    assert "no single part" in explanations(ONE, {**TWO, "images_per_sec": 9000.0})[0][1]
    assert "no run on one rank" in explanations(TWO)[0][1]
    assert "6,400 images/s" in explanations(ONE)[0][1]


def test_accuracy_that_has_nothing_to_be_compared_with_is_told_alone():
    assert "85.0 %" in explanations(ONE)[-1][1]
    assert "no other run" in explanations(ONE)[-1][1]


def test_what_differs_is_named_where_accuracy_moved_for_no_known_reason():
    sentence = explanations(BEFORE, {**BEFORE, "lr": 0.1, "val_accuracy": 0.89})[-1][1]
    assert "rose by 4.0 points" in sentence
    assert sentence.endswith("it differs in learning rate.")


def test_at_most_two_explanations_of_each_subject_and_speed_first():
    slow = {**TWO, "data_seconds": 0.003, "optimizer_seconds": 0.003, "backward_seconds": 0.02, "timed_steps": 4}
    subjects = [subject for subject, _ in explanations({**ONE, **BEFORE}, {**slow, **LARGER, "warmup_epochs": 0.0})]
    assert subjects == ["speed", "speed", "accuracy", "accuracy"]


def test_what_a_smaller_share_of_a_batch_costs_anyway_is_no_communication():
    """In strong scaling: forward 1 ms + 0.05 ms an image, backward twice that, at 64 images and at 16."""
    one = {**ONE, **STRONG, "forward_seconds": 0.0042, "backward_seconds": 0.0084, "step_seconds": 0.0133}
    four = {**TWO, **STRONG, "num_gpus": 4, "batch_size": 16, "forward_seconds": 0.0018, "backward_seconds": 0.0036}
    case = case_of(one, {**four, "step_seconds": 0.0061})
    assert speed_rules.exposed_communication(case) is None
    finding = speed_rules.small_batch(case)
    assert finding is not None
    assert "1.5 ms of a step's 6.1 ms (25 %)" in finding.sentence


def test_what_makes_the_forward_pass_slower_too_is_no_communication():
    slow = {"forward_seconds": 0.006, "backward_seconds": 0.0126, "step_seconds": 0.0195}
    assert speed_rules.exposed_communication(case_of(ONE, {**TWO, **slow})) is None
    assert speed_rules.slower_computing(case_of(ONE, {**TWO, **slow, "speed_caveats": NOT_ALONE})) is None


def test_in_strong_scaling_the_run_to_compare_with_has_the_whole_batch():
    missing = {**TWO, "num_gpus": 4, "batch_size": 16}
    assert "batch size of 64" in nothing_to_compare({**missing, **STRONG})
    assert "batch size of 16" in nothing_to_compare(missing)


def nothing_to_compare(run: dict[str, Any]) -> str:
    return speed_rules.nothing_stands_out(case_of(run)).try_next


def test_a_run_that_learned_nothing_is_not_told_to_learn_longer_at_the_same_high_rate():
    dead = case_of(BEFORE, {**LARGER, **AT_0_8, "steps": 38})
    assert accuracy_rules.fewer_steps(dead) is None
    assert accuracy_rules.larger_batch(dead) is None


def test_as_many_steps_take_as_many_epochs_at_least():
    run = {**BEFORE, "epochs": 3, "steps": 100, "val_accuracy": 0.7}
    finding = accuracy_rules.fewer_steps(case_of({**BEFORE, "lr": 0.04, "steps": 136}, run))
    assert finding is not None
    assert "up to 5 epochs" in finding.try_next


def test_one_seed_twice_is_no_spread_of_seeds():
    case = case_of(BEFORE, {**BEFORE, "val_accuracy": 0.851}, {**BEFORE, "lr": 0.04, "val_accuracy": 0.845})
    finding = accuracy_rules.within_spread(case)
    assert finding is not None
    assert "commonly" in finding.sentence


def test_of_runs_that_differ_in_as_much_the_one_with_the_same_choices_comes_before():
    same_choices = {"num_gpus": 1, "batch_size": 64, "val_accuracy": 0.8, "peak_lr": 0.05}
    other_batch = {"num_gpus": 1, "batch_size": 256, "val_accuracy": 0.8, "peak_lr": 0.05}
    case = case_of(same_choices, other_batch, {"num_gpus": 2, "batch_size": 64, "peak_lr": 0.1})
    assert case.before is not None
    assert case.before["path"] == "/runs/0"


def test_now_one_rank_is_slowest_now_another():
    times = forward_times([0.003, 0.005] * 10, [0.005, 0.003] * 10, [0.003] * 20)
    finding = speed_rules.stragglers(case_of(ONE, {**TWO, "num_gpus": 3}, steps=times))
    assert finding is not None
    assert finding.sentence.startswith("Now one rank")


def test_a_run_that_failed_is_explained_only_where_it_diverged():
    failed = {**TWO, "status": "failed", "images_per_sec": None, "val_accuracy": None, "peak_lr": 1.6, "lr": 0.8}
    assert explanations(ONE, {**failed, "error": "Rank 1 was killed."}) == []
    loss = str(NonFiniteLossError("The loss became nan at step 7, with learning rate 1.6."))
    ((subject, sentence),) = explanations(ONE, {**failed, "error": loss})
    assert subject == "accuracy"
    assert "diverged at a peak learning rate of 1.6" in sentence


def test_a_function_that_tells_no_speed_and_no_accuracy_is_not_explained():
    nothing = dict.fromkeys(store.RESULTS)
    assert explanations(ONE, {**TWO, **nothing}) == []


def test_a_run_is_held_against_fewer_ranks_and_against_earlier_ones_alone():
    frame = frame_of(BEFORE, LARGER, {**BEFORE, "lr": 0.1})
    before = [Case.of(frame, path).before for path in frame["path"]]
    assert [None if row is None else row["path"] for row in before] == [None, "/runs/0", "/runs/0"]


def test_a_run_that_is_not_there_is_refused():
    with pytest.raises(FolderError, match="/runs/9 is not in this table"):
        explain(frame_of(ONE), "/runs/9")


def test_real_runs_on_one_and_two_ranks_are_explained(tmp_path, quick):
    for ranks in (1, 2):
        launch(ddp.train, quick.with_(num_gpus=ranks, device="cpu"), tmp_path / "runs" / str(ranks)).wait(60)
    frame = store.frame(tmp_path / "runs")
    alone, together = (explain(frame, path) for path in frame["path"])
    for found in (alone, together):
        assert {each.subject for each in found} == {"speed", "accuracy"}
        assert all(re.search(r"\d", each.sentence) and each.try_next for each in found)
    assert Case.of(frame, frame["path"][1]).steps["rank"].nunique() == 2

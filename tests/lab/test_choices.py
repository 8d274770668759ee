"""What the controls say becomes a run, or a sentence beside the control that keeps it from being one."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, DataError
from course_lib.lab.explain.accuracy_rules import HIGH_PEAK_LR
from course_lib.lab.panel.choices import TITLES, Choices, consequences
from course_lib.runs import devices, estimates
from course_lib.runs.launch import prepare
from course_lib.runs.sweep import Sweep
from course_lib.training import sources

ON_CPU = Choices(device="cpu")
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just(()),
    st.sampled_from([10**400, "simulated", "strong", "cuda", "h100", "wrn-40-4", "sqrt", 3, 64, 4096, 0.1, 0.4]),
)


def test_each_control_has_a_title():
    assert list(TITLES) == [each.name for each in fields(Choices)]


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(list(TITLES)), anything))
def test_whatever_the_controls_say_something_follows_and_nothing_is_raised(values):
    choices = Choices.from_dict(values)
    found = consequences(choices)
    assert found.possible == (found.config is not None)
    assert {*found.problems, *found.warnings} <= {*TITLES}
    assert all(each.endswith((".", "`")) for each in (*found.problems.values(), *found.warnings.values(), *found.notes))
    if found.possible:
        assert found.config == prepare(choices.config()).config
        assert found.seconds.low <= found.seconds.seconds <= found.seconds.high
        assert found.memory.bytes > 0
    else:
        assert found.seconds is None


def test_all_that_is_impossible_is_told_at_once_beside_its_control():
    wrong = {
        "num_gpus": 0,
        "num_nodes": "two",
        "batch_size": 1.5,
        "lr": float("nan"),
        "lr_rule": "cubic",
        "warmup_epochs": -1,
        "epochs": 0,
        "model": "gpt",
        "data_share": 1.2,
        "scaling": "both",
        "repeats": 0,
        "seed": -3,
    }
    problems = consequences(Choices(**wrong, device="simulated", hardware="nothing")).problems
    assert problems.keys() == {*wrong, "hardware"}
    for control, sentence in problems.items():
        assert sentence.lower().startswith((TITLES[control].lower(), "there is no hardware")), sentence
        assert control == "hardware" or repr(wrong[control]) in sentence


def test_what_is_wrong_only_because_of_another_choice_is_not_told():
    assert consequences(ON_CPU.with_(epochs=0, warmup_epochs=20)).problems.keys() == {"epochs"}
    assert consequences(ON_CPU.with_(epochs=4, warmup_epochs=20)).problems.keys() == {"warmup_epochs"}


@pytest.mark.parametrize(
    ("changes", "control", "words"),
    [
        ({"num_gpus": 70_000}, "num_gpus", "at most 1024 ranks"),
        ({"num_nodes": 70_000}, "num_nodes", "at most 1024 ranks"),
        ({"batch_size": 60_001}, "batch_size", r"\(batch size 60001 x 1 ranks\).* or a larger share of the data\."),
        ({"scaling": "strong", "num_gpus": 3}, "batch_size", "In strong scaling batch size is the global batch"),
        ({"device": "simulated", "hardware": "nix.json"}, "hardware", "no file nix.json"),
        ({"epochs": 10**400}, "epochs", "Epochs must be at most 1,000,000"),
    ],
)
def test_an_impossible_choice_is_told_in_the_words_of_the_controls(changes, control, words):
    found = consequences(ON_CPU.with_(**changes))
    assert not found.possible
    assert found.problems.keys() == {control}
    assert re.search(words, found.problems[control])


def test_what_a_wrong_choice_does_not_touch_is_still_told():
    found = consequences(ON_CPU.with_(num_gpus=2, model="gpt"))
    assert (found.world_size, found.global_batch_size, found.peak_lr, found.memory) == (2, 128, 0.1, None)
    assert consequences(ON_CPU.with_(num_gpus=0)).world_size is None


def test_missing_gpus_are_told_beside_the_device(monkeypatch):
    monkeypatch.setattr(devices, "gpu_count", lambda: 0)
    assert consequences(Choices(device="cuda")).problems.keys() == {"device"}
    monkeypatch.setattr(devices, "gpu_count", lambda: 2)
    monkeypatch.setattr(devices, "memory_bytes", lambda device: 16e9)
    assert consequences(Choices(device="cuda", num_gpus=4)).problems.keys() == {"num_gpus"}


def test_damaged_data_is_told_beside_the_share_of_it(monkeypatch):
    def damaged(_=None):
        raise DataError("The file is damaged. Get it again.")

    monkeypatch.setattr(sources, "locate", damaged)
    assert consequences(ON_CPU).problems == {"data_share": "The file is damaged. Get it again."}
    assert Choices.suitable().data_share == 1.0


def test_a_share_of_the_data_is_that_share_of_its_images():
    whole = sources.locate().train_size
    assert ON_CPU.config().train_samples is None
    assert ON_CPU.with_(data_share=0.25).config().train_samples == whole // 4
    assert consequences(ON_CPU.with_(data_share=0.25)).images == whole // 4
    assert consequences(ON_CPU).images == whole


def test_in_strong_scaling_the_batch_is_shared_and_the_learning_rate_stays():
    strong = ON_CPU.with_(scaling="strong", num_gpus=4, lr=0.1)
    config = strong.config()
    assert (config.batch_size, config.global_batch_size, config.lr_rule) == (16, 64, "none")
    found = consequences(strong)
    assert found.peak_lr == 0.1
    assert "share a global batch of 64 images, 16 each" in " ".join(found.notes)
    assert {planned.config.global_batch_size for planned in strong.sweep((1, 2, 4)).plan("")} == {64}


def test_the_run_is_the_one_that_the_sweep_makes():
    choices = ON_CPU.with_(num_gpus=2, num_nodes=2, seed=7, repeats=2)
    sweep = choices.sweep([1, 2], {2: 1.6})
    assert isinstance(sweep, Sweep)
    runs = sweep.plan("evening")
    assert [run.config.num_gpus for run in runs] == [1, 2, 1, 2]
    assert runs[1].config == choices.config()
    assert [run.labels.get("guess") for run in runs] == [None, 1.6, None, 1.6]


def test_hardware_counts_only_where_it_is_simulated():
    assert ON_CPU.with_(hardware="h100").config().hardware is None
    found = consequences(ON_CPU.with_(device="simulated", hardware="h100", num_gpus=8))
    assert found.config.hardware == "h100"
    assert found.memory.capacity == 80e9
    assert 0 < found.simulated_seconds < found.seconds.seconds
    assert "h100" in found.notes[0]
    assert consequences(ON_CPU).simulated_seconds is None


def test_a_high_peak_learning_rate_is_warned_of_and_not_forbidden():
    for num_gpus, lr_rule, warned in (
        (8, "linear", True),
        (8, "none", False),
        (8, "sqrt", False),
        (4, "linear", False),
    ):
        found = consequences(ON_CPU.with_(num_gpus=num_gpus, lr=HIGH_PEAK_LR / 8, lr_rule=lr_rule, device="simulated"))
        assert found.possible
        assert ("lr" in found.warnings) == warned


def test_what_would_be_no_measurement_of_speed_is_warned_of(monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: 2)
    warned = consequences(ON_CPU.with_(num_gpus=2, num_nodes=2)).warnings
    assert "4 ranks with 4 threads share 2 cores" in warned["num_gpus"]
    assert "2 nodes are played on one machine" in warned["num_nodes"]
    assert consequences(ON_CPU.with_(num_gpus=2)).warnings == {}


def test_too_few_steps_to_time_are_warned_of():
    share = 1_000 / sources.locate().train_size
    assert (
        "10 of 20 steps" in consequences(ON_CPU.with_(data_share=share, epochs=1, batch_size=50)).warnings["data_share"]
    )
    assert "data_share" not in consequences(ON_CPU.with_(data_share=share, epochs=2, batch_size=50)).warnings


def test_memory_that_is_not_there_is_warned_of(monkeypatch):
    monkeypatch.setattr(devices, "memory_bytes", lambda device: 2**20)
    assert "GiB" in consequences(ON_CPU).warnings["batch_size"]


@pytest.mark.parametrize(("gpus", "cores", "ranks"), [(0, 1, 1), (0, 8, 2), (1, 8, 1), (4, 8, 2)])
def test_to_begin_with_there_are_two_ranks_where_there_are_two_devices(monkeypatch, gpus, cores, ranks):
    monkeypatch.setattr(devices, "gpu_count", lambda: gpus)
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    suitable = Choices.suitable()
    assert suitable.num_gpus == ranks
    images = suitable.data_share * estimates.train_size()
    assert images == (estimates.train_size() if gpus else pytest.approx(6_000, rel=0.1))


def test_choices_survive_being_written_down():
    choices = Choices(num_gpus=2, hardware="t4", lr=0.1)
    assert Choices.from_dict(json.loads(json.dumps(choices.to_dict()))) == choices
    assert Choices.from_dict({"lr": 0.1}) == Choices().with_(lr=0.1)
    for wrong in (lambda: choices.with_(gpus=2), lambda: Choices.from_dict({"gpus": 2})):
        with pytest.raises(ConfigError, match="no control 'gpus'"):
            wrong()


def test_an_error_of_a_config_names_its_field():
    with pytest.raises(ConfigError) as caught:
        RunConfig(batch_size=0)
    assert caught.value.field == "batch_size"

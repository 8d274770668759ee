"""`ddp-course predict` and `ddp-course calibrate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import QUICK

from course_lib.runs import calibrate

PARTS = ("compute_s", "straggler_s", "communication_s")


def test_a_prediction_says_that_it_is_one_and_for_what(cli) -> None:
    ended = cli("predict", "--hardware", "a100-10gbe", "--num-gpus", "1,8,1024")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].startswith("Predicted, not measured: small_cnn, weak scaling, on 8x A100")
    assert "10 Gb/s" in lines[0]
    assert [line.split()[:2] for line in lines[3:6]] == [["1", "1"], ["8", "1"], ["1,024", "128"]]


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_the_rows_of_a_prediction_add_up(cli, scaling) -> None:
    content = cli("predict", "--num-gpus", "1,2,16,256", "--batch-size", 512, "--scaling", scaling, "--json").json()
    assert (content["timing"], content["model"], content["scaling"]) == ("predicted", "small_cnn", scaling)
    for row in content["rows"]:
        batch = 512 if scaling == "strong" else 512 * row["gpus"]
        assert row["global_batch"] == pytest.approx(batch)
        assert row["step_time_s"] == pytest.approx(sum(row[part] for part in PARTS))
        assert row["low"] < row["step_time_s"] < row["high"]
        assert row["efficiency"] == pytest.approx(row["speedup"] / row["gpus"])
    assert content["rows"][0]["speedup"] == pytest.approx(1)
    efficiencies = [row["efficiency"] for row in content["rows"]]
    assert efficiencies == sorted(efficiencies, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hardware", "abacus"), "no hardware profile 'abacus'"),
        (("--hardware", ""), "no hardware profile ''"),
        (("--hardware", "none.json"), "ddp-course calibrate"),
        (("--hardware", "a100", "--runs", "."), "Give one of them"),
        (("--runs", "nowhere"), "no folder nowhere"),
        (("--runs", "."), "None of these runs"),
        (("--num-gpus", "0"), "num_gpus must be at least 1"),
        (("--num-gpus", "5000"), "4096"),
        (("--num-gpus", "1,two"), "'two' is not a whole number"),
        (("--batch-size", "4", "--num-gpus", "8", "--scaling", "strong"), "too small for more than 4 GPUs"),
        (("--batch-size", "1" + 400 * "0"), "too large"),
        (("--batch-size", str(2**50), "--num-gpus", "16"), "too large"),
        (("--scaling", "sideways"), "weak, strong"),
        (("--model", "transformer"), "model must be one of"),
    ],
)
def test_what_cannot_be_predicted_is_refused(cli, arguments, message) -> None:
    ended = cli("predict", *arguments)
    assert ended.code == 2
    assert message in ended.paragraph()


def test_a_calibrated_machine_can_be_predicted_for_and_simulated(cli, monkeypatch, no_process_left) -> None:
    monkeypatch.setattr(calibrate, "MEASURING_SECONDS", 0.5)
    monkeypatch.setattr(calibrate, "BATCH_SIZES", (8, 16))
    monkeypatch.setattr(calibrate, "REDUCED_BYTES", (1024, 33554432))
    ended = cli("calibrate", "--model", "mlp", "--device", "cpu", "--out", "here.json", "--json")
    assert ended.code == 0
    assert ended.json()["profile"] == "here.json"
    assert all(row["step_time_s"] > 0 for row in ended.json()["measured"])
    predicted = cli("predict", "--model", "mlp", "--hardware", "here.json", "--json").json()
    assert len(predicted["rows"]) == 11
    many = ("--num-gpus", 300, "--batch-size", 2, "--lr-rule", "none")
    simulated = cli("train", *QUICK, "--device", "simulated", "--hardware", "here.json", *many, "--json").json()
    assert simulated["timing"] == "simulated"
    assert simulated["world_size"] == 300


def test_runs_can_be_predicted_from(cli, no_process_left) -> None:
    cli("sweep", *QUICK, "--device", "cpu", "--num-gpus", "1,2", "--repeats", 1, "--batch-size", "10,20", "--out", "s")
    content = cli("predict", "--model", "mlp", "--runs", "s", "--num-gpus", "1,2,8", "--batch-size", 10, "--json")
    if content.code:  # another run went on at the same time, so none of these measured speed
        assert "None of these runs" in content.paragraph()
    else:
        assert content.json()["source"] == "the machine of s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "profile.txt"), ".json"),
        (("--out", "folder.json"), "Is a directory"),
        (("--out", "file/profile.json"), "Cannot write to file/profile.json"),
        (("--device", "simulated"), "cannot be measured"),
    ],
)
def test_what_cannot_be_calibrated_is_told_before_anything_is_measured(cli, monkeypatch, arguments, message) -> None:
    monkeypatch.setattr(calibrate, "launch", None)
    Path("folder.json").mkdir()
    Path("file").touch()
    ended = cli("calibrate", *arguments)
    assert ended.code == 2
    assert message in ended.paragraph()

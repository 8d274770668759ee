"""A measured machine can be saved, found again, simulated and predicted for; and runs can be predicted from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, FitError, FolderError
from course_lib.runs import calibrate, profiles, store
from course_lib.runs.folder import RunFolder
from course_lib.runs.launch import launch
from course_lib.runs.machine import NOT_ALONE, Measuring
from course_lib.runs.profiles import Profile
from course_lib.scaling.predictions import predict_scaling
from course_lib.training import ddp


@pytest.fixture(scope="module")
def measured() -> Profile:
    """This machine, measured in a hurry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "MEASURING_SECONDS", 1.0)
        patch.setattr(calibrate, "BATCH_SIZES", (8, 32))
        patch.setattr(calibrate, "REDUCED_BYTES", (1024, 16384, 262144, 4194304))
        return calibrate.calibrate("mlp", "cpu")


def test_each_number_of_devices_was_measured_with_each_batch(measured, no_process_left) -> None:
    devices = measured.hardware.cluster.gpus_per_node
    counts = {1, min(2, devices), devices}
    assert set(zip(measured.measured["gpus"], measured.measured["local_batch"], strict=True)) == {
        (count, batch) for count in counts for batch in (8, 32)
    }
    assert (measured.measured["step_time_s"] > 0).all()
    assert measured.measured["sync_time_s"].between(0, measured.measured["step_time_s"]).all()


def test_a_measurement_that_another_run_disturbed_says_so(monkeypatch, tmp_path, no_process_left) -> None:
    monkeypatch.setattr(calibrate, "MEASURING_SECONDS", 0.1)
    monkeypatch.setattr(calibrate, "BATCH_SIZES", (8,))
    monkeypatch.setattr(calibrate, "REDUCED_BYTES", (1024, 33554432))
    other = Measuring(RunFolder(tmp_path), [])
    try:
        sources = calibrate.calibrate("mlp", "cpu").hardware.sources
    finally:
        other.end()
    assert sources[-1] == f"{calibrate.DOUBTED}{NOT_ALONE}."


def test_what_was_measured_is_saved_and_found_again(measured, tmp_path) -> None:
    file = measured.save(tmp_path / "deep" / "machine.json")
    found = profiles.find(str(file))
    assert found.hardware == measured.hardware
    pd.testing.assert_frame_equal(found.measured, measured.measured)
    frame = measured.measured[["nodes", "gpus", "local_batch"]]
    for each in (measured, found):
        predicted = each.step_time_model("mlp").predict(frame)
        ratio = predicted["step_time_s"] / measured.measured["step_time_s"]
        assert np.exp(np.abs(np.log(ratio)).median()) < 2


def test_other_models_follow_from_their_operations(measured) -> None:
    frame = pd.DataFrame({"nodes": [1], "gpus": [1], "local_batch": [64]})
    steps = [
        measured.step_time_model(model).predict(frame)["step_time_s"][0]
        for model in ("mlp", "small_cnn", "wrn-16-4", "wrn-40-4")
    ]
    assert steps == sorted(steps)


def test_the_measured_machine_can_be_simulated(measured, tmp_path, no_process_left) -> None:
    file = measured.save(tmp_path / "machine.json")
    config = RunConfig(model="mlp", data="subset", train_samples=400, epochs=1, num_gpus=2, num_nodes=3)
    run = launch(ddp.train, config.with_(device="simulated", hardware=str(file)), tmp_path / "run")
    assert run.wait()["hardware"] == "this-machine"
    (row,) = store.frame(run.path).to_dict("records")
    assert (row["timing"], row["hardware"]) == ("simulated", str(file))


def test_runs_tell_how_larger_ones_would_do(tmp_path, no_process_left) -> None:
    config = RunConfig(model="mlp", data="subset", train_samples=800, epochs=1, device="cpu", checkpoint=False)
    for count in (1, 2):
        for batch in (10, 40):
            launch(ddp.train, config.with_(num_gpus=count, batch_size=batch), tmp_path / f"{count}-{batch}").wait()
    frame = store.frame(tmp_path)
    clean = frame.assign(speed_caveats="")  # other tests may run beside this one
    predicted = predict_scaling(profiles.fit_runs(clean), [1, 2, 4], 2, 20)
    assert list(predicted["nodes"]) == [1, 1, 2]
    assert (predicted["throughput"] > 0).all()
    with pytest.raises(FitError, match="differ in precision"):
        profiles.fit_runs(clean.assign(precision=["fp32", "bf16", "fp32", "fp32"]))
    for told in ({"status": "failed"}, {"timing": "simulated"}):
        with pytest.raises(FitError, match="None of these runs"):
            profiles.fit_runs(clean.assign(**told))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.pop("hardware"),
        lambda content: content["hardware"].update(flops_per_s="fast"),
        lambda content: content["fitted"]["mlp"].pop("tail"),
        lambda content: content["fitted"]["mlp"].update(tail=-1),
        lambda content: content["fitted"]["mlp"].update(largest=float("nan")),
        lambda content: content.update(fitted=[1]),
        lambda content: content.update(format=2),
        lambda content: content["fitted"]["mlp"]["fitted"].update(values=None),
        lambda content: content["fitted"]["mlp"]["fitted"]["values"].__setitem__(0, -1.0),
        lambda content: content["fitted"]["mlp"]["fitted"].update(noise=float("inf")),
    ],
)
def test_a_damaged_profile_is_refused_by_name(measured, tmp_path, damage) -> None:
    file = measured.save(tmp_path / "machine.json")
    content = json.loads(file.read_text())
    damage(content)
    file.write_text(json.dumps(content))
    with pytest.raises(FolderError, match=r"machine\.json is no profile of this version"):
        profiles.find(str(file))
    file.write_text(json.dumps(content)[:-1])
    with pytest.raises(FolderError, match=r"machine\.json is damaged, or no profile"):
        profiles.find(str(file))


def test_a_profile_that_is_not_there_says_how_to_get_one(measured, tmp_path) -> None:
    with pytest.raises(ConfigError, match="ddp-course calibrate"):
        profiles.find("nowhere.json")
    with pytest.raises(ConfigError, match="a100"):
        profiles.find("nowhere")
    with pytest.raises(FolderError, match=r"\.json"):
        measured.save(tmp_path / "machine.txt")
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="Cannot write"):
        measured.save(Path("file") / "machine.json")

"""The tables hold what the folders hold, and damage to one run takes nothing from the others."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
from damage import damages
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.config import MEASURED_ON_CPU_RANKS, RunConfig
from course_lib.errors import FolderError
from course_lib.lab.words import SETTINGS_OF_A_RUN
from course_lib.runs import store
from course_lib.runs.events import EventWriter
from course_lib.runs.folder import FORMAT, RunFolder, create_run_folder, write_json
from course_lib.runs.launch import launch
from course_lib.training import ddp

CONFIG = RunConfig(model="mlp", num_gpus=2, batch_size=64, lr=0.2, device="cpu", seed=3)
ENVIRONMENT = {
    "timing": MEASURED_ON_CPU_RANKS,
    "backend": "gloo",
    "devices": ["cpu", "cpu"],
    "hostname": "laptop",
    "cpu": "a processor",
    "cores": 8,
    "torch": "2.13.0",
}
VALUE = {
    "val_accuracy": 0.9,
    "val_loss": 0.3,
    "train_loss": 0.2,
    "images_per_sec": 2000.0,
    "step_seconds": 0.064,
    "time_split": {"data": 0.001, "forward": 0.02, "backward": 0.04, "optimizer": 0.003},
    "steps": 40,
    "timed_steps": 30,
}


def started(path: Path, config: RunConfig = CONFIG, **labels: Any) -> RunFolder:
    folder = create_run_folder(path)
    folder.write_config(config, labels)
    write_json(folder.environment, ENVIRONMENT)
    return folder


def finished(path: Path, config: RunConfig = CONFIG, value: Any = VALUE, **labels: Any) -> RunFolder:
    folder = started(path, config, **labels)
    write_json(folder.result, {"format": FORMAT, "value": value, "seconds": 4.5, "finished": 0.0})
    return folder


def report(folder: RunFolder, rank: int, *events: dict) -> None:
    writer = EventWriter(folder.events(rank))
    for event in events:
        writer.write({"rank": rank, **event})
    writer.close()


def test_a_run_is_told_in_one_row(tmp_path):
    finished(tmp_path / "one", sweep="evening", scaling="weak", repeat=2)
    table = store.frame(tmp_path)
    assert list(table) == list(store.RUN_COLUMNS)
    row = table.iloc[0].to_dict()
    for name, value in {**CONFIG.to_dict(), **VALUE}.items():
        if name != "time_split":
            assert row[name] == value or (value is None and math.isnan(row[name])), name
    assert row["run"] == "one"
    assert row["path"] == str(tmp_path / "one")
    assert row["status"] == "finished"
    assert pd.isna(row["error"])
    assert (row["world_size"], row["global_batch_size"]) == (2, 128)
    assert (row["sweep"], row["scaling"], row["repeat"]) == ("evening", "weak", 2)
    assert (row["timing"], row["speed_caveats"], row["devices"]) == (MEASURED_ON_CPU_RANKS, "", "cpu")
    assert [row[name] for name in store.SPLIT_COLUMNS] == [0.001, 0.02, 0.04, 0.003]
    assert row["seconds"] == 4.5


def test_speedup_is_filled_in(tmp_path):
    for num_gpus, rate in ((1, 1000.0), (2, 1800.0)):
        for repeat in range(3):
            config, value = CONFIG.with_(num_gpus=num_gpus), {**VALUE, "images_per_sec": rate + repeat}
            finished(tmp_path / f"g{num_gpus}-r{repeat}", config, value)
    table = store.frame(tmp_path)
    assert table["speedup"].round(2).tolist() == [1.0] * 3 + [1.8] * 3
    assert table["speedup_low"].notna().all()


def test_what_somebody_guessed_is_a_number_of_the_run(tmp_path):
    for name, labels in {"a": {"guess": 1.6}, "b": {}, "c": {"guess": "fast"}}.items():
        finished(tmp_path / name, **labels)
    guesses = store.frame(tmp_path)["guess"]
    assert guesses[0] == 1.6
    assert guesses[1:].isna().all()


def test_caveats_are_told(tmp_path):
    folder = finished(tmp_path / "one")
    write_json(folder.caveats, {"speed_caveats": ["4 ranks share 2 cores", "another run went on at the same time"]})
    assert store.frame(tmp_path)["speed_caveats"][0] == "4 ranks share 2 cores; another run went on at the same time"


def test_runs_are_found_at_any_depth_and_in_order(tmp_path):
    for name in ("b", "a/sweep/two", "a/sweep/one", "a/three", ".trash/gone"):
        finished(tmp_path / name)
    (tmp_path / "a" / "notes.txt").write_text("no run")
    (tmp_path / "a" / "empty").mkdir()
    finished(tmp_path / "b" / "inside")  # what a function writes into the folder of its run is its own
    assert store.frame(tmp_path)["run"].tolist() == ["one", "two", "three", "b"]
    assert store.frame(tmp_path / "a" / "sweep")["run"].tolist() == ["one", "two"]
    assert store.frame(str(tmp_path / "b"))["run"].tolist() == ["b"]


@pytest.mark.parametrize("read", [store.frame, store.steps, store.epochs])
def test_a_folder_without_runs_has_all_columns(tmp_path, read):
    full = tmp_path / "full"
    report(finished(full / "run"), 0, {"kind": "step", "time": 1.0}, {"kind": "epoch", "time": 2.0})
    (tmp_path / "empty").mkdir()
    table = read(tmp_path / "empty")
    assert len(table) == 0
    assert list(table) == list(read(full))


@pytest.mark.parametrize("read", [store.frame, store.steps, store.epochs])
def test_a_missing_folder_is_an_error_of_ours(tmp_path, read):
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(FolderError, match=name):
            read(tmp_path / name)


def lose(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def tear(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def garble(path: Path) -> None:
    path.write_bytes(b"\xff\x00\xfe" * 20)


def replace_by_list(path: Path) -> None:
    path.write_text("[1, 2]")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def edit(**changes: Any):
    def damage(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


DAMAGES = [empty, tear, garble, replace_by_list, replace_by_folder]
CASES = [(name, damage) for name in ("config", "environment", "result", "caveats") for damage in DAMAGES] + [
    ("config", lose),
    ("config", edit(format=0)),
    ("config", edit(format=None)),
    ("config", edit(config={"model": "mlp", "gone_since": 1})),
    ("config", edit(config={"batch_size": "many"})),
    ("config", edit(config=None)),
]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_or_older_run_is_told_and_spoils_no_other(tmp_path, name, damage):
    for run in ("a", "b", "c"):
        write_json(finished(tmp_path / run, sweep="s", scaling="weak", repeat=1).caveats, {"speed_caveats": []})
    whole = store.frame(tmp_path)
    path = getattr(RunFolder(tmp_path / "b"), name)
    damage(path)
    table = store.frame(tmp_path)
    assert table["status"].tolist() == ["finished", "unreadable", "finished"]
    assert str(path) in table["error"][1] or path.name in table["error"][1]
    others = [name for name in table if name not in ("status", "error", *store.SPEEDUP_COLUMNS)]
    pd.testing.assert_frame_equal(table.loc[[0, 2], others], whole.loc[[0, 2], others], check_dtype=False)
    # What the other files say is still there.
    assert table["val_accuracy"][1] == 0.9 or name == "result"
    assert table["model"][1] == "mlp" or name == "config"
    assert len(store.steps(tmp_path)) == len(store.epochs(tmp_path)) == 0


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(damages(), st.sampled_from(["started", "finished"]))
def test_whatever_stands_in_the_files_of_a_run_the_others_are_read(damage, ending):
    with TemporaryDirectory() as folder:
        for name in ("a", "b", "c"):
            run = globals()[ending if name == "b" else "finished"](Path(folder, name), sweep="s", scaling="weak")
            write_json(run.caveats, {"speed_caveats": []})
            report(run, 0, {"kind": "step", "time": 1.0, "step": 1}, {"kind": "epoch", "time": 2.0, "epoch": 1})
        damage(Path(folder, "b"))
        table, steps, epochs = store.frame(folder), store.steps(folder), store.epochs(folder)
    assert table.loc[[0, 2], "status"].tolist() == ["finished", "finished"]
    assert all(pd.api.types.is_numeric_dtype(table[name]) for name in store.RUN_NUMBERS)
    assert not table.select_dtypes("number").isin([math.inf, -math.inf]).any(axis=None)
    for column in ("status", "error", "timing", "speed_caveats", "scaling", "cpu", "devices", "torch"):
        assert all(isinstance(value, str) for value in table[column].dropna())
    assert {"a", "c"} <= {*steps["run"]} & {*epochs["run"]}


@pytest.mark.parametrize("name", ["config", "environment", "caveats", "result", "failure"])
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": ' * 100_000, "1" * 5000])
def test_a_file_that_no_reader_can_take_is_told(tmp_path, name, content):
    path = getattr(finished(tmp_path / "one"), name)
    path.write_text(content)
    row = store.frame(tmp_path).iloc[0]
    assert row["status"] == "unreadable"
    assert str(path) in row["error"]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    folder = finished(tmp_path / "one")
    folder.config.unlink()
    os.mkfifo(folder.config)
    assert "is not a file" in store.frame(tmp_path)["error"][0]


def test_a_name_that_is_not_text_is_shown_with_escapes(tmp_path):
    finished(tmp_path / "one").path.rename(tmp_path / os.fsdecode(b"\xff"))
    row = store.frame(tmp_path).iloc[0]
    assert row["run"] == "\\udcff"
    assert Path(row["path"]).is_dir()


def test_how_a_run_ended_is_its_status(tmp_path):
    failed = started(tmp_path / "failed")
    write_json(failed.failure, {"type": "RankError", "message": "Rank 1 of 2 failed.", "rank": 1, "traceback": ""})
    write_json(failed.error(1), {"type": "ValueError", "message": "no"})
    stopped = started(tmp_path / "stopped")
    write_json(stopped.failure, {"type": "RunStopped", "message": "Stopped.", "rank": None, "traceback": ""})
    unjudged = started(tmp_path / "unjudged")
    write_json(unjudged.error(0), {"type": "ValueError", "message": "The launcher died before it could say this."})
    broken = started(tmp_path / "broken")
    broken.failure.write_text("{")
    started(tmp_path / "lost")
    with FileLock(started(tmp_path / "running").launcher_lock):
        table = store.frame(tmp_path).set_index("run")
    assert table["status"].to_dict() == {
        "broken": "unreadable",
        "failed": "failed",
        "lost": "lost",
        "running": "running",
        "stopped": "stopped",
        "unjudged": "failed",
    }
    assert table["error"]["failed"] == "Rank 1 of 2 failed."
    assert table["error"]["unjudged"] == "The launcher died before it could say this."
    assert "program that launched it was killed" in table["error"]["lost"]
    assert pd.isna(table["error"]["running"])
    assert table["images_per_sec"].isna().all()
    assert (table["timing"] == MEASURED_ON_CPU_RANKS).all()


@pytest.mark.parametrize(
    "value",
    [None, 3, [1, 2], "done", {}, {"val_accuracy": "high", "images_per_sec": [1], "time_split": 7, "steps": {}}],
)
def test_a_function_may_return_anything(tmp_path, value):
    finished(tmp_path / "one", value=value)
    row = store.frame(tmp_path).iloc[0]
    assert row["status"] == "finished"
    assert row["seconds"] == 4.5
    assert row[["val_accuracy", "images_per_sec", "steps", *store.SPLIT_COLUMNS, "speedup"]].isna().all()


def test_numbers_are_numbers_whatever_is_missing(tmp_path):
    started(tmp_path / "lost")
    table = store.frame(tmp_path)
    assert all(pd.api.types.is_numeric_dtype(table[name]) for name in (*store.RUN_NUMBERS, *store.SPEEDUP_COLUMNS))


def test_reading_changes_nothing(tmp_path):
    folder = finished(tmp_path / "one")
    report(folder, 0, {"kind": "step", "time": 1.0})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for read in (store.frame, store.steps, store.epochs):
        read(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_steps_and_epochs_are_read_with_the_facts_of_their_run(tmp_path):
    folder = finished(tmp_path / "one", repeat=1, scaling="weak")
    steps = [{"kind": "step", "time": float(i), "epoch": 1, "step": i, "loss": 2.0 - i, "lr": 0.4} for i in (1, 2)]
    epoch = {"kind": "epoch", "time": 3.0, "epoch": 1, "val_accuracy": 0.8, "seconds": 2.0}
    report(folder, 0, *steps, epoch, {"kind": "end", "time": 4.0, "result": None})
    report(folder, 1, {**steps[0], "loss": None}, {**steps[1], "gradient_norm": 7.0})
    with folder.events(1).open("ab") as file:
        file.write(b'damaged\n{"kind": "step", "time": 9')  # and a torn last line
    table = store.steps(tmp_path)
    assert list(table) == [*store.STEP_FACTS, *store.STEP_VALUES, "gradient_norm"]
    assert table[["run", "world_size", "rank", "step"]].values.tolist() == [
        ["one", 2, 0, 1],
        ["one", 2, 1, 1],
        ["one", 2, 0, 2],
        ["one", 2, 1, 2],
    ]
    assert table["loss"].isna().tolist() == [False, True, False, False]
    assert table["gradient_norm"].notna().tolist() == [False, False, False, True]
    table = store.epochs(folder.path)
    assert list(table) == [*store.EPOCH_FACTS, *store.EPOCH_VALUES]
    row = table.iloc[0]
    assert (row["lr"], row["repeat"], row["timing"], row["val_accuracy"]) == (0.2, 1, MEASURED_ON_CPU_RANKS, 0.8)


def test_an_epoch_is_told_with_every_setting_of_its_run(tmp_path):
    """So runs that differ in any of them are never taken for repeats of each other."""
    for name, config in {"a": CONFIG, "b": CONFIG.with_(lr_rule="none", train_samples=600)}.items():
        report(finished(tmp_path / name, config), 0, {"kind": "epoch", "time": 1.0, "epoch": 1, "val_accuracy": 0.8})
    runs, epochs = store.frame(tmp_path), store.epochs(tmp_path)
    settings = [*store.CONFIG_FIELDS, *store.DERIVED]
    pd.testing.assert_frame_equal(epochs[settings], runs[settings])
    assert not set(store.EPOCH_FACTS) & set(store.EPOCH_VALUES)
    assert {*SETTINGS_OF_A_RUN} <= {*store.EPOCH_FACTS}


def test_a_real_run_is_read_as_it_was(tmp_path, quick):
    run = launch(ddp.train, quick.with_(num_gpus=2, epochs=2), tmp_path / "run", labels={"repeat": 0})
    value = run.wait()
    row = store.frame(tmp_path).iloc[0]
    assert row["status"] == "finished"
    assert row["error"] != row["error"]
    for name in ("val_accuracy", "val_loss", "train_loss", "images_per_sec", "step_seconds", "steps"):
        assert row[name] == value[name], name
    assert row[list(store.MACHINE)].notna().all()
    steps, epochs = store.steps(tmp_path), store.epochs(tmp_path)
    assert steps.groupby("rank").size().to_dict() == {0: value["steps"], 1: value["steps"]}
    assert steps[list(store.STEP_VALUES)].notna().all(axis=None)
    assert epochs["epoch"].tolist() == [1, 2]
    assert epochs["val_accuracy"].iloc[-1] == value["val_accuracy"]
    assert epochs[list(store.EPOCH_VALUES)].notna().all(axis=None)

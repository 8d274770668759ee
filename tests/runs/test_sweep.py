"""A sweep makes every run of its plan once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, DeviceError, FolderError
from course_lib.runs import store
from course_lib.runs.devices import gpu_count
from course_lib.runs.folder import FORMAT, create_run_folder, write_json
from course_lib.runs.plan import MAX_RUNS
from course_lib.runs.sweep import Progress, Sweep, expected_seconds, run_sweep
from course_lib.training import ddp

BASE = RunConfig(
    model="mlp", data="subset", train_samples=300, batch_size=24, epochs=1, warmup_epochs=0.0, device="cpu"
)
ROOT = Path(__file__).parents[2]


def distinct(values):
    return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)


sweeps = st.builds(
    Sweep,
    base=st.just(BASE),
    num_gpus=distinct(st.sampled_from([1, 2, 3, 4])),
    batch_size=distinct(st.sampled_from([12, 24, 48])),
    lr=distinct(st.floats(1e-6, 10)),
    seeds=distinct(st.integers(0, 2**31)),
    scaling=st.sampled_from(["weak", "strong"]),
    repeats=st.integers(1, 4),
)


@settings(max_examples=50)
@given(sweeps)
def test_the_plan_has_every_combination_once_in_each_repeat(sweep):
    plan = sweep.plan("evening")
    each = len(sweep.num_gpus) * len(sweep.batch_size) * len(sweep.lr) * len(sweep.seeds)
    assert [planned.labels["repeat"] for planned in plan] == sorted(list(range(sweep.repeats)) * each)
    assert len({planned.name for planned in plan}) == len(plan)
    for repeat in range(sweep.repeats):
        configs = [planned.config for planned in plan[repeat * each : (repeat + 1) * each]]
        assert configs == [planned.config for planned in plan[:each]]
        batches = [c.batch_size if sweep.scaling == "weak" else c.global_batch_size for c in configs]
        made = {(c.num_gpus, batch, c.lr, c.seed) for c, batch in zip(configs, batches, strict=True)}
        assert made == {
            (n, b, lr, seed)
            for n in sweep.num_gpus
            for b in sweep.batch_size
            for lr in sweep.lr
            for seed in sweep.seeds
        }
    assert all(planned.labels["sweep"] == "evening" for planned in plan)
    assert all(planned.labels["scaling"] == sweep.scaling for planned in plan)
    assert all(not planned.config.checkpoint for planned in plan)
    assert all(planned.config.threads_per_rank == BASE.threads_per_rank for planned in plan)
    assert plan == Sweep(**{name: getattr(sweep, name) for name in sweep.__dataclass_fields__}).plan("evening")
    json.dumps(sweep.to_dict())


def test_names_of_runs_can_be_read():
    sweep = Sweep(BASE, num_gpus=(1, 2), batch_size=[128], lr=[0.05], repeats=2)
    assert [planned.name for planned in sweep.plan("")] == [
        "g1-b128-lr0.05-s0-r0",
        "g2-b128-lr0.05-s0-r0",
        "g1-b128-lr0.05-s0-r1",
        "g2-b128-lr0.05-s0-r1",
    ]


def test_what_is_not_given_is_the_base():
    (planned,) = Sweep(BASE.with_(num_gpus=3, lr=0.3, seed=9), num_gpus=(), repeats=1).plan("")
    assert planned.config == BASE.with_(num_gpus=3, lr=0.3, seed=9, checkpoint=False)


def test_strong_scaling_shares_out_the_global_batch_and_keeps_the_learning_rate():
    base = BASE.with_(num_nodes=2, accumulation_steps=3, lr_rule="linear")
    for planned in Sweep(base, num_gpus=(1, 2), batch_size=(48,), scaling="strong").plan(""):
        assert planned.config.global_batch_size == 48
        assert planned.config.lr_rule == "none"
    with pytest.raises(ConfigError, match=r"64.*4 ranks x accumulation_steps 3.*multiple of 12"):
        Sweep(base, num_gpus=(2,), batch_size=(64,), scaling="strong")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"num_gpus": (0,)}, "num_gpus"),
        ({"num_gpus": 2}, "num_gpus"),
        ({"num_gpus": "1,2"}, "num_gpus"),
        ({"batch_size": (0, 8)}, "batch_size"),
        ({"batch_size": (8, 8)}, "batch_size"),
        ({"lr": (0.1, -0.1)}, "lr"),
        ({"lr": (1, 1.0)}, "lr"),
        ({"lr": ("high",)}, "lr"),
        ({"lr": ([0.1],)}, "lr"),
        ({"seeds": (-1,)}, "seed"),
        ({"scaling": "both"}, "scaling"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": 1.5}, "repeats"),
        ({"num_gpus": (3,), "batch_size": (32,), "scaling": "strong"}, "32"),
    ],
)
def test_a_wrong_sweep_is_refused_by_name(wrong, named):
    with pytest.raises(ConfigError, match=named):
        Sweep(BASE, **wrong)


@settings(deadline=1000)
@given(st.tuples(*[st.integers(1, 10**6)] * 3), st.integers(1, 10**18))
def test_a_sweep_of_too_many_runs_is_refused_before_it_is_planned(lengths, repeats):
    ranks, batches, seeds = (range(1, length + 1) for length in lengths)
    runs = repeats * len(ranks) * len(batches) * len(seeds)
    assume(runs > MAX_RUNS)
    with pytest.raises(ConfigError, match=f"at most {MAX_RUNS:,} runs"):
        Sweep(BASE, num_gpus=ranks, batch_size=batches, seeds=seeds, repeats=repeats)


@pytest.mark.parametrize(
    ("base", "error"),
    [(BASE.with_(batch_size=200), ConfigError), (BASE.with_(device="cuda", num_gpus=1), DeviceError)],
)
def test_what_cannot_be_run_here_is_refused_before_anything_starts(tmp_path, base, error):
    """The first configuration could be run; the last cannot."""
    if error is DeviceError and gpu_count() >= 4:
        pytest.skip("there are enough GPUs")
    with pytest.raises(error):
        run_sweep(ddp.train, Sweep(base, num_gpus=(1, 4)), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_is_made_and_not_made_again(tmp_path, locks, no_process_left):
    sweep, out, told = Sweep(BASE, num_gpus=(1, 2), repeats=3), tmp_path / "sweep", []
    table = run_sweep(ddp.train, sweep, out, told.append)
    assert sorted(table["run"]) == sorted(planned.name for planned in sweep.plan(""))
    assert (table["status"] == "finished").all()
    assert (table["sweep"] == "sweep").all()
    assert table.groupby("num_gpus")["repeat"].apply(sorted).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert table["speedup"].notna().all()
    started = [json.loads((out / name.name / "config.json").read_text())["created"] for name in sweep.plan("")]
    assert started == sorted(started)
    check_progress(told, len(table))

    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.json*")}
    told.clear()
    again = run_sweep(ddp.train, sweep, out, told.append)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json*")} == files
    assert again.equals(table)
    assert told == [Progress(6, 6, seconds_left=0, last_status="finished")]


def check_progress(told: list[Progress], total: int) -> None:
    assert told[0] == Progress(0, total)
    assert (told[-1].done, told[-1].seconds_left, told[-1].current) == (total, 0, None)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert {each.total for each in told} == {total}
    assert all(0 <= each.fraction <= 1 for each in told)
    assert all(each.seconds_left is None or each.seconds_left >= 0 for each in told)
    assert all(each.seconds_left is not None for each in told if each.done)


def test_a_run_that_fails_stops_no_other_and_is_tried_again_beside(tmp_path, locks, no_process_left):
    cured = str(tmp_path / "cured")

    def train(config, worker):
        if config.lr == 0.2 and not os.path.exists(cured):
            raise ValueError("too high")
        return {"images_per_sec": 100.0 * config.num_gpus}

    sweep, out, told = Sweep(BASE, num_gpus=(1, 2), lr=(0.1, 0.2), repeats=1), tmp_path / "sweep", []
    table = run_sweep(train, sweep, out, told.append).set_index("run")
    assert table.groupby("lr")["status"].unique().map(list).to_dict() == {0.1: ["finished"], 0.2: ["failed"]}
    assert "too high" in table["error"]["g1-b24-lr0.2-s0-r0"]
    assert (told[-1].failed, told[-1].last_status) == (2, "failed")

    again = run_sweep(train, sweep, out).set_index("run")
    assert sorted(again.index.difference(table.index)) == ["g1-b24-lr0.2-s0-r0-try2", "g2-b24-lr0.2-s0-r0-try2"]

    Path(cured).touch()
    last = run_sweep(train, sweep, out).set_index("run")
    assert last["status"].value_counts().to_dict() == {"finished": 4, "failed": 4}
    finished = last[last["status"] == "finished"]
    assert not finished.duplicated(["num_gpus", "lr", "repeat"]).any()
    assert last.loc["g2-b24-lr0.2-s0-r0-try3", "speedup"] == 2.0
    assert last.loc[table.index, "status"].equals(table["status"])


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_ends_the_run_and_leaves_the_rest_to_come(tmp_path, no_process_left, end):
    slow = str(tmp_path / "slow")
    Path(slow).touch()

    def train(config, worker):
        if config.num_gpus == 2 and os.path.exists(slow):
            time.sleep(100)
        return {"images_per_sec": 1.0}

    def interrupt(progress: Progress) -> None:
        if progress.current == "g2-b24-lr0.05-s0-r0":
            raise end

    sweep, out = Sweep(BASE, num_gpus=(1, 2), repeats=1), tmp_path / "sweep"
    with pytest.raises(end):
        run_sweep(train, sweep, out, interrupt)
    assert store.frame(out)["status"].tolist() == ["finished", "stopped"]
    os.unlink(slow)
    table = run_sweep(train, sweep, out)
    assert table.set_index("run")["status"].to_dict() == {
        "g1-b24-lr0.05-s0-r0": "finished",
        "g2-b24-lr0.05-s0-r0": "stopped",
        "g2-b24-lr0.05-s0-r0-try2": "finished",
    }


KILLED = """
import sys, time
from course_lib.config import RunConfig
from course_lib.runs.sweep import Sweep, run_sweep

slow = sys.argv[2] == "slow"

def train(config, worker):
    if config.seed == 1 and slow:
        worker.report("here")
        time.sleep(100)
    return {"images_per_sec": 1.0}

base = RunConfig(**%r)
run_sweep(train, Sweep(base, num_gpus=(1,), seeds=(0, 1, 2), repeats=1), sys.argv[1])
"""


def test_a_sweep_goes_on_after_it_was_killed(tmp_path):
    out, script = tmp_path / "sweep", KILLED % BASE.to_dict()
    hanging = out / "g1-b24-lr0.05-s1-r0"
    with subprocess.Popen([sys.executable, "-c", script, str(out), "slow"], cwd=ROOT) as sweep:
        deadline = time.monotonic() + 60
        while not (hanging / "events-rank0.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        sweep.send_signal(signal.SIGKILL)
    first = (out / "g1-b24-lr0.05-s0-r0" / "result.json").stat().st_mtime_ns
    subprocess.run([sys.executable, "-c", script, str(out), "fast"], cwd=ROOT, check=True, timeout=60)
    assert (out / "g1-b24-lr0.05-s0-r0" / "result.json").stat().st_mtime_ns == first
    assert store.frame(out).set_index("run")["status"].to_dict() == {
        "g1-b24-lr0.05-s0-r0": "finished",
        "g1-b24-lr0.05-s1-r0": "lost",
        "g1-b24-lr0.05-s1-r0-try2": "finished",
        "g1-b24-lr0.05-s2-r0": "finished",
    }


def quick_train(config, worker):
    return {"images_per_sec": 100.0}


ONE = Sweep(BASE, num_gpus=(1,), repeats=1)
NAME = "g1-b24-lr0.05-s0-r0"


def test_a_finished_run_that_can_no_longer_be_read_is_made_again_beside(tmp_path):
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    config = tmp_path / "sweep" / NAME / "config.json"
    config.write_text("{")
    table = run_sweep(quick_train, ONE, tmp_path / "sweep").set_index("run")
    assert table["status"].to_dict() == {NAME: "unreadable", f"{NAME}-try2": "finished"}
    assert config.read_text() == "{"
    assert table.loc[NAME, "images_per_sec"] == 100.0


@pytest.mark.parametrize("seconds", ["x", None, [1], {}, True, 10**400, -1])
def test_a_finished_run_that_does_not_tell_its_time_is_made_again_beside(tmp_path, seconds):
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    write_json(tmp_path / "sweep" / NAME / "result.json", {"format": FORMAT, "value": None, "seconds": seconds})
    told = []
    table = run_sweep(quick_train, ONE, tmp_path / "sweep", told.append).set_index("run")
    assert table.loc[f"{NAME}-try2", "status"] == "finished"
    assert (told[-1].done, told[-1].failed) == (1, 0)


def test_a_run_of_another_config_is_not_taken_for_one_of_the_plan(tmp_path):
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    config = tmp_path / "sweep" / NAME / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "config": {**content["config"], "epochs": 2}}))
    assert run_sweep(quick_train, ONE, tmp_path / "sweep")["run"].tolist() == [NAME, f"{NAME}-try2"]


def test_a_guess_is_kept_with_its_runs_and_is_no_part_of_the_sweep(tmp_path):
    sweep = Sweep(BASE, num_gpus=(1, 2), repeats=1, guesses={2: 1.6})
    table = run_sweep(ddp.train, sweep, tmp_path / "sweep").set_index("num_gpus")
    assert table["guess"].isna().to_dict() == {1: True, 2: False}
    again = run_sweep(ddp.train, Sweep(BASE, num_gpus=(1, 2), repeats=1, guesses={2: 1.9}), tmp_path / "sweep")
    assert again.set_index("num_gpus")["guess"][2] == 1.6
    assert len(again) == 2


@pytest.mark.parametrize("guess", [0.0, -1.0, float("nan"), float("inf")])
def test_a_guess_that_is_no_speedup_is_refused(guess):
    with pytest.raises(ConfigError, match="guess"):
        Sweep(BASE, guesses={2: guess})


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Sweep(BASE.with_(model="small_cnn"), num_gpus=(1,), repeats=1), ["model", "'small_cnn'", "'mlp'"]),
        (Sweep(BASE, num_gpus=(1, 2), repeats=1), ["num_gpus", "[1, 2]", "[1]"]),
        (Sweep(BASE, num_gpus=(1,), repeats=2), ["repeats"]),
        (Sweep(BASE, num_gpus=(1,), repeats=1, scaling="strong"), ["scaling"]),
    ],
)
def test_another_sweep_in_the_same_folder_is_refused(tmp_path, other, named):
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    with pytest.raises(FolderError) as caught:
        run_sweep(quick_train, other, tmp_path / "sweep")
    assert all(word in str(caught.value) for word in named)
    assert "optimizer" not in str(caught.value)
    with pytest.raises(FolderError, match="function"):
        run_sweep(ddp.train, ONE, tmp_path / "sweep")


def test_the_same_sweep_written_otherwise_is_the_same(tmp_path):
    table = run_sweep(quick_train, ONE, tmp_path / "sweep")
    same = Sweep(BASE.with_(lr=1.0, seed=5, num_gpus=7), num_gpus=[1], lr=[0.05], seeds=range(1), repeats=1)
    assert run_sweep(quick_train, same, tmp_path / "sweep").equals(table)


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    out = tmp_path / "sweep"
    run_sweep(quick_train, ONE, out)
    with FileLock(out / "sweep.lock", is_singleton=False), pytest.raises(FolderError, match="Another sweep"):
        run_sweep(quick_train, ONE, out)
    assert len(run_sweep(quick_train, ONE, out)) == 1


def test_a_run_that_still_goes_on_is_not_joined_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.runs.sweep.SECONDS_TO_END", 0.1)
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    run = tmp_path / "sweep" / NAME
    (run / "result.json").unlink()
    with FileLock(run / "launcher.lock"), pytest.raises(FolderError, match=NAME):
        run_sweep(quick_train, ONE, tmp_path / "sweep")


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FolderError, match=r"notes\.txt"):
        run_sweep(quick_train, ONE, tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]
    with pytest.raises(FolderError, match=r"notes\.txt"):
        run_sweep(quick_train, ONE, tmp_path / "notes.txt")
    with pytest.raises(FolderError, match=r"notes\.txt"):
        run_sweep(quick_train, ONE, tmp_path / "notes.txt" / "below")


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [Path.touch, Path.mkdir, dangling_link, os.mkfifo])
def test_what_stands_in_the_place_of_a_run_is_left_there(tmp_path, put):
    out = tmp_path / "sweep"
    run_sweep(quick_train, ONE, out)
    shutil.rmtree(out / NAME)
    put(out / NAME)
    table = run_sweep(quick_train, ONE, out)
    assert table["run"].tolist() == [f"{NAME}-try2"]
    assert os.path.lexists(out / NAME)


def test_a_folder_whose_name_is_not_text_is_refused_at_once(tmp_path, monkeypatch):
    odd = os.path.join(os.fsencode(tmp_path), b"\xff\xfe")
    with pytest.raises(FolderError, match=r"\\udcff\\udcfe is not written in UTF-8"):
        run_sweep(quick_train, ONE, os.fsdecode(odd))
    with pytest.raises(FolderError, match="UTF-8"):
        create_run_folder(os.fsdecode(odd))
    assert os.listdir(tmp_path) == []
    os.mkdir(odd)
    monkeypatch.chdir(os.fsdecode(odd))
    with pytest.raises(FolderError, match="UTF-8"):
        create_run_folder("run")
    assert os.listdir() == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"sweep": 1}'])
def test_a_damaged_plan_is_refused_and_kept(tmp_path, content):
    run_sweep(quick_train, ONE, tmp_path / "sweep")
    plan = tmp_path / "sweep" / "sweep.json"
    plan.write_text(content)
    with pytest.raises(FolderError, match=r"sweep\.json"):
        run_sweep(quick_train, ONE, tmp_path / "sweep")
    assert plan.read_text() == content


def test_torchrun_cannot_start_a_sweep(tmp_path, monkeypatch):
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**variables, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="torchrun"):
        run_sweep(quick_train, ONE, tmp_path / "sweep")


def test_the_time_of_a_run_is_told_from_the_likest():
    one, two, four = (BASE.with_(num_gpus=n) for n in (1, 2, 4))
    assert expected_seconds(one, []) is None
    assert expected_seconds(two, [(one, 10.0)]) == 5.0
    assert expected_seconds(four, [(one, 10.0), (two, 6.0)]) == 2.75
    assert expected_seconds(two, [(one, 10.0), (two, 7.0), (two.with_(lr=9.0, seed=4), 8.0)]) == 7.5


def test_what_a_function_reports_may_be_anything(tmp_path):
    def train(config, worker):
        worker.report("step", samples="many", start="now", step=None)
        worker.report("epoch")
        time.sleep(0.5)

    told: list[Progress] = []
    table = run_sweep(train, ONE, tmp_path / "sweep", told.append)
    assert table["status"].tolist() == ["finished"]
    assert any(each.fraction == 1.0 for each in told)


def test_finished_runs_of_an_earlier_process_tell_the_time_left(tmp_path):
    """Before the first run of this process there is an estimate already."""
    sweep, out, told = Sweep(BASE, num_gpus=(1, 2), repeats=1), tmp_path / "sweep", []
    run_sweep(quick_train, sweep, out)
    for planned in sweep.plan("sweep"):
        write_json(out / planned.name / "result.json", {"format": FORMAT, "value": None, "seconds": 100.0})
    (out / "g2-b24-lr0.05-s0-r0" / "result.json").unlink()
    run_sweep(quick_train, sweep, out, told.append)
    assert told[0] == Progress(1, 2, seconds_left=50.0, last_status="finished")


def test_a_run_folder_is_never_written_over(tmp_path):
    out = tmp_path / "sweep"
    run_sweep(quick_train, ONE, out)
    with pytest.raises(FolderError):
        create_run_folder(out / NAME)

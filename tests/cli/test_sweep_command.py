"""`ddp-course sweep` and `ddp-course report`: many runs, taken up where they were left, and compared."""

import signal
from pathlib import Path

import pytest
from commands import QUICK
from processes import eventually

from course_lib.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_process_left")
SWEEP = ("sweep", *QUICK, "--batch-size", 20, "--device", "cpu", "--num-gpus", "1,2,3", "--repeats", 1, "--out", "out")


def finished() -> dict[str, int]:
    """When each run of the sweep was over."""
    return {path.parent.name: path.stat().st_mtime_ns for path in Path("out").glob("*/result.json")}


def test_a_sweep_that_was_stopped_goes_on(cli, program):
    running = program(*SWEEP)
    assert eventually(finished, 90)
    running.send(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130
    assert "--out out" in ended.err.splitlines()[-1]
    before = finished()
    assert 1 <= len(before) < 3

    ended = cli(*SWEEP, "--json")
    assert ended.code == 0
    result = ended.json()
    assert (result["out"], result["runs"], result["finished"], result["failed"]) == ("out", 3, 3, 0)
    done = [row for row in result["rows"] if row["status"] == "finished"]
    assert sorted(row["world_size"] for row in done) == [1, 2, 3]
    assert all(row["speed_caveats"] or row["speedup"] > 0 for row in done)  # other tests may run beside this one
    assert before.items() <= finished().items()

    table = cli(*SWEEP).out.splitlines()
    assert table[0].split() == ["ranks", "batch", "lr", "images/s", "speedup", "efficiency", "accuracy", "runs"]
    assert [line.split()[0].rstrip("*") for line in table[1:4]] == ["1", "2", "3"]
    assert table[-1].endswith("ddp-course report out")


def test_the_learning_rate_suits_the_optimizer_unless_one_is_given(cli):
    grid = ("sweep", *QUICK, "--num-gpus", 1, "--repeats", 1, "--json")
    rates = {
        optimizer: [
            cli(*grid, "--optimizer", optimizer, "--out", optimizer).json()["rows"][0]["lr"],
            cli(*grid, "--optimizer", optimizer, "--lr", 0.02, "--out", f"{optimizer}-given").json()["rows"][0]["lr"],
        ]
        for optimizer in ("sgd", "adamw")
    }
    assert rates == {"sgd": [0.05, 0.02], "adamw": [0.001, 0.02]}
    cli("train", *QUICK, "--optimizer", "adamw", "--out", "run")
    assert RunFolder("run").read_config()[0].lr == 0.001


def test_a_run_that_fails_does_not_stop_the_others(cli):
    ended = cli("sweep", *QUICK, "--num-gpus", 1, "--lr", "1e30,0.05", "--repeats", 1, "--out", "out", "--json")
    assert ended.code == 1
    result = ended.json()
    assert (result["runs"], result["finished"], result["failed"]) == (2, 1, 1)
    assert [row["status"] for row in sorted(result["rows"], key=lambda row: row["lr"])] == ["finished", "failed"]

    readable = cli("sweep", *QUICK, "--num-gpus", 1, "--lr", "1e30,0.05", "--repeats", 1, "--out", "out")
    assert readable.code == 1
    assert "The loss became" in readable.out

    config = Path("out/g1-b64-lr0.05-s0-r0/config.json")
    config.write_text(config.read_text().replace('"epochs": 1', '"epochs": 2'))
    result = cli("sweep", *QUICK, "--num-gpus", 1, "--lr", "1e30,0.05", "--repeats", 1, "--out", "out", "--json").json()
    assert (result["runs"], result["finished"], result["failed"]) == (2, 1, 1)  # of the plan, which holds no such run

    report = cli("report", "out", "--json")
    assert report.code == 0
    assert Path(report.json()["report"]).read_text().startswith("<!")
    assert cli("report", "out", "--out", "mine.html").out == "mine.html\n"
    assert Path("mine.html").exists()

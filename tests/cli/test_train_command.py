"""`ddp-course train`: what it prints, how it is stopped, and how it goes on."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import QUICK
from processes import eventually

from course_lib.config import MEASURED_ON_CPU_RANKS, SIMULATED
from course_lib.runs import store
from course_lib.runs.folder import RunFolder
from course_lib.signals import signals_wait

pytestmark = pytest.mark.usefixtures("no_process_left")
LONG = (*QUICK, "--batch-size", "20", "--epochs", "500")


def test_json_tells_the_result_and_nothing_else(cli):
    ended = cli("train", *QUICK, "--num-gpus", 2, "--batch-size", 50, "--device", "cpu", "--json")
    assert ended.code == 0
    result = ended.json()
    assert result["world_size"] == 2
    assert result["global_batch_size"] == 100
    assert result["steps"] == 6
    assert 0 < result["val_accuracy"] < 1
    assert result["images_per_sec"] > 0
    assert result["seconds"] > 0
    assert result["timing"] == MEASURED_ON_CPU_RANKS
    run = RunFolder(result["run_dir"])
    assert run.status() == "finished"
    assert run.read_config()[0].model == "mlp"
    assert "epoch 1/1" in ended.err


def test_people_get_a_summary(cli):
    ended = cli("train", *QUICK, "--num-gpus", 3, "--num-nodes", 2, "--device", "cpu", "--out", "here/mine")
    assert ended.code == 0
    row = store.frame("here").iloc[0]
    for words in (f"{100 * row.val_accuracy:.2f} %", f"{row.images_per_sec:,.0f} images/s", "6 ranks", "here/mine"):
        assert words in ended.out
    assert MEASURED_ON_CPU_RANKS in ended.out
    assert "Not a speed measurement" in ended.out
    assert "2 nodes are played on one machine" in ended.out


def test_simulated_ranks_are_told_as_such(cli):
    ended = cli("train", *QUICK, "--num-gpus", 64, "--batch-size", 4, "--device", "simulated", "--hardware", "h100")
    assert ended.code == 0
    row = store.frame("runs").iloc[0]
    assert (row.world_size, row.hardware, row.timing) == (64, "h100", SIMULATED)
    assert f"{row.images_per_sec:,.0f} images/s, simulated" in ended.out
    assert "h100, simulated" in ended.out
    assert "images/s simulated" in ended.err
    assert "Not a speed measurement" not in ended.out
    ended = cli("train", *QUICK, "--device", "simulated", "--hardware", "abacus")
    assert ended.code == 2
    assert "profile 'abacus'" in ended.paragraph()


def test_one_rank_trains_without_ddp(cli):
    cli("train", *QUICK, "--device", "cpu", "--out", "single")
    cli("train", *QUICK, "--device", "cpu", "--out", "ddp", "--num-gpus", 2)
    assert b"single" in RunFolder("single").function.read_bytes()
    assert b"ddp" in RunFolder("ddp").function.read_bytes()


def test_a_failing_rank(cli):
    ended = cli("train", *QUICK, "--lr", "1e30", "--device", "cpu", "--out", "run", "--json")
    assert ended.code == 1
    assert ended.json()["error"]["type"] == "NonFiniteLossError"
    assert ended.json()["run_dir"] == str(Path("run").resolve())
    paragraph, where = ended.err.splitlines()
    assert paragraph.startswith("Error: The loss became ")
    assert str(Path("run").resolve()) in where


def test_a_run_that_takes_too_long(cli):
    ended = cli("train", *LONG, "--device", "cpu", "--time-limit", 3, "--json")
    assert ended.code == 1
    assert ended.json()["error"]["type"] == "HangError"
    assert store.steps("runs")["step"].max() > 0


def stop_after_an_epoch(program, number, *arguments):
    running = program("train", *arguments, "--device", "cpu", "--out", "run")
    run = RunFolder("run")
    assert eventually(run.checkpoint.exists, 90)
    running.send(number)
    ended = running.end()
    assert ended.out == ""
    assert f"--resume-from {run.path.resolve()}" in ended.err
    assert run.status() == "stopped"
    assert len(store.epochs("run")) >= 1
    return ended


def test_sigterm_stops_the_run_and_keeps_what_was_recorded(cli, program):
    ended = stop_after_an_epoch(program, signal.SIGTERM, *LONG, "--num-gpus", 2)
    assert ended.code == 143
    ended = cli("train", "--resume-from", "run", "--epochs", 501)
    assert ended.code == 2
    assert "epochs (500 then, 501 now)" in ended.paragraph()


@pytest.mark.parametrize("command", ["train", "report", "doctor", "calibrate", "predict"])
@pytest.mark.slow
def test_sigterm_at_any_moment_is_told_in_a_word(cli, program, command):
    """While Python starts, while torch is loaded, during the run, at exit."""
    cli("train", *QUICK, "--device", "cpu", "--out", "run")
    arguments = {"train": QUICK, "report": ("run",)}.get(command, ())
    took = 6.0  # of calibrate the start and some of the measuring: as a whole it takes three times as long
    if command != "calibrate":
        whole = program(command, *arguments)
        began = time.monotonic()
        whole.end()
        took = time.monotonic() - began
    for part in range(1, 7):
        running = program(command, *arguments)
        time.sleep(part / 6 * took)
        running.send(signal.SIGTERM)
        ended = running.end()
        assert ended.code in (0, 143, -signal.SIGTERM)
        assert "Traceback" not in ended.err
        assert ended.code != 143 or "topped" in ended.err


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_torch_is_loaded_comes_right_after(number, fails):
    came = []
    before = signal.signal(number, lambda *_: came.append("handled"))
    try:
        with suppress(ImportError), signals_wait():
            signal.raise_signal(number)
            signal.raise_signal(number)
            came.append("loaded")
            if fails:
                raise ImportError
        assert came == ["loaded", "handled"]
    finally:
        signal.signal(number, before)


def test_ctrl_c_stops_the_run_and_it_goes_on_with_its_own_settings(cli, program):
    ended = stop_after_an_epoch(program, signal.SIGINT, *QUICK, "--batch-size", 20, "--epochs", 30)
    assert ended.code == 130
    ended = cli("train", "--resume-from", "run", "--json")
    assert ended.code == 0
    assert ended.json()["steps"] == 30 * 30
    epochs = store.epochs(ended.json()["run_dir"])["epoch"].tolist()
    assert epochs == list(range(epochs[0], 31))
    assert epochs[0] > 1

"""What a terminal shows, at any width, with and without colours."""

import io
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from course_lib.config import MEASURED_ON_GPUS, SIMULATED, RunConfig
from course_lib.console import Screen, prepare_streams, run_summary, sweep_remarks, sweep_table
from course_lib.errors import ConfigError, RankError
from course_lib.progress import RunProgress, SweepBar
from course_lib.runs.sweep import Progress


def screen_of(width: int, **options: Any) -> Screen:
    screen = Screen(as_json=False)
    for name in ("out", "err"):
        stream = Console(file=io.StringIO(), width=width, force_terminal=True, highlight=False, **options)
        setattr(screen, name, stream)
    return screen


def shown(screen: Screen) -> str:
    return screen.err.file.getvalue()


def steps(first: int, last: int) -> list[dict[str, Any]]:
    step = {"kind": "step", "rank": 0, "epoch": 1, "loss": 0.512, "samples": 100, "seconds": 0.01}
    others = {**step, "rank": 1, "loss": 9.9}
    return [event for number in range(first, last) for event in ({**step, "step": number}, {**others, "step": number})]


RUN_ROW = {"world_size": 1, "model": "mlp", "global_batch_size": 64, "lr": 0.1, "peak_lr": 0.1, "lr_rule": "none"}
RUN_ROW |= {"hardware": None}
RUN_ROW |= {"val_accuracy": 0.5, "epochs": 1, "images_per_sec": 1.0, "timing": "", "seconds": 1.0, "speed_caveats": ""}
EPOCH = {"kind": "epoch", "rank": 0, "epoch": 1, "train_loss": 0.6, "val_accuracy": 0.875, "images_per_sec": 9999.6}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_progress_shows_speed_loss_accuracy_and_fits(width):
    screen = screen_of(width, color_system=None)
    with RunProgress(screen, RunConfig(epochs=2, num_gpus=2), steps=100) as progress:
        progress.show([])
        progress.show(steps(1, 10))
        progress.show([*steps(10, 50), EPOCH])
        progress.show(steps(50, 60))
    text = shown(screen)
    assert "starting 2 ranks" in text
    assert "epoch 1/2  training loss 0.600" in text
    if width >= 80:
        assert "10,000 images/s  loss 0.512  accuracy 87.50 %" in text
        assert "left" in text
    lines = text.replace("\r", "\n").split("\n")
    assert max(cell_len(line.split("\x1b[2K")[-1]) for line in lines) <= width + len("\x1b[?25h")


def test_a_loss_that_is_no_number_is_a_dash():
    screen = screen_of(80, color_system=None)
    with RunProgress(screen, RunConfig(), steps=10) as progress:
        progress.show([{**steps(1, 2)[0], "loss": None}])
    assert "loss -" in shown(screen)


def test_a_sweep_shows_the_run_and_the_time_left():
    screen = screen_of(80, color_system=None)
    with SweepBar(screen) as bar:
        bar.show(Progress(done=2, total=18, failed=1, current="g2-b128", fraction=0.5, seconds_left=3725.0))
    assert "run 3/18" in shown(screen)
    assert "g2-b128  1 failed" in shown(screen)
    assert "1:02:05 left" in shown(screen)


RUN = {
    **{"status": "finished", "scaling": "weak", "world_size": 2, "batch_size": 128, "lr": 0.05, "peak_lr": 0.1},
    **{
        "run": "a",
        "timing": MEASURED_ON_GPUS,
        "speed_caveats": "",
        "hardware": None,
        "error": None,
        "val_accuracy": 0.5,
    },
    **{"efficiency": 0.9, "speedup": 1.9, "speedup_low": 1.8, "speedup_high": 2.1, "timed_steps": 15},
}
RUNS = [{**RUN, "images_per_sec": rate} for rate in (123456.0, 234567.0, 345678.0)]


def told_of(runs: list[dict[str, Any]]) -> str:
    screen = screen_of(200, color_system=None)
    frame = pd.DataFrame(runs)
    screen.result({}, sweep_table(frame), *sweep_remarks(frame))
    return str(screen.out.file.getvalue())


def test_a_disturbed_repeat_changes_no_figure_of_speed():
    nothing = dict.fromkeys(("speedup", "speedup_low", "speedup_high", "efficiency"), float("nan"))
    disturbed = {**RUN, **nothing, "images_per_sec": 9.0, "speed_caveats": "another run went on"}
    row = told_of([*RUNS, disturbed, disturbed]).splitlines()[1].split()
    assert row[0] == "2"
    assert "234,567" in row
    assert row[-1] == "5"
    assert told_of([disturbed]).splitlines()[1].split()[0] == "2*"


def test_simulated_times_have_hardware_and_no_interval():
    without = dict.fromkeys(("speedup_low", "speedup_high"), float("nan"))
    simulated = {**RUNS[0], **without, "timing": SIMULATED, "hardware": "h100"}
    assert "simulated on h100;" in told_of([simulated])
    assert "No interval" not in told_of([simulated])
    assert "No interval" in told_of([{**RUNS[0], **without}])


def test_a_run_that_hardly_learned_is_pointed_at():
    assert "hardly learned" not in told_of(RUNS)
    assert "2 runs hardly learned" in told_of([*RUNS, *[{**RUNS[0], "val_accuracy": 0.11}] * 2])


@pytest.mark.parametrize("width", [1, 20, 40, 70, 80])
def test_the_table_of_a_sweep_keeps_its_figures_whole(width):
    frame = pd.DataFrame([*RUNS, {**RUN, "run": "b", "status": "failed", "error": "It broke.\nThere."}])
    screen = screen_of(width, color_system=None)
    screen.result({}, sweep_table(frame))
    table = screen.out.file.getvalue()
    headings = ["ranks", "batch", "lr", "images/s", "speedup", "efficiency", "accuracy", "runs"]
    assert table.splitlines()[0].split() == headings
    screen = screen_of(200, color_system=None)
    screen.result({}, *sweep_remarks(frame))
    text = table + screen.out.file.getvalue()
    for figure in (
        "234,567",
        "0.05 → 0.1",
        "1.90",
        "(1.80-2.10)",
        "90 %",
        "50.00 %",
        "90 % interval",
        "measured on GPUs",
    ):
        assert figure in text
    assert "3 runs: too short to say much about speed" in text
    assert "b failed: It broke." in text
    assert "There" not in text


def test_an_error_is_wrapped_and_its_evidence_is_not():
    screen = screen_of(40, color_system=None)
    line = '  File "/a/long/path/to/a/file.py", line 12, in train'
    screen.failed(RankError("Rank 1 of 2 failed with a message that takes two lines [bold].", 1, f"Traceback:\n{line}"))
    paragraph, evidence = shown(screen).split("\n\n")[:2]
    assert all(len(part) <= 40 for part in paragraph.splitlines())
    assert paragraph.startswith("Error: Rank 1 of 2 failed")
    assert "[bold]" in paragraph
    assert evidence == f"Traceback:\n{line}"


def test_no_color_is_respected(monkeypatch):
    for value, colored in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        screen = screen_of(80, color_system="standard")
        screen.failed(ConfigError("batch_size must be at least 1."))
        assert ("\x1b[1;31m" in shown(screen)) is colored


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*"[]/:\\ar", "red", "[/b]", ":smile:", "[link=x]"]), max_size=9))
def test_a_name_is_shown_as_it_is(capsys, parts):
    """Whatever rich would make of it."""
    name = f"<{''.join(parts)}>"
    Screen(as_json=False).result({}, name, run_summary({**RUN_ROW, "path": name}), Text(name))
    shown = "".join(capsys.readouterr().out.split())
    assert shown.count(name) == 3


@pytest.mark.parametrize(("columns", "width"), [*((text, 200) for text in ("0", "-3", "wide", "", "²")), ("90", 90)])
def test_a_width_that_is_none_is_not_taken(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    prepare_streams()
    assert Screen(as_json=False).out.width == width

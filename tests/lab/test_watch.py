"""The live view follows real runs to their end, whatever that is, and never hides why."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ipywidgets import HTML, Button, Widget
from processes import eventually

from course_lib.config import RunConfig
from course_lib.lab.live import LiveRun, pace_in_words
from course_lib.lab.watch import LiveView, progress_html, watch
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.runs.pace import Pace
from course_lib.runs.run import Run
from course_lib.training import ddp, single


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """What a test puts in it is stopped."""
    started: list[Run] = []
    yield started
    for run in started:
        run.stop()


def parts(widget: Widget) -> list[Widget]:
    """A widget and all below it."""
    return [widget, *(part for child in getattr(widget, "children", ()) for part in parts(child))]


def html_of(view: Widget) -> str:
    return "\n".join(part.value for part in parts(view) if isinstance(part, HTML))


def buttons_of(view: Widget) -> list[Button]:
    return [part for part in parts(view) if isinstance(part, Button)]


def is_over(run: Run) -> bool:
    return not any(thread.name == f"watch {run.path.name}" for thread in threading.enumerate())


def raise_an_error(config: RunConfig, worker: Any) -> None:
    worker.report("step", epoch=1, step=1, loss=2.0, samples=50)
    raise ValueError("the <b>gradient</b> is wrong")


def wait_for_ever(config: RunConfig, worker: Any) -> None:
    import time

    worker.report("step", epoch=1, step=1, loss=2.0, samples=50)
    while True:
        time.sleep(0.1)


def test_two_runs_are_followed_to_their_end(quick, runs):
    runs += [launch(single.train, quick.with_(epochs=2)), launch(ddp.train, quick.with_(num_gpus=2, epochs=2))]
    view = watch(*runs)
    results = [run.wait() for run in runs]
    assert eventually(lambda: is_over(runs[0]), 20)
    html = html_of(view)
    assert html.count("<img") == 1
    assert 'alt="Loss and accuracy.' in html
    assert re.findall(r'role="progressbar"[^>]* aria-valuenow="(\d+)"', html) == ["100", "100"]
    assert html.count('role="status"') == 2
    for result in results:
        assert f"accuracy {100 * result['val_accuracy']:.2f} %" in html
    assert html.count('<th scope="row"') == 4
    assert html.count("<caption") == 2
    assert all(button.disabled for button in buttons_of(view))


def test_what_is_drawn_is_what_rank_0_reported(quick, runs):
    runs.append(launch(ddp.train, quick.with_(num_gpus=2)))
    runs[0].wait()
    live = LiveRun(runs[0])
    assert live.update()
    assert not live.update()
    steps = store.steps(runs[0].path)
    of_rank_0 = steps[steps["rank"] == 0]
    assert list(live.steps()["loss"]) == pytest.approx(list(of_rank_0["loss"]))
    assert list(live.epochs()["val_accuracy"]) == list(store.epochs(runs[0].path)["val_accuracy"])
    assert set(live.steps()["timing"]) == set(store.frame(runs[0].path)["timing"])


def test_a_run_that_fails_shows_why(quick, runs):
    runs.append(launch(raise_an_error, quick))
    view = watch(runs[0])
    assert eventually(lambda: is_over(runs[0]), 20)
    html = html_of(view)
    assert 'role="alert"' in html
    assert "ValueError: the &lt;b&gt;gradient&lt;/b&gt; is wrong" in html
    assert "Traceback" in html
    assert "<b>gradient" not in html


def test_the_button_stops_the_run(quick, runs):
    runs.append(launch(wait_for_ever, quick))
    view = watch(runs[0])
    assert eventually(lambda: "epoch 1 of 1" in html_of(view), 20)
    (button,) = buttons_of(view)
    assert not button.disabled
    button.click()
    assert runs[0].status == "stopped"
    assert eventually(lambda: is_over(runs[0]))
    assert "stopped after" in html_of(view)
    assert button.disabled


def test_what_spoils_the_times_is_shown_from_the_start(quick, runs, monkeypatch):
    monkeypatch.setattr("course_lib.runs.devices.core_count", lambda: 1)
    runs.append(launch(wait_for_ever, quick.with_(num_gpus=2, device="cpu")))
    assert "Not a speed measurement: 2 ranks with 2 threads share 1 cores" in html_of(LiveView(runs))


def test_a_run_is_told_at_its_end_that_another_began_meanwhile(quick, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where runs see each other: only these two
    runs.append(launch(wait_for_ever, quick))
    live = LiveRun(runs[0])
    live.update()
    assert "Not a speed" not in progress_html(live)
    runs.append(launch(single.train, quick))
    runs[1].wait()
    runs[0].stop()
    live.update()
    assert "Not a speed measurement: another run went on" in progress_html(live)


def test_a_run_of_one_epoch_shows_its_loss_alone(quick, runs):
    runs.append(launch(single.train, quick))
    runs[0].wait()
    assert 'alt="Loss.' in html_of(LiveView(runs))


def test_a_view_that_cannot_go_on_says_so(quick, runs, monkeypatch):
    runs.append(launch(wait_for_ever, quick))
    view = LiveView(runs)
    monkeypatch.setattr(LiveRun, "update", lambda self: 1 / 0)
    view.follow()
    assert "The live view ended; the runs go on. ZeroDivisionError" in html_of(view)
    assert runs[0].status == "running"


def test_a_function_of_ones_own_may_report_anything(quick, runs):
    def odd(config: RunConfig, worker: Any) -> str:
        worker.report("step", step=1, loss=float("nan"))
        worker.report("step", epoch="first", step=2, loss="low", samples=None)
        worker.report("epoch", epoch=1, val_accuracy="good")
        worker.report("thought", text="<hm>")
        return "done"

    runs.append(launch(odd, quick))
    view = watch(runs[0])
    assert eventually(lambda: is_over(runs[0]), 20)
    assert "finished" in html_of(view)
    assert "The live view ended" not in html_of(view)


def test_the_saved_notebook_tells_what_was_watched(quick, runs):
    runs.append(launch(single.train, quick))
    assert repr(LiveView(runs)).endswith("mlp on 1 rank, batch 50 per rank, lr 0.05")


@pytest.mark.parametrize(
    ("rule", "rate"), [("linear", "lr 0.05 x 2 = 0.1 (linear rule)"), ("sqrt", "lr 0.05 x 1.41 = 0.0707 (sqrt rule)")]
)
def test_the_title_says_what_the_rule_makes_of_the_learning_rate(rule, rate, quick, runs):
    runs.append(launch(ddp.train, quick.with_(num_gpus=2, lr_rule=rule)))
    assert LiveRun(runs[0]).title == f"mlp on 2 ranks, batch 50 per rank, {rate}"


def step(epoch: int, at: float) -> dict[str, Any]:
    timed = {"start": at - 1, "time": at, "images_per_sec": 50.0}
    return {"kind": "step", "rank": 0, "epoch": epoch, "samples": 50, **timed}


def test_the_status_line_says_how_far_how_fast_and_how_long():
    pace = Pace(epochs=4, images=100)
    assert pace_in_words(pace, 4) == "starting"
    pace.take([step(1, 101.0)])
    assert pace_in_words(pace, 4) == "epoch 1 of 4, 50 images/s, about 7 s left"
    pace.take([step(1, 102.0), {"kind": "epoch", "rank": 0, "epoch": 1, "time": 102.0}])
    assert pace_in_words(pace, 4).endswith("about 6 s left")
    resumed = Pace(epochs=4, images=100)
    resumed.take([step(3, 101.0)])
    assert pace_in_words(resumed, 4).endswith("about 3 s left")

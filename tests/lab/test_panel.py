"""The Scaling Lab works without a browser: its callbacks are plain methods, its runs are real."""

from __future__ import annotations

import base64
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ipywidgets import Button, Checkbox, Dropdown, FloatText, IntText, Text, ToggleButton
from processes import eventually
from widgets_at_work import html_of, parts

from course_lib.config import RunConfig
from course_lib.errors import FolderError
from course_lib.lab.panel import ScalingLab
from course_lib.lab.panel.choices import Choices
from course_lib.lab.panel.controls import Controls
from course_lib.lab.panel.experiments import at_work
from course_lib.lab.panel.figures import PLOTS, FigureView
from course_lib.lab.panel.following import Following
from course_lib.lab.panel.pump import Pump
from course_lib.lab.panel.runs_view import RunsView
from course_lib.runs import store

QUICK = Choices(model="mlp", epochs=1, data_share=0.01, device="cpu")
OpenPanel = Callable[..., ScalingLab]


@pytest.fixture
def open_panel(tmp_path, monkeypatch) -> Iterator[OpenPanel]:
    """Opens panels of tmp_path/"runs" that look only when a test has them look; nothing goes on when it is over."""
    monkeypatch.setattr(Pump, "start", lambda self: None)
    opened: list[ScalingLab] = []

    def open_one(train: Any = None) -> ScalingLab:
        panel = ScalingLab(tmp_path / "runs", train)
        panel.controls.choices = QUICK
        panel.look()
        opened.append(panel)
        return panel

    yield open_one
    experiment = at_work(tmp_path / "runs")
    if experiment is not None:
        experiment.stop()
        experiment.join(30)
    for panel in opened:
        panel.close()


def until(panel: ScalingLab, text: str, seconds: float = 30) -> str:
    """What the panel shows once `text` is part of it."""

    def is_shown() -> bool:
        panel.look()
        return text in html_of(panel)

    assert eventually(is_shown, seconds), html_of(panel)
    return html_of(panel)


def wait_for_ever(config: RunConfig, worker: Any) -> None:
    import time

    for step in range(1, 4):
        worker.report("step", epoch=1, step=step, loss=2.0 / step, samples=50, seconds=0.1, images_per_sec=500.0)
    print("waiting for <ever>")
    while True:
        time.sleep(0.1)


def rank_one_fails(config: RunConfig, worker: Any) -> None:
    import time

    worker.report("step", epoch=1, step=1, loss=2.0, samples=50)
    if worker.rank == 1:
        raise ValueError("the <b>gradient</b> is wrong")
    time.sleep(60)


def test_what_follows_is_shown_before_anything_runs(open_panel):
    panel = open_panel()
    assert "Ready. No run has been made here yet." in panel.status.value
    panel.controls.inputs["num_gpus"].value = 2
    panel.look()
    facts = " ".join(re.sub(r"<[^>]*>", " ", panel.facts.value).split())
    for expected in ("World size 2", "Global batch 128 = 2 x 64", "Peak learning rate 0.1 after the rule"):
        assert expected in facts
    assert "The same on one rank is run first" in facts
    assert not (panel.folder.exists())


def test_an_impossible_choice_cannot_be_run(open_panel):
    panel = open_panel()
    panel.controls.inputs["batch_size"].value = 0
    panel.look()
    assert panel.run_button.disabled
    assert panel.sweep_button.disabled
    assert "Not possible" in html_of(panel.controls)
    panel.controls.inputs["batch_size"].value = 64
    panel.look()
    assert not panel.run_button.disabled
    assert panel.stop_button.disabled


def test_guess_prediction_and_measurement_are_shown_together(open_panel):
    panel = open_panel()
    panel.controls.inputs["num_gpus"].value = 2
    panel.controls.inputs["device"].value = "simulated"
    panel.look()
    panel.guess.field.value = "1.7"
    panel.run_button.click()
    assert panel.run_button.disabled
    assert not panel.stop_button.disabled
    html = until(panel, "2 runs finished.")
    assert re.search(r"Your guess.*The model expected.*Simulated", html, re.DOTALL)
    cells = re.findall(r"<td[^>]*><strong>([^<]*)</strong>", panel.outcome.value)
    guess, predicted, simulated = map(float, cells)
    assert guess == 1.7
    assert predicted == pytest.approx(simulated, rel=0.05)
    assert "the profile of a100" in panel.outcome.value
    assert "Try next:" in panel.outcome.value
    assert list(store.frame(panel.folder).query("world_size == 2")["guess"]) == [1.7]
    assert not panel.run_button.disabled
    assert 'alt="Speedup' in panel.figures.image.value
    assert "Training loss. Run" in panel.live.charts.value


def test_a_guess_that_is_none_starts_nothing(open_panel):
    panel = open_panel()
    panel.controls.inputs["num_gpus"].value = 2
    panel.look()
    panel.guess.field.value = "fast"
    panel.run()
    assert "must be a number above 0" in panel.status.value
    assert at_work(panel.folder) is None
    assert not panel.run_button.disabled


def test_each_rank_has_a_bar_and_a_log(open_panel):
    panel = open_panel(wait_for_ever)
    panel.controls.inputs["num_gpus"].value = 2
    panel.look()
    panel.sweep_over.values.value = "2"
    panel.sweep()
    until(panel, "500 images/s")
    names = re.findall(r'role="progressbar" aria-label="([^"]*)"', panel.live.ranks.value)
    assert names == ["Rank 0", "Rank 1"]
    assert panel.live.logs.value == ""
    panel.live.show_logs.value = True
    until(panel, "waiting for &lt;ever&gt;")
    panel.live.log_rank.value = 1
    panel.look()
    assert 'aria-label="What rank 1 printed"' in panel.live.logs.value
    panel.stop_button.click()
    assert panel.stop_button.disabled
    until(panel, "1 run stopped.")
    assert not panel.run_button.disabled


def test_the_first_culprits_error_is_shown(open_panel):
    panel = open_panel(rank_one_fails)
    panel.controls.inputs["num_gpus"].value = 2
    panel.sweep_over.values.value = "2"
    panel.sweep()
    html = until(panel, "1 run failed.")
    assert 'role="alert"' in html
    assert "Rank 1 of 2 failed after step 1" in html
    assert "the &lt;b&gt;gradient&lt;/b&gt; is wrong" in html
    assert "<b>gradient" not in html


def test_running_the_cell_again_neither_loses_a_run_nor_starts_another(open_panel):
    first = open_panel(wait_for_ever)
    first.run()
    until(first, "500 images/s")
    second = open_panel(wait_for_ever)
    assert second.run_button.disabled
    assert not second.stop_button.disabled
    until(second, "500 images/s")
    second.run()
    assert "goes on in this folder already" in second.status.value
    second.stop()
    until(second, "1 run stopped.")
    assert len(store.frame(second.folder)) == 1


def test_earlier_runs_are_found_again(open_panel, make_run):
    make_run("a")
    make_run("b", RunConfig(num_gpus=2), rate=1900.0)
    panel = open_panel()
    html = html_of(panel)
    assert "Ready. 2 earlier runs found." in html
    assert 'alt="Speedup' in html
    assert html.count('<th scope="row"') == 2
    assert len(panel.table.choice.options) == 2


def test_runs_that_another_program_makes_appear(open_panel, make_run):
    panel = open_panel()
    make_run("cluster-1")
    until(panel, ">1 run<")
    make_run("cluster-2", RunConfig(num_gpus=2))
    until(panel, ">2 runs<")


def test_chosen_runs_are_compared(open_panel, make_run):
    make_run("a", accuracy=0.8)
    make_run("b", RunConfig(num_gpus=2), rate=1900.0, accuracy=0.83)
    make_run("c", RunConfig(num_gpus=2, model="mlp"), rate=9000.0)
    panel = open_panel()
    table = panel.table
    table.compare_button.click()
    assert "Choose two or more runs" in table.answer.value
    table.choose(*(str(panel.folder / name) for name in "ab"))
    table.compare_button.click()
    assert "Compared with Run 1" in table.comparison.value
    assert "accuracy +3.0 points; 1.90 times as many images per second." in table.comparison.value
    panel.look()
    assert "1.90 on 2" in panel.figures.image.value
    table.choose(*(str(panel.folder / name) for name in "ac"))
    table.compare()
    assert "the speeds cannot be compared. These runs differ in more than" in table.comparison.value


def test_the_list_stays_as_it_is_while_somebody_chooses_in_it(open_panel, make_run):
    make_run("a")
    panel = open_panel()
    view = panel.table
    view.choose(str(panel.folder / "a"))
    make_run("b")
    until(panel, ">2 runs<")
    assert len(view.choice.options) == 1
    view.compare_button.click()
    assert [path for _, path in view.choice.options] == [str(panel.folder / name) for name in "ba"]
    assert view.chosen == (str(panel.folder / "a"),)


def test_clearing_deletes_nothing(open_panel, make_run):
    make_run("a")
    panel = open_panel()
    panel.table.choose(str(panel.folder / "a"))
    panel.look()
    panel.clear_button.click()
    panel.look()
    assert panel.table.chosen == ()
    assert panel.figures.image.value == ""
    assert "All runs are kept" in panel.status.value
    assert len(store.frame(panel.folder)) == 1
    panel.figures.which.value = "Throughput"
    panel.look()
    assert 'alt="Throughput' in panel.figures.image.value


def test_runs_are_deleted_only_after_a_question(open_panel, make_run):
    kept, gone = make_run("a"), make_run("b")
    panel = open_panel()
    view = panel.table
    view.ask_to_delete()
    assert "Choose the runs to delete" in view.answer.value
    view.choose(str(gone))
    view.delete_button.click()
    assert view.question.layout.display == ""
    assert "Delete run 2" in view.answer.value
    view.no.click()
    assert gone.exists()
    view.delete_button.click()
    view.yes.click()
    assert not gone.exists()
    assert kept.exists()
    assert html_of(view).count('<th scope="row"') == 1


def test_the_table_is_sorted_and_turned(open_panel, make_run):
    for place in range(14):
        make_run(f"run{place:02}", accuracy=0.5 + 0.01 * ((5 * place) % 14))
    view = open_panel().table

    def first_rows() -> list[str]:
        return re.findall(r'<th scope="row"[^>]*>(\d+)</th>', view.table.value)

    assert first_rows()[:2] == ["14", "13"]
    assert view.earlier.disabled
    view.later.click()
    assert first_rows() == ["2", "1"]
    assert view.later.disabled
    view.sort.value = "accuracy"
    accuracies = [float(text) for text in re.findall(r"<td[^>]*>(\d\d\.\d\d)</td>", view.table.value)]
    assert accuracies == sorted(accuracies, reverse=True)
    assert max(accuracies) == 63.0
    view.ascending.value = True
    assert "50.00" in view.table.value


def test_the_table_can_be_taken_along(open_panel, make_run, tmp_path):
    make_run("a", rate=1234.0)
    panel = open_panel()
    content = re.search(r'href="data:text/csv;base64,([^"]*)"', panel.table.link.value)
    assert content is not None
    (tmp_path / "runs.csv").write_bytes(base64.b64decode(content[1]))
    table = pd.read_csv(tmp_path / "runs.csv")
    assert list(table["images_per_sec"]) == [1234.0]


@pytest.mark.parametrize("which", PLOTS)
def test_each_plot_can_be_drawn(which, open_panel, make_run):
    make_run("a")
    make_run("b", RunConfig(num_gpus=2), rate=1900.0)
    panel = open_panel()
    panel.figures.which.value = which
    panel.look()
    assert re.search(r'<img alt="[^"]{30,}"', panel.figures.image.value)


def test_results_stay_in_a_saved_notebook(open_panel, make_run, monkeypatch):
    make_run("a")
    make_run("b", RunConfig(num_gpus=2), rate=1900.0)
    panel = open_panel()
    shown: list[Any] = []
    monkeypatch.setattr("course_lib.lab.panel.figures.display", shown.append)
    panel.results()._ipython_display_()
    figure, table = shown
    assert {"image/png", "text/html", "text/plain"} <= figure._repr_mimebundle_().keys()
    assert "1.90 on 2" in repr(figure)
    assert table._repr_html_().count('<th scope="row"') == 2
    assert "1.90" in repr(table)
    assert "2 runs" in repr(panel)


def test_every_control_has_a_name(open_panel, make_run):
    make_run("a")
    panel = open_panel()
    for widget in parts(panel):
        if isinstance(widget, Dropdown | IntText | FloatText | Text | Button | Checkbox | ToggleButton):
            assert widget.description


@pytest.mark.parametrize(
    ("part", "draw"),
    [(Following, "charts_html"), (RunsView, "show"), (FigureView, "draw"), (Controls, "show")],
)
def test_a_part_that_cannot_be_shown_is_told_and_does_not_end_the_panel(part, draw, tmp_path, monkeypatch):
    panel = ScalingLab(tmp_path / "runs")
    panel.controls.choices = QUICK
    told: list[str] = []
    panel.status.observe(lambda change: told.append(change["new"]), "value")
    monkeypatch.setattr(part, draw, lambda self, *_: 1 / 0)
    panel.run()
    assert eventually(lambda: not panel.run_button.disabled and panel.stop_button.disabled and panel.outcome.value, 60)
    assert any("Something could not be shown; the runs go on. ZeroDivisionError" in text for text in told)
    panel.retire()
    panel.close()


def test_the_thread_shows_what_comes_and_ends_with_its_panel(tmp_path, make_run):
    panel = ScalingLab(tmp_path / "runs")
    make_run("a")
    assert eventually(lambda: ">1 run<" in html_of(panel))
    again = ScalingLab(tmp_path / "runs")
    assert "opened again" in html_of(panel)
    assert eventually(lambda: [thread.panel for thread in threading.enumerate() if isinstance(thread, Pump)] == [again])
    again.retire()
    again.close()
    assert eventually(lambda: not any(isinstance(thread, Pump) for thread in threading.enumerate()))
    panel.close()


@pytest.mark.parametrize(
    "value", ["\ud800", "<img src=x onerror=alert(1)>", "$\\frac{$", 10**400, 1e308, -1e308, [], {}]
)
def test_whatever_a_function_reports_and_raises_is_shown(value, open_panel):
    def misbehaves(config: RunConfig, worker: Any) -> None:
        import contextlib

        figures = dict.fromkeys(
            ("epoch", "step", "loss", "samples", "seconds", "val_accuracy", "images_per_sec"), value
        )
        for kind in ("step", "epoch"):
            with contextlib.suppress(ValueError):  # what cannot be written is refused
                worker.report(kind, **figures)
        raise ValueError(value)

    panel = open_panel(misbehaves)
    panel.run()
    shown = until(panel, "1 run failed.")
    assert "<img src=x" not in shown
    shown.encode()  # as it goes to the browser


def test_a_folder_whose_name_is_no_text_is_shown(open_panel, make_run):
    run = make_run("a")
    run.rename(os.fsdecode(os.fsencode(run) + b"\xff"))
    assert "1 run" in html_of(open_panel())


def test_a_folder_that_no_page_could_name_is_refused(tmp_path):
    with pytest.raises(FolderError, match="not written in UTF-8"):
        ScalingLab(os.fsdecode(os.fsencode(tmp_path) + b"\xff"))


def test_a_removed_working_folder_is_told(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    with pytest.raises(FolderError, match="was removed"):
        ScalingLab()


def test_a_run_whose_folder_is_removed_does_not_end_the_panel(open_panel):
    panel = open_panel(wait_for_ever)
    panel.run()
    until(panel, "500 images/s")
    path = Path(store.frame(panel.folder)["path"].iloc[0])
    shutil.rmtree(path)
    assert eventually(lambda: panel.look() or at_work(panel.folder) is None, 30)
    panel.look()
    assert not panel.run_button.disabled


@pytest.mark.slow
def test_a_folder_of_a_thousand_runs_is_opened(open_panel, make_run):
    first = make_run("0000")
    for place in range(1, 1000):
        shutil.copytree(first, first.with_name(f"{place:04}"))
    panel = open_panel()
    assert len(panel.table.choice.options) == 1000
    assert "1–12 of 1000 runs" in panel.table.table.value


def test_a_folder_below_the_working_folder_is_shown_by_its_short_name(open_panel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = open_panel()
    assert "Each run is kept in the folder runs<" in html_of(panel)
    assert repr(panel).startswith("Scaling Lab of 0 runs in runs; ")
    assert panel.folder == tmp_path / "runs"

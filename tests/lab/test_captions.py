"""What stands in words in a figure is true of its runs: legends, notes, and what they are called."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.figure import Figure

from course_lib.config import SIMULATED, RunConfig
from course_lib.lab import plots
from course_lib.lab.plots.series import caveat_notes
from course_lib.lab.words import SETTINGS_OF_A_RUN, in_short
from course_lib.runs import store


def written(figure: Figure) -> str:
    """All that is written in a figure, on one line."""
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return " ".join(" ".join(text.get_text() for text in texts).split())


@pytest.mark.parametrize(("count", "says"), [(3, ""), (4, "1 more reason,"), (5, "2 more reasons,")])
def test_caveats_without_room_are_counted(count, says):
    notes = caveat_notes(pd.DataFrame({"speed_caveats": [f"reason {number}" for number in range(count)]}))
    assert (notes[3:] == []) if not says else f"A report on these runs names {says}" in notes[3]


def test_one_of_something_is_not_called_several():
    row = pd.Series({"world_size": 1, "num_nodes": 1, "cores": 1})
    assert in_short(row, list(row.index)) == "1 rank, 1 node, 1 core"
    assert in_short(2 * row, list(row.index)) == "2 ranks, 2 nodes, 2 cores"


def test_a_heat_map_names_every_setting_that_its_axes_do_not_show(make_run, tmp_path):
    make_run("first", RunConfig(lr=0.01))
    make_run("second", RunConfig(lr=0.1, weight_decay=0.0, schedule="constant", lr_rule="none", seed=7))
    note = "The runs also differ in: lr rule, schedule, weight decay."
    assert note in written(plots.heat_map(store.frame(tmp_path / "runs")))


def test_runs_of_one_setting_are_called_by_what_is_drawn_and_not_by_their_times(make_run, tmp_path):
    for repeat in range(2):
        make_run(f"{repeat}", accuracy=0.8 + repeat / 20, repeat=repeat)
    steps, epochs = store.steps(tmp_path / "runs"), store.epochs(tmp_path / "runs")
    alike = steps.assign(**dict.fromkeys(SETTINGS_OF_A_RUN, 1))
    assert "validation accuracy (2 runs)" in written(plots.accuracy_against_epoch(epochs))
    assert "training loss (2 runs)" in written(plots.loss_against_step(alike))
    for figure in (plots.accuracy_against_epoch(epochs), plots.loss_against_step(alike)):
        assert "measured on" not in written(figure)
    assert "measured on CPU ranks" in written(plots.accuracy_against_seconds(epochs))


def test_lines_over_simulated_seconds_are_told_apart_by_their_hardware(make_run, tmp_path):
    for hardware in ("a100", "h100"):
        make_run(hardware, RunConfig(device=SIMULATED, hardware=hardware), timing=SIMULATED)
    epochs = store.epochs(tmp_path / "runs")
    assert "validation accuracy (2 runs)" in written(plots.accuracy_against_epoch(epochs))
    assert {"a100", "h100"} <= set(written(plots.accuracy_against_seconds(epochs)).split())
    make_run("measured")
    assert "–" not in written(plots.accuracy_against_seconds(store.epochs(tmp_path / "runs")))


def test_bars_of_medians_say_that_a_speedup_is_one_of_means(make_run, tmp_path):
    make_run("one")
    assert "A speedup compares means" in written(plots.time_split(store.frame(tmp_path / "runs")))


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_step_takes_beyond_its_parts_is_shown_and_explained_only_where_there_is_some(whole, make_run, tmp_path):
    make_run("one")
    frame, steps = store.frame(tmp_path / "runs"), store.steps(tmp_path / "runs")
    if whole:
        frame["step_seconds"] = frame[list(store.SPLIT_COLUMNS)].sum(axis=1)
        steps["seconds"] = steps[list(store.TIME_SPLIT)].sum(axis=1)
    for figure in (plots.time_split(frame), plots.timeline(steps)):
        assert ("other" in written(figure)) != whole
        assert ("Other: what a step takes beyond" in written(figure)) != whole
        assert ("other" in plots.alt_text(figure)) != whole

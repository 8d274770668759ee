"""A plot shows the values of its frame and no others, and mixes nothing that was timed in different ways."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import course_lib.lab
from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED, WARMUP_STEPS, RunConfig
from course_lib.lab import plots
from course_lib.lab.display import display_figure, png
from course_lib.lab.plots.learning_plots import progress
from course_lib.lab.words import SETTINGS_OF_A_RUN
from course_lib.runs import store

OF_RUNS = [plots.speedup, plots.efficiency, plots.throughput, plots.time_split, plots.heat_map]
OF_EPOCHS = [plots.accuracy_against_epoch, plots.accuracy_against_seconds]
OF_STEPS = [plots.loss_against_step, plots.timeline]
CAP = "_"  # the marker of the end of an error bar
TIMINGS = (MEASURED_ON_GPUS, MEASURED_ON_CPU_RANKS, SIMULATED)


def config(num_gpus: int = 1, **changes: Any) -> RunConfig:
    return RunConfig(num_gpus=num_gpus, **changes)


@pytest.fixture
def scaling(make_run, tmp_path) -> pd.DataFrame:
    """Three repeats on 1, 2 and 4 CPU ranks; 4 are too many for the machine."""
    for ranks, rate in ((1, 1000.0), (2, 1900.0), (4, 2100.0)):
        for repeat in range(3):
            caveats = ("4 ranks share 2 cores",) if ranks == 4 else ()
            make_run(f"{ranks}-{repeat}", config(ranks), rate + 20 * repeat, caveats=caveats, repeat=repeat)
    return store.frame(tmp_path / "runs")


@pytest.fixture
def mixed(make_run, tmp_path) -> pd.DataFrame:
    """The same runs measured on GPUs, measured on CPU ranks and simulated, each with rates of its own."""
    for place, timing in enumerate(TIMINGS):
        for ranks in (1, 2, 4):
            make_run(f"{place}-{ranks}", config(ranks), (1000 + 100 * place) * ranks**0.9, timing=timing)
    return store.frame(tmp_path / "runs")


def points(figure: Figure) -> list[tuple[Any, Any]]:
    """All points of the lines of a figure that stand for runs."""
    return [
        (x, y)
        for line in figure.axes[0].lines
        if line.get_gid() in TIMINGS and line.get_marker() != CAP
        for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
    ]


def texts(figure: Figure) -> str:
    """All that is written in a figure."""
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def image_of(figure: Figure) -> bytes:
    content = png(figure)
    assert content.startswith(b"\x89PNG")
    return content


@pytest.mark.parametrize(
    ("plot", "column", "factor"),
    [(plots.speedup, "speedup", 1), (plots.efficiency, "efficiency", 100), (plots.throughput, "images_per_sec", 1)],
)
def test_points_are_the_medians_of_the_frame(plot, column, factor, scaling):
    expected = (factor * scaling.groupby("world_size")[column].median()).to_dict()
    assert dict(points(plot(scaling))) == pytest.approx(expected)


def test_speedup_has_the_ideal_line_and_the_interval_of_the_frame(scaling):
    axes = plots.speedup(scaling).axes[0]
    (ideal,) = [line for line in axes.lines if line.get_gid() == "ideal"]
    assert np.array_equal(ideal.get_xdata(), ideal.get_ydata())
    segments = [part for bars in axes.containers for lines in bars[2] for part in lines.get_segments() if len(part)]
    bars = {round(x): (low, high) for (x, low), (_, high) in segments}
    rows = scaling.drop_duplicates("world_size").set_index("world_size")
    expected = {n: (rows.speedup_low[n], rows.speedup_high[n]) for n in (2, 4)}
    assert bars.keys() == expected.keys()
    for ranks, interval in bars.items():
        assert interval == pytest.approx(expected[ranks])


@pytest.mark.parametrize("plot", OF_RUNS[:3])
def test_what_is_no_speed_measurement_is_hollow_and_not_joined(plot, scaling):
    figure = plot(scaling)
    lines = [line for line in figure.axes[0].lines if line.get_gid() == MEASURED_ON_CPU_RANKS]
    joined = [line for line in lines if line.get_linestyle() != "None" and len(line.get_xdata())]
    hollow = [line for line in lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in joined] == [[1, 2]]
    assert [list(line.get_xdata()) for line in hollow] == [[4]]
    assert "Not a speed measurement: 4 ranks share 2 cores" in texts(figure)
    assert "on 4, not a speed measurement" in plots.alt_text(figure)


@pytest.mark.parametrize("plot", OF_RUNS[:3])
def test_no_line_holds_what_was_timed_in_two_ways(plot, mixed):
    figure = plot(mixed)
    looks = {}
    for timing in TIMINGS:
        (line,) = [line for line in figure.axes[0].lines if line.get_gid() == timing and line.get_marker() != CAP]
        column = {plots.speedup: "speedup", plots.efficiency: "efficiency", plots.throughput: "images_per_sec"}[plot]
        factor = 100 if column == "efficiency" else 1
        of_timing = mixed[mixed["timing"] == timing].sort_values("world_size")
        assert list(line.get_ydata()) == pytest.approx(list(factor * of_timing[column]))
        looks[timing] = (line.get_marker(), line.get_linestyle(), line.get_color())
        assert timing in texts(figure)
    for each in zip(*looks.values(), strict=True):
        assert len(set(each)) == 3  # marker, line and colour


def test_accuracy_of_each_timing_has_a_line_of_its_own(mixed, tmp_path):
    epochs = store.epochs(tmp_path / "runs")
    for plot in OF_EPOCHS:
        styles = {line.get_gid(): line.get_linestyle() for line in plot(epochs).axes[0].lines}
        assert len(set(styles.values())) == 3


def test_lines_of_one_timing_can_be_told_apart_in_black_and_white(make_run, tmp_path):
    for batch in (32, 64, 128, 256):
        for ranks in (1, 2):
            make_run(f"{batch}-{ranks}", config(ranks, batch_size=batch), 1000.0 * ranks)
    figure = plots.speedup(store.frame(tmp_path / "runs"))
    labelled = [
        line for line in figure.axes[0].lines if line.get_gid() == MEASURED_ON_CPU_RANKS and len(line.get_xdata())
    ]
    assert len({line.get_marker() for line in labelled if line.get_marker() != CAP}) == 4
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()][1:] == [
        f"batch {size} per rank" for size in (32, 64, 128, 256)
    ]


def test_weak_and_strong_scaling_are_not_joined(make_run, tmp_path):
    for ranks in (1, 2):
        make_run(f"weak-{ranks}", config(ranks, batch_size=64), 1000.0 * ranks)
        make_run(f"strong-{ranks}", config(ranks, batch_size=64 // ranks), 900.0 * ranks, scaling="strong")
    figure = plots.throughput(store.frame(tmp_path / "runs"))
    lines = [sorted(line.get_ydata()) for line in figure.axes[0].lines if line.get_gid() == MEASURED_ON_CPU_RANKS]
    assert sorted(lines) == [[900.0, 1800.0], [1000.0, 2000.0]]


@pytest.mark.parametrize(
    ("plot", "x"), [(plots.accuracy_against_epoch, "epoch"), (plots.accuracy_against_seconds, "seconds")]
)
def test_accuracy_is_that_of_the_epochs(plot, x, scaling, tmp_path):
    epochs = store.epochs(tmp_path / "runs")
    expected = zip(epochs[x], 100 * epochs["val_accuracy"], strict=True)
    assert sorted(points(plot(epochs))) == [pytest.approx(pair) for pair in sorted(expected)]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.axes[0].get_legend().get_texts()]


def test_repeats_share_a_colour_and_an_entry_that_says_how_many_they_are(make_run, tmp_path):
    for ranks in (1, 2):
        for repeat in range(ranks + 1):
            make_run(f"{ranks}-{repeat}", config(ranks), accuracy=0.5 + ranks / 10, repeat=repeat)
    steps, epochs = store.steps(tmp_path / "runs"), store.epochs(tmp_path / "runs")
    alike = steps.assign(**{name: 1 for name in SETTINGS_OF_A_RUN if name != "world_size"})
    for figure in (plots.loss_against_step(alike), plots.accuracy_against_epoch(epochs)):
        first, second = legend_of(figure)
        assert (first[:6], second[:7]) == ("1 rank", "2 ranks")
        assert (first[-8:], second[-8:]) == ("(2 runs)", "(3 runs)")
        assert len(figure.axes[0].lines) == 5
        assert len({line.get_color() for line in figure.axes[0].lines}) == 2
        assert "the same seed gave the same result" in texts(figure)


def test_repeats_that_differ_are_not_said_to_coincide(make_run, tmp_path):
    make_run("first", accuracy=0.5)
    make_run("second", accuracy=0.6)
    assert "the same seed" not in texts(plots.accuracy_against_epoch(store.epochs(tmp_path / "runs")))


def test_learning_rates_are_not_taken_for_repeats(make_run, tmp_path):
    for lr in (0.05, 0.5):
        make_run(f"lr-{lr}", config(lr=lr))
    assert legend_of(plots.accuracy_against_epoch(store.epochs(tmp_path / "runs"))) == [
        "learning rate 0.05",
        "learning rate 0.5",
    ]


def test_runs_whose_settings_are_not_known_go_by_their_names(make_run, tmp_path):
    make_run("first")
    make_run("second")
    assert legend_of(plots.loss_against_step(store.steps(tmp_path / "runs"))) == ["first", "second"]


@pytest.mark.parametrize(("total_epochs", "axes"), [(1, 1), (3, 2)])
def test_the_accuracy_of_one_epoch_is_not_drawn_against_epochs(total_epochs, axes):
    assert len(progress(pd.DataFrame(), pd.DataFrame(), total_epochs).axes) == axes


def test_loss_is_the_mean_over_ranks(make_run, tmp_path):
    make_run("four", config(4))
    steps = store.steps(tmp_path / "runs")
    (line,) = plots.loss_against_step(steps).axes[0].lines
    assert list(line.get_ydata()) == pytest.approx(list(steps.groupby("step")["loss"].mean()))


def test_a_loss_that_runs_away_does_not_hide_the_others(make_run, tmp_path):
    make_run("calm")
    steps = store.steps(tmp_path / "runs")
    wild = steps.assign(run="wild", path="wild", loss=steps["loss"] * 10.0 ** steps["step"])
    figure = plots.loss_against_step(pd.concat([steps, wild]))
    assert figure.axes[0].get_ylim()[1] < 100
    assert "Cut off: the loss rose to" in texts(figure)


def test_heat_map_holds_the_median_of_each_cell_and_says_where_runs_failed(make_run, tmp_path):
    for lr in (0.01, 0.1, 1.0):
        for batch in (32, 64):
            for repeat in range(2):
                error = "The loss became nan." if lr == 1.0 and batch == 32 else ""
                name = f"{lr}-{batch}-{repeat}"
                make_run(name, config(lr=lr, batch_size=batch), accuracy=0.8 + lr / 10 + repeat / 50, error=error)
    frame = store.frame(tmp_path / "runs")
    figure = plots.heat_map(frame)
    shown = np.ma.getdata(figure.axes[0].images[0].get_array())
    finished = frame[frame["status"] == "finished"]
    expected = 100 * finished.groupby(["lr", "global_batch_size"])["val_accuracy"].median().unstack().astype(float)
    assert np.allclose(shown, expected, equal_nan=True)
    cells = {tuple(map(round, text.get_position())): text.get_text() for text in figure.axes[0].texts}
    assert cells[0, 2] == "failed"
    assert cells[1, 2] == f"{expected.iloc[2, 1]:.1f}"
    assert "Learning rate 1: failed at batch 32" in plots.alt_text(figure)


def test_time_split_adds_up_to_the_step(scaling):
    axes = plots.time_split(scaling).axes[0]
    rows = scaling.groupby("world_size")[["step_seconds", "forward_seconds"]].median()
    bars: dict[str, list[Any]] = {}
    for patch in axes.patches:
        bars.setdefault(str(patch.get_gid()), []).append(patch)
    assert list(bars) == ["data", "forward", "backward", "optimizer", "other"]
    assert [bar.get_height() for bar in bars["forward"]] == pytest.approx(list(1000 * rows["forward_seconds"]))
    tops = [bar.get_y() + bar.get_height() for bar in bars["other"]]
    assert tops == pytest.approx(list(1000 * rows["step_seconds"]))
    white = (1.0, 1.0, 1.0, 1.0)
    assert [bar.get_facecolor() == white for bar in bars["forward"]] == [False, False, True]


def test_timeline_has_each_rank_in_each_phase_when_it_was(make_run, tmp_path):
    make_run("narrow", config(1))
    make_run("wide", config(4), 800.0)
    steps = store.steps(tmp_path / "runs")
    axes = plots.timeline(steps).axes[0]
    rows = steps[(steps["run"] == "wide") & steps["step"].between(4, 6)]
    boxes = {
        (round(path.get_extents().y0 + 0.36), round(path.get_extents().x0, 6), round(path.get_extents().width, 6))
        for collection in axes.collections
        if collection.get_gid() == "data"
        for path in collection.get_paths()
    }
    origin = rows["start"].min()
    expected = zip(rows["rank"], 1000 * (rows["start"] - origin), 1000 * rows["data"], strict=True)
    assert sorted(boxes) == [pytest.approx(box, abs=1e-3) for box in sorted(expected)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1", "2", "3"]
    assert "wide" in texts(plots.timeline(steps))
    assert "narrow" in texts(plots.timeline(steps, run="narrow"))


def long_run(make_run, tmp_path, epochs: int, of_epoch: int) -> pd.DataFrame:
    """The steps of a run of so many epochs, with so many steps each."""
    make_run("long")
    one = store.steps(tmp_path / "runs").head(1)
    step = np.arange(epochs * of_epoch)
    return one.loc[one.index.repeat(len(step))].assign(step=step + 1, epoch=step // of_epoch + 1, start=0.1 * step)


@pytest.mark.parametrize(
    ("epochs", "of_epoch", "first", "last"),
    [(1, 79, 44, 46), (2, 20, 29, 31), (3, 24, 35, 37), (2, 11, 16, 18), (10, 2, 15, 16), (1, 5, 3, 5), (1, 1, 1, 1)],
)
def test_a_timeline_shows_steps_of_one_epoch_past_the_first(epochs, of_epoch, first, last, make_run, tmp_path):
    figure = plots.timeline(long_run(make_run, tmp_path, epochs, of_epoch))
    steps = f"step {first} of" if first == last else f"steps {first} to {last} of"
    assert steps in texts(figure)
    assert (first - 1) // of_epoch == (last - 1) // of_epoch
    assert (first > WARMUP_STEPS) != ("Not typical" in texts(figure))


def test_failed_runs_are_left_out(make_run, tmp_path):
    make_run("good", accuracy=0.5)
    make_run("bad", config(2), rate=77777.0, error="Rank 0 failed.")
    frame = store.frame(tmp_path / "runs")
    for plot in OF_RUNS[:4]:
        assert "77" not in plots.alt_text(plot(frame))


@pytest.mark.parametrize("plot", [*OF_RUNS, *OF_EPOCHS, *OF_STEPS])
@pytest.mark.parametrize("columns", [[], list(store.RUN_COLUMNS), [*store.STEP_FACTS, *store.STEP_VALUES]])
def test_an_empty_frame_says_what_is_missing(plot, columns):
    figure = plot(pd.DataFrame(columns=columns))
    assert image_of(figure)
    assert "run" in plots.alt_text(figure)


def test_nothing_recorded_so_far_can_be_drawn():
    assert "Nothing has been recorded yet" in plots.alt_text(progress(pd.DataFrame(), pd.DataFrame(), 3))


@pytest.mark.parametrize("plot", OF_RUNS)
def test_missing_values_are_left_out(plot, scaling):
    gaps = scaling.copy()
    gaps.loc[gaps["world_size"] == 2, [*store.RESULTS, *plots_columns()]] = np.nan
    assert image_of(plot(gaps))
    assert 2 not in {x for x, _ in points(plot(gaps))}
    all_missing = scaling.assign(**dict.fromkeys((*store.RESULTS, *plots_columns()), np.nan))
    assert image_of(plot(all_missing))


def plots_columns() -> tuple[str, ...]:
    return tuple(f"{name}{end}" for name in ("speedup", "efficiency") for end in ("", "_low", "_high"))


def test_one_run_says_how_to_see_a_speedup(make_run, tmp_path):
    make_run("alone")
    figure = plots.speedup(store.frame(tmp_path / "runs"))
    assert points(figure) == [(1, 1.0)]
    assert "Run with more CPU ranks" in texts(figure).replace("\n", " ")
    assert "Run with more CPU ranks" in plots.alt_text(figure)


def test_two_ranks_without_one_say_what_to_run(make_run, tmp_path):
    make_run("alone", config(2))
    assert "Run that with num_gpus=1" in plots.alt_text(plots.speedup(store.frame(tmp_path / "runs")))


@pytest.mark.parametrize("plot", OF_RUNS[:3])
def test_numbers_of_ranks_are_whole(plot, scaling):
    axes = plot(scaling).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]


@pytest.mark.parametrize("plot", [*OF_RUNS, *OF_EPOCHS, *OF_STEPS])
def test_axes_are_labelled_and_the_text_has_the_figures(plot: Callable[..., Figure], scaling, tmp_path):
    frame = {**dict.fromkeys(OF_EPOCHS, store.epochs), **dict.fromkeys(OF_STEPS, store.steps)}.get(plot, store.frame)(
        tmp_path / "runs"
    )
    before = frame.copy(deep=True)
    figure = plot(frame)
    pd.testing.assert_frame_equal(frame, before)
    axes: Axes = figure.axes[0]
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert figure.get_suptitle()
    size = tuple(figure.get_size_inches())
    assert image_of(figure)
    assert tuple(figure.get_size_inches()) == size
    assert any(character.isdigit() for character in plots.alt_text(figure))


def test_the_text_of_a_speedup_has_its_figures(scaling):
    row = scaling[scaling["world_size"] == 2].iloc[0]
    interval = f"({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"
    assert f"1.00 on 1; {row['speedup']:.2f} {interval} on 2" in plots.alt_text(plots.speedup(scaling))


def test_names_are_drawn_as_they_stand(make_run, tmp_path):
    make_run("a $x_1$ <b> _name", config(2))
    steps = store.steps(tmp_path / "runs")
    assert image_of(plots.timeline(steps))
    assert "a $x_1$ <b> _name" in plots.alt_text(plots.timeline(steps))
    assert image_of(plots.loss_against_step(pd.concat([steps, steps.assign(run="$", path="other")])))


def test_runs_of_one_name_in_two_folders_are_two_lines(make_run, tmp_path):
    make_run("a/same")
    make_run("b/same", accuracy=0.7)
    assert len(plots.accuracy_against_epoch(store.epochs(tmp_path / "runs")).axes[0].lines) == 2


def test_a_displayed_figure_leaves_an_image_and_its_text(scaling):
    figure = plots.speedup(scaling)
    bundle = display_figure(figure)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert f'alt="{bundle["text/plain"]}"' in bundle["text/html"]
    assert bundle["image/png"].startswith("iVBOR")
    assert bundle["text/plain"] == plots.alt_text(figure)


def test_the_lab_never_loads_pyplot():
    files = sorted(Path(course_lib.lab.__path__[0]).rglob("*.py"))
    for file in files:
        names = [name for node in ast.walk(ast.parse(file.read_text())) for name in _imported(node)]
        assert not [name for name in names if "pyplot" in name or "pylab" in name]
    top = Path(course_lib.lab.__path__[0]).parents[1]
    modules = (".".join(file.relative_to(top).with_suffix("").parts).removesuffix(".__init__") for file in files)
    imports = "".join(f"import {module}\n" for module in modules)
    code = f"{imports}import sys\nsys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

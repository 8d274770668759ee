"""What was predicted is drawn as it stands in its frame, and never looks like what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED, RunConfig
from course_lib.errors import ComparisonError
from course_lib.lab import plots
from course_lib.lab.display import png
from course_lib.lab.plots.predictions import MOST_TOLD, PREDICTED, three_digits, told
from course_lib.runs import store
from course_lib.scaling.hardware import find
from course_lib.scaling.step_time import StepTimeModel

GPUS = 2 ** np.arange(13)
OF_STEP_TIMES = [plots.predicted_throughput, plots.predicted_step]


def predicted(hardware: str = "a100", local_batch: Any = 32, gpus: np.ndarray = GPUS) -> pd.DataFrame:
    """Steps of ResNet-50 as its profile promises them."""
    profile = find(hardware)
    nodes = np.maximum(1, gpus // profile.cluster.gpus_per_node)
    frame = pd.DataFrame({"hardware": hardware, "nodes": nodes, "gpus": gpus, "local_batch": local_batch})
    return frame.join(StepTimeModel.of(profile, 24.6e9, 102e6).predict(frame))


def reaching(seconds: Any, gpus: Any = GPUS) -> pd.DataFrame:
    """Times to an accuracy, with an interval of a tenth to both sides."""
    frame = pd.DataFrame({"hardware": "a100", "gpus": gpus, "seconds": seconds})
    frame = frame.assign(low=0.9 * frame["seconds"], high=1.1 * frame["seconds"])
    hours = frame["gpus"] / 3600
    costs = {"gpu_hours": "seconds", "gpu_hours_low": "low", "gpu_hours_high": "high"}
    return frame.assign(**{name: hours * frame[of] for name, of in costs.items()})


def epochs() -> pd.DataFrame:
    batches = 2 ** np.arange(5, 14)
    curve = 8 * (1 + batches / 1000)
    return pd.DataFrame({"global_batch": batches, "epochs": curve, "low": 0.9 * curve, "high": 1.1 * curve})


def noise(steps: int = 50) -> pd.DataFrame:
    scale = 100.0 + np.arange(steps)
    frame = pd.DataFrame({"run": "one", "step": 1 + np.arange(steps), "noise_scale": scale})
    return frame.assign(low=scale / 2, high=2 * scale)


FRAMES = {
    **dict.fromkeys(OF_STEP_TIMES, predicted),
    plots.time_to_accuracy: lambda: reaching(1e4 / GPUS + 300),
    plots.epochs_to_target: epochs,
    plots.noise_scale: noise,
}


def lines(figure: Figure, gid: str, panel: int = 0) -> list[Any]:
    return [line for line in figure.axes[panel].lines if line.get_gid() == gid]


def written(figure: Figure) -> str:
    """All that is written in a figure, on one line."""
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return " ".join(" ".join(text.get_text() for text in texts).split())


def edges(figure: Figure, panel: int) -> list[tuple[float, float]]:
    """The corners of the band of a panel."""
    (band,) = [each for each in figure.axes[panel].collections if each.get_gid() == PREDICTED]
    return [(x, y) for path in band.get_paths() for x, y in path.vertices]


def test_throughput_is_the_predicted_one_in_its_interval():
    frame = predicted()
    figure = plots.predicted_throughput(frame)
    samples = frame["gpus"] * frame["local_batch"]
    for panel, share in enumerate((1, frame["gpus"])):
        (line,) = lines(figure, PREDICTED, panel)
        assert line.get_ydata() == pytest.approx((frame["throughput"] / share).to_numpy())
        corners = edges(figure, panel)
        for step in ("low", "high"):
            for corner in zip(frame["gpus"], samples / frame[step] / share, strict=True):
                assert any(corner == pytest.approx(each) for each in corners)


def test_the_ideal_is_what_the_fewest_gpus_do_each():
    frame = predicted(gpus=GPUS[2:])
    together, each = (lines(plots.predicted_throughput(frame), "ideal", panel)[0] for panel in (0, 1))
    one = frame["throughput"].iloc[0] / 4
    assert together.get_ydata() == pytest.approx(one * frame["gpus"].to_numpy())
    assert each.get_ydata() == pytest.approx(np.full(len(frame), one))


@pytest.fixture
def runs(make_run, tmp_path) -> pd.DataFrame:
    """Three repeats on 1, 2 and 4 CPU ranks; 4 are too many for the machine. And a run that was simulated."""
    for ranks, rate in ((1, 1000.0), (2, 1900.0), (4, 2100.0)):
        for repeat in range(3):
            caveats = ("4 ranks share 2 cores",) if ranks == 4 else ()
            make_run(f"{ranks}-{repeat}", RunConfig(num_gpus=ranks), rate + 20 * repeat, caveats=caveats, repeat=repeat)
    make_run("simulated", RunConfig(num_gpus=8), 77777.0, timing=SIMULATED)
    return store.frame(tmp_path / "runs")


def test_what_was_measured_is_marked_and_joined_with_nothing(runs):
    figure = plots.predicted_throughput(predicted(), runs)
    expected = {1: 1020.0, 2: 1920.0, 4: 2120.0}
    for panel, shares in enumerate(((1, 1, 1), (1, 2, 4))):
        marks = lines(figure, MEASURED_ON_CPU_RANKS, panel)
        points = {x: y for mark in marks for x, y in zip(mark.get_xdata(), mark.get_ydata(), strict=True)}
        assert points == pytest.approx(
            {ranks: rate / share for (ranks, rate), share in zip(expected.items(), shares, strict=True)}
        )
        assert {mark.get_linestyle() for mark in marks} == {"None"}
        hollow = [mark for mark in marks if mark.get_markerfacecolor() == "white"]
        assert [list(mark.get_xdata()) for mark in hollow] == [[4]]
        (curve,) = lines(figure, PREDICTED, panel)
        assert curve.get_marker() == "None"
        assert curve.get_color() not in {mark.get_color() for mark in marks}
    assert MEASURED_ON_CPU_RANKS in figure.get_suptitle()
    assert "median images a second: 1,020 on 1; 1,920 on 2; 2,120 on 4, not a speed" in plots.alt_text(figure)


def test_a_simulated_run_is_no_measurement(runs):
    figure = plots.predicted_throughput(predicted(), runs)
    assert not lines(figure, SIMULATED)
    assert "77" not in plots.alt_text(figure).split("measured on CPU ranks,")[1]
    assert "Simulated runs are left out" in written(figure)
    assert "Simulated" not in written(plots.predicted_throughput(predicted(), runs[runs["timing"] != SIMULATED]))


def test_ranks_are_called_gpus_only_where_they_are(make_run, tmp_path):
    make_run("one", timing=MEASURED_ON_GPUS)
    measured = store.frame(tmp_path / "runs")
    assert plots.predicted_throughput(predicted(), measured).axes[0].get_xlabel() == "Number of GPUs"
    measured["timing"] = MEASURED_ON_CPU_RANKS
    assert plots.predicted_throughput(predicted(), measured).axes[0].get_xlabel() == "Number of GPUs or CPU ranks"


def test_each_hardware_has_a_line_of_its_own_that_black_and_white_tells_apart():
    names = ["a100", "a100-10gbe", "t4"]
    figure = plots.predicted_throughput(pd.concat(map(predicted, names), ignore_index=True))
    shown = lines(figure, PREDICTED)
    assert [line.get_label() for line in shown] == [f"{PREDICTED}: {name}" for name in names]
    for look in ("get_color", "_dash_pattern"):
        looks = [getattr(line, look) for line in shown]
        assert len({str(look() if callable(look) else look) for look in looks}) == 3
    assert "predicted for a100, a100-10gbe and t4, batch 32 per GPU" in figure.get_suptitle()


def test_weak_and_strong_scaling_are_lines_of_one_batch_each():
    weak = pd.concat([predicted(local_batch=size) for size in (32, 256)], ignore_index=True)
    strong = pd.concat([predicted(local_batch=size / GPUS[:8], gpus=GPUS[:8]) for size in (256, 512)])
    for frame, names in (
        (weak, ["batch 32 per GPU", "batch 256 per GPU"]),
        (strong, ["global batch 256", "global batch 512"]),
    ):
        figure = plots.predicted_throughput(frame)
        assert [line.get_label() for line in lines(figure, PREDICTED)] == [f"{PREDICTED}: {name}" for name in names]


def test_two_predictions_for_the_same_are_refused():
    frame = pd.concat([predicted(), predicted().assign(nodes=GPUS)])
    for plot in OF_STEP_TIMES:
        with pytest.raises(ComparisonError, match="Two rows predict for 1 GPUs of a100 with the same batch"):
            plot(frame)
    names = np.repeat(["few nodes", "a GPU a node"], len(GPUS))
    assert len(lines(plots.predicted_throughput(frame.assign(hardware=names)), PREDICTED)) == 2


def test_the_parts_of_a_step_add_up_to_it():
    frame = predicted("t4")
    figure = plots.predicted_step(frame)
    heights = {
        name: [patch.get_height() for patch in figure.axes[0].patches if patch.get_gid() == name]
        for name in ("compute_s", "straggler_s", "communication_s")
    }
    for name, drawn in heights.items():
        assert drawn == pytest.approx(list(1000 * frame[name]))
    assert np.sum(list(heights.values()), axis=0) == pytest.approx(1000 * frame["step_time_s"], rel=1e-3)
    row = frame.iloc[-1]
    share = row["compute_s"] / row[list(heights)].sum()
    assert f"on 4096, {100 * share:.0f} % of it compute" in plots.alt_text(figure)
    assert "predicted for t4, batch 32 per GPU" in figure.get_suptitle()


def test_steps_of_several_machines_stand_side_by_side_on_one_scale():
    names = ["a100", "a100-10gbe", "t4", "v100"]
    figure = plots.predicted_step(pd.concat(map(predicted, names), ignore_index=True))
    assert [axes.get_title(loc="left") for axes in figure.axes] == names[:3]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert "Left out, for want of room: v100 batch 32 per GPU" in written(figure)


def test_time_and_cost_are_those_of_the_frame():
    frame = reaching(1e5 / GPUS + 7200)
    figure = plots.time_to_accuracy(frame, "93 % accuracy")
    for panel, drawn in enumerate((frame["seconds"] / 3600, frame["gpu_hours"])):
        (line,) = lines(figure, PREDICTED, panel)
        assert line.get_ydata() == pytest.approx(drawn.to_numpy())
    assert figure.axes[0].get_ylabel() == "Time to 93 % accuracy (hours)"
    assert f"{three_digits(frame['gpu_hours'][4])} " in plots.alt_text(figure)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 0.9))
def test_from_the_marks_on_more_gpus_are_not_worth_it(serial):
    frame = reaching(1000 * (serial + (1 - serial) / GPUS))
    saved = 1 - frame["seconds"].shift(-1) / frame["seconds"]
    assume((saved - 0.1).abs().min() > 1e-9)
    assume((frame["gpu_hours"] / frame["gpu_hours"].min() - 2).abs().min() > 1e-9)
    figure = plots.time_to_accuracy(frame)
    knee = frame["gpus"][(saved < 0.1)[:-1].to_numpy().argmax()]
    assert [mark.get_xdata()[0] for mark in lines(figure, "limit", 0)] == [knee]
    dear = frame["gpus"][(frame["gpu_hours"] >= 2 * frame["gpu_hours"].min()).to_numpy().argmax()]
    assert [mark.get_xdata()[0] for mark in lines(figure, "limit", 1)] == [dear]
    assert f"from {knee} GPUs on, each doubling saves less than 10 %" in plots.alt_text(figure)


def test_nothing_is_marked_where_all_gpus_are_worth_it():
    figure = plots.time_to_accuracy(reaching(1e5 / GPUS))
    assert not [*lines(figure, "limit", 0), *lines(figure, "limit", 1)]
    assert "Diamond" not in written(figure)


def test_epochs_are_the_curve_the_points_and_the_critical_batch():
    measured = pd.DataFrame({"global_batch": [64, 512, 128], "epochs": [8.6, 12.0, np.nan]})
    figure = plots.epochs_to_target(epochs(), measured, critical_batch_size=1000.0)
    (curve,) = lines(figure, PREDICTED)
    assert list(curve.get_ydata()) == pytest.approx(list(epochs()["epochs"]))
    (points,) = lines(figure, "measured")
    assert (list(points.get_xdata()), list(points.get_ydata())) == ([64, 512], [8.6, 12.0])
    assert points.get_linestyle() == "None"
    assert [line.get_xdata()[0] for line in lines(figure, "critical")] == [1000.0]
    assert "measured: 8.6 at 64; 12 at 512. critical batch size: 1,000 images" in plots.alt_text(figure)
    alone = plots.epochs_to_target(epochs())
    assert not lines(alone, "measured")
    assert "measured" not in alone.get_suptitle() + written(alone)


def test_the_noise_scale_is_told_as_it_was_last_and_drawn_where_it_is_known():
    frame = noise()
    frame.loc[:3, "noise_scale"] = np.inf
    frame.loc[45:, "high"] = np.inf
    figure = plots.noise_scale(pd.concat([frame, noise(20).assign(run="two")]))
    first, second = lines(figure, "noise")
    assert list(first.get_ydata()) == list(frame["noise_scale"][4:])
    assert first.get_color() != second.get_color()
    assert "one: 149 images at step 50. two: 119 (59.5 to 238) images at step 20" in plots.alt_text(figure)


@pytest.mark.parametrize("plot", FRAMES)
@pytest.mark.parametrize("columns", [[], ["gpus"], list(predicted().columns)])
def test_an_empty_frame_says_what_is_missing(plot, columns):
    figure = plot(pd.DataFrame(columns=columns))
    assert png(figure)
    assert any(words in written(figure) for words in ("Nothing here predicts", "No noise scale was estimated"))


@pytest.mark.parametrize("plot", FRAMES)
def test_one_row_can_be_drawn(plot):
    figure = plot(FRAMES[plot]().tail(1))
    assert png(figure)
    assert any(character.isdigit() for character in plots.alt_text(figure))


@pytest.mark.parametrize("plot", FRAMES)
def test_a_figure_is_a_function_of_its_frame(plot):
    frame = FRAMES[plot]()
    before = frame.copy(deep=True)
    figure = plot(frame)
    pd.testing.assert_frame_equal(frame, before)
    size = tuple(figure.get_size_inches())
    assert png(figure) == png(plot(frame))
    assert tuple(figure.get_size_inches()) == size
    assert all(axes.get_xlabel() for axes in figure.axes)
    assert figure.axes[0].get_ylabel()
    shuffled = frame.sample(frac=1, random_state=1)
    if plot is not plots.noise_scale:  # its steps are in order, as noise_scale returns them
        assert plots.alt_text(plot(shuffled)) == plots.alt_text(figure)


@pytest.mark.parametrize("plot", [*OF_STEP_TIMES, plots.time_to_accuracy])
def test_rows_without_a_value_are_left_out(plot):
    frame = FRAMES[plot]().astype({"gpus": float})
    gaps = frame.copy()
    gaps.iloc[3, 4:] = np.nan
    gaps.iloc[5, 4:] = np.inf
    assert plots.alt_text(plot(gaps)) == plots.alt_text(plot(frame.drop([3, 5])))


@given(st.floats(1e-3, 1e12))
def test_three_digits_of_a_number_are_close_to_it(value):
    text = three_digits(value)
    millions = text.count(" million")
    assert float(text.replace(" million", "").replace(",", "")) * 1e6**millions == pytest.approx(value, rel=0.0051)


@given(st.sets(st.integers(1, 10_000), min_size=1))
def test_of_many_rows_the_first_the_last_and_few_others_are_told(gpus):
    rows = pd.DataFrame({"gpus": sorted(gpus)})
    shown = list(told(rows)["gpus"])
    assert len(shown) <= MOST_TOLD + 1
    assert (shown[0], shown[-1]) == (min(gpus), max(gpus))
    assert shown == sorted(set(shown))
    assert set(shown) <= gpus

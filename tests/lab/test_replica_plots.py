"""The figures of data parallelism by hand show just the times and the bytes that they are given."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from torch.nn.functional import mse_loss

from course_lib.config import MEASURED_ON_CPU_RANKS
from course_lib.lab import plots
from course_lib.lab.display import png
from course_lib.lab.plots.replica_plots import REPLICA_PHASES
from course_lib.training.replicas import DeviceManager, data_parallel_step, prepare_replicas

Times = list[tuple[int | None, str, float, float]]

# Two steps of two replicas that start at second 50.
TIMES: Times = [
    (0, "forward", 50.000, 0.002),
    (1, "forward", 50.001, 0.004),
    (0, "backward", 50.002, 0.003),
    (None, "sync", 50.005, 0.001),
    (0, "forward", 50.010, 0.004),
    (1, "forward", 50.010, 0.008),
    (None, "sync", 50.018, 0.003),
]


def boxes(figure: Figure) -> set[tuple[str, str, float, float]]:
    """Lane, phase, start and milliseconds of each box that is drawn."""
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    drawn = set()
    for collection in axes.collections:
        for path in collection.get_paths():
            (left, bottom), (right, top) = path.get_extents().get_points()
            drawn.add((names[round((bottom + top) / 2)], collection.get_gid(), round(left, 3), round(right - left, 3)))
    return drawn


def expected(times: Times) -> set[tuple[str, str, float, float]]:
    first = min(start for _, _, start, _ in times)
    return {
        ("all" if replica is None else str(replica), phase, round(1e3 * (start - first), 3), round(1e3 * seconds, 3))
        for replica, phase, start, seconds in times
    }


def test_every_box_lies_where_its_time_says():
    assert boxes(plots.replica_timeline(TIMES)) == expected(TIMES)


one_time = st.tuples(
    st.one_of(st.none(), st.integers(0, 5)),
    st.sampled_from([*REPLICA_PHASES]),
    st.integers(0, 900).map(lambda tick: tick / 1000),
    st.integers(1, 90).map(lambda tick: tick / 1000),
)


@settings(deadline=None, max_examples=30)
@given(st.lists(one_time, min_size=1, max_size=20))
def test_every_box_lies_where_its_time_says_whatever_the_times(times):
    assert boxes(plots.replica_timeline(times)) == expected(times)


def test_the_clock_does_not_matter():
    later = [(replica, phase, start + 1000, seconds) for replica, phase, start, seconds in TIMES]
    assert boxes(plots.replica_timeline(later)) == boxes(plots.replica_timeline(TIMES))


def test_the_words_have_the_median_of_each_phase():
    text = plots.alt_text(plots.replica_timeline(TIMES, MEASURED_ON_CPU_RANKS, "Two steps"))
    assert text.startswith("Two steps. ")
    assert "Replica 0, median milliseconds: forward 3, backward 3." in text
    assert "Replica 1, median milliseconds: forward 6." in text
    assert "All replicas together, median milliseconds: sync 2." in text
    assert f"Times {MEASURED_ON_CPU_RANKS}." in text


def test_one_replica_alone_and_one_that_did_nothing():
    alone = plots.replica_timeline([(0, "forward", 3.0, 0.5)])
    assert boxes(alone) == {("0", "forward", 0.0, 500.0)}
    idle = plots.replica_timeline([(0, "forward", 3.0, 0.5), (2, "optimizer", 3.0, 0.5)])
    assert [label.get_text() for label in idle.axes[0].get_yticklabels()] == ["0", "1", "2"]
    assert "Replica 1: nothing." in plots.alt_text(idle)
    assert png(idle)


def test_no_times_are_said():
    figure = plots.replica_timeline([])
    assert "No step has been timed yet" in plots.alt_text(figure)
    assert png(figure)


@pytest.mark.parametrize("samples", [1, 6])
def test_it_takes_what_a_step_returns(samples):
    replicas = prepare_replicas(torch.nn.Linear(2, 1), DeviceManager(["cpu"] * 2).get_queues())
    optimizers = [torch.optim.SGD(replica.parameters(), 0.1) for replica in replicas]
    batch = torch.ones(samples, 2), torch.ones(samples, 1)
    step = data_parallel_step(lambda replica, x, y: mse_loss(replica(x), y), replicas, optimizers, batch)
    figure = plots.replica_timeline(step.times)
    assert boxes(figure) == expected(step.times)
    assert png(figure)


COSTS = pd.DataFrame(
    [("naive", 2, 3e6, 3e6), ("naive", 4, 9e6, 9e6), ("ring", 2, 3.1e6, 3e6), ("ring", 4, 4.6e6, 4.5e6)],
    columns=["algorithm", "world_size", "counted", "formula"],
)


def test_costs_are_those_of_the_frame():
    figure = plots.collective_costs(COSTS)
    for gid in ("counted", "formula"):
        lines = [line for line in figure.axes[0].lines if line.get_gid() == gid]
        drawn = [list(zip(line.get_xdata(), 1e6 * line.get_ydata(), strict=True)) for line in lines]
        rows = [list(zip(rows.world_size, rows[gid], strict=True)) for _, rows in COSTS.groupby("algorithm")]
        assert drawn == [[pytest.approx(point) for point in line] for line in rows]
    assert "ring, megabytes: 3.1 on 2, 4.6 on 4." in plots.alt_text(figure)
    assert png(figure)


def test_no_costs_are_said():
    assert "No all_reduce" in plots.alt_text(plots.collective_costs(COSTS.head(0)))

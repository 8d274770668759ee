"""Plots of data parallelism by hand: when each replica computes, and what an all_reduce sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from course_lib.lab.plots.time_plots import MEASURED_PHASES, PHASES
from course_lib.lab.style import (
    GREY,
    PALETTE,
    TIMING_UNKNOWN,
    finish,
    integer_axis,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
)

# Phase of a step: colour and hatch.
REPLICA_PHASES = {**{phase: PHASES[phase] for phase in MEASURED_PHASES}, "sync": (PALETTE[3], "xxxx")}
ALL = "all"  # the lane of what is done for all replicas together
MILLISECONDS = 1000


class Box(NamedTuple):
    """What was done in one lane of the figure, in milliseconds after the first start."""

    phase: str
    start: float
    took: float


def replica_timeline(
    times: Iterable[tuple[int | None, str, float, float]],
    timing: str = TIMING_UNKNOWN,
    title: str = "When each replica computes",
) -> Figure:
    """One lane for each replica, and one for what is done for all of them together; one box a phase of a step.

    Args:
        times: (replica, phase, start, seconds) of one step or of several, as a `StepResult` has them. Replica None
            is all of them; starts are in seconds of any clock.
        timing: how they came about, e.g. `config.MEASURED_ON_GPUS`.
        title: what the figure is called.
    """
    lanes = _lanes(list(times))
    figure, (axes,) = new_figure(height=3.6)
    axes.grid(False, axis="y")
    label_axes(axes, "Time (milliseconds)", "Replica")
    if not lanes:
        nothing_to_draw(axes, text := "No step has been timed yet.")
        return finish(figure, title, [], [text])
    for place, boxes in enumerate(lanes.values()):
        _draw_lane(axes, place, boxes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_yticks(range(len(lanes)), [*lanes])
    axes.set_xlim(left=0)
    legend_beside(
        axes,
        [
            Patch(facecolor=color, hatch=hatch, edgecolor="white", label=phase)
            for phase, (color, hatch) in REPLICA_PHASES.items()
        ],
    )
    facts = [_in_words(name, boxes) for name, boxes in lanes.items()]
    return finish(figure, title, [f"Times {timing}. The figure begins when the first replica does."], facts)


def collective_costs(frame: pd.DataFrame) -> Figure:
    """Bytes that the busiest rank sends in an all_reduce: what was counted as points, the formula as a line.

    Args:
        frame: one row for each `algorithm` and `world_size`, with `counted` and `formula`, in bytes.
    """
    figure, (axes,) = new_figure()
    title = "What the busiest rank sends in one all_reduce"
    label_axes(axes, "Number of ranks", "Megabytes sent")
    if frame.empty:
        nothing_to_draw(axes, text := "No all_reduce has been counted yet.")
        return finish(figure, title, [], [text])
    facts = []
    algorithms = frame.groupby("algorithm", sort=False)
    for (algorithm, rows), color, marker in zip(algorithms, PALETTE, "osD^vp8", strict=False):
        ranks, counted, formula = rows["world_size"], rows["counted"] / 1e6, rows["formula"] / 1e6
        axes.plot(ranks, formula, color=color, linewidth=1.2, gid="formula")
        axes.plot(ranks, counted, marker, color=color, label=f"{algorithm}, counted", gid="counted")
        words = ", ".join(f"{sent:.3g} on {size}" for size, sent in zip(ranks, counted, strict=True))
        facts.append(f"{algorithm}, megabytes: {words}")
    integer_axis(axes, sorted(frame["world_size"].unique()))
    axes.set_ylim(bottom=0)
    legend_beside(axes, [Line2D([], [], color=GREY, label="formula")])
    return finish(figure, title, ["Counted, not timed: the same on every machine."], facts)


def _lanes(times: list[tuple[int | None, str, float, float]]) -> dict[str, list[Box]]:
    """The boxes of each lane from top to bottom; a replica that did nothing has a lane too."""
    if not times:
        return {}
    first = min(start for _, _, start, _ in times)
    replicas = [replica for replica, *_ in times if replica is not None]
    lanes: dict[str, list[Box]] = {str(number): [] for number in range(max(replicas, default=-1) + 1)}
    if len(replicas) < len(times):
        lanes[ALL] = []
    for replica, phase, start, seconds in times:
        box = Box(phase, MILLISECONDS * (start - first), MILLISECONDS * seconds)
        lanes[ALL if replica is None else str(replica)].append(box)
    return lanes


def _draw_lane(axes: Axes, place: int, boxes: list[Box]) -> None:
    for phase, (color, hatch) in REPLICA_PHASES.items():
        spans = [(start, took) for name, start, took in boxes if name == phase]
        axes.broken_barh(
            spans, (place - 0.36, 0.72), facecolor=color, hatch=hatch, edgecolor="white", linewidth=0.5, gid=phase
        )


def _in_words(name: str, boxes: list[Box]) -> str:
    """The median time of each phase of a lane."""
    who = "All replicas together" if name == ALL else f"Replica {name}"
    took = {phase: [box.took for box in boxes if box.phase == phase] for phase in REPLICA_PHASES}
    words = [f"{phase} {np.median(each):.3g}" for phase, each in took.items() if each]
    return f"{who}, median milliseconds: {', '.join(words)}" if words else f"{who}: nothing"

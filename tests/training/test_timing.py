"""The stopwatch of the trainers."""

import itertools
import time

import pytest
import torch

from course_lib.config import WARMUP_STEPS, untimed_steps
from course_lib.training.timing import Stopwatch


@pytest.mark.parametrize("steps", [1, 2, 5, 19, 20, 100])
def test_no_figure_of_a_run_counts_its_first_steps(steps):
    watch = Stopwatch(torch.device("cpu"))
    watch.start()
    for step in range(steps):
        first = step < untimed_steps(steps)
        watch.lap("data")
        if first:
            watch.lap("forward")
        watch.end_step(samples=10**6 if first else 0)
    summary = watch.summary()
    assert summary["images_per_sec"] == 0
    assert summary["timed_steps"] == steps - untimed_steps(steps)
    assert summary["time_split"]["forward"] == 0
    assert summary["step_seconds"] == summary["time_split"]["data"]


def test_a_step_starts_where_the_one_before_it_ended():
    watch = Stopwatch(torch.device("cpu"))
    before = time.time()
    watch.start()
    steps = []
    for _ in range(5):
        time.sleep(0.001)
        watch.lap("data")
        steps.append(watch.end_step(samples=1))
    assert before - 1 < steps[0]["start"] < time.time() + 1  # a time of day
    for one, following in itertools.pairwise(steps):
        assert following["start"] == pytest.approx(one["start"] + one["seconds"], abs=1e-6)


def test_the_first_steps_are_ten_or_half_of_the_run():
    assert [untimed_steps(steps) for steps in (1, 2, 19, 20, 1000)] == [0, 1, 9, 10, WARMUP_STEPS]


def test_the_clock_of_a_resumed_run_goes_on():
    assert Stopwatch(torch.device("cpu"), seconds_before=100.0).seconds() >= 100.0

"""The stopwatch of the trainers."""

import pytest
import torch

from course_lib.config import WARMUP_STEPS, untimed_steps
from course_lib.training.timing import Stopwatch


@pytest.mark.parametrize("steps", [1, 2, 5, 19, 20, 100])
def test_no_figure_of_a_run_counts_its_first_steps(steps):
    watch = Stopwatch(torch.device("cpu"))
    watch.start()
    for step in range(steps):
        watch.lap("data")
        watch.end_step(samples=10**6 if step < untimed_steps(steps) else 0)
    assert watch.summary()["images_per_sec"] == 0


def test_the_first_steps_are_ten_or_half_of_the_run():
    assert [untimed_steps(steps) for steps in (1, 2, 19, 20, 1000)] == [0, 1, 9, 10, WARMUP_STEPS]


def test_the_clock_of_a_resumed_run_goes_on():
    assert Stopwatch(torch.device("cpu"), seconds_before=100.0).seconds() >= 100.0

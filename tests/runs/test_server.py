"""What happens to runs when the process that starts their ranks fails, or the thread that watches over them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import student
from processes import eventually, is_alive

from course_lib.errors import HangError, LaunchError, RunStopped
from course_lib.runs.launch import launch
from course_lib.runs.launcher import fork_server
from course_lib.runs.run import Run

pytestmark = pytest.mark.usefixtures("no_process_left")

SECONDS = 20  # within which it must be over


def running(quick, **options):
    """A run whose two ranks never return, and what they reported: where each is."""
    run = launch(student.never_returns, quick.with_(num_gpus=2), **options)
    seen = []
    assert eventually(lambda: seen.extend(run.events()) or len(seen) == 2, 60)
    return run, seen


def nothing_is_left_and_the_next_run_works(quick, seen):
    assert eventually(lambda: not any(is_alive(event["pid"]) for event in seen))
    return launch(student.sum_of_ranks, quick.with_(num_gpus=2)).wait(60) == 3


def test_a_server_that_is_killed_takes_its_ranks_along_and_is_replaced(quick):
    run, seen = running(quick)
    os.kill(fork_server().pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match="Launch again"):
        run.wait(SECONDS)
    assert not Path(seen[0]["meeting"].removeprefix("file://")).parent.exists()
    assert nothing_is_left_and_the_next_run_works(quick, seen)


def test_a_server_that_stands_still_keeps_no_run_from_being_stopped(quick):
    run, seen = running(quick)
    os.kill(fork_server().pid, signal.SIGSTOP)
    run.stop()
    with pytest.raises(RunStopped):
        run.wait(0)
    assert nothing_is_left_and_the_next_run_works(quick, seen)


def test_a_server_that_stands_still_does_not_lift_the_time_limit(quick):
    run, seen = running(quick, time_limit=4)
    os.kill(fork_server().pid, signal.SIGSTOP)
    with pytest.raises(HangError, match="time limit of 4 s"):
        run.wait(SECONDS)
    assert nothing_is_left_and_the_next_run_works(quick, seen)


def test_a_run_that_is_no_longer_watched_over_is_ended(quick, monkeypatch):
    def break_down(*_):
        raise RuntimeError("the watch broke down")

    run, seen = running(quick)
    monkeypatch.setattr(Run, "_reason_to_end", break_down)
    with pytest.raises(LaunchError, match="the watch broke down"):
        run.wait(SECONDS)
    monkeypatch.undo()
    assert nothing_is_left_and_the_next_run_works(quick, seen)

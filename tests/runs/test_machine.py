"""A run says whether another one disturbed it, and what keeps it from knowing never keeps it from training."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import student
from processes import eventually

from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.runs.machine import NOT_ALONE, NOT_KNOWN

pytestmark = pytest.mark.usefixtures("no_process_left")


def caveats(run):
    path = run.folder.caveats
    return json.loads(path.read_text())["speed_caveats"] if path.exists() else []


def test_a_run_alone_has_no_caveat_and_leaves_no_lock(quick, locks):
    run = launch(student.prints, quick)
    run.wait(60)
    assert caveats(run) == []
    assert list(locks.iterdir()) == []


def test_both_runs_that_go_on_at_once_say_so(quick, locks):
    first = launch(student.never_returns, quick)
    second = launch(student.prints, quick)
    second.wait(60)
    first.stop()
    assert caveats(first) == caveats(second) == [NOT_ALONE]
    assert list(locks.iterdir()) == []


def test_runs_that_do_not_overlap_say_nothing_of_each_other(quick, locks):
    first = launch(student.rank_one_leaves_early, quick.with_(num_gpus=2))
    launch(student.sum_of_ranks, quick).wait(60)
    first.wait(60)
    alone = launch(student.sum_of_ranks, quick)
    alone.wait(60)
    assert caveats(alone) == []


@pytest.mark.parametrize("obstacle", ["file", "locks"])
def test_what_stands_in_the_place_of_the_locks_is_a_caveat_and_no_failure(quick, locks, obstacle):
    if obstacle == "file":
        locks.touch()
    else:
        (locks / "x.lock").mkdir(parents=True)
    run = launch(student.prints, quick)
    run.wait(60)
    assert caveats(run) == [NOT_KNOWN]
    assert store.frame(run.path).speed_caveats[0] == NOT_KNOWN


def test_runs_that_are_launched_in_one_moment_have_folders_of_their_own(quick):
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda _: launch(student.prints, quick), range(8)))
    assert eventually(lambda: all(run.status == "finished" for run in runs), 60)
    assert len({run.path for run in runs}) == 8

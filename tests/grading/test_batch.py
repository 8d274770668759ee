"""Grading one submission of many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions_at_work import EXERCISE, NAME, hand_in

from course_lib.errors import GradingError
from course_lib.grading import batch, parts
from course_lib.grading.handed_in import HandedIn
from course_lib.grading.sandbox import Program, Record, Sandbox

EVER = "while True: pass"


@given(st.integers(1, 12), st.integers(1, 60), st.floats(0.1, 100), st.floats(0, 1000))
def test_the_time_left_is_what_is_left_at_a_steady_pace_however_long_the_start(at_once, total, each, start):
    arrived = [start + each * (number // at_once + 1) for number in range(total)]  # so many come together
    for done in range(1, total + 1):
        left = batch._seconds_left(arrived[:done], total, at_once)
        if done <= at_once:
            assert left is None  # one alone, with the start, would be taken for the pace
        else:
            rounds = (total - done) / at_once
            assert left <= 1.01 * each * rounds
            assert left >= each * rounds / 2


def grade(tmp_path, code, sandbox):
    return batch.grade_one(HandedIn("ada", NAME, hand_in(tmp_path, "ada", code)), sandbox)


def faults(graded):
    return {found.fault for part in graded.parts for check in part.checks for found in check.findings}


def test_what_hangs_takes_no_longer_than_its_budget(tmp_path, sandbox, monkeypatch):
    monkeypatch.setattr(parts, "BUDGET", 6.0)
    sandbox.ready()
    graded = grade(tmp_path, EVER, sandbox)
    assert graded.seconds < parts.BUDGET + 2
    assert graded.points == 0
    assert not graded.trouble


def test_when_the_budget_is_used_up_nothing_more_is_run(sandbox, monkeypatch):
    monkeypatch.setattr(parts, "BUDGET", 1.0)
    attempt = parts.Attempt(EVER, sandbox)
    ever = [Program(path="x.py")], {"x.py": EVER.encode()}
    assert attempt.run(*ever).why == "time"
    with pytest.raises(parts.Broken, match="was not run"):
        attempt.run(*ever)


def test_what_breaks_its_sandbox_is_not_run_for_ever(tmp_path, sandbox, monkeypatch):
    runs = []

    def breaks(*_):
        runs.append(1)
        return Record([], "broken", 0.0, [""], {})

    monkeypatch.setattr(sandbox, "run", breaks)
    graded = grade(tmp_path, EVER, sandbox)
    assert len(runs) == parts.MOST_BROKEN
    assert graded.points == 0
    assert not graded.trouble
    assert "broke-the-sandbox" in faults(graded)


def test_a_sandbox_that_does_not_start_is_tried_twice_and_blames_nobody(tmp_path, monkeypatch):
    tried = []

    def fails(self):
        tried.append(1)
        raise GradingError("no sandbox today")

    monkeypatch.setattr(Sandbox, "start", fails)
    graded = grade(tmp_path, EVER, Sandbox())
    assert len(tried) == 2
    assert graded.trouble == "no sandbox today"
    assert not graded.passed
    assert len(graded.parts) == len(EXERCISE.parts)


@pytest.mark.parametrize("raised", [RuntimeError("ours"), MemoryError()])
def test_a_grader_that_fails_costs_this_submission_alone(tmp_path, monkeypatch, raised):
    def fails(*_):
        raise raised

    monkeypatch.setattr("course_lib.grading.judging.judge_all", fails)
    graded = grade(tmp_path, EVER, Sandbox())
    assert type(raised).__name__ in graded.trouble
    assert graded.points == 0

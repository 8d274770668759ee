"""Programs that pretend, or fight: they have no points for what they did not do, and nothing of them is left."""

from __future__ import annotations

import pytest
from on_a_function import WRONG
from on_a_program import ATTACKS, WITHOUT_SHARING
from processes import eventually
from test_attacks import RIGHT, left_behind

from course_lib.grading import catalog
from course_lib.grading.judging import judge, judge_all
from course_lib.grading.submission import Submission

EXERCISE = catalog.exercise("04_one_gpu_to_many")
ODD = {"events by hand", "events through the probes' channel", "no training in a real group"}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_that_pretends_earns_nothing_by_it(attack, sandbox, tmp_path):
    outside = tmp_path / "made-by-an-attack"
    code, earned = ATTACKS[attack]
    program = code.replace("OUTSIDE", str(outside))
    results, remarks = judge_all(EXERCISE.parts, Submission({"program": program}), sandbox)
    assert not any(result.trouble for result in results), "the grader is blamed for what the submission did"
    assert [part.name for part in results if part.points and part.name not in earned.split()] == []
    assert not any(part.passed for part in results if part.name in ("4.5", "4.6"))
    assert any("what was seen" in remark for remark in remarks) == (attack in ODD)
    assert not outside.exists()
    assert eventually(lambda: left_behind() == [])
    # Who comes next is judged as ever.
    part = catalog.part("1.1")
    assert judge(part, RIGHT, sandbox).passed
    assert not judge(part, WRONG, sandbox).passed


@pytest.mark.parametrize("attack", WITHOUT_SHARING)
def test_ranks_that_share_no_gradients_have_no_points_for_that(attack, sandbox):
    result = judge(catalog.part("4.5"), WITHOUT_SHARING[attack], sandbox)
    assert not result.checks[1].points
    assert {finding.fault for finding in result.checks[1].findings} <= {"not-shared", "drift"}

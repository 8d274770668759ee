"""What is no number is neither right nor in step."""

from __future__ import annotations

import pytest
from attacks.no_numbers import NO_NUMBERS, STANDING

from course_lib.grading import catalog
from course_lib.grading.judging import judge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", NO_NUMBERS)
def test_what_is_no_number_is_not_right(part, sandbox):
    code, check = NO_NUMBERS[part]
    result = judge(catalog.part(part), code, sandbox)
    assert result.checks[check].findings
    assert not result.trouble


@pytest.mark.parametrize("weights", STANDING)
def test_ranks_that_stand_still_are_not_in_step(weights, sandbox):
    result = judge(catalog.part("4.5"), STANDING[weights], sandbox)
    assert result.points == 0
    assert {each.fault for check in result.checks for each in check.findings} <= {"not-finite", "never-moves"}

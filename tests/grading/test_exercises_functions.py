"""Exercises that ask for functions: their solutions earn all points, and what nobody has touched earns none."""

from __future__ import annotations

import pytest
from function_answers import PARTS, solution, stub

from course_lib.grading.judging import judge

pytestmark = pytest.mark.slow
each_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)


@each_part
def test_a_solution_earns_all_points_each_time(part, sandbox):
    for _ in range(3):  # the inputs are others each time
        result = judge(part, solution(part.name), sandbox)
        assert [finding for check in result.checks for finding in check.findings] == []
        assert not result.trouble
        assert result.points == part.points


@each_part
def test_what_is_not_done_earns_nothing_and_is_told_so(part, sandbox):
    result = judge(part, stub(part.name), sandbox)
    assert not result.trouble
    assert result.points == 0
    assert {finding.fault for check in result.checks for finding in check.findings} == {"not-done"}


@each_part
def test_missing_functions_earn_nothing(part, sandbox):
    result = judge(part, "x = 1", sandbox)
    assert not result.trouble
    assert result.points == 0
    assert all(check.findings for check in result.checks)


@each_part
def test_functions_that_return_nothing_earn_nothing(part, sandbox):
    code = "\n".join(f"def {name}(*arguments):\n    return None" for name in part.names)
    result = judge(part, code, sandbox)
    assert not result.trouble
    assert result.points == 0


@pytest.mark.parametrize("value", ["[]", "0.0", "{}", '[float("nan")] * 2'])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_functions_that_return_anything_at_all_earn_nothing(part, value, sandbox):
    code = "\n".join(f"def {name}(*arguments):\n    return {value}" for name in part.names)
    assert judge(part, code, sandbox).points == 0

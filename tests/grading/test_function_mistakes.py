"""Wrong answers are refused, by a finding that names what is wrong."""

from __future__ import annotations

import pytest
from function_answers import with_answer
from mistakes import mistakes_ex01, mistakes_ex02, mistakes_ex03, mistakes_ex05, mistakes_ex06, mistakes_ex07

from course_lib.grading import catalog
from course_lib.grading.judging import judge

MODULES = (mistakes_ex01, mistakes_ex02, mistakes_ex03, mistakes_ex05, mistakes_ex06, mistakes_ex07)
MISTAKES = [mistake for module in MODULES for mistake in module.MISTAKES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "code"),
    [(name, fault, code) for name, _, fault, code in MISTAKES],
    ids=[f"{name} {words}" for name, words, _, _ in MISTAKES],
)
def test_a_wrong_answer_is_refused_by_what_is_wrong_with_it(name, fault, code, sandbox):
    result = judge(catalog.part(name), with_answer(name, code), sandbox)
    found = [finding for check in result.checks for finding in check.findings]
    assert not result.trouble
    assert result.points < result.max_points
    assert fault is None or fault in {finding.fault for finding in found}, found

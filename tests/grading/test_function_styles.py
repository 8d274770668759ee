"""Right answers earn all points, however they are written."""

from __future__ import annotations

import pytest
from function_answers import with_answer
from styles import styles_ex01, styles_ex02, styles_ex03, styles_ex05, styles_ex06, styles_ex07

from course_lib.grading import catalog
from course_lib.grading.judging import judge

MODULES = (styles_ex01, styles_ex02, styles_ex03, styles_ex05, styles_ex06, styles_ex07)
STYLES = [style for module in MODULES for style in module.STYLES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"), [(name, code) for name, _, code in STYLES], ids=[f"{name} {words}" for name, words, _ in STYLES]
)
def test_a_right_answer_earns_all_points(name, code, sandbox):
    result = judge(catalog.part(name), with_answer(name, code), sandbox)
    assert [finding for check in result.checks for finding in check.findings] == []
    assert not result.trouble
    assert result.points == result.max_points

"""Each right answer to exercises 8 to 12 scores full, however it is written."""

from __future__ import annotations

import pytest
from grading.program2_cells import Variant
from grading.styles.program2 import STYLES

from course_lib.grading import catalog
from course_lib.grading.judging import judge


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES, ids=lambda each: f"{each.part} {each.name}")
def test_style_scores_full(style: Variant, sandbox) -> None:
    result = judge(catalog.part(style.part), style.code(), sandbox)
    assert result.passed, [finding for check in result.checks for finding in check.findings]

"""Right programs of exercise 4 score full, however unusual they are."""

from __future__ import annotations

import pytest
from program_styles import STYLES, edited

from course_lib.grading import catalog
from course_lib.grading.judging import judge_all
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.submission import Submission

EXERCISE = catalog.exercise("04_one_gpu_to_many")


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_a_right_program_scores_full(style: str, sandbox: Sandbox) -> None:
    results, _ = judge_all(EXERCISE.parts, Submission({"program": edited(STYLES[style])}), sandbox)
    assert [
        (result.name, result.trouble, [check.findings for check in result.checks if check.findings])
        for result in results
        if not result.passed
    ] == []
    assert sum(result.points for result in results) == EXERCISE.points

"""Each wrong program of exercise 4 is refused by the part that its fault is about, and told what the fault is."""

from __future__ import annotations

import pytest
from program_mistakes import MISTAKES, Mistake

from course_lib.grading import catalog
from course_lib.grading.judging import judge_all
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.submission import Submission


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 70


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_is_refused_by_the_part_that_it_is_about(mistake: Mistake, sandbox: Sandbox) -> None:
    parts = [catalog.part(name) for name in (*mistake.refused, *mistake.right.split())]
    results, _ = judge_all(parts, Submission({"program": mistake.code}), sandbox)
    for result in results:
        findings = [finding for check in result.checks for finding in check.findings]
        assert not result.trouble
        if result.name not in mistake.refused:
            assert findings == []
            continue
        assert result.points < result.max_points
        assert {finding.fault for finding in findings} & set(mistake.refused[result.name].split()), findings
        assert all(finding.seen and finding.idea for finding in findings)

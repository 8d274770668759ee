"""Each wrong answer to exercises 8 to 12 is refused, with a finding that fits."""

from __future__ import annotations

import pytest
from grading.mistakes import program2, program2_clinic
from grading.program2_cells import Variant

from course_lib.grading import catalog
from course_lib.grading.judging import judge

MISTAKES = [*program2.TWO_NODES, *program2.ACCUMULATION, *program2.RESUME, *program2_clinic.MISTAKES]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: f"{each.part} {each.name}")
def test_mistake_is_refused(mistake: Variant, sandbox) -> None:
    result = judge(catalog.part(mistake.part), mistake.code(), sandbox)
    assert not result.trouble
    assert not result.passed
    found = [(check.title, finding.fault, finding.seen) for check in result.checks for finding in check.findings]
    fitting = [title for title, fault, _ in found if fault in mistake.fault and title.startswith(mistake.check)]
    assert fitting, found

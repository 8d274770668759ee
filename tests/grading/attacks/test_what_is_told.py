"""A check sees what it is about, whatever the code does to those that tell of it."""

from __future__ import annotations

import pytest
from attacks.on_what_is_told import ON_WHAT_IS_TOLD

from course_lib.grading import catalog
from course_lib.grading.judging import judge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", ON_WHAT_IS_TOLD)
def test_what_tells_is_not_talked_round(attack, sandbox):
    part, check, code = ON_WHAT_IS_TOLD[attack]
    result = judge(catalog.part(part), code, sandbox)
    assert not result.checks[check].points
    assert not result.trouble
    assert {finding.fault for finding in result.checks[check].findings}.isdisjoint({"error", "hang"})

"""Whatever a submission does to be given points, or to others: it gets none, and nothing of it is left."""

from __future__ import annotations

import secrets

import psutil
import pytest
from attacks.on_a_function import ATTACKS, WRONG
from attacks.on_the_grader import LEFT, ON_THE_GRADER
from processes import eventually

from course_lib.grading import catalog
from course_lib.grading.judging import judge

RIGHT = """
import os, resource
assert os.getpriority(os.PRIO_PROCESS, 0) == 0
assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] > 0
def deal(samples, world_size, rank):
    return list(range(rank, samples, world_size))
"""
PART = catalog.part("1.1")

pytestmark = pytest.mark.slow


def left_behind() -> list[str]:
    """The processes that attacks would leave."""
    words = (" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
    return [each for each in words if "sleep 98765" in each]


@pytest.mark.parametrize("attack", [*ATTACKS, *ON_THE_GRADER])
def test_an_attack_earns_nothing_and_harms_nobody(attack, sandbox, tmp_path):
    outside = tmp_path / "made-by-an-attack"
    result = judge(PART, {**ATTACKS, **ON_THE_GRADER}[attack].replace("OUTSIDE", str(outside)), sandbox)
    assert result.points == 0
    assert not result.passed
    assert not result.trouble, "the grader is blamed for what the submission did"
    assert not outside.exists()
    assert eventually(lambda: left_behind() == [])
    # Who comes next is judged as ever.
    assert judge(PART, RIGHT, sandbox).passed
    assert not judge(PART, WRONG, sandbox).passed


@pytest.mark.parametrize("where", LEFT)
def test_nothing_of_one_submission_is_there_for_the_next(where, sandbox):
    first, second = LEFT[where]
    mark = secrets.token_hex(20)
    assert judge(PART, first % mark, sandbox).passed
    assert judge(PART, second % mark[::-1], sandbox).points == 0

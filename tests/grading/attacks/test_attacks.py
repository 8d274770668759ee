"""Whatever a submission does to be given points, or to others: it gets none, and nothing of it is left."""

from __future__ import annotations

import psutil
import pytest
from attacks.on_a_function import ATTACKS, WRONG
from processes import eventually

from course_lib.grading import catalog
from course_lib.grading.judging import judge

RIGHT = "def deal(samples, world_size, rank):\n    return list(range(rank, samples, world_size))\n"
PART = catalog.part("1.1")

pytestmark = pytest.mark.slow


def left_behind() -> list[str]:
    """The processes that attacks would leave."""
    words = (" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
    return [each for each in words if "sleep 98765" in each]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_earns_nothing_and_harms_nobody(attack, sandbox, tmp_path):
    outside = tmp_path / "made-by-an-attack"
    result = judge(PART, ATTACKS[attack].replace("OUTSIDE", str(outside)), sandbox)
    assert result.points == 0
    assert not result.passed
    assert not result.trouble, "the grader is blamed for what the submission did"
    assert not outside.exists()
    assert eventually(lambda: left_behind() == [])
    # Who comes next is judged as ever.
    assert judge(PART, RIGHT, sandbox).passed
    assert not judge(PART, WRONG, sandbox).passed

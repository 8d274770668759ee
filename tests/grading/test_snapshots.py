from __future__ import annotations

import pytest

from course_lib.grading import catalog, snapshots
from course_lib.grading.judging import judge_all
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.submission import Submission

EXERCISE = catalog.exercise("04_one_gpu_to_many")
NAMES = [part.name for part in EXERCISE.parts]


def test_there_is_a_step_for_each_part_and_the_last_one_is_the_solution() -> None:
    assert [step.part for step in snapshots.STEPS] == NAMES
    assert snapshots.after(NAMES[-1]) == snapshots.program("many_gpus")


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_is_a_program(name: str) -> None:
    compile(snapshots.after(name), name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_passes_the_parts_up_to_its_step(name: str, sandbox: Sandbox) -> None:
    parts = EXERCISE.parts[: NAMES.index(name) + 1]
    results, _ = judge_all(parts, Submission({"program": snapshots.after(name)}), sandbox)
    assert [result for result in results if not result.passed] == []


@pytest.mark.slow
def test_the_given_program_scores_nothing(sandbox: Sandbox) -> None:
    results, _ = judge_all(EXERCISE.parts, Submission({"program": snapshots.program("one_gpu")}), sandbox)
    assert sum(result.points for result in results) == 0
    assert not any(result.trouble for result in results)

"""Every solution earns all points and every untouched exercise none; and notebooks fit the catalog."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest

from course_lib.grading import submission
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.judging import judge
from course_lib.grading.parts import Exercise, Part
from course_lib.grading.release import solution_of

ROOT = Path(__file__).parents[2]
PARTS = [(exercise, part) for exercise in EXERCISES for part in exercise.parts]

each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.notebook)
each_part = pytest.mark.parametrize(("exercise", "part"), PARTS, ids=[part.name for _, part in PARTS])


def cells(folder: str, exercise: Exercise) -> list[nbformat.NotebookNode]:
    return nbformat.read(ROOT / folder / f"{exercise.notebook}.ipynb", as_version=4).cells


def source(folder: str, exercise: Exercise, grade_id: str) -> str:
    marked = [cell for cell in cells(folder, exercise) if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id]
    return marked[0].source


@each_part
@pytest.mark.slow
def test_a_solution_earns_all_points(exercise: Exercise, part: Part, sandbox):
    code = submission.read(ROOT / "solutions" / f"{exercise.notebook}.ipynb").code(part.cells)
    result = judge(part, code, sandbox)
    assert [finding.seen for check in result.checks for finding in check.findings] == []
    assert result.passed
    assert result.points == part.points


@each_part
@pytest.mark.slow
def test_an_untouched_exercise_earns_none(exercise: Exercise, part: Part, sandbox):
    code = submission.read(ROOT / "exercises" / f"{exercise.notebook}.ipynb").code(part.cells)
    assert code is not None
    result = judge(part, code, sandbox)
    assert result.points == 0
    assert all(check.findings for check in result.checks)
    assert result.trouble == ""


@each_exercise
def test_each_part_has_its_cells_and_ends_with_its_check(exercise: Exercise):
    marks = [(cell, cell.metadata.nbgrader) for cell in cells("solutions", exercise) if "nbgrader" in cell.metadata]
    solutions = {marks.grade_id for _, marks in marks if marks.solution}
    assert solutions == {name for part in exercise.parts for name in part.cells}
    graded = [
        (re.fullmatch(r'from \S+ import check\n\ncheck\("([\d.]+)"\)\.points', cell.source), marks)
        for cell, marks in marks
        if marks.grade
    ]
    assert all(match and marks.locked and not marks.solution for match, marks in graded)
    checked = [(match[1], marks.grade_id, marks.points) for match, marks in graded if match]
    assert checked == [(part.name, f"check-{part.name.replace('.', '-')}", part.points) for part in exercise.parts]


def test_exercise_4_begins_with_the_program_for_one_gpu_and_ends_with_that_for_many():
    (exercise,) = [each for each in EXERCISES if each.notebook == "04_one_gpu_to_many"]
    programs = files("course_lib.grading") / "programs"
    first, _, given = source("exercises", exercise, "program").partition("\n")
    assert first == "%%writefile train.py"
    assert given == (programs / "one_gpu.py").read_text().rstrip()
    written = solution_of(source("solutions", exercise, "program")).splitlines()[1:]
    solution = (programs / "many_gpus.py").read_text().splitlines()
    assert [line for line in written if line.strip()] == [line for line in solution if line.strip()]

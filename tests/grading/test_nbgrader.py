"""nbgrader itself makes the exercises, grades submissions of them, and comes to our points."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import GenerateAssignment
from traitlets.config import Config

from course_lib.grading import catalog, submission
from course_lib.grading.judging import judge_all
from course_lib.grading.release import STEPS, solution_of
from course_lib.grading.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
NAME = "04_one_gpu_to_many"
FILE = f"{NAME}.ipynb"
GRADED = ("4.2", "4.10")  # all ten parts would take minutes, and are of the same form

pytestmark = pytest.mark.slow


@pytest.fixture
def course(tmp_path) -> NbGraderAPI:
    """A course with one exercise, set up as docs/instructors.md says."""
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.CourseDirectory.course_id = "ddp"
    config.GenerateAssignment.preprocessors = STEPS
    config.ExecutePreprocessor.timeout = 300
    (tmp_path / "source" / NAME).mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / FILE, tmp_path / "source" / NAME)
    return NbGraderAPI(config=config)


def cells(path: Path) -> list[nbformat.NotebookNode]:
    return nbformat.read(path, as_version=4).cells


def marks(cell: nbformat.NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def test_nbgrader_makes_the_exercise_that_we_make(course, tmp_path):
    assert course.generate_assignment(NAME)["success"]
    theirs, ours = cells(tmp_path / "release" / NAME / FILE), cells(ROOT / "exercises" / FILE)
    assert [(cell.source, marks(cell)) for cell in theirs] == [(cell.source, marks(cell)) for cell in ours]


def test_nbgraders_own_steps_accept_the_solutions(course, tmp_path):
    """Only what is given is missing then."""
    course.config.GenerateAssignment.preprocessors = GenerateAssignment.class_traits()["preprocessors"].default()
    assert NbGraderAPI(config=course.config).generate_assignment(NAME)["success"]
    (program,) = [cell for cell in cells(tmp_path / "release" / NAME / FILE) if marks(cell).get("solution")]
    assert "init_process_group" not in program.source


def test_nbgraders_points_are_ours(course, tmp_path, sandbox):
    keep_only_what_is_graded(tmp_path / "source" / NAME / FILE)
    assert course.generate_assignment(NAME)["success"]
    (program,) = [cell.source for cell in cells(ROOT / "solutions" / FILE) if marks(cell).get("solution")]
    right = solution_of(program)
    points = {}
    for student, code in {"right": right, "wrong": right.replace("model.module.state", "model.state")}.items():
        path = submit(tmp_path, student, code)
        graded = course.autograde(NAME, student)
        assert graded["success"], graded["log"]
        points[student] = nbgraders_points(tmp_path, student)
        assert points[student] == our_points(path, sandbox)
    assert points["right"] == {name: catalog.part(name).points for name in GRADED}
    assert 0 < points["wrong"]["4.10"] < points["right"]["4.10"]


def keep_only_what_is_graded(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    kept = [f'check("{name}")' for name in GRADED]
    notebook.cells = [
        cell
        for cell in notebook.cells
        if marks(cell).get("solution") or (marks(cell) and any(call in cell.source for call in kept))
    ]
    nbformat.write(notebook, path)


def submit(course: Path, student: str, program: str) -> Path:
    """A student's copy of the exercise, with this program in its cell."""
    notebook = nbformat.read(course / "release" / NAME / FILE, as_version=4)
    for cell in notebook.cells:
        if marks(cell).get("solution"):
            cell.source = program
    path = course / "submitted" / student / NAME / FILE
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    return path


def nbgraders_points(course: Path, student: str) -> dict[str, float]:
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        grades = gradebook.find_submission_notebook(NAME, NAME, student).grades
        return {grade.name.removeprefix("check-").replace("-", "."): grade.auto_score for grade in grades}


def our_points(path: Path, sandbox: Sandbox) -> dict[str, float]:
    results, _ = judge_all([catalog.part(name) for name in GRADED], submission.read(path), sandbox)
    return {result.name: result.points for result in results}

"""Notebooks as students hand them in, and results as a grading finds them."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat

from course_lib import __version__
from course_lib.grading.exercises.ex04_program import EXERCISE
from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import CheckResult, PartResult
from course_lib.grading.results import Graded

NAME = EXERCISE.notebook
TOTAL = f"{EXERCISE.points:g}"
FAILS = "raise ValueError('as it is')"


def all_but(*wrong: str) -> str:
    """The points of exercise 4 without those of some parts."""
    return f"{sum(part.points for part in EXERCISE.parts if part.name not in wrong):g}"


def program(name: str) -> str:
    """The text of one of the programs of exercise 4: "one_gpu" is given, "many_gpus" solves it."""
    return files("course_lib.grading.programs").joinpath(f"{name}.py").read_text()


def marks(grade_id: str, solution: bool = True) -> dict[str, Any]:
    """The metadata of a cell of an exercise."""
    common = {"schema_version": 3, "task": False, "grade_id": grade_id, "locked": not solution}
    return {"nbgrader": {**common, "grade": not solution, "solution": solution, **({} if solution else {"points": 1})}}


def cell(code: str, grade_id: str | None = None, solution: bool = True) -> Any:
    """A code cell, with a mark or without."""
    return nbformat.v4.new_code_cell(code, metadata=marks(grade_id, solution) if grade_id else {})


def notebook(*cells: Any, **metadata: Any) -> Any:
    """A notebook of these cells."""
    return nbformat.v4.new_notebook(cells=[*cells], metadata=metadata)


def hand_in(folder: Path, student: str, *cells: Any, name: str = NAME) -> Path:
    """Put a student's notebook into the folder; a string is the code of exercise 4's one cell."""
    path = folder / student / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(*(cell(each, "program") if isinstance(each, str) else each for each in cells)), path)
    return path


def graded(student: str, wrong: tuple[str, ...] = (), seen: str = "It was 2, not 3.", **more: Any) -> Graded:
    """A result of exercise 4, with these parts wrong."""
    parts = []
    for part in EXERCISE.parts:
        findings = (Finding("fault", seen, "Why?"),) if part.name in wrong else ()
        checks = tuple(
            CheckResult(check.title, 0.0 if findings else check.points, check.points, findings) for check in part.checks
        )
        parts.append(PartResult(part.name, part.title, checks))
    known = {"digest": "d", "course": __version__, "graded_at": "2026-05-04T10:00:00.000+00:00", "parts": tuple(parts)}
    return Graded(student, NAME, **{**known, **more})


def not_judged(student: str) -> Graded:
    """A result of exercise 4 that is none: the sandbox failed."""
    parts = tuple(
        PartResult(part.name, part.title, tuple(CheckResult(each.title, 0.0, each.points) for each in part.checks), "x")
        for part in EXERCISE.parts
    )
    return graded(student, parts=parts)


def make_folders_without_end(folder: Path) -> None:
    """Make folders in each other, more of them than Python calls go deep; no path leads to the last."""
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=deep)
        below = os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)

"""How soon a check answers, and how many submissions are graded in a minute, beside nbgrader on the same notebooks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from benchmarks.measuring import Row, compare, figure, passed, take_turns
from course_lib.grading import catalog, submission
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.judging import judge
from course_lib.grading.release import STEPS, solution_of
from course_lib.grading.sandbox import Sandbox

ROOT = Path(__file__).parents[1]
PROGRAM = "04_one_gpu_to_many"  # the exercise whose submissions are graded
SECONDS_TO_ANSWER, A_MINUTE, AHEAD = 3.0, 30.0, 3.0
OURS, THEIRS, TURNS = 40, 2, 3  # submissions in a turn


def measure(quick: bool) -> list[Row]:
    """The answers of all parts that ask for functions, and the grading of programs."""
    return [*answers(quick), *grading(quick)]


def answers(quick: bool) -> list[Row]:
    """From the question to the answer, of each part that is no program, in a sandbox that is warm."""
    seconds, wrong = [], []
    with Sandbox() as sandbox:
        sandbox.ready()
        for exercise in EXERCISES:
            handed_in = submission.read(ROOT / "solutions" / f"{exercise.notebook}.ipynb")
            for part in exercise.parts:
                code = handed_in.code(part.cells)
                if not part.names or code is None:
                    continue
                result = judge(part, solution_of(code), sandbox)
                seconds.append(result.seconds)
                wrong += [] if result.passed else [part.name]
            if quick and seconds:
                break
    line = {} if quick else {"at_most": SECONDS_TO_ANSWER}
    note = f"{len(seconds)} parts, the longest {max(seconds):.1f} s"
    return [
        figure("check, warm", "s", seconds, note=note, **line),
        passed("all of these are right", not wrong, ", ".join(wrong)),
    ]


def grading(quick: bool) -> list[Row]:
    """Right submissions of exercise 4 in a minute: by `ddp-course grade`, and by nbgrader."""
    ours, theirs, turns = (1, 1, 1) if quick else (OURS, THEIRS, TURNS)
    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
        folder, numbers = Path(scratch), count()
        course = _course(folder / "course")
        sides = {
            "grade": lambda: _grade(folder / f"class-{next(numbers)}", ours),
            "nbgrader": lambda: _autograde(course, folder / "course", theirs, next(numbers)),
        }
        taken = take_turns(sides, turns)
    unit = "submissions a minute"
    line = {} if quick else {"at_least": AHEAD}
    least = {} if quick else {"at_least": A_MINUTE}
    return [
        figure(f"exercise 4 graded, {ours} at a time", unit, taken["grade"], **least),
        compare("exercise 4 graded", unit, taken["grade"], taken["nbgrader"], "nbgrader autograde", **line),
    ]


def _notebook(place: Path, student: int) -> None:
    """The exercise as a student hands it in who has solved it; no two are the same."""
    notebook, solved = (
        nbformat.read(ROOT / folder / f"{PROGRAM}.ipynb", as_version=4) for folder in ("exercises", "solutions")
    )
    programs = {_marks(cell)["grade_id"]: solution_of(cell.source) for cell in solved.cells if _marks(cell)}
    for cell in notebook.cells:
        if _marks(cell).get("solution"):
            cell.source = f"{programs[_marks(cell)['grade_id']]}\n# student {student}\n"
    place.mkdir(parents=True)
    nbformat.write(notebook, place / f"{PROGRAM}.ipynb")


def _marks(cell: nbformat.NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def _grade(folder: Path, students: int) -> float:
    for student in range(students):
        _notebook(folder / f"student-{student}", student)
    began = time.perf_counter()
    command = [sys.executable, "-m", "course_lib.cli", "grade", str(folder), "--out", f"{folder}-grades", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    full = catalog.exercise(PROGRAM).points * students
    grades = json.loads(Path(f"{folder}-grades", "grades.json").read_text())
    points = sum(student["points"] for student in grades["students"])
    if points != full:
        raise RuntimeError(f"{points:g} of {full:g} points were given: {done.stderr[-300:]}")
    return 60 * students / seconds


def _course(folder: Path) -> NbGraderAPI:
    """A course of nbgrader's with this exercise, as docs/instructors.md says."""
    config = Config()
    config.CourseDirectory.root = str(folder)
    config.CourseDirectory.course_id = "ddp"
    config.GenerateAssignment.preprocessors = STEPS
    config.ExecutePreprocessor.timeout = 600
    source = folder / "source" / PROGRAM
    source.mkdir(parents=True)
    (source / f"{PROGRAM}.ipynb").write_bytes((ROOT / "solutions" / f"{PROGRAM}.ipynb").read_bytes())
    course = NbGraderAPI(config=config)
    made = course.generate_assignment(PROGRAM)
    if not made["success"]:
        raise RuntimeError(f"nbgrader does not make the exercise: {made['log'][-300:]}")
    return course


def _autograde(course: NbGraderAPI, folder: Path, students: int, number: int) -> float:
    names = [f"student-{number}-{student}" for student in range(students)]
    for student, name in enumerate(names):
        _notebook(folder / "submitted" / name / PROGRAM, student)
    began = time.perf_counter()
    for name in names:
        graded = course.autograde(PROGRAM, name)
        if not graded["success"]:
            raise RuntimeError(graded["log"][-300:])
    return 60 * students / (time.perf_counter() - began)

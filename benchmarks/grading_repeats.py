"""Is a score right each time? All solutions and all untouched exercises, graded again and again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measuring import Row, passed
from course_lib.grading import catalog
from course_lib.grading.batch import Progress, grade_all
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.handed_in import HandedIn
from course_lib.grading.journal import Journal
from course_lib.grading.results import Graded

ROOT = Path(__file__).parents[1]
TIMES = 20


def measure(quick: bool) -> list[Row]:
    """Full points for each solution and none for each untouched exercise, every time."""
    times, exercises = (1, EXERCISES[:1]) if quick else (TIMES, EXERCISES)
    handed = [
        HandedIn(f"{folder} {time}", exercise.notebook, ROOT / folder / f"{exercise.notebook}.ipynb")
        for time in range(times)
        for exercise in exercises
        for folder in ("solutions", "exercises")
    ]
    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as folder:
        graded = grade_all(handed, Journal(Path(folder)), _show)
    solutions, untouched = ([each for each in graded if each.student.startswith(name)] for name in ("sol", "exe"))
    count = f"{times} times {len(exercises)}"
    return [
        _all(f"solutions with full points, {count}", solutions, lambda each: each.points == _full(each)),
        _all(f"untouched exercises with none, {count}", untouched, lambda each: each.points == 0),
        _all(f"judged without trouble, {2 * len(solutions)}", graded, lambda each: not each.trouble),
    ]


def _full(graded: Graded) -> float:
    return catalog.exercise(graded.exercise).points


def _all(name: str, graded: list[Graded], holds: Callable[[Graded], bool]) -> Row:
    other = [f"{each.exercise} {each.points:g}" for each in graded if not holds(each)]
    return passed(name, not other, ", ".join(other))


def _show(progress: Progress) -> None:
    if progress.done % 24 == 0:
        print(f"  {progress.done} of {progress.total}", file=sys.stderr)

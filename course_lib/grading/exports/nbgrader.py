"""A table as `nbgrader export` writes it: one row for each student and assignment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from course_lib.grading.exports.exported import Exported, not_judged
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.tables import Cell, as_csv

HEAD = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)


def export(book: Gradebook) -> Exported:
    """`nbgrader.csv`; as in nbgrader, what was not handed in scores 0 and has no timestamp."""
    rows: list[Sequence[Cell]] = [HEAD]
    for exercise in book.exercises:
        for student in book.students:
            graded = book.all.get((student, exercise.notebook))
            if graded is not None and graded.trouble:
                continue
            points, when = (graded.points, _when(graded.graded_at)) if graded else (0.0, None)
            rows.append(
                [exercise.notebook, None, when, student, None, None, None, points, 0.0, points, exercise.points]
            )
    return Exported({"nbgrader.csv": as_csv(rows)}, not_judged(iter(book.all.values())))


def _when(iso: str) -> str:
    return datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M:%S.%f")

"""Grades in the instructor's own export of a Canvas gradebook, to be imported there again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import FolderError
from course_lib.grading.exports.exported import Exported
from course_lib.grading.exports.roster import Roster, about_points, about_unmatched
from course_lib.grading.gradebook import Gradebook, score
from course_lib.grading.parts import Exercise
from course_lib.grading.tables import Cell, as_csv

IDENTITY = ("Student", "ID", "SIS User ID", "SIS Login ID", "Root Account", "Section")
KNOWN_BY = ("ID", "SIS Login ID", "SIS User ID", "Student")
POINTS_POSSIBLE = "Points Possible"


@dataclass(frozen=True)
class _Assignment:
    """An exercise, and its column there; None where there is none yet."""

    exercise: Exercise
    column: int | None
    head: str
    possible: str | float


def export(book: Gradebook, path: Path) -> Exported:
    """`canvas.csv`: the students with a grade, and of the assignments those that were graded.

    What is not in the file, Canvas leaves as it is. An exercise that Canvas has no column for becomes a new assignment.
    """
    roster = Roster(path, KNOWN_BY)
    possible = _points_possible(roster)
    identity = [place for name in IDENTITY if (place := roster.column(name)) is not None]
    assignments = [_assignment(roster, exercise, possible) for exercise in book.exercises]
    rows: list[Sequence[Cell]] = [
        [*(roster.head[place] for place in identity), *(each.head for each in assignments)],
        [*(possible[place] for place in identity), *(each.possible for each in assignments)],
    ]
    unmatched = []
    for student in book.students:
        place = roster.row_of((student, *(each.number for each in book.of(student))))
        if place is None:
            unmatched.append(student)
            continue
        row = roster.rows[place]
        grades = [_grade(score(book.all.get((student, each.exercise.notebook))), row, each) for each in assignments]
        rows.append([*(row[each] for each in identity), *grades])
    remarks = [remark for each in assignments for remark in _remarks(each)]
    return Exported({"canvas.csv": as_csv(rows)}, (*remarks, *about_unmatched(unmatched, path)))


def _assignment(roster: Roster, exercise: Exercise, possible: Sequence[str]) -> _Assignment:
    column = roster.column_of(exercise)
    if column is None:
        return _Assignment(exercise, None, exercise.title, exercise.points)
    return _Assignment(exercise, column, roster.head[column], possible[column])


def _remarks(assignment: _Assignment) -> tuple[str, ...]:
    if assignment.column is None:
        return (f"{assignment.head!r} has no column there: Canvas will make a new assignment.",)
    return about_points(assignment.head, str(assignment.possible), assignment.exercise.points)


def _points_possible(roster: Roster) -> list[str]:
    for row in roster.rows:
        if row[0].strip() == POINTS_POSSIBLE:
            return row
    raise FolderError(
        f"{roster.path} has no row {POINTS_POSSIBLE!r}. Export the gradebook of Canvas as CSV, and leave it as it is."
    )


def _grade(points: float | None, row: Sequence[str], assignment: _Assignment) -> Cell:
    """Ours, or else what is there."""
    return points if points is not None or assignment.column is None else row[assignment.column]

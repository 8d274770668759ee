"""Grades in the instructor's own file from Moodle, to be imported there again.

Either the export of the gradebook, or the grading worksheet of one assignment. No column is added: Moodle would refuse
the worksheet, and ask about each new one in the gradebook.
"""

from __future__ import annotations

import re
from pathlib import Path

from course_lib.errors import FolderError
from course_lib.grading.exports.exported import Exported
from course_lib.grading.exports.roster import Roster, about_points, about_unmatched
from course_lib.grading.gradebook import Gradebook, score
from course_lib.grading.parts import Exercise
from course_lib.grading.tables import as_csv

KNOWN_BY = ("Email address", "ID number", "Username", "Identifier", "Full name")
DOWNLOADED = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_.*")  # a folder of "Download all submissions"
GRADE, MAXIMUM = "Grade", "Maximum Grade"


def export(book: Gradebook, path: Path) -> Exported:
    """`moodle.csv`: the file with the grades of those that were graded; everything else stays as it is."""
    roster = Roster(path, KNOWN_BY)
    columns = {exercise.notebook: _column(roster, exercise, len(book.exercises) == 1) for exercise in book.exercises}
    rows: list[list[str | float]] = [list(row) for row in roster.rows]
    unmatched = []
    for student in book.students:
        place = roster.row_of(_names(student))
        if place is None:
            unmatched.append(student)
            continue
        for graded in book.of(student):
            points = score(graded)
            if points is not None:
                rows[place][columns[graded.exercise]] = points
    remarks: tuple[str, ...] = ()
    maximum = roster.column(MAXIMUM)
    if maximum is not None and roster.rows and len(book.exercises) == 1:
        remarks = about_points(GRADE, roster.rows[0][maximum], book.exercises[0].points)
    return Exported({"moodle.csv": as_csv([roster.head, *rows])}, (*remarks, *about_unmatched(unmatched, path)))


def _column(roster: Roster, exercise: Exercise, alone: bool) -> int:
    place = roster.column_of(exercise)
    if place is None and alone:
        place = roster.column(GRADE)
    if place is None:
        raise FolderError(
            f"{roster.path} has no column for {exercise.title!r} ({exercise.notebook}), or several. Its columns are "
            f"{', '.join(roster.head)}. Make the assignment in Moodle under this name, and export again."
        )
    return place


def _names(student: str) -> tuple[str, ...]:
    """What a student may be called in the table."""
    downloaded = DOWNLOADED.fullmatch(student)
    return (f"Participant {downloaded['number']}", downloaded["name"]) if downloaded else (student,)

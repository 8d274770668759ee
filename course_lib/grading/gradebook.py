"""All results of a class: by student and exercise, as `grades.csv` and `grades.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from course_lib.grading import catalog
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.parts import Exercise
from course_lib.grading.results import Graded, about_isolation
from course_lib.grading.tables import Cell, as_csv


@dataclass(frozen=True)
class Fault:
    """A fault that was found, and how many students have it.

    Fields:
        parts: where, as "4.2".
        seen: what was seen at the first of them.
    """

    parts: tuple[str, ...]
    students: tuple[str, ...]
    seen: str


class Gradebook:
    """The results of a class.

    Attributes:
        all: every result, by student and exercise.
    """

    def __init__(self, graded: Iterable[Graded]) -> None:
        self.all = {(each.student, each.exercise): each for each in graded}

    @cached_property
    def students(self) -> list[str]:
        """In alphabetical order."""
        return sorted({student for student, _ in self.all}, key=lambda name: (name.casefold(), name))

    @cached_property
    def exercises(self) -> list[Exercise]:
        """Those that somebody handed in, in the order of the course."""
        handed_in = {name for _, name in self.all}
        return [each for each in EXERCISES if each.notebook in handed_in]

    @property
    def max_points(self) -> float:
        """Of all exercises."""
        return sum(exercise.points for exercise in self.exercises)

    def of(self, student: str) -> list[Graded]:
        """What a student handed in, in the order of the course."""
        return [self.all[key] for each in self.exercises if (key := (student, each.notebook)) in self.all]

    def points(self, student: str) -> float | None:
        """Of all that a student handed in; None where some of it could not be judged."""
        scores = [score(each) for each in self.of(student)]
        return None if None in scores else sum(each for each in scores if each is not None)

    def totals(self) -> list[float]:
        """The points of the students of whom all could be judged."""
        return [total for student in self.students if (total := self.points(student)) is not None]

    def notes(self, student: str) -> list[str]:
        """What somebody should look at."""
        return [f"{each.exercise}: {note}" for each in self.of(student) for note in notes(each)]

    def faults(self) -> list[Fault]:
        """What was found, the most frequent first; of an exercise, each fault once."""
        found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}  # exercise, fault: part, student, what was seen
        for each in self.all.values():
            for part in each.parts:
                for finding in (found_there for check in part.checks for found_there in check.findings):
                    key = (each.exercise, finding.fault)
                    found.setdefault(key, []).append((part.name, each.student, finding.seen))
        faults = [
            Fault(
                tuple(sorted({part for part, _, _ in cases}, key=catalog.place)),
                tuple(sorted({student for _, student, _ in cases})),
                cases[0][2],
            )
            for cases in found.values()
        ]
        return sorted(faults, key=lambda fault: (-len(fault.students), fault.parts))

    def histogram(self, bins: int = 10) -> list[int]:
        """How many students have from 0 to 10 % of the points, from 10 to 20 %, and so on; 100 % is in the last."""
        most = self.max_points or 1.0
        counts = Counter(min(int(bins * total / most), bins - 1) for total in self.totals())
        return [counts[number] for number in range(bins)]

    def csv(self) -> bytes:
        """One row a student: points in all, of each exercise, and of each part.

        What was not handed in, or could not be judged, is empty.
        """
        parts = [(exercise, part) for exercise in self.exercises for part in exercise.parts]
        head = ["student", "points", "max_points", *(each.notebook for each in self.exercises)]
        rows: list[Sequence[Cell]] = [[*head, *(part.name for _, part in parts), "notes"]]
        for student in self.students:
            by_exercise = {each.exercise: each for each in self.of(student)}
            by_part = {
                part.name: part.points for each in by_exercise.values() for part in each.parts if not part.trouble
            }
            rows.append(
                [
                    *(student, self.points(student), self.max_points),
                    *(score(by_exercise.get(each.notebook)) for each in self.exercises),
                    *(by_part.get(part.name) for _, part in parts),
                    "; ".join(self.notes(student)),
                ]
            )
        return as_csv(rows)

    def json(self) -> bytes:
        """All that is known, for programs."""
        content = {
            "isolated": all(each.isolated for each in self.all.values()),
            "about_isolation": about_isolation([*self.all.values()]),
            "exercises": [
                {"exercise": each.notebook, "title": each.title, "max_points": each.points} for each in self.exercises
            ],
            "students": [
                {
                    "student": student,
                    "points": self.points(student),
                    "max_points": self.max_points,
                    "submissions": [each.to_dict() for each in self.of(student)],
                }
                for student in self.students
            ],
        }
        return json.dumps(content, indent=1).encode()


def notes(graded: Graded) -> Iterator[str]:
    """What somebody should look at."""
    if graded.unreadable:
        yield graded.unreadable
    if graded.trouble:
        why = graded.trouble.rstrip(".")
        yield f"Not judged, which is no fault of the student's: {why}. Grade again to try once more."
    yield from graded.remarks


def title(graded: Graded) -> str:
    """What the exercise is called."""
    return catalog.exercise(graded.exercise).title


def score(graded: Graded | None) -> float | None:
    """The points; None where it was not handed in, or could not be judged."""
    return None if graded is None or graded.trouble else graded.points

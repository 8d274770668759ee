"""The page that tells a student what was seen, and the one that tells the instructor about all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from course_lib import __version__
from course_lib.grading import gradebook
from course_lib.grading.class_pages import FEEDBACK, OVERVIEW
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.parts import CheckResult, Part, PartResult
from course_lib.grading.results import Graded, about_isolation, points, without_repeats
from course_lib.runs.folder import printable

FOLDER = "feedback"  # of the students' pages
LONGEST_NAME = 200  # bytes of a file name: most file systems take 255
BAR = 130  # height of the tallest bar of the histogram


def page_name(student: str) -> str:
    """The file of a student's page."""
    name = student.encode(errors="backslashreplace")
    if len(name) > LONGEST_NAME:
        kept = name[:LONGEST_NAME].decode(errors="ignore")
        return f"{kept}-{sha256(name).hexdigest()[:8]}.html"
    return f"{name.decode()}.html"


def feedback(book: Gradebook, student: str) -> str:
    """A student's page."""
    graded = book.of(student)
    reached, most = sum(each.points for each in graded), sum(each.max_points for each in graded)
    so_far = "" if book.points(student) is not None else "So far "
    return FEEDBACK.render(
        title=f"Feedback for {student}",
        total=f"{so_far}{points(reached)} of {points(most)}",
        summary=in_words([part for each in graded for part in each.parts]),
        percent=round(100 * reached / most) if most else 0,
        exercises=[_exercise(each) for each in graded],
        isolation=about_isolation(graded),
        version=__version__,
    )


def in_words(parts: Sequence[PartResult]) -> str:
    """How many parts passed, and which did not."""
    not_judged = [part.name for part in parts if part.trouble]
    failed = [part.name for part in parts if not part.trouble and not part.passed]
    if not failed and not not_judged:
        return f"All checks of all {len(parts)} parts passed." if len(parts) > 1 else "All checks passed."
    passed = len(parts) - len(failed) - len(not_judged)
    said = [f"{passed} of {len(parts)} parts passed."]
    if failed:
        said.append(f"Not passed: {', '.join(failed)}.")
    if not_judged:
        said.append(f"Could not be judged, which is not your fault: {', '.join(not_judged)}.")
    return " ".join(said)


def _exercise(graded: Graded) -> dict[str, Any]:
    when = datetime.fromisoformat(graded.graded_at).astimezone()
    return {
        "title": gradebook.title(graded),
        "notebook": graded.exercise,
        "points": f"{'–' if graded.trouble else points(graded.points)} of {points(graded.max_points)}",
        "when": when.strftime("%d %B %Y, %H:%M"),
        "notes": [graded.unreadable] * bool(graded.unreadable) + [*graded.remarks],
        "parts": [] if graded.unreadable else [_part(part) for part in without_repeats(graded.parts)],
    }


def _part(part: PartResult) -> dict[str, Any]:
    kind, state = "bad", "✗ not passed"
    if part.trouble:
        kind, state = "some", "– not judged"
    elif part.passed:
        kind, state = "good", "✓ passed"
    elif part.points:
        kind, state = "some", "◐ in part"
    return {
        "name": part.name,
        "title": part.title,
        "kind": kind,
        "state": state,
        "points": f"{'–' if part.trouble else points(part.points)} of {points(part.max_points)}",
        "checks": [_check(check, part) for check in part.checks],
    }


def _check(check: CheckResult, part: PartResult) -> dict[str, Any]:
    sign = "–" if part.trouble else "✓" if check.points == check.max_points and not check.findings else "✗"
    return {
        "sign": sign,
        "title": check.title,
        "points": f"{'–' if part.trouble else points(check.points)} of {points(check.max_points)}",
        "findings": check.findings,
    }


def overview(book: Gradebook, ignored: Sequence[Path]) -> str:
    """The instructor's page; `ignored` are notebooks that were not graded."""
    heads = [(part, part is exercise.parts[0]) for exercise in book.exercises for part in exercise.parts]
    bins = book.histogram()
    graded = [*book.all.values()]
    notes = {student: book.notes(student) for student in book.students}
    return OVERVIEW.render(
        title="Grades",
        summary=_summary(book),
        warnings=_warnings(graded),
        histogram=_histogram(bins),
        histogram_in_words="; ".join(f"{10 * n} to {10 * n + 10} %: {count} students" for n, count in enumerate(bins)),
        max_points=points(book.max_points),
        heads=[
            {"name": part.name, "title": part.title, "points": points(part.points), "first": first}
            for part, first in heads
        ],
        rows=[_row(book, student, heads) for student in book.students],
        faults=book.faults(),
        notes=[(student, said) for student, said in notes.items() if said],
        ignored=[printable(path) for path in ignored],
        isolation=about_isolation(graded),
        version=__version__,
    )


def _summary(book: Gradebook) -> str:
    students, totals = book.students, book.totals()
    passed = sum(each.passed for each in book.all.values())
    return (
        f"{_many(len(students), 'student')}, {_many(len(book.all), 'submission')}; {passed} of them passed all checks. "
        + (f"Median {points(median(totals))} of {points(book.max_points)} points." if totals else "")
    )


def _warnings(graded: Sequence[Graded]) -> list[str]:
    said = []
    if troubled := sum(bool(each.trouble) for each in graded):
        said.append(
            f"{_many(troubled, 'submission')} could not be judged, which is no fault of the students'. "
            "The same command tries them again."
        )
    if not all(each.isolated for each in graded):
        said.append(about_isolation(graded))
    return said


def _row(book: Gradebook, student: str, heads: Sequence[tuple[Part, bool]]) -> dict[str, Any]:
    results = {part.name: part for each in book.of(student) for part in each.parts}
    total = book.points(student)
    return {
        "student": student,
        "link": f"{FOLDER}/{quote(page_name(student))}",
        "points": "–" if total is None else points(total),
        "cells": [{**_cell(results.get(part.name)), "first": first} for part, first in heads],
    }


def _cell(part: PartResult | None) -> dict[str, str]:
    if part is None:
        return {"kind": "", "text": ""}
    kind, state = (_part(part)[name] for name in ("kind", "state"))
    return {"kind": kind, "text": f"{state[0]} {'' if part.trouble else points(part.points)}".strip()}


def _histogram(bins: Sequence[int]) -> list[dict[str, Any]]:
    most = max(*bins, 1)
    return [
        {"x": 13 + 60 * n, "height": round(BAR * count / most), "count": count, "label": f"{10 * n}–{10 * n + 10} %"}
        for n, count in enumerate(bins)
    ]


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

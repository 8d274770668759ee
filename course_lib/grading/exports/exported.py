"""What an export comes to, and the words that several formats share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.grading.parts import CheckResult
from course_lib.grading.results import Graded


@dataclass(frozen=True)
class Exported:
    """Files by their names, and what the instructor should know about them."""

    files: dict[str, bytes]
    remarks: tuple[str, ...] = ()


def told(check: CheckResult) -> str:
    """What a check found, as text."""
    return "\n".join(f"{finding.seen} {finding.idea}".strip() for finding in check.findings)


def not_judged(graded: Iterator[Graded]) -> tuple[str, ...]:
    """A remark on what has no score."""
    names = [f"{each.student} ({each.exercise})" for each in graded if each.trouble]
    return (f"Left out, since they could not be judged: {', '.join(names)}.",) if names else ()

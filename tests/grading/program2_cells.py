"""The code that solutions and untouched exercises of 8 to 12 hand in, and changes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course_lib.grading import catalog, submission
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.parts import Exercise, Part
from course_lib.grading.release import solution_of

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Variant:
    """A solution of a part in which some texts are replaced by others.

    Fields:
        edits: (old, new) each; the old text must be there.
        fault: what should be found, for a mistake; several where it depends on who is faster.
        check: the start of the title of a check that must find it; empty: any.
        more: code after that, which may define a function anew.
    """

    name: str
    part: str
    edits: tuple[tuple[str, str], ...]
    fault: tuple[str, ...] = ()
    check: str = ""
    more: str = ""

    def code(self) -> str:
        code = solution(self.part)
        for old, new in self.edits:
            assert old in code, f"{self.name}: {old!r} is not in the solution"
            code = code.replace(old, new)
        return f"{code}\n\n{self.more}" if self.more else code


def solution(part: str) -> str:
    """The code of a part in solutions/, without what is given there."""
    return solution_of(_code("solutions", catalog.part(part)))


def untouched(part: str) -> str:
    """The code of a part in exercises/, as students get it."""
    return _code("exercises", catalog.part(part))


@cache
def _notebook(folder: str, name: str) -> submission.Submission:
    return submission.read(ROOT / folder / f"{name}.ipynb")


def _code(folder: str, part: Part) -> str:
    code = _notebook(folder, _exercise(part).notebook).code(part.cells)
    assert code is not None
    return code


def _exercise(part: Part) -> Exercise:
    return next(exercise for exercise in EXERCISES if part in exercise.parts)

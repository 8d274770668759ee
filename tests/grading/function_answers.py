"""Students' answers to the exercises that ask for functions: their solutions, and what is put in the place of one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jupytext

from course_lib.grading import catalog
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.parts import Part

ROOT = Path(__file__).parents[2]
PARTS = [
    part
    for exercise in EXERCISES
    for part in exercise.parts
    if part.name.split(".")[0] in ("1", "2", "3", "5", "6", "7")
]


@cache
def cells(part: Part) -> dict[str, str]:
    """The solution cells of a part, by grade id."""
    (notebook,) = [exercise.notebook for exercise in EXERCISES if part in exercise.parts]
    found = jupytext.read(ROOT / "solutions" / f"{notebook}.py").cells
    marked = [(cell.metadata.get("nbgrader", {}), cell.source) for cell in found]
    return {marks["grade_id"]: source for marks, source in marked if marks.get("solution")}


def solution(name: str) -> str:
    """The code that solves a part."""
    part = catalog.part(name)
    return "\n\n".join(cells(part)[each] for each in part.cells)


def stub(name: str) -> str:
    """The functions of a part, before anything is done."""
    return "\n".join(f"def {each}(*arguments):\n    raise NotImplementedError()" for each in catalog.part(name).names)


def with_answer(name: str, code: str) -> str:
    """The solution of a part, with some of its functions defined anew."""
    return f"{solution(name)}\n\n{code}"

"""All exercises of the course, and their parts by name."""

from __future__ import annotations

from collections.abc import Collection

from course_lib.errors import UsageError
from course_lib.grading.exercises import EXERCISES
from course_lib.grading.parts import Exercise, Part


def part(name: str) -> Part:
    """The part that is called so, as "4.2".

    Raises:
        UsageError: there is none.
    """
    for exercise in EXERCISES:
        for each in exercise.parts:
            if each.name == name:
                return each
    if not isinstance(name, str):
        raise UsageError(f'A part is named in quotes: "{name}".')
    same = [exercise for exercise in EXERCISES if exercise.parts[0].name.split(".")[0] == name.split(".")[0]]
    known = same[0].parts if same else [exercise.parts[0] for exercise in EXERCISES]
    names = f"{'Its exercise has' if same else 'There are'} {', '.join(each.name for each in known)}"
    raise UsageError(f"No part of an exercise is called {name!r}. {names}{'.' if same else ', and more.'}")


def exercise(name: str) -> Exercise:
    """The exercise whose notebook is called so, without its ending.

    Raises:
        UsageError: there is none.
    """
    for each in EXERCISES:
        if each.notebook == name:
            return each
    raise UsageError(f"No exercise is called {name!r}. There are {', '.join(each.notebook for each in EXERCISES)}.")


def with_cells(names: Collection[str]) -> Exercise | None:
    """The exercise that most of these cells belong to; None where they are of no exercise."""
    cells = {each.notebook: {name for part in each.parts for name in part.cells} for each in EXERCISES}
    most = max(EXERCISES, key=lambda each: len(cells[each.notebook] & set(names)))
    return most if cells[most.notebook] & set(names) else None


def place(name: str) -> int:
    """The place of a part among all parts of the course: 4.10 comes after 4.9."""
    return [each.name for exercise in EXERCISES for each in exercise.parts].index(name)

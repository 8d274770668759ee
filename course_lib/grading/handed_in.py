"""What was handed in: the notebooks in a folder, each with its student and its exercise.

Known are FOLDER/STUDENT/NAME.ipynb, with or without folders between; nbgrader's FOLDER/submitted/STUDENT/ASSIGNMENT/
NAME.ipynb; and the flat downloads of Canvas, FOLDER/student_4242_998877_NAME.ipynb.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import FolderError
from course_lib.grading import catalog, submission
from course_lib.grading.exercises import EXERCISES
from course_lib.runs.folder import printable

SUBMITTED = "submitted"
MOST_FOLDERS = 30  # in each other; nobody puts a notebook so deep, and Python does not come so far as some can be made
NOTHING = "__MACOSX"  # in archives that were made on a Mac
CANVAS = re.compile(r"(?P<student>[^_]+)(_LATE)?_(?P<number>\d+)_\d+_(?P<name>.+)")
COPY = re.compile(r"[ _-]?(copy ?\d*|\(\d+\)|-?\d+)$", re.IGNORECASE)  # what browsers and Jupyter add to a name


@dataclass(frozen=True)
class HandedIn:
    """A notebook that was handed in.

    Fields:
        student: as the folder is called.
        exercise: the notebook's name in the course.
        number: the student's number, where the name of the file has it.
    """

    student: str
    exercise: str
    path: Path
    number: str = ""


@dataclass(frozen=True)
class Found:
    """What is in a folder.

    Fields:
        ignored: notebooks that are no exercise of the course, or were replaced by a newer one; links to folders.
    """

    notebooks: list[HandedIn]
    ignored: list[Path]


def find(folder: Path, leave_out: Path) -> Found:
    """The notebooks in a folder, by student and exercise; nothing of `leave_out` is looked at.

    Raises:
        FolderError: the folder cannot be read, or no submission is in it.
    """
    if (folder / SUBMITTED).is_dir():  # a course of nbgrader, which holds its own notebooks and graded ones too
        folder = folder / SUBMITTED
    try:
        below = sorted(_notebooks(folder, leave_out.resolve()))
    except OSError as error:
        raise FolderError(f"Cannot read {printable(folder)}: {error.strerror}.") from error
    best: dict[tuple[str, str], HandedIn] = {}
    ignored = []
    for path in below:
        handed = _handed_in(path, folder)
        if handed is None:
            ignored.append(path)
            continue
        key = (handed.student, handed.exercise)
        if key in best:  # "NAME (1).ipynb" beside it, or several attempts
            worse, handed = sorted((best[key], handed), key=_order)
            ignored.append(worse.path)
        best[key] = handed
    if not best:
        names = ", ".join(each.notebook for each in EXERCISES)
        raise FolderError(
            f"No submission is in {printable(folder)}. Each is {printable(folder)}/STUDENT/NAME.ipynb, with NAME one "
            f"of {names}."
        )
    return Found([best[key] for key in sorted(best)], ignored)


def exercise_of(path: Path) -> str | None:
    """Which exercise a notebook is: by its name, or else by the marks of its cells."""
    return _by_name(path.stem) or _by_cells(path)


def _notebooks(folder: Path, leave_out: Path) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        if error.filename == os.fspath(folder):
            raise error

    for parent, folders, names in os.walk(folder, onerror=failed):
        deep = len(Path(parent).parts) - len(folder.parts) >= MOST_FOLDERS
        folders[:] = [
            name
            for name in folders
            if not deep and not name.startswith(".") and Path(parent, name).resolve() != leave_out
        ]
        yield from (path for name in folders if (path := Path(parent, name)).is_symlink())
        yield from (Path(parent, name) for name in names if name.endswith(".ipynb") and not name.startswith("."))


def _handed_in(path: Path, folder: Path) -> HandedIn | None:
    *around, _ = path.relative_to(folder).parts
    flat = None if around else CANVAS.fullmatch(path.stem)
    if flat and (exercise := _by_name(flat["name"]) or _by_cells(path)):
        return HandedIn(printable(f"{flat['student']}_{flat['number']}"), exercise, path, flat["number"])
    exercise = exercise_of(path) if around else None
    return HandedIn(printable(around[0]), exercise, path) if exercise else None


def _by_name(stem: str) -> str | None:
    names = {each.notebook for each in EXERCISES}
    return next((name for name in (stem, COPY.sub("", stem)) if name in names), None)


def _by_cells(path: Path) -> str | None:
    """The exercise that most of the cells belong to."""
    try:
        exercise = catalog.with_cells(submission.read(path).cells)
    except FolderError:
        return None
    return exercise.notebook if exercise else None


def _order(handed: HandedIn) -> tuple[bool, float, str]:
    """Which of two counts: the one that is called as it should be, or else the newer one."""
    path = handed.path
    with suppress(OSError):
        return path.stem == handed.exercise, path.lstat().st_mtime, path.name
    return False, 0.0, path.name

"""An instructor's own export of a gradebook: which row is which student's, and which column an exercise's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import normalize

from course_lib.errors import FolderError
from course_lib.grading.parts import Exercise
from course_lib.grading.tables import read_csv

FIRST, LAST = "First name", ("Last name", "Surname")  # in Moodle's export of the gradebook


class Roster:
    """The table.

    Attributes:
        head, rows: as they are in the file.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Read the file; a student is known by what is in `columns`, of which one at least must be there.

        Raises:
            FolderError: it cannot be read, or no column says who a student is.
        """
        self.path = path
        self.head, *self.rows = read_csv(path)
        self._names = [name.strip() for name in self.head]
        self._known = [self._names.index(name) for name in columns if name in self._names]
        self._identities = [[row[place] for row in self.rows] for place in self._known]
        if parts := self._parts_of_names():
            self._identities.append([" ".join(row[place] for place in parts) for row in self.rows])
        if not self._identities:
            raise FolderError(
                f"{path} does not say who is who: of the columns {', '.join(columns)} it has none. Is it the export of "
                "the gradebook, in English?"
            )

    def column(self, name: str) -> int | None:
        """The place of the column that is called so."""
        return self._names.index(name) if name in self._names else None

    def column_of(self, exercise: Exercise) -> int | None:
        """The place of the column that holds an exercise's grades, by its title or its notebook's name."""
        wanted = (exercise.notebook.casefold(), exercise.title.casefold())
        found = [
            place
            for place, name in enumerate(self._names)
            if place not in self._known and any(each in name.casefold() for each in wanted)
        ]
        return found[0] if len(found) == 1 else None

    def row_of(self, names: Iterable[str]) -> int | None:
        """The row of the student whom one of these names stands for; None where no row, or more than one, has it."""
        wanted = {_alike(name) for name in names if name.strip()}
        for identities in self._identities:
            found = [place for place, name in enumerate(identities) if _alike(name) in wanted]
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def _parts_of_names(self) -> list[int]:
        """The columns that a full name is in, where it is in two."""
        first, *last = (self.column(name) for name in (FIRST, *LAST))
        found = [place for place in last if place is not None]
        return [first, found[0]] if first is not None and found else []


def _alike(name: str) -> str:
    """The same for names that a person would call the same, however their accents are encoded."""
    return " ".join(normalize("NFC", name).split()).casefold()


def about_unmatched(students: Sequence[str], path: Path) -> tuple[str, ...]:
    """A remark on students who have no row."""
    if not students:
        return ()
    return (f"Not in {path.name}, or there more than once, so without a grade there: {', '.join(students)}.",)


def about_points(column: str, theirs: str, ours: float) -> tuple[str, ...]:
    """A remark on points that are counted otherwise."""
    try:
        same = float(theirs) == ours
    except ValueError:
        return ()
    return () if same else (f"{column.strip()} has {theirs.strip()} points at most there, and {ours:g} here.",)

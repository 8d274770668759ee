"""A student's notebook: the code of its solution cells, and nothing else of it."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from course_lib.errors import FolderError
from course_lib.grading.plain_python import plain, writes_anew

MOST_BYTES = 100_000_000  # of a notebook: it may hold pictures and 50 MB of output
MOST_CODE = 100_000  # characters of all cells that count: nobody writes so much, and to look at it takes long
MOST_CELLS = 60  # of one notebook that have a mark
SHOWN = 60  # characters of what is quoted
_parsing = threading.Lock()  # one at a time: 90 MB of brackets become gigabytes


@dataclass(frozen=True)
class Submission:
    """The solution cells of a notebook, by grade id.

    Fields:
        cells: their code as plain Python.
        remarks: what is unusual about the notebook, and what was made of it, for people.
        following: by grade id, the code of a cell without any mark that comes right after it: a cell that was split
            may have lost the mark of its second half.
        digest: of the file.
    """

    cells: dict[str, str]
    remarks: tuple[str, ...] = ()
    following: dict[str, str] = field(default_factory=dict)
    digest: str = ""

    def code(self, names: tuple[str, ...]) -> str | None:
        """The code of these cells, in this order; None where one is missing."""
        if any(name not in self.cells for name in names):
            return None
        return "\n\n".join(self.cells[name] for name in names)

    def code_with_following(self, names: tuple[str, ...]) -> str | None:
        """As `code`, each cell with the unmarked one after it; None where there is none."""
        code = self.code(names)
        if code is None or not any(name in self.following for name in names):
            return None
        return "\n\n".join("\n\n".join(filter(None, (self.cells[name], self.following.get(name)))) for name in names)


def read(path: Path) -> Submission:
    """Read a notebook. Its outputs, its other cells, its metadata and its kernel count for nothing.

    Raises:
        FolderError: it is not there, or no notebook.
    """
    with _parsing:
        content = _content(path)
        try:
            cells = [cell for cell in _all_cells(json.loads(content)) if isinstance(cell, dict)]
        except (ValueError, TypeError, KeyError, IndexError, RecursionError, MemoryError) as error:
            raise FolderError(f"{path} is no notebook, or it is damaged. Save it in Jupyter as .ipynb.") from error
        found, following, remarks = _sorted_out(cells)
        del cells
    joined = {name: _one(name, pieces, remarks) for name, pieces in found.items()}
    plain_following = {name: plain(source)[0] for name, source in following.items()}
    return Submission(joined, tuple(remarks), plain_following, sha256(content).hexdigest())


def digest(path: Path) -> str:
    """The SHA-256 of a file.

    Raises:
        FolderError: it cannot be read.
    """
    return sha256(_content(path)).hexdigest()


def _content(path: Path) -> bytes:
    """The bytes of a file; a link or a pipe in its place is not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FolderError(f"{path} is not a file.")
            if status.st_size > MOST_BYTES:
                most = MOST_BYTES // 1_000_000
                raise FolderError(f"{path} is larger than {most} MB. Clear its outputs, and save it again.")
            return file.read()
    except OSError as error:
        if path.is_symlink():
            raise FolderError(
                f"{path} is a link, and links are not followed. Put the notebook itself there."
            ) from error
        raise FolderError(f"Cannot read {path}: {error.strerror}.") from error


def _all_cells(notebook: Any) -> list[Any]:
    """The cells of a notebook of format 4, or of format 3 and before."""
    if "cells" in notebook:
        return [*notebook["cells"]]
    return [cell for worksheet in notebook["worksheets"] for cell in worksheet["cells"]]


def _sorted_out(cells: list[dict[str, Any]]) -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """The sources of each grade id, that of an unmarked code cell after it, and remarks."""
    found: dict[str, list[str]] = {}
    following: dict[str, str] = {}
    remarks = []
    last = ""  # the grade id that an unmarked cell here may belong to
    room = MOST_CODE
    for cell in cells:
        is_code, name = cell.get("cell_type") == "code", _grade_id(cell)
        source = _source(cell)
        follows = "" if name or not source.strip() or last in following else last
        counts = is_code and bool(name or follows)
        if counts and len(source) > room:
            remarks.append(f"A cell of {len(source):,} characters was left out: nobody writes so much code.")
        elif counts:
            room -= len(source)
            if follows:
                following[follows] = source
            elif sum(map(len, found.values())) < MOST_CELLS:
                found.setdefault(name, []).append(source)
        elif name and _marks(cell).get("solution") is True and not _marks(cell).get("task"):
            remarks.append(f"The cell {_quoted(name)} is no code cell any more.")
        if name or not is_code:
            last = name if is_code else ""
    return found, following, remarks


def _one(name: str, pieces: list[str], remarks: list[str]) -> str:
    """The plain code of a cell that may be there several times: copied, edited in a copy, or split."""
    different = list(dict.fromkeys(piece.strip("\n") for piece in pieces))
    if len(different) < len(pieces):
        remarks.append(f"The cell {_quoted(name)} is there {len(pieces)} times; identical copies count once.")
    kept: list[str] = []
    for piece in different:
        if kept and (writes_anew(piece) or any(_versions(piece, other) for other in kept)):
            remarks.append(f"There are different versions of the cell {_quoted(name)}; the last one counts.")
            kept = [other for other in kept if not (writes_anew(piece) or _versions(piece, other))]
        kept.append(piece)
    if len(kept) > 1:
        remarks.append(f"The cell {_quoted(name)} is in {len(kept)} pieces; they were joined in their order.")
    codes = []
    for piece in kept:
        code, taken = plain(piece)
        codes.append(code)
        remarks += _about_commands(name, taken)
    return "\n\n".join(codes)


def _versions(one: str, other: str) -> bool:
    """Whether two sources are versions of one cell rather than its halves: most lines of the shorter are in both."""
    lines, others = ({line.strip() for line in text.splitlines() if line.strip()} for text in (one, other))
    return 2 * len(lines & others) > min(len(lines), len(others))


def _about_commands(name: str, taken: tuple[str, ...]) -> Iterator[str]:
    said = [text for text in taken if not text.lstrip().startswith(("%%writefile", "%%file"))]
    if said:
        more = f" and {len(said) - 1} more" if len(said) > 1 else ""
        yield f"In {_quoted(name)}, {_quoted(said[0])}{more} is for Jupyter alone and was left out."


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _marks(cell: dict[str, Any]) -> dict[str, Any]:
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return marks if isinstance(marks, dict) else {}


def _grade_id(cell: dict[str, Any]) -> str:
    name = _marks(cell).get("grade_id")
    return _text(name) if isinstance(name, str) else ""


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    lines = source if isinstance(source, list) else [source]
    return _text("".join(line for line in lines if isinstance(line, str)))


def _text(text: str) -> str:
    """The text as UTF-8 can hold it: JSON can name halves of characters."""
    return text.encode(errors="replace").decode().replace("\r\n", "\n")

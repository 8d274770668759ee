"""A part's three hints, one after the other; which were taken is recorded beside the notebook."""

from __future__ import annotations

import json
import time
from pathlib import Path

from course_lib.errors import FolderError
from course_lib.grading.parts import Part

RECORD = "hints.jsonl"  # a line for each hint that was taken: part, number, and when


def taken(part: Part, folder: Path) -> int:
    """How many of the part's hints were taken."""
    try:
        lines = (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    numbers = [number for line in lines if (number := _number(line, part.name)) is not None]
    return max([0, *numbers])


def take(part: Part, folder: Path) -> list[str]:
    """All hints that were taken so far, and the next one, which is recorded.

    Raises:
        FolderError: it cannot be recorded.
    """
    number = min(taken(part, folder) + 1, len(part.hints))
    line = json.dumps({"part": part.name, "hint": number, "time": round(time.time(), 3)})
    try:
        # One short write at the end of the file: of two notebooks at once, neither spoils the other's line.
        with (folder / RECORD).open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")
    except OSError as error:
        raise FolderError(f"Cannot write {folder / RECORD}, where hints are recorded: {error.strerror}.") from error
    return [*part.hints[:number]]


def in_words(part: Part, folder: Path) -> str:
    """How many were taken, and how to get the next."""
    number, most = taken(part, folder), len(part.hints)
    if number == most:
        return f"All {most} hints taken."
    which = "the next" if number else "the first"
    return f'{number} of {most} hints taken. `hint("{part.name}")` shows {which}; it costs no points.'


def _number(line: str, name: str) -> int | None:
    try:
        entry = json.loads(line)
        return int(entry["hint"]) if entry["part"] == name else None
    except (ValueError, TypeError, KeyError):
        return None

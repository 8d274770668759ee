"""The journal of a grading: one JSON line a submission, written when it is graded; the only thing that grading keeps.

Tables and pages are made from it, and a second grading goes on where the first ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from course_lib.errors import CourseError, FolderError
from course_lib.grading.results import Graded, graded_from_dict
from course_lib.runs.folder import cannot_write, check_name

FORMAT = 1
NAME, LOCK = "journal.jsonl", ".grading.lock"


class Journal:
    """The journal in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> dict[tuple[str, str], Graded]:
        """The last result of each student and exercise; lines that were not finished, or damaged, are none."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FolderError(f"Cannot read {self.path}: {error.strerror}.") from error
        results = {}
        for line in lines:
            graded = _graded(line)
            if graded is not None:
                results[graded.student, graded.exercise] = graded
        return results

    def add(self, graded: Graded) -> None:
        """Write one line; on the disk when this returns, whole or not at all.

        Raises:
            WriteError: it cannot be written; the lines before are as they were.
        """
        line = json.dumps({"format": FORMAT, **graded.to_dict()}).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                before = file.tell()
                try:
                    if before and not _ends_in_newline(self.path):  # whoever wrote it was killed
                        line = b"\n" + line
                    if file.write(line) != len(line):
                        raise OSError(28, os.strerror(28))  # what fits was written, the rest has no room
                    os.fsync(file.fileno())
                except OSError:
                    os.ftruncate(file.fileno(), before)
                    raise
        except OSError as error:
            raise cannot_write(self.path, error) from error


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Have a folder for oneself; it is made where it is not there.

    Raises:
        FolderError: it cannot be written, or another program grades there.
    """
    check_name(folder)
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise FolderError(
            f"Another grading is at work in {folder}. Wait for it, or choose another folder (--out)."
        ) from error
    except OSError as error:
        raise FolderError(
            f"Cannot write to {folder}: {error.strerror}. Choose a folder that you can write to (--out)."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _graded(line: bytes) -> Graded | None:
    try:
        content = json.loads(line)
        return graded_from_dict(content) if content["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError, RecursionError, CourseError):
        return None


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"

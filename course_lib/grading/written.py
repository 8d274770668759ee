"""What a grading leaves for people: `index.html`, `grades.csv`, `grades.json`, a page a student, and an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.grading.class_report import FOLDER, feedback, overview, page_name
from course_lib.grading.exports import formats
from course_lib.grading.gradebook import Gradebook
from course_lib.runs.folder import cannot_write, write_bytes


def write_all(
    book: Gradebook, ignored: Sequence[Path], out: Path, format: str | None, roster: Path | None
) -> tuple[list[Path], list[str]]:
    """Write all files, each whole or not at all; their paths, the overview first, and remarks on the export.

    Raises:
        WriteError: one cannot be written; says which.
        FolderError: the roster is of no use.
    """
    files = [_write(out / name, content) for name, content in _pages(book, ignored)]
    if format is None:
        return files, []
    exported = formats.export(format, book, roster)
    return [*files, *(_write(out / name, content) for name, content in exported.files.items())], [*exported.remarks]


def _pages(book: Gradebook, ignored: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    yield "index.html", overview(book, ignored).encode(errors="backslashreplace")
    yield "grades.csv", book.csv()
    yield "grades.json", book.json()
    for student in book.students:
        yield f"{FOLDER}/{page_name(student)}", feedback(book, student).encode(errors="backslashreplace")


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path

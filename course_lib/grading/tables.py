"""Tables of results as CSV: quoted, and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from course_lib.errors import FolderError

DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
HARMLESS = re.compile(r"-|[+-]?\d+([.,]\d+)?%?")  # a dash alone stands for no grade; a number is one
Cell = str | float | int | None


def safe(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    if not text.lstrip(" ").startswith(DANGEROUS) or HARMLESS.fullmatch(text):
        return text
    return f"'{text}"


def as_csv(rows: Iterable[Sequence[Cell]]) -> bytes:
    """The rows as CSV in UTF-8: text in quotes and made safe, numbers as they are, nothing where there is None."""
    made = io.StringIO()
    writer = csv.writer(made, quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        writer.writerow([_shown(cell) for cell in row])
    return made.getvalue().encode(errors="backslashreplace")


def _shown(cell: Cell) -> str | float | int:
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return safe(cell) if isinstance(cell, str) else cell


def read_csv(path: Path) -> list[list[str]]:
    """The rows of somebody's CSV file, whose separator may be a comma, a semicolon or a tab.

    Raises:
        FolderError: it is not there, or no CSV file in UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        head = text.partition("\n")[0]
        separator = max(",;\t", key=head.count)
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except OSError as error:
        raise FolderError(f"Cannot read {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FolderError(
            f"{path} is no CSV file in UTF-8. Export it again, or save it in your spreadsheet as CSV in UTF-8."
        ) from error
    if len(rows) < 2:
        raise FolderError(f"{path} has no rows below its head. Export it again.")
    width = len(rows[0])
    return [(row + [""] * width)[:width] for row in rows]

"""What the ranks report while they train: one file for each rank, one JSON object a line.

A rank appends each line by one call, so only a full disk or a kill can tear one. A reader takes
what is whole and leaves a torn last line for later; neither ever waits for the other.
"""

from __future__ import annotations

import json
import os
from math import isfinite
from pathlib import Path
from typing import Any

from course_lib.errors import FolderError, ReportError
from course_lib.runs.folder import RunFolder, cannot_write

PREFIX, SUFFIX = RunFolder("").events(0).name.split("0")  # what stands before and after the rank


class EventWriter:
    """Appends the events of one rank to its file, and makes the file if need be.

    Raises:
        WriteError: the file cannot be made; names it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._torn = False
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def write(self, event: dict[str, Any]) -> None:
        """Append one event.

        Values are numbers, strings, booleans, None, lists and dicts of these; arrays and tensors of
        one element are taken through `.item()`. JSON has no NaN and no infinity: they are written
        as null, so that every reader of JSON can read the file.

        Raises:
            ReportError: a value is none of these; names its key.
            WriteError: the line cannot be written; names the file.
        """
        line = _encode(event) + b"\n"
        rest = memoryview(b"\n" + line if self._torn else line)
        try:
            while rest:  # once; a nearly full disk takes a part, and says why on the second call
                rest = rest[os.write(self._file, rest) :]
                self._torn = True
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._torn = False

    def close(self) -> None:
        """Close the file; what was written stays."""
        os.close(self._file)


class EventReader:
    """Reads the events of a run as they come, each once.

    Attributes:
        damaged: whole lines so far that hold no event. They are left out; the others are read.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.damaged = 0
        self._files: dict[int, _EventFile] = {}

    def read_new(self) -> list[dict[str, Any]]:
        """The events of all ranks since the last call, in order of time.

        Costs one listing of the folder, one look at each rank's file, and reading what is new.

        Raises:
            FolderError: the folder is not there, or a file in it cannot be read.
        """
        events: list[dict[str, Any]] = []
        try:
            for rank in ranks_in(os.listdir(self.folder)):
                if rank not in self._files:
                    self._files[rank] = _EventFile(RunFolder(self.folder).events(rank))
                for line in self._files[rank].new_lines():
                    event = _decode(line)
                    if event is None:
                        self.damaged += 1
                    else:
                        events.append(event)
        except OSError as error:
            raise FolderError(f"Cannot read the events of the run in {self.folder}: {error.strerror}.") from error
        events.sort(key=lambda event: event["time"])
        return events


class _EventFile:
    """The file of one rank, read forward."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._tail = b""

    def new_lines(self) -> list[bytes]:
        """The lines that became whole since the last call."""
        if self.path.stat().st_size <= self._offset:
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._tail = (self._tail + new).split(b"\n")
        return [line for line in lines if line]


def ranks_in(names: list[str]) -> list[int]:
    """The ranks that have a file of events among these names of files, in order."""
    numbers = (name[len(PREFIX) : -len(SUFFIX)] for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _item(value: Any) -> Any:
    """The one element of an array or a tensor."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError) as error:
        raise TypeError(f"a {type(value).__name__} has no single value") from error


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_item)


def _encode(event: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(event).encode()
    except (TypeError, ValueError, RecursionError):  # rare: not finite, or something that JSON has no word for
        return _ENCODER.encode({key: plain(value, key) for key, value in event.items()}).encode()


def plain(value: Any, key: str) -> Any:
    """The value as JSON can hold it: see `EventWriter.write`. `key` says where it stands, for the error.

    Raises:
        ReportError: JSON cannot hold it; names the key.
    """
    try:
        return _plain(value, key)
    except RecursionError as error:
        raise ReportError(f"Cannot report {key!r}: it holds itself, or lists within lists without end.") from error


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{key}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(name): _plain(item, f"{key}.{name}") for name, item in value.items()}
    try:
        number = _item(value)
    except TypeError:
        number = None
    if isinstance(number, bool | int | float | str):
        return _plain(number, key)
    raise ReportError(
        f"Cannot report {key!r}: it is a {type(value).__name__}, and an event holds numbers, strings, lists, dicts and "
        "tensors of one element. Reduce it to a number first (for a tensor: .mean(), or .tolist() for a short one)."
    )


def _decode(line: bytes) -> dict[str, Any] | None:
    """The event in a line, or None where the line holds none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = (
        isinstance(event, dict) and isinstance(event.get("kind"), str) and isinstance(event.get("time"), int | float)
    )
    return event if whole else None

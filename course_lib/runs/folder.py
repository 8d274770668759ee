"""The folder of one run: every file name, and how each file is written and read.

    config.json           what was asked for, and the labels of the sweep it belongs to
    environment.json      the machine, and how the run's times came about
    caveats.json          what keeps the run from being a measurement of speed
    function.pkl          the training function, as cloudpickle wrote it
    events-rank{r}.jsonl  what rank r reported, one JSON object a line
    rank{r}.log           what rank r printed
    rank{r}.stack         where rank r was when it was asked, because others waited for it
    checkpoint.pt         the last whole epoch (see worker.py)
    result.json           what rank 0 returned
    error-rank{r}.json    how rank r failed
    failure.json          the verdict on a run that did not finish: the first culprit
    launcher.lock         held by the launcher as long as the run goes on

A file other than events and logs is written aside and moved into place, so it is whole or not there.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, CourseError, DiskFullError, FolderError, WriteError

FORMAT = 1

FINISHED, FAILED, STOPPED, RUNNING, LOST = "finished", "failed", "stopped", "running", "lost"


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    config = property(lambda self: self.path / "config.json")
    environment = property(lambda self: self.path / "environment.json")
    caveats = property(lambda self: self.path / "caveats.json")
    function = property(lambda self: self.path / "function.pkl")
    checkpoint = property(lambda self: self.path / "checkpoint.pt")
    result = property(lambda self: self.path / "result.json")
    failure = property(lambda self: self.path / "failure.json")
    launcher_lock = property(lambda self: self.path / "launcher.lock")

    def events(self, rank: int) -> Path:
        """The file that rank `rank` reports to."""
        return self.path / f"events-rank{rank}.jsonl"

    def log(self, rank: int) -> Path:
        """The file that takes what rank `rank` prints."""
        return self.path / f"rank{rank}.log"

    def stack(self, rank: int) -> Path:
        """The file in which rank `rank` says where it is when it is asked."""
        return self.path / f"rank{rank}.stack"

    def error(self, rank: int) -> Path:
        """The file that says how rank `rank` failed."""
        return self.path / f"error-rank{rank}.json"

    def write_config(self, config: RunConfig, labels: dict[str, Any]) -> None:
        """Record what was asked for; `labels` say what the run is part of (a sweep, a repeat)."""
        write_json(
            self.config, {"format": FORMAT, "config": config.to_dict(), "labels": labels, "created": time.time()}
        )

    def read_config(self) -> tuple[RunConfig, dict[str, Any]]:
        """The config and the labels of this run.

        Raises:
            FolderError: no run is here, its config.json is damaged, or another version wrote it.
        """
        content = read_json(self.config)
        if content.get("format") != FORMAT:
            raise FolderError(
                f"{self.config} has format {content.get('format')!r}, and this version of the course reads {FORMAT}. "
                "Read it with the version that wrote it, or make the run again."
            )
        try:
            return RunConfig.from_dict(content["config"]), dict(content.get("labels", {}))
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise FolderError(f"{self.config} does not hold a run of this version: {error}") from error

    def write_failure(self, error: CourseError) -> None:
        """Record why the run did not finish."""
        content = {
            "type": type(error).__name__,
            "message": error.args[0] if error.args else str(error),
            "rank": getattr(error, "rank", None),
            "traceback": getattr(error, "traceback", ""),
        }
        write_json(self.failure, content)

    def status(self, names: Iterable[str] | None = None) -> str:
        """How far the run is: "running", "finished", "failed", "stopped" or "lost".

        A run is lost when its launcher ended before the run did. `names` are the names of the
        folder's files, where the caller has listed them already.
        """
        present = set(os.listdir(self.path) if names is None else names)
        if self.failure.name in present:
            return STOPPED if read_json(self.failure).get("type") == "RunStopped" else FAILED
        if any(name.startswith("error-rank") for name in present):
            return FAILED
        if self.result.name in present:
            return FINISHED
        return RUNNING if self.launcher_alive() else LOST

    def launcher_alive(self) -> bool:
        """Whether the program that launched the run still waits for its end."""
        if not self.launcher_lock.exists():
            return False
        lock = FileLock(self.launcher_lock)
        try:
            lock.acquire(blocking=False)
        except (Timeout, OSError):  # held, or in a folder that is another's: then it may be
            return True
        lock.release()
        return False


def create_run_folder(path: str | os.PathLike[str]) -> RunFolder:
    """Make the folder of a new run; a run is never written over.

    Raises:
        FolderError: the folder cannot be made, something is already there, or its name is no text.
    """
    target = Path(path)
    check_name(target)
    if os.path.lexists(target):
        raise FolderError(f"{target} is already there, and a run is never written over. Choose another folder (--out).")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
    except OSError as error:
        raise FolderError(
            f"Cannot make the run folder {target}: {error.strerror}. Choose a folder that you can write to (--out)."
        ) from error
    return RunFolder(target.resolve())


def working_folder() -> str:
    """The current folder.

    Raises:
        FolderError: it was removed.
    """
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise FolderError("The current folder was removed. Change to one that is there, and try again.") from error


def check_name(path: Path) -> None:
    """Refuse a folder whose name is not text, since no table and no report could name what is in it.

    Raises:
        FolderError: the name of the folder, or of one above it, is not UTF-8.
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise FolderError(
            f"{printable(path.absolute())} is not written in UTF-8, so no report could name it. Choose another folder."
        ) from error


def printable(path: str | os.PathLike[str]) -> str:
    """The name of a file as text, with what is not UTF-8 in it as escapes."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def cannot_write(path: Path, error: OSError) -> WriteError:
    """The error of a rank, or of a grading, that could not write `path`; says what to do."""
    if is_disk_full(error):
        return DiskFullError(
            f"No space is left to write {path}. What was recorded before is kept. Free some space, or choose another "
            "folder (--out)."
        )
    why = error.strerror or str(error)
    return WriteError(f"Cannot write {path}: {why}. What was recorded before is kept. Choose another folder (--out).")


def is_disk_full(error: BaseException) -> bool:
    """Whether no space is left on the disk, or in the user's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON, whole or not at all."""
    write_bytes(path, json.dumps(content, indent=1).encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content`, whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FolderError: the file is missing, unreadable or damaged.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise FolderError(f"{path} is not a file. Remove its folder, or restore the file.")
        text = path.read_bytes()
        content = json.loads(text)
        if rb"\ud" in text.lower():  # halves of characters, which no page and no other file can hold, become "?"
            content = json.loads(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
    except FileNotFoundError as error:
        raise FolderError(f"{path.parent} holds no run: it has no {path.name}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(f"{path} cannot be read ({error}). Remove its folder, or restore the file.") from error
    if not isinstance(content, dict):
        raise FolderError(f"{path} does not hold a JSON object. Remove its folder, or restore the file.")
    return content

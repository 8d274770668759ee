"""Folders that students' programs wrote to are emptied, whatever was put there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

OWN = 0o700


def empty(folders: Iterable[Path]) -> bool:
    """Remove all that is in these folders; whether nothing is left."""
    emptied = [_empty(folder) for folder in folders]
    return all(emptied)


def remove(folder: Path) -> None:
    """Remove a folder and all that is in it, as far as that can be done."""
    _empty(folder)
    with suppress(OSError):
        os.rmdir(folder)


def _empty(folder: Path) -> bool:
    with suppress(OSError):  # it may belong to the system, which has made it for all
        os.chmod(folder, OWN)
    try:
        while children := [*os.scandir(folder)]:
            for child in children:
                _remove(child, folder)
    except OSError:
        return False
    return True


def _remove(entry: os.DirEntry[str], top: Path) -> None:
    """Remove it; folders in it are moved up to `top`: the deepest would have too long a path."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.path)
        return
    os.chmod(entry.path, OWN)
    for child in [*os.scandir(entry.path)]:
        if child.is_dir(follow_symlinks=False):
            os.chmod(child.path, OWN)  # without that it cannot be moved
            os.rename(child.path, top / f".{os.urandom(8).hex()}")
        else:
            os.unlink(child.path)
    os.rmdir(entry.path)

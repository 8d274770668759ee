"""Which files a program writes, and which process does.

wrote: the path in the folder of the program, and how. Python's own audit events tell, so that no way of opening a file
is missed; torch.save opens its files in C++.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import torch

from course_lib.grading.inside.channel import Channel

FLAGS = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


def install(channel: Channel, slow: float = 0.0) -> None:
    """Tell of each file that is opened for writing, moved or removed, and of each folder that is made.

    `slow`: seconds that each of these takes longer; a file is there meanwhile, and empty. One that reads what is not
    there waits for a part of it, so that the one who writes has begun.
    """
    folder = os.getcwd() + os.sep
    original_save = torch.save
    busy = threading.local()

    def save(content: Any, file: Any, *arguments: Any, **named: Any) -> None:
        tell("open", file, 0)
        original_save(content, file, *arguments, **named)

    def tell(how: str, path: Any, flags: int, at_once: bool = False) -> None:
        if not isinstance(path, (str, os.PathLike)) or getattr(busy, "is", False):
            return
        path = os.path.abspath(path)
        if path.startswith(folder) and not os.path.basename(path).startswith("."):
            channel.tell("wrote", path=path.removeprefix(folder), how=how)
            if slow and not at_once:
                busy.__dict__["is"] = True
                try:
                    delay(how, path, flags)
                finally:
                    busy.__dict__["is"] = False

    def delay(how: str, path: str, flags: int) -> None:
        if how == "open" and not flags & os.O_EXCL and os.path.isdir(os.path.dirname(path)):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
        time.sleep(slow)

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename", "os.remove", "os.mkdir"):
            how, path, flags = _of(event, arguments)
            if event == "os.rename":
                tell("remove", arguments[0], 0, at_once=True)  # there is none any more where it was
            if how:
                tell(how, path, flags)
            elif slow and isinstance(arguments[0], str) and not os.path.exists(arguments[0]):
                time.sleep(slow / 2 if os.path.abspath(arguments[0]).startswith(folder) else 0.0)

    torch.save = save
    sys.addaudithook(hear)


def _of(event: str, arguments: tuple[Any, ...]) -> tuple[str, Any, int]:
    if event == "open":
        flags = arguments[2] or 0
        return ("open", arguments[0], flags) if flags & FLAGS else ("", None, 0)
    if event == "os.rename":
        return "move", arguments[1], 0
    return ("remove" if event == "os.remove" else "mkdir"), arguments[0], 0

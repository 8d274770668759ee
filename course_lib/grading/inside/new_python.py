"""A new Python that a student's program started: a rank by `subprocess` or `torchrun`, for example.

Each new Python runs startup/sitecustomize.py, which calls `begin`. Where another process can, that one does the work
(see preloaded.py). Ranks train with torch, so what watches them is loaded when torch is: a Python without it stays as
quick as it is. It is watched like the program that started it, with the same probes and as a part of the same program;
limits are left to it by the kernel. Events go through a connection of its own, and the kernel says which process is at
its end.

Python leaves out sitecustomize where it is started with -I, -E or -S. Such a process runs as it is, within all limits;
what it does is not seen, so its ranks do not count.
"""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from course_lib.grading.inside import commands, preloaded
from course_lib.grading.inside.hiding import hide, shown

if TYPE_CHECKING:
    from course_lib.grading.inside.channel import Channel


def begin(watch: str) -> None:
    """Watch this process as `watch` says (see `student.watch`), once it imports torch or fails."""
    what = json.loads(watch)
    preloaded.hand_over(what["forks"], what["kind"])
    commands.carry(watch)
    watcher = _Watcher(what)
    hide()
    sys.meta_path.insert(0, watcher)  # its base class would take long to import
    sys.excepthook = watcher.fail


class _Watcher:
    """Waits for torch as a finder of modules, which finds none by itself."""

    def __init__(self, watch: dict[str, Any]) -> None:
        self._watch = watch
        self._channel: Channel | None = None

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Let others find torch, and begin when it is loaded."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_begin(module: Any) -> None:
                load(module)
                self._begin()

            spec.loader.exec_module = load_and_begin  # type: ignore[method-assign]
        return spec

    def fail(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Tell of an error that ends this process, as `sys.excepthook`."""
        sys.__excepthook__(kind, error, traceback)
        if self in sys.meta_path:
            import torch  # noqa: F401  # so that it begins
        self._tell(error)

    def _begin(self) -> None:
        with shown():
            from course_lib.grading.inside import spawning, student

            self._channel = student.watch(self._watch)
        self._describe = student.describe
        spawning.hear(self._tell)
        self._channel.tell("began")

    def _tell(self, error: BaseException) -> None:
        if self._channel is not None:  # it is where torch itself fails
            self._channel.tell("raised", **self._describe(error))

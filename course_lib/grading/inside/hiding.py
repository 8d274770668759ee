"""The course is hidden from students' programs: exercises are plain PyTorch, and what judges them is none of theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


class _NoCourse:
    """A finder of modules that finds none of the course's."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse the course."""
        if name.partition(".")[0] == "course_lib":
            raise ModuleNotFoundError(
                "No course_lib here: exercises are solved in plain Python and PyTorch.", name=name
            )


_refusal = _NoCourse()


def loaded() -> list[str]:
    """The modules of the course that are loaded. To ask is to write to the pages of all modules' names."""
    return [name for name in sys.modules if name.partition(".")[0] == "course_lib"]


def hide(modules: Sequence[str] | None = None) -> None:
    """Keep the course, these `modules` or all that are loaded, from being imported.

    What runs of it goes on by the references that it has.
    """
    for name in loaded() if modules is None else modules:
        del sys.modules[name]
    sys.meta_path.insert(0, _refusal)  # its base class would take long to import


@contextmanager
def shown() -> Iterator[None]:
    """Let more of the course be imported, by itself."""
    sys.meta_path.remove(_refusal)
    try:
        yield
    finally:
        hide()

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


def hide() -> None:
    """Keep the course from being imported; what runs of it goes on by the references that it has."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "course_lib"]:
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

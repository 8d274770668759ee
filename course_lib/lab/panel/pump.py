"""The thread of a panel: it looks for news a few times a second, so that nothing else has to wait."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from course_lib.lab.watch import SECONDS_BETWEEN_LOOKS

SECONDS_TO_END = 2.0  # that a drawing may still take


class Panel(Protocol):
    """What a pump keeps going."""

    folder: Path

    def look(self) -> None:
        """Look for news, and show what is new."""

    def fail(self, error: Exception) -> None:
        """Say that something could not be shown, and why."""

    def retire(self) -> None:
        """Give way to a newer panel."""


class Pump(threading.Thread):
    """Calls `panel.look` until it is ended, at once when it is woken; a look that fails does not end it."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(name=f"panel {panel.folder.name}", daemon=True)
        self.panel = panel
        self._awake, self._over = threading.Event(), threading.Event()

    def run(self) -> None:
        """Look, wait, and look again. Thread.start calls this."""
        while not self._over.is_set():
            self._awake.clear()
            try:
                self.panel.look()
            except Exception as error:  # in a thread, nobody else would see it
                if not self._over.is_set():
                    self.panel.fail(error)
            self._awake.wait(SECONDS_BETWEEN_LOOKS)

    def wake(self) -> None:
        """Look now."""
        self._awake.set()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.wake()
        if self is not threading.current_thread():
            self.join(SECONDS_TO_END)


def retire_others(folder: Path) -> None:
    """Have the panels of a folder that were opened before give way: their cell was run again, or another shows more.

    Each takes its share of the machine and of memory, and one is enough.
    """
    for thread in threading.enumerate():
        if isinstance(thread, Pump) and thread.panel.folder == folder:
            thread.panel.retire()

"""Ctrl-C and SIGTERM: both end a command in good order, and neither may come while torch is being loaded."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
EXIT_INTERRUPTED, EXIT_TERMINATED = (128 + each for each in INTERRUPTS)


class Terminated(KeyboardInterrupt):
    """SIGTERM came: like Ctrl-C, it ends the run and keeps what was recorded."""


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise `Terminated`."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(*_: object) -> None:
    raise Terminated


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold interrupts back; the first that came is handled at the end, however that is reached."""
    came: list[int] = []
    handlers = [(each, signal.signal(each, lambda number, _: came.append(number))) for each in INTERRUPTS]
    try:
        yield
    finally:
        for each, handler in handlers:
            signal.signal(each, handler)
        if came:
            signal.raise_signal(came[0])


def load_torch() -> None:
    """Import torch, and let signals wait until it is there: an exception inside its C++ would abort the program."""
    with signals_wait():
        import torch  # noqa: F401


def exit_code(interrupt: BaseException | None) -> int:
    """What a command ends with that was interrupted so."""
    return EXIT_TERMINATED if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED

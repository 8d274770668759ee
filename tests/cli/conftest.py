"""The command line as people meet it: in this process where that will do, and as a program where it matters."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from commands import Ended, Program

from course_lib.cli import main


@pytest.fixture(autouse=True)
def _no_word_about_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Ended]]:
    """Runs a command in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    """Starts a command as a program."""
    started: list[Program] = []

    def start(*arguments: object, **options: object) -> Program:
        started.append(Program(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.kill()

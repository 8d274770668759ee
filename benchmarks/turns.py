"""Sides that take turns an epoch at a time, each in processes of its own, which wait while the other sides run.

A shared machine is fast for some seconds and slow for some. What is compared must be measured within the same seconds,
and starting processes anew for each turn takes longer than that. So all sides start once; each rank of a side holds a
`Baton`, a socket to the process that hands out the turns.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from course_lib.config import RunConfig
from course_lib.errors import CourseError
from course_lib.runs.launch import launch
from course_lib.training.worker import Worker

TURN_LIMIT = 120.0  # seconds for one epoch, and for a side to start
SECONDS_TO_SAY_WHY = 5.0
Why = Callable[[], str]


@dataclass(frozen=True)
class Side:
    """One of those that are compared.

    Fields:
        name: who it is.
        ranks: how many processes take a baton.
        start: starts them, given the address of the batons, and ends them on leaving; gives a function that says why
            they ended by themselves.
    """

    name: str
    ranks: int
    start: Callable[[str], AbstractContextManager[Why]]


class Baton:
    """A rank's end: it waits for its turn, and passes on when its epoch is done."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._lines = self._socket.makefile("r")

    def take(self) -> None:
        """Wait for the turn."""
        if not self._lines.readline():
            raise EOFError("The benchmark that hands out the turns has ended.")

    def pass_on(self, images_per_sec: float = 0.0) -> None:
        """The epoch is done; one rank of a group tells its speed, the others leave it at 0."""
        self._socket.sendall(f"{images_per_sec}\n".encode())


class WorkerInTurns:
    """A worker that waits for its turn before the first epoch and after each, when the trainer saves its checkpoint."""

    def __init__(self, worker: Worker, address: str) -> None:
        self._worker = worker
        self._images_per_sec = 0.0
        self._baton = Baton(address)
        self._baton.take()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def report(self, kind: str, **values: Any) -> None:
        """Report as ever; the speed of an epoch is what the turn will be measured by."""
        self._worker.report(kind, **values)
        if kind == "epoch":
            self._images_per_sec = values["images_per_sec"]

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Every rank calls this after each epoch: the turn is over. Nothing is written."""
        self._baton.pass_on(self._images_per_sec)
        self._images_per_sec = 0.0
        self._baton.take()


def launched(name: str, train: Callable[..., Any], config: RunConfig, time_limit: float | None = None) -> Side:
    """A trainer, or a loop written by hand, that `launch` starts; `time_limit` is for all of its turns."""

    @contextmanager
    def start(address: str) -> Iterator[Why]:
        with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
            in_turns = partial(_train_in_turns, train, address)
            run = launch(in_turns, config.with_(checkpoint=True), Path(scratch) / "run", time_limit=time_limit)

            def why() -> str:
                try:
                    return f"it returned {run.wait(SECONDS_TO_SAY_WHY)}"
                except (CourseError, TimeoutError) as error:
                    return str(error)

            try:
                yield why
            finally:
                run.stop()

    return Side(name, config.world_size, start)


def take_turns_by_epoch(sides: Sequence[Side], turns: int) -> dict[str, list[float]]:
    """Images per second of each side in each turn, over all of its ranks; a first turn to warm up is left out.

    Raises:
        RuntimeError: a side ended or took too long; says which and why.
    """
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddp-course-turns-"))
        ends = {}
        for number, side in enumerate(sides):
            ends[side.name] = stack.enter_context(_HeldSide(side, f"{scratch}/{number}"))
        for turn in range(turns + 1):
            for side in sides[:: -1 if turn % 2 else 1]:
                samples[side.name].append(ends[side.name].run_an_epoch())
            said = ", ".join(f"{name} {taken[-1]:,.0f}" for name, taken in samples.items())
            print(f"  turn {turn} of {turns}: {said} images/s", file=sys.stderr)
    return {name: taken[1:] for name, taken in samples.items()}


class _HeldSide:
    """The other end of the batons of one side."""

    def __init__(self, side: Side, address: str) -> None:
        self._side = side
        self._address = address
        self._stack = ExitStack()
        self._ranks: list[Any] = []

    def __enter__(self) -> _HeldSide:
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(self._address)
            listener.listen()
            listener.settimeout(TURN_LIMIT)
            self._why = stack.enter_context(self._side.start(self._address))
            for _ in range(self._side.ranks):
                self._ranks.append(stack.enter_context(self._accept(listener)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run_an_epoch(self) -> float:
        """Let all ranks go, and wait until all have passed on: the sum of what they tell."""
        for rank in self._ranks:
            rank.sendall(b"go\n")
        return sum(self._told_by(rank) for rank in self._ranks)

    def _accept(self, listener: socket.socket) -> socket.socket:
        try:
            rank, _ = listener.accept()
        except TimeoutError:
            raise RuntimeError(f"{self._side.name} did not start in {TURN_LIMIT:.0f} s: {self._why()}") from None
        rank.settimeout(TURN_LIMIT)
        return rank

    def _told_by(self, rank: socket.socket) -> float:
        line = b""
        while not line.endswith(b"\n"):
            try:
                received = rank.recv(64)
            except TimeoutError:
                raise RuntimeError(f"{self._side.name} took longer than {TURN_LIMIT:.0f} s for an epoch") from None
            except ConnectionError:
                received = b""
            if not received:
                raise RuntimeError(f"{self._side.name} ended too early: {self._why()}")
            line += received
        return float(line)


def _train_in_turns(train: Callable[..., Any], address: str, config: RunConfig, worker: Worker) -> Any:
    return train(config, WorkerInTurns(worker, address))

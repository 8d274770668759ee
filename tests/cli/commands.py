"""How a command is run in a test, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import psutil
from processes import eventually

QUICK = ("--model", "mlp", "--train-samples", "600", "--epochs", "1")
DEADLINE = 90.0  # seconds, for a machine that has much else to do
MARK = "DDP_COURSE_TEST"


@dataclass
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        content: dict[str, Any] = json.loads(self.out)
        return content

    def paragraph(self) -> str:
        """What standard error says: one paragraph, which is one line where there is no terminal."""
        assert self.err.count("\n") == 1, self.err
        return self.err.strip()


class Program:
    """A command as a program of its own, with a mark in its environment that all its processes inherit."""

    def __init__(self, *arguments: object, **options: Any) -> None:
        self._mark = str(uuid.uuid4())
        command = [sys.executable, "-m", "course_lib.cli", *map(str, arguments)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(command, text=True, env={**os.environ, MARK: self._mark}, **streams)

    def send(self, signal_number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(signal_number)

    def end(self) -> Ended:
        """Wait for its end; nothing of it may be left."""
        out, err = self.process.communicate(timeout=DEADLINE)
        assert eventually(lambda: not self._processes()), self._processes()
        return Ended(self.process.returncode, out, err)

    def kill(self) -> None:
        """End it, should it still be there."""
        self.process.kill()
        self.process.communicate()

    def _processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._mark
        except psutil.Error:  # gone, or somebody else's
            return False

"""One job: its programs are started, followed until all have ended or a limit is reached, and nothing is left."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.grading.inside import processes, student
from course_lib.grading.inside.channel import KEY_BYTES
from course_lib.grading.inside.emptying import empty
from course_lib.grading.inside.limits import Limits
from course_lib.grading.inside.listening import OUTPUT_KEPT, Listener
from course_lib.grading.inside.notices import tell

SOCKET, STACKS = ".grader", ".stacks"  # in the folder of a job
TICK = 0.25  # seconds between two looks at the processes: one costs as much as many events
TICK_AT_THE_END = 0.02  # when only those are left that the programs started
MOST_COLLECTED = 8 << 20  # bytes of a file that is asked for
SECONDS_FOR_STACKS = 0.3
SECONDS_TO_END = 1.0  # that what a program started may go on after it


class Job:
    """The processes of one request (see server.py), from their start until none is left."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._folder = Path(request["folder"])
        self._began = time.monotonic()
        self._limits = Limits(request["seconds"], request["cpu_seconds"], request["memory"])
        self._programs: dict[int, int] = {}  # pid -> place
        self._key = os.urandom(KEY_BYTES)
        self._looked = 0.0

    def run(self) -> None:
        """Start the programs, pass on what they tell, and end all."""
        empty([self._folder])
        try:
            self._place_files()
            self._listener = Listener(self._folder / SOCKET, self._key)
            for place, program in enumerate(self._request["programs"]):
                self._start(place, program)
            why = self._follow()
            stacks = self._read_stacks() if why == "time" else {}
        finally:
            clean = processes.kill_descendants()
        self._listener.drain()
        self._listener.close()
        files = {name: base64.b64encode(content).decode() for name, content in self._collected()}
        clean &= empty([self._folder, *map(Path, self._request["scratch"])])
        seconds = time.monotonic() - self._began
        told = {"output": self._listener.outputs(), "stacks": stacks, "files": files, "clean": clean}
        tell({"is": "over", "why": why, "seconds": seconds, "strangers": self._listener.strangers, **told})

    def _place_files(self) -> None:
        for name, content in self._request["files"].items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        for program in self._request["programs"]:
            (self._folder / program["folder"]).mkdir(parents=True, exist_ok=True)
        (self._folder / STACKS).mkdir()

    def _start(self, place: int, program: dict[str, Any]) -> None:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._request.pop("programs").clear()  # what others are given is not for this one
            _become({**program, "place": place}, self._folder, self._key, theirs)
        os.close(theirs)
        tell({"is": "started", "pid": pid, "place": place})
        self._programs[pid] = place
        self._listener.read(ours)

    def _follow(self) -> str:
        """Wait until the programs have ended, or one limit is reached; which."""
        all_over = None
        while True:
            self._listener.pass_on(TICK if self._programs else TICK_AT_THE_END)
            for pid, code in processes.reap().items():
                if pid in self._programs:
                    tell({"is": "exit", "pid": pid, "place": self._programs.pop(pid), "code": code})
            now = time.monotonic()
            if not self._programs:
                all_over = all_over or now
                if not processes.descendants() or now - all_over > SECONDS_TO_END:
                    return "ended"
            if now - self._looked < TICK:
                continue
            self._looked = now
            started = len(self._listener.pids) - len(self._request["programs"])
            if why := self._limits.reached(processes.descendants(), self._listener.told, max(0, started)):
                return why

    def _read_stacks(self) -> dict[str, str]:
        """Where the processes that told something are now."""
        for pid in self._listener.pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        self._listener.pass_on(SECONDS_FOR_STACKS)
        time.sleep(SECONDS_FOR_STACKS)
        stacks = {}
        for pid in self._listener.pids:
            with contextlib.suppress(OSError):
                stacks[str(pid)] = _read(self._folder / STACKS / str(pid), OUTPUT_KEPT).decode(errors="replace")
        return stacks

    def _collected(self) -> Iterator[tuple[str, bytes]]:
        """The files that were asked for, as far as they are there, and in the folder."""
        for name in self._request["collect"]:
            with contextlib.suppress(OSError):
                path = os.path.realpath(self._folder / name)  # links may lead to it, but not out of the folder
                if path.startswith(os.path.realpath(self._folder) + os.sep):
                    yield name, _read(path, MOST_COLLECTED)


def _become(program: dict[str, Any], folder: Path, key: bytes, output: int) -> None:
    """The child's half of a fork: shed what is the server's, then run the program."""
    code = 1
    try:
        os.setsid()
        processes.close_memory(False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(fd, standard)
        os.closerange(3, 256)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout = open(1, "w", buffering=1, closefd=False)
        sys.stderr = open(2, "w", buffering=1, closefd=False)
        os.chdir(folder / program["folder"])

        code = student.run_program(program, str(folder / SOCKET), key, str(folder / STACKS))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _read(path: str | Path, most: int) -> bytes:
    """The first bytes of a file; a student's program may have put anything in its place.

    Raises:
        OSError: it is not there, or no file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(most)

"""The server in a sandbox: it has torch loaded, forks the processes of a job, and tells what they tell.

One job at a time. Requests come as JSON lines on standard input, notices go as JSON lines to standard output:

    {"do": "run", "folder": …, "files": {name: base64}, "programs": [{program}, …], "collect": [name, …],
     "scratch": [other folders to empty afterwards, …], "seconds": …, "cpu_seconds": …, "memory": bytes}

    {"is": "ready"}
    {"is": "started", "pid": …, "place": …}      a program; place: the number of it in the request
    {"is": "event", "pid": …, "at": …, "event": "…"}   what a process told (see channel.py), as it sent it, and when
    {"is": "exit", "pid": …, "place": …, "code": …}   it ended
    {"is": "over", "why": …, "seconds": …, "output": [of each program], "stacks": {pid: where it was},
     "files": {name: base64}, "clean": …}

`why` is "ended", "time", "memory" or "processes". Time is over too when all processes do nothing but wait for a while:
for each other, that is. After "over" no process of the job is there, and its files are gone.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from course_lib.grading.inside import processes
from course_lib.grading.inside.channel import LENGTH
from course_lib.grading.inside.encoding import MOST_BYTES

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.optim",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch._dynamo",
    "torch.optim",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "torch.multiprocessing",
    "course_lib.grading.inside.student",
)
SOCKET, STACKS = ".grader", ".stacks"  # in the folder of a job
TICK = 0.1  # seconds between two looks at the processes
QUIET_TICKS = 35  # looks in a row that find all processes waiting: for ever, then. A loaded machine looks less often
IDLE_SECONDS = 0.1  # of the processor, in all these ticks and of all processes: less than this is waiting
MOST_PROCESSES = 64
MOST_TOLD = 1 << 28  # bytes of a job
OUTPUT_KEPT = 20_000  # bytes of a program's output, its first and its last
MOST_COLLECTED = 8 << 20  # bytes of a file that is asked for
SECONDS_FOR_STACKS = 0.3
SECONDS_BETWEEN_LOOKS = 0.5  # at memory, close ones
SECONDS_TO_END = 1.0  # that what a program started may go on after it


@dataclass
class _Connection:
    """One process that tells what it does."""

    pid: int
    buffer: bytearray = field(default_factory=bytearray)


@dataclass
class _Output:
    """What a program prints: what comes first, and what comes last."""

    first: bytes = b""
    last: bytes = b""
    dropped: int = 0

    def add(self, content: bytes) -> None:
        room = OUTPUT_KEPT // 2 - len(self.first)
        self.first += content[:room]
        rest = self.last + content[room:]
        self.dropped += max(0, len(rest) - OUTPUT_KEPT // 2)
        self.last = rest[-OUTPUT_KEPT // 2 :]

    def text(self) -> str:
        gap = f"\n… {self.dropped:,} bytes …\n".encode() if self.dropped else b""
        return (self.first + gap + self.last).decode(errors="replace")


class Job:
    """The processes of one request, from their start until none is left."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._folder = Path(request["folder"])
        self._began = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._programs: dict[int, int] = {}  # pid -> place
        self._outputs: list[_Output] = []
        self._pids: set[int] = set()  # of all that told something
        self._told = 0
        self._looked = 0.0
        self._quiet, self._heard, self._used = 0, 0, 0.0
        self._next_look = 0.0

    def run(self) -> None:
        """Start the programs, pass on what they tell, and end all."""
        _empty(self._folder)
        try:
            for name, content in self._request["files"].items():
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(content))
            for program in self._request["programs"]:
                (self._folder / program["folder"]).mkdir(parents=True, exist_ok=True)
            (self._folder / STACKS).mkdir()
            self._listen()
            for place, program in enumerate(self._request["programs"]):
                self._start(place, program)
            why = self._follow()
            stacks = self._read_stacks() if why == "time" else {}
        finally:
            clean = processes.kill_descendants()
        self._drain()
        self._selector.close()
        files = {name: base64.b64encode(content).decode() for name, content in self._collected()}
        for folder in (self._folder, *map(Path, self._request["scratch"])):
            _empty(folder)
        seconds = time.monotonic() - self._began
        output = [each.text() for each in self._outputs]
        told = {"output": output, "stacks": stacks, "files": files, "clean": clean}
        _tell({"is": "over", "why": why, "seconds": seconds, **told})

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / SOCKET))
        self._listener.listen(MOST_PROCESSES)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _start(self, place: int, program: dict[str, Any]) -> None:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become({**program, "place": place}, self._folder, theirs)
        os.close(theirs)
        _tell({"is": "started", "pid": pid, "place": place})
        self._programs[pid] = place
        self._outputs.append(_Output())
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_output(ours, place))

    def _follow(self) -> str:
        """Wait until the programs have ended, or one limit is reached; which."""
        all_over = None
        while True:
            self._pass_on(TICK)
            for pid, code in processes.reap().items():
                if pid in self._programs:
                    _tell({"is": "exit", "pid": pid, "place": self._programs.pop(pid), "code": code})
            now = time.monotonic()
            if self._programs and now - self._looked < TICK:
                continue  # each look costs as much as many events
            self._looked = now
            below = processes.descendants()
            if not self._programs:
                all_over = all_over or now
                if not below or now - all_over > SECONDS_TO_END:
                    return "ended"
            if why := self._limit_reached(below, now):
                return why

    def _limit_reached(self, below: list[psutil.Process], now: float) -> str:
        """Which limit is reached; "" if none."""
        if len(below) > MOST_PROCESSES:
            return "processes"
        if self._is_too_large(below, now):
            return "memory"
        used = processes.cpu_seconds(below)
        if self._heard != self._told or abs(used - self._used) > IDLE_SECONDS:
            self._quiet, self._heard, self._used = 0, self._told, used
        self._quiet += 1
        late = now - self._began > self._request["seconds"] or used > self._request["cpu_seconds"]
        return "time" if late or self._quiet > QUIET_TICKS else ""

    def _is_too_large(self, below: list[psutil.Process], now: float) -> bool:
        """Whether they have too much memory: a coarse look at each time, and a closer one now and then."""
        most = self._request["memory"]
        if processes.resident_bytes(below) <= most or now < self._next_look:
            return False
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        return processes.proportional_bytes(below) > most

    def _pass_on(self, seconds: float) -> bool:
        """Take what comes within this time; whether anything did."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _drain(self) -> None:
        """Take what was sent before the end."""
        deadline = time.monotonic() + 1.0
        while self._pass_on(0.0) and time.monotonic() < deadline:
            pass

    def _accept(self) -> None:
        connected, _ = self._listener.accept()
        connection = _Connection(_pid_of(connected))
        self._pids.add(connection.pid)
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._hear(connected, connection))

    def _hear(self, connected: socket.socket, connection: _Connection) -> None:
        content = b""
        with contextlib.suppress(OSError):
            content = connected.recv(1 << 20)
        self._told += len(content)
        connection.buffer += content
        while len(connection.buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(connection.buffer)
            if length > 2 * MOST_BYTES or self._told > MOST_TOLD:
                content = b""  # nothing that channel.py sends is so long
                break
            if len(connection.buffer) < LENGTH.size + length:
                break
            event = bytes(connection.buffer[LENGTH.size : LENGTH.size + length])
            del connection.buffer[: LENGTH.size + length]
            at = time.monotonic()
            _tell({"is": "event", "pid": connection.pid, "at": at, "event": event.decode(errors="replace")})
        if not content:
            self._selector.unregister(connected)
            connected.close()

    def _read_output(self, ours: int, place: int) -> None:
        content = os.read(ours, 1 << 16)
        self._outputs[place].add(content)
        if not content:
            self._selector.unregister(ours)
            os.close(ours)

    def _read_stacks(self) -> dict[str, str]:
        """Where the processes that told something are now."""
        for pid in self._pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        self._pass_on(SECONDS_FOR_STACKS)
        time.sleep(SECONDS_FOR_STACKS)
        stacks = {}
        for pid in self._pids:
            with contextlib.suppress(OSError):
                stacks[str(pid)] = _read(self._folder / STACKS / str(pid), OUTPUT_KEPT).decode(errors="replace")
        return stacks

    def _collected(self) -> Iterator[tuple[str, bytes]]:
        """The files that were asked for, as far as they are there."""
        for name in self._request["collect"]:
            with contextlib.suppress(OSError):
                yield name, _read(self._folder / name, MOST_COLLECTED)


def _become(program: dict[str, Any], folder: Path, output: int) -> None:
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

        from course_lib.grading.inside.student import run_program

        code = run_program(program, str(folder / SOCKET), str(folder / STACKS))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _pid_of(connected: socket.socket) -> int:
    """The process at the other end, as the kernel knows it."""
    if sys.platform == "darwin":
        return struct.unpack("i", connected.getsockopt(0, 2, 4))[0]  # SOL_LOCAL, LOCAL_PEERPID
    pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid


def _read(path: Path, most: int) -> bytes:
    """The first bytes of a file; a student's program may have put anything in its place.

    Raises:
        OSError: it is not there, or no file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(most)


def _empty(folder: Path) -> None:
    """Remove all that is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


_notices = -1


def _tell(notice: dict[str, Any]) -> None:
    content = memoryview(json.dumps(notice).encode() + b"\n")
    while content:
        content = content[os.write(_notices, content) :]


def main() -> None:
    """Load what programs need, then serve until standard input ends."""
    global _notices
    # Notices have the standard output for themselves: what an import prints goes to standard error.
    _notices = os.dup(1)
    os.dup2(2, 1)
    processes.adopt_orphans()
    processes.close_memory()
    torch.set_num_threads(1)
    for module in PRELOAD:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the programs share these objects' memory with the server
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _tell({"is": "ready"})
    requests = sys.stdin.fileno()
    with open(requests, "rb", closefd=False) as lines:
        for line in lines:
            Job(json.loads(line)).run()


if __name__ == "__main__":
    try:
        main()
    finally:
        processes.kill_descendants()
        shutil.rmtree(sys.argv[1], ignore_errors=True)  # who started it may be gone

"""What the processes of a job tell, and what its programs print, as it comes."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.grading.inside import processes
from course_lib.grading.inside.channel import KEY_BYTES, LENGTH
from course_lib.grading.inside.encoding import MOST_BYTES
from course_lib.grading.inside.notices import tell

MOST_WAITING = 64  # processes that want to tell something for the first time
MOST_TOLD = 1 << 28  # bytes of a job
LEAST_TOLD = 1 << 11  # bytes that each event counts as: the smallest takes time to be passed on, too
MOST_LOOKS = 128  # of a job
OUTPUT_KEPT = 20_000  # bytes of a program's output, its first and its last


@dataclass
class _Connection:
    """One process that tells what it does."""

    pid: int
    has_key: bool = False
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


class Listener:
    """Passes on as notices what processes tell through a socket, and keeps what programs print.

    Attributes:
        pids: of all processes that told something.
        told: bytes, of all of them.
        strangers: connections that did not begin with the key: not of the checks' own code.
    """

    def __init__(self, address: Path, key: bytes) -> None:
        self.pids: set[int] = set()
        self.told = self.strangers = 0
        self._looks = 0
        self._key = key
        self._connected: set[int] = set()  # of `pids`, to another one
        self._outputs: list[_Output] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen(MOST_WAITING)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def read(self, pipe: int) -> None:
        """Keep what a program prints into this pipe."""
        output = _Output()
        os.set_blocking(pipe, False)  # a program can take from it, too
        self._outputs.append(output)
        self._selector.register(pipe, selectors.EVENT_READ, lambda: self._read_output(pipe, output))

    def outputs(self) -> list[str]:
        """What each program printed, without the middle if it is long."""
        return [each.text() for each in self._outputs]

    def pass_on(self, seconds: float) -> bool:
        """Take what comes within this time; whether anything did."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def drain(self) -> None:
        """Take what was sent before the end."""
        deadline = time.monotonic() + 1.0
        while self.pass_on(0.0) and time.monotonic() < deadline:
            pass

    def close(self) -> None:
        """Hear no more."""
        self._selector.close()

    def _accept(self) -> None:
        connected, _ = self._listener.accept()
        connection = _Connection(_pid_of(connected))
        self.pids.add(connection.pid)
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._hear(connected, connection))

    def _hear(self, connected: socket.socket, connection: _Connection) -> None:
        content = b""
        with contextlib.suppress(OSError):
            content = connected.recv(1 << 20)
        self.told += len(content)
        connection.buffer += content
        if not (content and self._is_known(connection) and self._take(connected, connection)):
            self._selector.unregister(connected)
            connected.close()

    def _is_known(self, connection: _Connection) -> bool:
        """Whether it began with the key, as far as it came."""
        if not connection.has_key:
            began = bytes(connection.buffer[:KEY_BYTES])
            if not self._key.startswith(began):
                self.strangers += 1
                return False
            if began == self._key:
                connection.has_key = True
                del connection.buffer[:KEY_BYTES]
        return True

    def _take(self, connected: socket.socket, connection: _Connection) -> bool:
        """Pass on the events that have come completely; whether more may come."""
        while connection.has_key and len(connection.buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(connection.buffer)
            if length > 2 * MOST_BYTES or self.told > MOST_TOLD:
                return False  # nothing that channel.py sends is so long
            if len(connection.buffer) < LENGTH.size + length:
                break
            event = bytes(connection.buffer[LENGTH.size : LENGTH.size + length])
            del connection.buffer[: LENGTH.size + length]
            self.told += LEAST_TOLD
            if not event:
                self._look(connected, connection.pid)
                continue
            at = time.monotonic()
            tell({"is": "event", "pid": connection.pid, "at": at, "bytes": len(event)}, event)
        return True

    def _look(self, connected: socket.socket, pid: int) -> None:
        """Tell whether a process, which waits for that, is connected to another one that told something."""
        found: set[int] | None = set()
        self._looks += 1
        if pid not in self._connected and self._looks <= MOST_LOOKS:  # a look takes long, and sees all of them
            found = processes.connected(self.pids)
            self._connected |= found or set()
        tell({"is": "looked", "pid": pid, "connected": None if found is None else pid in self._connected})
        with contextlib.suppress(OSError):
            connected.send(b"!", socket.MSG_DONTWAIT)

    def _read_output(self, pipe: int, output: _Output) -> None:
        try:
            content = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        output.add(content)
        if not content:
            self._selector.unregister(pipe)
            os.close(pipe)


def _pid_of(connected: socket.socket) -> int:
    """The process at the other end, as the kernel knows it."""
    if sys.platform == "darwin":
        return struct.unpack("i", connected.getsockopt(0, 2, 4))[0]  # SOL_LOCAL, LOCAL_PEERPID
    pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid

"""How a process in the sandbox tells what it does: a connection of its own to the server there.

The kernel tells the server which process is at the other end, so none can speak for another. A connection begins with
the key of the job: what a student's code sends through one of its own is known for that.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from time import monotonic  # by its own name: a program may change what the module has
from typing import Any

from course_lib.grading.inside.encoding import encode

LENGTH = struct.Struct("!I")
KEY_BYTES = 16
LOOK = LENGTH.pack(0)  # asks the server to look who is connected to this process; it answers with one byte


class Channel:
    """Sends events, each with the number of the program and the time; in a forked process it connects anew."""

    def __init__(self, address: str, key: bytes, program: int) -> None:
        self._address, self._key, self._program = address, key, program
        self._pid, self._socket = 0, socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()

    def tell(self, kind: str, **values: Any) -> None:
        """Send an event, with the time. A server that is gone, or hears no more, is no concern of the program's."""
        content = encode({"kind": kind, "program": self._program, "at": monotonic(), **values})
        self._send(LENGTH.pack(len(content)) + content)

    def let_look(self) -> None:
        """Wait until the server has looked whether this process is connected to others."""
        self._send(LOOK, answered=True)

    def forget(self) -> None:
        """In a forked process: the lock may be held by a thread that is not here, and the connection is another's."""
        self._lock = threading.Lock()
        self._socket.close()

    def _connect(self) -> None:
        if self._pid != os.getpid():
            self._socket = socket.socket(socket.AF_UNIX)
            self._pid = os.getpid()
            self._socket.connect(self._address)
            self._socket.sendall(self._key)

    def _send(self, content: bytes, answered: bool = False) -> None:
        with self._lock:
            try:
                self._connect()
                self._socket.sendall(content)
                if answered:
                    self._socket.recv(1)
            except OSError:
                pass

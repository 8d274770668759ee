"""Processes that a student's program spawns, without importing torch again for each.

`spawn` starts a new Python, which imports the program anew, and torch with it. Here a process does that work which was
forked before any of the student's code ran: all that the program sees is as with `spawn`. It unpickles the function
and its arguments, and imports the main file under another name.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from multiprocessing import context, forkserver, popen_forkserver, resource_tracker, spawn
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

# The package has a function of the same name.
torch_spawn = import_module("torch.multiprocessing.spawn")


def begin(on_error: Callable[[BaseException], None]) -> None:
    """Fork that process, and let `spawn` use it. Python's own forkserver is what it runs.

    `on_error` is called in a process that fails: who waits for it learns of the first one only.
    """
    BaseProcess.run = _heard(BaseProcess.run, on_error)  # type: ignore[method-assign]
    torch_spawn._wrap = _wrap_of(on_error)
    spawn.get_preparation_data, spawn.prepare = _with_environment(
        spawn.get_preparation_data, _heard(spawn.prepare, on_error)
    )
    # What Python's tracker would remove in the end goes with the sandbox; it would be a new Python.
    resource_tracker._resource_tracker._fd = os.open(os.devnull, os.O_WRONLY)
    server = forkserver._forkserver
    listener = socket.socket(socket.AF_UNIX)
    address = tempfile.mktemp(prefix=".spawn-", dir=os.getcwd())
    listener.bind(address)
    listener.listen()
    # Those that are spawned may spawn too, so all of this is for the process below as well.
    server._forkserver_address = address
    server.ensure_running = lambda: None  # type: ignore[method-assign]
    server._forkserver_authkey = None  # from Python 3.14 on; processes of one job need no password
    context.SpawnProcess._Popen = staticmethod(lambda process: popen_forkserver.Popen(process))
    alive_r, alive_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(alive_w)
            forkserver.main(listener.fileno(), alive_r, preload=[])
        finally:
            os._exit(0)  # what stands above in the stack is not for this process
    os.close(alive_r)
    listener.close()
    server._forkserver_alive_fd = alive_w
    server._forkserver_pid = pid


def _with_environment(collect: Callable[..., Any], prepare: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """What a process is told first, together with the environment as it is when it is spawned."""

    def prepare_all(data: dict[str, Any]) -> None:
        os.environ.update(data.pop("environ"))
        np.random.seed()  # a new Python has numbers of its own; torch's begin with the same, and Python's see to it
        prepare(data)

    return lambda *arguments: {**collect(*arguments), "environ": dict(os.environ)}, prepare_all


def _heard(function: Callable[..., Any], on_error: Callable[[BaseException], None]) -> Callable[..., Any]:
    @wraps(function)  # with its name too: it is found by that, where it was pickled
    def heard(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Exception as error:
            on_error(error)
            raise

    return heard


def _wrap_of(on_error: Callable[[BaseException], None]) -> Callable[..., Any]:
    """What torch runs in a process that it spawns: it keeps errors to itself, so the function is listened to."""
    original = torch_spawn._wrap

    @wraps(original)
    def wrap(function: Callable[..., Any], *others: Any) -> Any:
        return original(_heard(function, on_error), *others)

    return wrap

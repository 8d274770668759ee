"""Processes that a student's program spawns, without importing torch again for each.

`spawn` starts a new Python, which imports the program anew, and torch with it. Here a process does that work which was
forked before any of the student's code ran: all that the program sees is as with `spawn`. It unpickles the function
and its arguments, and imports the main file under another name.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from multiprocessing import context, forkserver, popen_forkserver, spawn
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import numpy as np

from course_lib.grading.inside import preloaded, processes

# The package has a function of the same name.
torch_spawn = import_module("torch.multiprocessing.spawn")


def begin(
    address: str, on_error: Callable[[BaseException], None], on_command: Callable[[dict[str, Any]], NoReturn]
) -> None:
    """Fork that process, and let `spawn` use it. Python's own forkserver is what it runs, and listens at this address.

    `on_error`: see `hear`. `on_command` is called in a process that is to run a command, with what it is.
    """
    hear(on_error)
    spawn.get_preparation_data, spawn.prepare = _with_environment(spawn.get_preparation_data, spawn.prepare, on_command)
    # Those that are spawned may spawn too, so all of this is for the process below as well.
    server = preloaded.forkserver_at(address)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    context.SpawnProcess._Popen = staticmethod(lambda process: popen_forkserver.Popen(process))
    alive_r, alive_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if sys.platform == "linux":
                processes.end_with_parent()
            else:
                os.close(alive_w)
            forkserver.main(listener.fileno(), alive_r, preload=[])
        finally:
            os._exit(0)  # what stands above in the stack is not for this process
    os.close(alive_r)
    listener.close()
    server._forkserver_alive_fd = alive_w
    server._forkserver_pid = pid


def hear(on_error: Callable[[BaseException], None]) -> None:
    """Call `on_error` in each process of a pool or a spawn that fails: who waits for them learns of the first only."""
    BaseProcess.run = _heard(BaseProcess.run, on_error)  # type: ignore[method-assign]
    torch_spawn._wrap = _wrap_of(on_error)
    spawn.prepare = _heard(spawn.prepare, on_error)


def _with_environment(
    collect: Callable[..., Any], prepare: Callable[..., Any], on_command: Callable[[dict[str, Any]], NoReturn]
) -> tuple[Callable[..., Any], ...]:
    """What a process is told first, together with the environment as it is when it is spawned."""

    def prepare_all(data: dict[str, Any]) -> None:
        if "command" in data:
            on_command(data["command"])
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

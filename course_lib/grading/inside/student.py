"""A process that runs a student's code: a program as Python would run it, or functions that a harness calls."""

from __future__ import annotations

import atexit
import base64
import faulthandler
import importlib
import json
import linecache
import os
import pkgutil
import resource
import runpy
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from course_lib.grading.inside import commands, hiding, preloaded, spawning
from course_lib.grading.inside.channel import Channel
from course_lib.grading.inside.encoding import decode

PROBES, HARNESSES = "course_lib.grading.inside.probes", "course_lib.grading.inside.harnesses"
CELL = "<your code>"  # what a traceback calls the code of the solution cells
LONGEST = 4_000  # characters of an error that are told
ADDRESS_SPACE, FILE_SIZE, OPEN_FILES = 6 << 30, 64 << 20, 512
_course: list[str] = []  # its modules, as the server has loaded them


def run_program(program: dict[str, Any], address: str, key: bytes, stacks: str) -> int:
    """Run one program of a job, and tell how it ends, by the key of the job; its exit code.

    The program is {"probes": {name: options}, "environ": {…}} and one of
    {"path": …, "argv": […]}: a file that is run as `python path *argv`;
    {"code": …, "harness": "module:function", "inputs": encoded}: code that is run as cells are, and the function that
    is then called with its names and the inputs.
    """
    os.environ.update(program["environ"])
    forks = tempfile.mktemp(prefix=".spawn-", dir=os.path.dirname(stacks))
    what = {"probes": program["probes"], "program": program["place"], "address": address, "key": key.hex()}
    what["stacks"] = stacks
    channel = watch(what)
    work = _work_of(program)
    hiding.hide(_course)
    commands.carry(json.dumps({**what, "forks": forks, "kind": preloaded.kind_of_python()}))
    spawning.begin(
        forks,
        lambda error: channel.tell("raised", **describe(error)),
        lambda command: preloaded.become(command, lambda argv, what: _run_command(argv, what, channel)),
    )
    return _run(work, channel)


def _run_command(argv: list[str], what: str, channel: Channel) -> int:
    """Run what a new Python was started for: a module, code or a file; its exit code."""

    def work() -> None:
        main = sys.modules["__main__"] = ModuleType("__main__")
        if argv[0] == "-m":
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(what)
        elif argv[0] == "-c":
            sys.path.insert(0, "")
            exec(compile(what, "<string>", "exec"), main.__dict__)
        else:
            _run_file(argv[0], argv[1:])

    return _run(work, channel)


def _run(work: Callable[[], tuple[Any] | None], channel: Channel) -> int:
    """Do what a program does, and tell how it ends; its exit code."""
    np.random.seed()  # that of the server is the same for all
    channel.tell("began")
    code = 0
    try:
        value = work()
        if value is not None:
            channel.tell("returned", value=value[0])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code:
            channel.tell("raised", **describe(error))
    except BaseException as error:
        channel.tell("raised", **describe(error))
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # as at the end of any program: it waits for its own processes, for example
    return code


def watch(what: dict[str, Any]) -> Channel:
    """Limit this process and its forks, and tell from now on what they do.

    `what` says how: {"probes": {name: options}, "program": its number, "address": of the server, "key": of the job,
    "stacks": a folder}.
    """
    _limit()
    channel = Channel(what["address"], bytes.fromhex(what["key"]), what["program"])
    _at_each_fork(channel, Path(what["stacks"]))
    for name, options in what["probes"].items():
        importlib.import_module(f"{PROBES}.{name}").install(channel, **options)
    return channel


def _work_of(program: dict[str, Any]) -> Callable[[], tuple[Any] | None]:
    """What the program does; the value of a harness comes in a tuple."""
    if "path" in program:
        return lambda: _run_file(program["path"], program["argv"])
    module, _, function = program["harness"].partition(":")
    call = getattr(importlib.import_module(f"{HARNESSES}.{module}"), function)
    return lambda: (call(run_cells(program["code"]), decode(base64.b64decode(program["inputs"]))),)


def describe(error: BaseException) -> dict[str, Any]:
    """An error in words: its type, what it says, and the line of the student's own code that it came through last.

    `kinds` are the types that it is a kind of.
    """
    try:
        message = str(error)[:LONGEST]
    except Exception:  # a student's exception may fail even at this
        message = "(an exception without a readable message)"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_students(frame.filename)]
    where = {"line": own[-1].lineno, "text": own[-1].line, "function": own[-1].name} if own else None
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"type": type(error).__name__, "kinds": kinds, "message": message, "where": where}


def is_students(filename: str) -> bool:
    """Whether a file is the student's own."""
    return filename == CELL or filename.startswith(os.getcwd() + os.sep)


def _run_file(path: str, argv: list[str]) -> None:
    sys.argv[:] = [path, *argv]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(os.path.abspath(path), run_name="__main__")


def run_cells(code: str) -> dict[str, Any]:
    """Run code as a notebook runs its cells; the names that it defines."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__["hash"] = _salted(os.urandom(8))
    linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
    exec(compile(code, CELL, "exec"), main.__dict__)
    return main.__dict__


def _salted(salt: bytes) -> Callable[[Any], int]:
    """`hash` as a Python of its own has it: that of texts is another one in each, but forks have all the same."""

    def salted(value: Any, /) -> int:
        return hash(_with_salt(value, salt))

    return salted


def _with_salt(value: Any, salt: bytes) -> Any:
    if type(value) in (str, bytes) and value:
        return (salt, value)
    if type(value) is tuple and _has_text(value):
        return tuple(_with_salt(each, salt) for each in value)
    return value


def _has_text(value: Any) -> bool:
    return type(value) in (str, bytes) or (type(value) is tuple and any(map(_has_text, value)))


def _limit() -> None:
    """What one process may take; how much all may take together, the server looks at."""
    for name, most in (
        ("RLIMIT_AS", ADDRESS_SPACE),
        ("RLIMIT_FSIZE", FILE_SIZE),
        ("RLIMIT_NOFILE", OPEN_FILES),
        ("RLIMIT_CORE", 0),
    ):
        if hasattr(resource, name):
            limit = getattr(resource, name)
            _, hard = resource.getrlimit(limit)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(limit, (most, most))
    torch.set_num_threads(1)


def _at_each_fork(channel: Channel, stacks: Path) -> None:
    """In this process and in each that is forked from it: tell anew, and write where it is when the server asks."""

    def begin() -> None:
        channel.forget()
        faulthandler.register(signal.SIGUSR1, file=(stacks / str(os.getpid())).open("w"), all_threads=False)

    begin()
    os.register_at_fork(after_in_child=begin)


def load() -> None:
    """Load all probes and harnesses: what the server has loaded costs a program nothing."""
    for package in (PROBES, HARNESSES):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
    _course.extend(hiding.loaded())

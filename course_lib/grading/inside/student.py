"""A process that runs a student's code: a program as Python would run it, or functions that a harness calls."""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import linecache
import os
import pkgutil
import resource
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from course_lib.grading.inside import spawning
from course_lib.grading.inside.channel import Channel
from course_lib.grading.inside.encoding import decode

PROBES, HARNESSES = "course_lib.grading.inside.probes", "course_lib.grading.inside.harnesses"
CELL = "<your code>"  # what a traceback calls the code of the solution cells
LONGEST = 4_000  # characters of an error that are told
_course: list[str] = []  # all of its modules that are loaded
ADDRESS_SPACE, FILE_SIZE, OPEN_FILES = 6 << 30, 64 << 20, 512


def run_program(program: dict[str, Any], address: str, key: bytes, stacks: str) -> int:
    """Run one program of a job, and tell how it ends, by the key of the job; its exit code.

    The program is {"probes": {name: options}, "environ": {…}} and one of
    {"path": …, "argv": […]}: a file that is run as `python path *argv`;
    {"code": …, "harness": "module:function", "inputs": encoded}: code that is run as cells are, and the function that
    is then called with its names and the inputs.
    """
    os.environ.update(program["environ"])
    _limit()
    channel = Channel(address, key, program["place"])
    _at_each_fork(channel, Path(stacks))
    for name, options in program["probes"].items():
        importlib.import_module(f"{PROBES}.{name}").install(channel, **options)
    work = _work_of(program)
    _hide_the_course()
    np.random.seed()  # that of the server is the same for all
    spawning.begin(lambda error: channel.tell("raised", **describe(error)))
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


def _work_of(program: dict[str, Any]) -> Callable[[], tuple[Any] | None]:
    """What the program does; the value of a harness comes in a tuple."""
    if "path" in program:
        return lambda: _run_file(program["path"], program["argv"])
    module, _, function = program["harness"].partition(":")
    call = getattr(importlib.import_module(f"{HARNESSES}.{module}"), function)
    return lambda: (call(run_cells(program["code"]), decode(program["inputs"])),)


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
    linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
    exec(compile(code, CELL, "exec"), main.__dict__)
    return main.__dict__


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
    _course.extend(name for name in sys.modules if name.partition(".")[0] == "course_lib")


class _NoCourse(MetaPathFinder):
    """Exercises are plain PyTorch; and what judges them is nothing that they should find."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse the course."""
        if name.partition(".")[0] == "course_lib":
            raise ModuleNotFoundError(
                "No course_lib here: exercises are solved in plain Python and PyTorch.", name=name
            )


def _hide_the_course() -> None:
    """Keep it from being imported; what runs here goes on by the references that it has."""
    for name in _course:
        del sys.modules[name]
    sys.meta_path.insert(0, _NoCourse())

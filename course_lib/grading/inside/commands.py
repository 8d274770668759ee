"""Commands that a student's program starts: whatever environment they are given, a new Python is still watched.

What says how is not in `os.environ`, which students see, but among the variables that the kernel hands on.
"""

from __future__ import annotations

import _posixsubprocess
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = "DDP_COURSE_WATCH"  # as startup/sitecustomize.py reads it
STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
ENVIRON = 5  # the place of the environment among what fork_exec is given: a list, or None for one's own


def carry(watch: str) -> None:
    """Let each new Python that this process, or a fork of it, starts find out that it is watched as `watch` says."""
    os.putenv(VARIABLE, watch)
    execve, fork_exec = os.execve, _posixsubprocess.fork_exec

    def carried(environ: Any) -> Any:
        """An environment with this in it; what is none is left for Python to refuse."""
        if not isinstance(environ, Mapping):
            return environ
        both = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
        paths = both.get(b"PYTHONPATH", b"").split(os.fsencode(os.pathsep))
        if os.fsencode(STARTUP) not in paths:
            paths.insert(0, os.fsencode(STARTUP))
        both[b"PYTHONPATH"] = os.fsencode(os.pathsep).join(filter(None, paths))
        return {**both, os.fsencode(VARIABLE): os.fsencode(watch)}

    def run(*given: Any) -> int:
        values = [*given]
        environ = os.environb if values[ENVIRON] is None else dict(each.split(b"=", 1) for each in values[ENVIRON])
        values[ENVIRON] = [b"=".join(pair) for pair in carried(environ).items()]
        return fork_exec(*values)

    def spawning(original: Callable[..., int]) -> Callable[..., int]:
        return lambda path, argv, env, **named: original(path, argv, carried(env), **named)

    _posixsubprocess.fork_exec = run
    if "subprocess" in sys.modules:
        sys.modules["subprocess"]._fork_exec = run
    os.execve = lambda path, argv, env: execve(path, argv, carried(env))
    os.execv = lambda path, argv: execve(path, argv, carried(os.environ))
    os.posix_spawn, os.posix_spawnp = spawning(os.posix_spawn), spawning(os.posix_spawnp)

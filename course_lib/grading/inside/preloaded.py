"""New Pythons of a student's program, run by a process that has torch loaded already.

`subprocess.Popen([sys.executable, "train.py"])`, `torchrun` or a shell start a new Python, which takes seconds of the
processor to load torch. The process that forks those of `spawn` (see spawning.py) can do what it was started for: with
its arguments, folder, environment and files. So the new Python only asks for that (`hand_over`), passes signals on, and
ends as the other one does, which ends with it (`become`). Only its number is another. What cannot be done exactly,
such as options of Python or more open files, the new Python does by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from types import FrameType

ANY = ("dont_write_bytecode", "utf8_mode")  # flags that make no difference here, and depend on the environment


def kind_of_python() -> list[Any]:
    """What two Pythons have to have in common: which one it is, and its options."""
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if not name.startswith("_")}
    options = [int(value) for name, value in flags.items() if isinstance(value, int) and name not in ANY]
    return [sys.prefix, sys.version, options, list(sys.warnoptions), sorted(sys._xoptions)]


def forkserver_at(address: str) -> Any:
    """Python's own forkserver, taken to run at this address."""
    from multiprocessing import forkserver, resource_tracker

    # What Python's tracker would remove in the end goes with the sandbox; it would be a new Python.
    resource_tracker._resource_tracker._fd = os.open(os.devnull, os.O_WRONLY)
    server: Any = forkserver._forkserver
    server._forkserver_address = address
    server.ensure_running = lambda: None
    server._forkserver_authkey = None  # from Python 3.14 on; processes of one job need no password
    return server


def hand_over(address: str, kind: Sequence[Any]) -> None:
    """End as a process ends that does what this one was started for; return where there can be none.

    `address` is that of the process that forks it, and `kind` what kind of Python it is.
    """
    command = _command()
    if sys.platform != "linux" or command is None or list(kind) != kind_of_python() or _open_files() != {0, 1, 2}:
        return
    import pickle  # which take long to import, for a Python that goes on by itself
    import signal
    from multiprocessing import forkserver

    alive, _mine = os.pipe()
    server = forkserver_at(address)
    server._forkserver_alive_fd = alive  # which the one that is forked does nothing with
    try:
        status, request = server.connect_to_new_process([0, 1, 2, alive])
        with open(request, "wb") as stream:
            pickle.dump({"command": command}, stream)
        pid = forkserver.read_signed(status)
    except (OSError, EOFError):
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(pid, number)

    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, pass_on)
        except (OSError, ValueError):
            pass  # one of the C library's own
    code = forkserver.read_signed(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def become(command: dict[str, Any], run: Callable[[list[str], str], int]) -> NoReturn:
    """In the process that was forked for it: do what a new Python was started for, until that one ends.

    `run` gets the arguments, and the code or the module that they are for.
    """
    import fcntl
    import signal
    from multiprocessing import forkserver, process

    code = 1
    try:
        *files, alive = forkserver._forkserver._inherited_fds
        for standard, fd in enumerate(files):
            os.dup2(fd, standard)
            os.close(fd)
        # When nobody holds the other end any more, the kernel sends this signal.
        os.set_inheritable(alive, False)
        fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(alive, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        sys.stdin, sys.stdout, sys.stderr = (
            open(fd, mode, buffering=1, closefd=False) for fd, mode in enumerate(("r", "w", "w"))
        )
        os.chdir(command["folder"])
        os.environ.clear()
        os.environ.update(command["environ"])
        sys.path[:], sys.argv[:], sys.orig_argv[:] = command["path"], command["argv"], command["orig_argv"]
        del process.current_process()._inheriting  # it may start processes of its own
        code = run(command["argv"], command["what"])
    finally:
        os._exit(code)


def _command() -> dict[str, Any] | None:
    """What this Python was started for; None where it is neither a file nor a module nor code."""
    argv, words = sys.argv, sys.orig_argv
    before = words[: len(words) - (len(argv) - 1)]  # the arguments of Python, and what they are for
    if argv[0] in ("-c", "-m") and before[-2].startswith("-") and before[-2].endswith(argv[0][1]):
        what = before[-1]
    elif os.path.isfile(argv[0]) and before[-1] == argv[0]:
        what = ""
    else:
        return None
    values = {"argv": argv, "orig_argv": words, "what": what, "path": sys.path}
    return {**values, "folder": os.getcwd(), "environ": dict(os.environ)}


def _open_files() -> set[int]:
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(fd)
            found.add(fd)
        except OSError:
            pass  # that of the folder itself
    return found

"""The fork server: a process that has torch loaded and forks the ranks of runs on request.

Importing torch takes seconds, forking a process that has it takes milliseconds. The server does
nothing with torch but import it: no thread pool is started and CUDA stays untouched, so that its
forks are safe. It lives in a session of its own and ends, with every rank, when its standard input
does, which is when the process that started it is gone. When the server itself is killed, the ranks
notice by a pipe that only the server holds open for writing.

Requests come as JSON lines on standard input, notices go as JSON lines to standard output:

    {"do": "start", "run": …, "ranks": [{place, log}, …],
     "folder": …, "resume_from": …, "cwd": …, "environ": …, "sys_path": …}
    {"do": "kill", "run": …}
    {"do": "dump", "run": …, "rank": …}       the rank writes where it is to its stack file

    {"is": "ready"}
    {"is": "started", "run": …, "meeting_folder": …}
    {"is": "refused", "run": …, "why": …}               the system would not fork so many
    {"is": "finished", "run": …, "rank": …}             the rank has recorded its result, and waits
    {"is": "exit", "run": …, "rank": …, "code": …}      negative: killed by that signal
    {"is": "over", "run": …}                            the last rank is gone, and its leavings

A rank that has finished waits until all have: one that left early would break the connections of the
others. Then the server kills them, which also spares gloo its tear-down, where it aborts now and then.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.optim",
    "torch.nn.parallel",
    "course_lib.runs.worker",
    "course_lib.training.single",
    "course_lib.training.ddp",
)


_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Server:
    """Forks ranks, reaps them, and tells what became of them."""

    def __init__(self, notices: int) -> None:
        self._notices = notices
        self._parent = os.getppid()
        self._ranks: dict[int, tuple[str, int]] = {}  # pid -> (run, rank)
        self._finished: set[int] = set()
        self._meeting_folders: dict[str, str] = {}
        self._lifeline, self._lifeline_end = os.pipe()
        self._finish_line, self._finish_line_end = os.pipe()  # ranks write their pid to it
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Answer requests until standard input ends or the parent is gone; then kill all ranks."""
        self._tell({"is": "ready"})
        requests = b""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            selector.register(self._finish_line, selectors.EVENT_READ)
            # A copy of our standard input in another child of the parent keeps it from ending, so
            # the parent's number is looked at too.
            while os.getppid() == self._parent:
                for key, _ in selector.select(timeout=1.0):
                    content = os.read(key.fd, 1 << 16)
                    if key.fd == 0 and not content:
                        return
                    if key.fd == 0:
                        *lines, requests = (requests + content).split(b"\n")
                        for line in lines:
                            self._answer(json.loads(line))
                    if key.fd == self._finish_line:
                        for pid in content.split():
                            self._finish(int(pid))
                self._reap()

    def close(self) -> None:
        """Kill every rank and remove what runs left in the temporary folder."""
        for pid in self._ranks:
            _kill_rank(pid)
        for folder in self._meeting_folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _answer(self, request: dict[str, Any]) -> None:
        if request["do"] == "start":
            try:
                self._start(request)
            except OSError as error:
                self._refuse(request["run"], error)
        elif request["do"] == "kill":
            self._kill(request["run"])
        elif request["do"] == "dump":
            for pid, (run, rank) in self._ranks.items():
                if (run, rank) == (request["run"], request["rank"]):
                    os.kill(pid, signal.SIGUSR1)

    def _start(self, request: dict[str, Any]) -> None:
        meeting_folder = tempfile.mkdtemp(prefix="ddp-course-")
        self._meeting_folders[request["run"]] = meeting_folder
        for rank in request["ranks"]:
            pid = os.fork()
            if pid == 0:
                self._become_rank(request, rank, f"file://{meeting_folder}/meeting")
            self._ranks[pid] = (request["run"], rank["place"]["rank"])
        self._tell({"is": "started", "run": request["run"], "meeting_folder": meeting_folder})

    def _refuse(self, run: str, why: OSError) -> None:
        """The system has no process or no room left: end what was started, and go on serving."""
        self._tell({"is": "refused", "run": run, "why": str(why)})
        self._kill(run)
        if not self._has_ranks(run):
            self._end(run)

    def _kill(self, run: str) -> None:
        for pid, (of_run, _) in self._ranks.items():
            if of_run == run:
                _kill_rank(pid)

    def _has_ranks(self, run: str) -> bool:
        return any(of_run == run for of_run, _ in self._ranks.values())

    def _end(self, run: str) -> None:
        if run in self._meeting_folders:
            shutil.rmtree(self._meeting_folders.pop(run), ignore_errors=True)
        self._tell({"is": "over", "run": run})

    def _finish(self, pid: int) -> None:
        if pid not in self._ranks:
            return  # killed in the meantime
        run, rank = self._ranks[pid]
        self._finished.add(pid)
        self._tell({"is": "finished", "run": run, "rank": rank})
        pids = [other for other, (of_run, _) in self._ranks.items() if of_run == run]
        if self._finished.issuperset(pids):
            self._kill(run)

    def _become_rank(self, request: dict[str, Any], rank: dict[str, Any], init_method: str) -> None:
        """The child's half of a fork: shed what is the server's, then work as a rank."""
        code = 1
        try:
            _die_with_parent()
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for fd in (self._notices, self._wake, self._wake_end, self._finish_line, self._lifeline_end):
                os.close(fd)
            _redirect_output(rank["log"])
            threading.Thread(target=_die_with, args=(self._lifeline,), daemon=True).start()
            os.environ.clear()
            os.environ.update(request["environ"])
            sys.path[:] = request["sys_path"]
            os.chdir(request["cwd"])

            from course_lib.runs.devices import Place
            from course_lib.runs.exit_codes import EXIT_FINISHED
            from course_lib.runs.worker import run_rank

            code = run_rank(request["folder"], Place(**rank["place"]).meeting_at(init_method), request["resume_from"])
            _flush_output()
            if code == EXIT_FINISHED:
                os.write(self._finish_line_end, b"%d\n" % os.getpid())
                while True:
                    signal.pause()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            # Not sys.exit: the server's own frames are below.
            _flush_output()
            os._exit(code)

    def _reap(self) -> None:
        while self._ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            run, rank = self._ranks.pop(pid)
            _kill_group(pid)  # what the rank itself had started
            if pid not in self._finished:
                self._tell({"is": "exit", "run": run, "rank": rank, "code": os.waitstatus_to_exitcode(status)})
            self._finished.discard(pid)
            if not self._has_ranks(run):
                self._end(run)

    def _tell(self, notice: dict[str, Any]) -> None:
        os.write(self._notices, json.dumps(notice).encode() + b"\n")


def _redirect_output(log: str) -> None:
    """Send all that this process prints, from Python or not, to its log."""
    log_file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log_file, 1)
    os.dup2(log_file, 2)
    os.close(nothing)
    os.close(log_file)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the server is gone, whatever it is busy with then.

    The signal comes when the thread that forked ends; the server has one only.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_with(lifeline: int) -> None:
    """Kill this rank and all that it started when the server is gone."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _kill_rank(pid: int) -> None:
    """Kill a rank that has not been reaped yet, and what it started."""
    _kill_group(pid)
    os.kill(pid, signal.SIGKILL)  # a rank that was just forked leads no group yet


def _kill_group(pid: int) -> None:
    # PermissionError: what macOS says of a group that holds only zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Load what ranks need, then serve."""
    # Notices have the standard output for themselves: what an import prints goes to standard error.
    notices = os.dup(1)
    os.dup2(2, 1)
    for module in PRELOAD:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the ranks share these objects' memory with the server
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = Server(notices)
    try:
        server.serve()
    except BrokenPipeError:
        pass  # the parent is gone
    finally:
        server.close()


if __name__ == "__main__":
    main()

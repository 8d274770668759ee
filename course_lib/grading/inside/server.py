"""The server in a sandbox: it has torch loaded, forks the processes of a job, and tells what they tell.

One job at a time, each in a process of its own that is forked before its request is read: in the memory that a
student's program gets by a fork, there is nothing of another student's. Requests come as JSON lines on standard input,
notices go as JSON lines to standard output:

    {"do": "run", "folder": …, "files": {name: base64}, "programs": [{program}, …], "collect": [name, …],
     "scratch": [other folders to empty afterwards, …], "seconds": …, "cpu_seconds": …, "memory": bytes}

    {"is": "ready"}                              at the beginning, and after each job
    {"is": "started", "pid": …, "place": …}      a program; place: the number of it in the request
    {"is": "event", "pid": …, "at": …, "bytes": …}   a process told something (see channel.py), and when; it follows, as
                                                     it was sent, in so many bytes
    {"is": "looked", "pid": …, "connected": …}   whether it has a connection to another process; null: nobody knows
    {"is": "exit", "pid": …, "place": …, "code": …}   it ended
    {"is": "over", "why": …, "seconds": …, "output": [of each program], "stacks": {pid: where it was},
     "strangers": connections to here that students' code made, "files": {name: base64}, "clean": …}

`why` is "ended", "time", "memory" or "processes". Time is over too when all processes do nothing but wait for a while:
for each other, that is. After "over" no process of the job is there, and its files are gone. The server ends where the
process of a job failed, or where a program changed what limits the server: who asked then starts another.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import select
import signal
import sys
import weakref
from pathlib import Path
from typing import NoReturn

import torch

from course_lib.grading.inside import pages, processes, refusals, student
from course_lib.grading.inside.emptying import remove
from course_lib.grading.inside.job import Job
from course_lib.grading.inside.notices import have_the_output, tell

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
)


def _use_once() -> None:
    """Let torch load now what it loads when it is first used, except for what would start threads."""
    with torch.profiler.record_function("once"):
        pass
    torch.save({}, io.BytesIO())
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        kind([weight], lr=0.0).step()


def _forget_finalizers() -> None:
    """Let no program finalize what was loaded here: it would write to all of that memory as it ends."""
    for finalizer in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
        finalizer.atexit = False


def main() -> None:
    """Load what programs need, then serve until standard input ends."""
    gc.disable()  # there is no garbage yet, and to look for it takes a fifth of the time to load torch
    have_the_output()
    processes.adopt_orphans()
    processes.close_memory()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # oneDNN compiles code for each shape in each process, and images are few
    for module in PRELOAD:
        importlib.import_module(module)
    student.load()
    _use_once()
    _forget_finalizers()
    gc.freeze()  # the programs share these objects' memory with the server
    gc.enable()
    pages.collapse()
    refusals.begin()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _serve(sys.stdin.fileno())


def _serve(requests: int) -> None:
    """Have each job done, until there are no more or one left this process other than it was."""
    limits = processes.limits()
    while processes.limits() == limits:
        tell({"is": "ready"})
        select.select([requests], [], [])
        pid = os.fork()
        if pid == 0:
            _do_next(requests)
        if os.waitpid(pid, 0)[1] != 0:
            return


def _do_next(requests: int) -> NoReturn:
    """In the process that was forked for it: do the job that is asked for next."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        processes.end_with_parent()
        processes.adopt_orphans()
        with open(requests, "rb", closefd=False) as lines:
            request = json.loads(lines.readline() or "null")
        if request is not None:
            Job(request).run()
            code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    try:
        main()
    finally:
        processes.kill_descendants()
        remove(Path(sys.argv[1]))  # who started it may be gone

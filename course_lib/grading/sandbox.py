"""A sandbox: what runs students' code and tells what it did; the verdict is reached out here.

Inside is a server with torch loaded (inside/server.py), in a bubblewrap where that works: no network, no file of this
machine but Python's, nothing of the course but what runs there. Where it does not work, the limits of time, memory and
processes hold all the same, and `isolated` says so.
"""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.errors import GradingError
from course_lib.grading import bubblewrap
from course_lib.grading.inside.emptying import remove
from course_lib.grading.inside.encoding import Room, encode
from course_lib.grading.told import event_of

SECONDS_TO_START = 120.0
SECONDS_TO_END = 6.0
SECONDS_TO_CLEAR = 3.0  # that a server may take after a job until it is ready for another
SECONDS_MORE = 1.5  # that a job may take beyond its budget before the whole sandbox is killed
CPU_SECONDS = 10.0  # that all processes of a job may use of the processors
MEMORY = 3 << 30  # bytes that all processes of a job may have together


@dataclass(frozen=True)
class Program:
    """One process to start: a file to run, or code and a harness that calls it (see inside/student.py).

    Fields:
        folder: where it runs, below that of the job: programs with a folder each are nodes with a disk each.
        probes: what watches it, by the names of the modules in inside/probes, with their options.
    """

    path: str = ""
    argv: Sequence[str] = ()
    code: str = ""
    harness: str = ""
    inputs: Any = None
    environ: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folder: str = "."


_Notice = dict[str, Any]  # of the server; see there


@dataclass
class Process:
    """What a process of a job told.

    Fields:
        pid: its number in the sandbox.
        place: the number of the program that it is; None for one that a program started.
        events: what it told, in order, each a dict with `kind`, and when: `at`, in seconds.
        code: its exit code; negative: killed by that signal; None where it did not end by itself, or is no program.
        stack: where it was when its time was over.
        connected: whether it was seen to be connected to another process when it had joined its group; None where the
            system does not say.
        source: the student's code that it ran, where that is known.
    """

    pid: int
    place: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    stack: str = ""
    connected: bool | None = False
    source: str = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Its events of a kind."""
        return [event for event in self.events if event["kind"] == kind]

    @property
    def program(self) -> int | None:
        """The number of the program that it is, or that it belongs to."""
        return self.place if self.place is not None else next((event.get("program") for event in self.events), None)

    @property
    def error(self) -> dict[str, Any] | None:
        """How it failed: type, message, and where."""
        raised = self.of("raised")
        return raised[-1] if raised else None


@dataclass(frozen=True)
class Record:
    """What came of a job.

    Fields:
        processes: all that told something, and all programs, in the order of their starts.
        why: "ended" by itself, or by a limit: "time", "memory", "processes"; "broken": it broke the sandbox.
        output: what each program printed, without the middle if it is long.
        files: the first bytes of the files that were asked for, of those that were there.
        false: whether something was told that the probes did not tell.
    """

    processes: list[Process]
    why: str
    seconds: float
    output: list[str]
    files: dict[str, bytes]
    false: bool = False

    def program(self, place: int = 0) -> Process:
        """The process of one of the programs."""
        return next(process for process in self.processes if process.place == place)


class Sandbox:
    """A server in a sandbox, which runs one job after the other; started when it is first needed."""

    def __init__(self) -> None:
        self.isolated = bubblewrap.works()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the server, if it is not there; it takes seconds to load torch, and this does not wait for it."""
        if self._stopped.is_set():
            raise GradingError("The sandbox was stopped.")
        if self._process is not None and self._process.poll() is None:
            return
        # Outside of a bubblewrap the server removes it when it ends, also when this process is killed.
        self._folder = bubblewrap.FOLDER if self.isolated else tempfile.mkdtemp(prefix="ddp-course-grading-")
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            bubblewrap.command(self.isolated, self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            cwd=None if self.isolated else self._folder,
            env=bubblewrap.environment(self.isolated),
        )
        self._notices: queue.Queue[_Notice | None] = queue.Queue()
        threading.Thread(target=self._deliver, args=(self._process, self._notices), daemon=True).start()
        self._ready = self._has_served = False
        if self._stopped.is_set():  # meanwhile
            self.close()

    def ready(self) -> None:
        """Wait until the server is there.

        Raises:
            GradingError: the sandbox itself cannot be started.
        """
        with self._lock:
            self._await_ready()

    def run(
        self, programs: Sequence[Program], files: Mapping[str, bytes], seconds: float, collect: Sequence[str] = ()
    ) -> Record:
        """Run programs side by side in a folder with these files, for some seconds at most; `collect` files afterwards.

        Raises:
            GradingError: the sandbox itself cannot be started.
        """
        with self._lock:
            self._await_ready()
            request = {
                "do": "run",
                "folder": self._folder,
                "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
                "programs": [_as_request(program) for program in programs],
                "collect": list(collect),
                "scratch": bubblewrap.SCRATCH if self.isolated else (),
                "seconds": seconds,
                "cpu_seconds": CPU_SECONDS,
                "memory": MEMORY,
            }
            began = time.monotonic()
            self._ask(request)
            return self._collect(began, seconds, len(programs))

    def close(self) -> None:
        """End the server, and all that runs in it."""
        process, self._process = self._process, None
        if process is None:
            return
        if not self.isolated:  # nothing but the server itself ends what runs below it
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
        process.kill()
        process.wait()
        if not self.isolated:
            remove(Path(self._folder))

    def stop(self) -> None:
        """End it for good, from any thread: what runs is broken off, and nothing more is started."""
        self._stopped.set()
        self.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _await_ready(self) -> None:
        self.start()
        if not self._ready and self._has_served and not self._is_told_ready(SECONDS_TO_CLEAR):
            self.close()  # a program has stopped it, or changed what it is granted
            self.start()
        if self._ready:
            return
        if not self._is_told_ready(SECONDS_TO_START):
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            self.close()
            raise GradingError(f"The sandbox for students' code does not start. It said: {said or 'nothing'}")

    def _is_told_ready(self, seconds: float) -> bool:
        try:
            notice = self._notices.get(timeout=seconds)
        except queue.Empty:
            notice = None
        self._ready = notice is not None and notice["is"] == "ready"
        return self._ready

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._ready, self._has_served = False, True
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it is gone, which `_collect` sees

    def _collect(self, began: float, seconds: float, programs: int) -> Record:
        """Take notices until the job is over; a sandbox that does not end it in time is killed."""
        processes: dict[int, Process] = {}
        false, room = False, Room()
        for notice in self._until(began + seconds + SECONDS_MORE):
            match notice["is"]:
                case "started":
                    processes[notice["pid"]] = Process(notice["pid"], notice["place"])
                case "event":
                    process = processes.setdefault(notice["pid"], Process(notice["pid"]))
                    try:
                        if event := event_of(notice["event"], room):
                            at = min(notice["at"], event["at"])  # no event is of later than it came
                            process.events.append({**event, "at": at})
                    except ValueError:
                        false = True
                case "looked":
                    processes.setdefault(notice["pid"], Process(notice["pid"])).connected = notice["connected"]
                case "exit":
                    processes[notice["pid"]].code = notice["code"]
                case "over":
                    for pid, stack in notice["stacks"].items():
                        if int(pid) in processes:  # it may have connected, and told nothing
                            processes[int(pid)].stack = stack
                    if not notice["clean"]:
                        self.close()
                    collected = {name: base64.b64decode(content) for name, content in notice["files"].items()}
                    told = [*processes.values()], notice["why"], notice["seconds"], notice["output"], collected
                    return Record(*told, false=false or notice["strangers"] > 0)
        self.close()
        why = "time" if time.monotonic() - began > seconds else "broken"
        known = {process.place for process in processes.values()}
        unheard = [Process(0, place) for place in range(programs) if place not in known]
        return Record([*processes.values(), *unheard], why, time.monotonic() - began, [""] * programs, {})

    def _until(self, deadline: float) -> Iterator[_Notice]:
        while (left := deadline - time.monotonic()) > 0:
            try:
                notice = self._notices.get(timeout=left)
            except queue.Empty:
                return
            if notice is None:
                return
            yield notice

    @staticmethod
    def _deliver(process: subprocess.Popen[bytes], notices: queue.Queue[_Notice | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            notice = json.loads(line)
            if "bytes" in notice:
                notice["event"] = process.stdout.read(notice["bytes"])
            notices.put(notice)
        notices.put(None)


def _as_request(program: Program) -> dict[str, Any]:
    common = {
        "environ": dict(program.environ),
        "probes": {name: dict(each) for name, each in program.probes.items()},
        "folder": program.folder,
    }
    if program.path:
        return {**common, "path": program.path, "argv": list(program.argv)}
    inputs = base64.b64encode(encode(program.inputs)).decode()
    return {**common, "code": program.code, "harness": program.harness, "inputs": inputs}

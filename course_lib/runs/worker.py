"""One rank of a run: what a training function sees of it, and what becomes of its result or its error."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import platform
import signal
import socket
import time
import traceback
from collections import deque
from datetime import timedelta
from importlib.metadata import version
from io import BytesIO
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from course_lib import __version__
from course_lib.config import SIMULATED
from course_lib.errors import CourseError, FolderError, ReportError
from course_lib.runs import devices
from course_lib.runs.devices import Place
from course_lib.runs.events import EventWriter, plain
from course_lib.runs.exit_codes import EXIT_CANNOT_WRITE, EXIT_DISK_FULL, EXIT_FAILED, EXIT_FINISHED
from course_lib.runs.folder import FORMAT, RunFolder, cannot_write, is_disk_full, write_bytes, write_json
from course_lib.runs.functions import load_function

# On a GPU, reading a value waits for all that was queued before it: read many at once.
SECONDS_BETWEEN_READS = 0.25
LONGEST_MESSAGE = 20_000  # characters of an error that are recorded


class Worker:
    """One rank of a run, as its training function sees it.

    Attributes:
        rank, world_size: its number among all ranks, and how many there are.
        local_rank, local_world_size: the same on its node.
        node_rank: the number of its node.
        device: the torch.device that it has for itself.
        backend, init_method: what `torch.distributed.init_process_group` needs.
    """

    def __init__(self, folder: RunFolder, place: Place, resume_from: str | None = None) -> None:
        self.rank = place.rank
        self.world_size = place.world_size
        self.local_rank = place.local_rank
        self.local_world_size = place.local_world_size
        self.node_rank = place.node_rank
        self.device = torch.device(place.device)
        self.backend = place.backend
        self.init_method = place.init_method
        self._folder = folder
        self._resume_from = resume_from
        self._events = EventWriter(folder.events(self.rank))
        self._unread: deque[dict[str, Any]] = deque()
        self._last_read = 0.0

    def report(self, kind: str, **values: Any) -> None:
        """Record an event: numbers, strings, lists of them, or tensors of one element.

        Raises:
            ReportError: a value is none of these, or is called like what every event has.
            WriteError: the event could not be written.
        """
        if taken := values.keys() & {"kind", "rank", "time"}:
            raise ReportError(f"Every event has a {min(taken)!r} of its own: report the value under another name.")
        self._unread.append({"kind": kind, "rank": self.rank, "time": time.time(), **values})
        wait = self.device.type == "cuda" and kind == "step"
        if not wait or time.monotonic() - self._last_read > SECONDS_BETWEEN_READS:
            self.flush()

    def flush(self) -> None:
        """Write the events that still wait for their values on the GPU."""
        while self._unread:
            self._events.write(self._unread.popleft())
        self._last_read = time.monotonic()

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Write a checkpoint in place of the last one, whole or not at all; only rank 0 writes.

        Raises:
            WriteError: it could not be written; the last one is still there.
        """
        if self.rank != 0:
            return
        content = BytesIO()
        torch.save(state, content)  # given a file, torch would not say why it cannot be written
        try:
            write_bytes(self._folder.checkpoint, content.getvalue())
        except OSError as error:
            raise cannot_write(self._folder.checkpoint, error) from error

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint of the run that this one goes on from; None where it starts anew.

        Raises:
            FolderError: it cannot be read.
        """
        if self._resume_from is None:
            return None
        path = RunFolder(self._resume_from).checkpoint
        try:
            state: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
        except Exception as error:  # torch has no word for a damaged file
            why = error.strerror if isinstance(error, OSError) else "it is damaged, or no checkpoint"
            raise FolderError(f"{path} cannot be read: {why}. Go on from another run, or train anew.") from error
        return state

    def close(self) -> None:
        """Close the file of events; what was reported stays."""
        self._events.close()


def run_rank(path: str, place: Place, resume_from: str | None = None) -> int:
    """Run the training function of the run in `path` as one of its ranks, and record how it ends.

    Returns:
        One of the exit codes in exit_codes.py.
    """
    folder = RunFolder(path)
    torch.set_num_threads(place.threads)
    worker = None
    try:
        _dump_on_request(folder, place.rank)
        config, _ = folder.read_config()
        _limit_waiting(config.collective_timeout)
        worker = Worker(folder, place, resume_from)
        if place.rank == 0:
            write_json(folder.environment, environment(place))
        train = load_function(folder.function.read_bytes())
        start = time.time()
        result = train(config, worker)
        _record_result(folder, worker, result, time.time() - start)
    except BaseException as error:
        if worker is not None:
            with contextlib.suppress(Exception):  # after an error on the GPU nothing can be read from it
                worker.flush()
        return _record_error(folder, place.rank, error)
    finally:
        if worker is not None:
            worker.close()
    return EXIT_FINISHED


def environment(place: Place) -> dict[str, Any]:
    """The machine of a rank, and how its times come about."""
    on_gpu = place.device != "cpu"
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if on_gpu else ["cpu"]
    return {
        "timing": devices.timing_of(place),
        "backend": place.backend,
        "device": place.device,
        "devices": names if place.hardware is None else [f"{place.hardware} ({SIMULATED})"],
        "hardware": place.hardware,
        "hostname": socket.gethostname(),
        "cpu": devices.cpu_name(),
        "cores": devices.core_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "course": __version__,
        "started": time.time(),
    }


def _limit_waiting(seconds: float) -> None:
    """Let collectives wait no longer where the function names no timeout; torch's default is half an hour."""
    distributed_c10d.default_pg_timeout = timedelta(seconds=seconds)
    distributed_c10d.default_pg_nccl_timeout = timedelta(seconds=seconds)  # type: ignore[attr-defined]


def _record_result(folder: RunFolder, worker: Worker, result: Any, seconds: float) -> None:
    result = plain(result, "result")
    worker.report("end", result=result)
    if worker.rank == 0:
        write_json(folder.result, {"format": FORMAT, "value": result, "seconds": seconds, "finished": time.time()})


def _record_error(folder: RunFolder, rank: int, error: BaseException) -> int:
    """Write how this rank failed.

    Returns:
        EXIT_FAILED, or which way that could not be written.
    """
    content = {
        "type": type(error).__name__,
        "message": _message(error),
        "traceback": "" if isinstance(error, CourseError) else _traceback(error),
        "time": time.time(),
        "from_peer": is_from_peer(error),
        "timed_out": is_timeout(error),
    }
    try:
        write_json(folder.error(rank), content)
    except OSError as unwritten:
        return EXIT_DISK_FULL if is_disk_full(unwritten) else EXIT_CANNOT_WRITE
    return EXIT_FAILED


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the function called sys.exit({error.code!r}) before it returned"
    try:
        return _shortened(str(error))
    except Exception:  # a student's exception may fail even at this
        return "(an exception without a readable message)"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_MESSAGE:
        return text
    half = LONGEST_MESSAGE // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"


def _traceback(error: BaseException) -> str:
    """The traceback from the training function on; the frames above it are ours."""
    frames = error.__traceback__
    return _shortened("".join(traceback.format_exception(type(error), error, frames.tb_next if frames else None)))


def is_from_peer(error: BaseException) -> bool:
    """Whether a rank failed in a collective because of another one: it is not the culprit."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error))


def is_timeout(error: BaseException) -> bool:
    """Whether a rank waited in a collective for as long as it may."""
    return is_from_peer(error) and "timed out" in str(error).lower()


def _dump_on_request(folder: RunFolder, rank: int) -> None:
    """Let SIGUSR1 write where this rank is, even while it is stuck outside Python."""
    stack = os.open(folder.stack(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)

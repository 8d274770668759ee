"""Launch time and images per second beside the tools that people would use instead, each in a process of its own.

`make bench-peers` installs accelerate and Lightning; torchrun comes with torch. Each trains the same network on the
same images with the same optimizer, on 2 CPU ranks with one thread each, fed by a DataLoader without worker processes,
which on 2 cores is the faster kind. Their progress bars, loggers and checkpoints are off; our reports are on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.launch_speed import by_launch
from benchmarks.measuring import Row, compare, failed, skipped, take_turns
from benchmarks.turns import Side, Why, launched, take_turns_by_epoch
from benchmarks.workload import QUICK, TRAINING, TURNS, WORLD_SIZE
from course_lib.config import RunConfig
from course_lib.runs import devices
from course_lib.training import ddp

LAUNCHES = 5
LAUNCH_LIMIT = 120.0
SECONDS_TO_END = 10.0
ROOT = Path(__file__).parent.parent
# Says to the peers, which are other processes, that the run is a quick one.
QUICK_VARIABLE = "DDP_COURSE_BENCHMARK_QUICK"
TORCHRUN = ("torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD_SIZE}", "-m", "benchmarks.peer_torchrun")


@dataclass(frozen=True)
class Peer:
    """Another tool: its name, the package that it needs, and how it is called (after `python -m`)."""

    name: str
    package: str
    module: tuple[str, ...]
    strategy: str = ""
    note: str = ""


PEERS = (
    Peer("torchrun", "torch", TORCHRUN, note="torchrun starts anew each time"),
    Peer("accelerate's notebook_launcher", "accelerate", ("benchmarks.peer_accelerate",), note="warm"),
    Peer("Lightning, ddp_notebook", "lightning", ("benchmarks.peer_lightning",), "ddp_notebook", "warm"),
    Peer("Lightning, ddp", "lightning", ("benchmarks.peer_lightning",), "ddp", "from Trainer() on"),
)


def measure(quick: bool) -> list[Row]:
    """Two rows a peer; one that is not installed, hangs or fails says so, and the others go on."""
    os.environ[QUICK_VARIABLE] = "1" if quick else ""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", devices.loopback())
    by_launch()  # the first one starts the fork server, and is measured elsewhere
    rows = []
    for peer in PEERS:
        if find_spec(peer.package) is None:
            rows.append(skipped(f"beside {peer.name}", f"{peer.package} is not installed (make bench-peers)"))
            continue
        for compared in (_launches, _trainings):
            try:
                rows.append(compared(peer, quick))
            except RuntimeError as error:
                rows.append(failed(f"beside {peer.name}", error))
    return rows


def config() -> RunConfig:
    """What all train."""
    return QUICK if os.environ.get(QUICK_VARIABLE) else TRAINING


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _launches(peer: Peer, quick: bool) -> Row:
    sides: dict[str, Callable[[], float]] = {"here": by_launch, peer.name: partial(_seconds_to_first_step, peer)}
    seconds = take_turns(sides, 1 if quick else LAUNCHES)
    name = f"launch to first step, {WORLD_SIZE} CPU ranks"
    return compare(name, "s", seconds["here"], seconds[peer.name], peer.name, above=1.0, note=peer.note)


def _trainings(peer: Peer, quick: bool) -> Row:
    name = f"ddp.train, {WORLD_SIZE} CPU ranks"
    sides = [launched(name, ddp.train, config()), Side(peer.name, WORLD_SIZE, partial(_training, peer))]
    rates = take_turns_by_epoch(sides, 1 if quick else TURNS)
    return compare(name, "images/s", rates[name], rates[peer.name], peer.name, above=1.0)


def _seconds_to_first_step(peer: Peer) -> float:
    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
        out = Path(scratch) / "seconds"
        with _started(peer, "launch", str(out)) as (process, why):
            try:
                code = process.wait(LAUNCH_LIMIT)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"it took longer than {LAUNCH_LIMIT:.0f} s; it said {why()}") from None
            if code or not out.exists():
                raise RuntimeError(f"exit code {code}; it said {why()}")
            return float(out.read_text())


@contextlib.contextmanager
def _training(peer: Peer, address: str) -> Iterator[Why]:
    with _started(peer, "train", address) as (_, why):
        yield why


@contextlib.contextmanager
def _started(peer: Peer, what: str, where: str) -> Iterator[tuple[subprocess.Popen[bytes], Why]]:
    """Start a peer, and end it with all that it started; with it, a function that gives the last line it printed."""
    last = peer.strategy or str(time.monotonic())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as output:

        def why() -> str:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "nothing"

        process = subprocess.Popen(
            [sys.executable, "-m", *peer.module, what, where, last],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process, why
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask first: torchrun's ranks are in sessions of their own, and only it can end them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)

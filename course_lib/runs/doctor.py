"""What can run on this machine, why not the rest, and what to do: facts as data."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.config import RunConfig
from course_lib.errors import CourseError
from course_lib.runs import devices
from course_lib.runs.launch import launch, warm_up
from course_lib.training import sources

if TYPE_CHECKING:  # a torch that cannot be loaded is one of the things to find out
    from course_lib.training.worker import Worker

OK, WITHOUT, PROBLEM = "ok", "without", "problem"
# A machine that takes longer to start two ranks than this is not one to wait for.
SECONDS_TO_MEET = 60.0
FREE_BYTES_WANTED = 200 * 2**20
MEMORY_PER_RANK = 2**29  # measured: 0.3 GiB on the CPU, and some room
GIB = 2**30
COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Fields:
        name: what it is, in a word or two.
        state: OK; WITHOUT, if it is not here and the course can do without; PROBLEM, if it cannot.
        found: what is here.
        remedy: what to do about it; empty if nothing needs to be done.
        facts: the same as values.
    """

    name: str
    state: str
    found: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def examine(out: str | os.PathLike[str] = "runs") -> Iterator[Finding]:
    """Look at this machine, one thing after the other; `out` is where runs will be recorded."""
    warm_up()  # loads torch for the ranks while this process loads its own
    yield _python()
    yield (torch := _torch())
    if torch.state == PROBLEM:
        return
    yield _gpus()
    yield _cores()
    yield _memory()
    yield _backends()
    yield _data()
    yield _loopback()
    folder = _folder(Path(out).absolute())
    yield folder
    yield _ranks(2, "cpu", None if folder.state == PROBLEM else folder.facts["existing"])
    if gpus := devices.gpu_count():
        yield _ranks(gpus, "cuda", None if folder.state == PROBLEM else folder.facts["existing"])
    yield _compiler()
    yield from _programs()


def can_run(findings: list[Finding]) -> bool:
    """Whether the course can run here, on CPU ranks at least."""
    return all(finding.state != PROBLEM for finding in findings)


def _python() -> Finding:
    number = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", OK, f"{number}, {sys.executable}", facts={"version": number, "path": sys.executable})


def _torch() -> Finding:
    try:
        import torch  # takes seconds
    except (ImportError, OSError) as error:  # OSError: one of its libraries does not fit this system
        return Finding("PyTorch", PROBLEM, f"cannot be loaded: {error}", "Install it anew: make setup.")
    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
    return Finding(
        "PyTorch", OK, f"{torch.__version__}, built for {built_for}", facts={"version": str(torch.__version__)}
    )


def _gpus() -> Finding:
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(devices.gpu_count())]
    facts = {"count": len(names), "names": names, "cuda": torch.version.cuda}
    if names:
        return Finding("GPUs", OK, f"{len(names)}: {', '.join(names)}", facts=facts)
    driver = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
    if driver and not torch.version.cuda:
        why = "none in use: there is an NVIDIA driver, but this PyTorch is built for CPUs only"
        remedy = "Install the PyTorch that is built for CUDA: see https://pytorch.org/get-started/locally."
    elif driver:
        why = "none in use: there is an NVIDIA driver, but CUDA finds no GPU"
        remedy = "Look at nvidia-smi and at $CUDA_VISIBLE_DEVICES; a driver that is too old must be renewed."
    elif sys.platform == "darwin":
        why, remedy = "none: PyTorch's process groups do not reach Apple's GPUs", "Train on CPU ranks."
    else:
        why = "none: no NVIDIA driver was found"
        remedy = "Train on CPU ranks. On a machine with a GPU, install its driver and a PyTorch built for CUDA."
    return Finding("GPUs", WITHOUT, why, remedy, facts)


def _cores() -> Finding:
    cores = devices.core_count()
    found = f"{cores} core{'s' if cores > 1 else ''}, {devices.cpu_name()}"
    remedy = "" if cores > 1 else "Two ranks will share the core: all runs, but no speedup can be measured."
    return Finding("CPU", OK if cores > 1 else WITHOUT, found, remedy, {"cores": cores})


def _memory() -> Finding:
    free = _free_memory()
    if free is None:
        return Finding("Memory", OK, "not known on this system", facts={"free_bytes": None})
    ranks = free // MEMORY_PER_RANK
    found = f"{free / GIB:.1f} GiB free, enough for about {ranks} CPU ranks"
    remedy = "" if ranks >= 2 else "Close other programs: two ranks take about 1 GiB, and without it one is killed."
    return Finding("Memory", OK if ranks >= 2 else WITHOUT, found, remedy, {"free_bytes": free})


def _free_memory() -> int | None:
    """Bytes that ranks may take: what the system has left, or a container's limit if that is less."""
    limits = []
    with suppress(OSError, ValueError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        limits.append(int((group / "memory.max").read_text()) - used)
    if not limits:
        with suppress(OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _backends() -> Finding:
    import torch.distributed as dist

    if not dist.is_available():
        return Finding(
            "Backends", PROBLEM, "this PyTorch is built without torch.distributed", "Install the usual PyTorch."
        )
    present = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
    names = [name for name, here in present.items() if here]
    found = ", ".join(names) or "none"
    if not present["nccl"]:
        found += " (no NCCL: it takes GPUs and a PyTorch built for CUDA)"
    remedy = "" if present["gloo"] else "CPU ranks need gloo: install the usual PyTorch."
    return Finding("Backends", OK if present["gloo"] else PROBLEM, found, remedy, present)


def _data() -> Finding:
    try:
        source = sources.locate()
    except CourseError as error:
        return Finding("Data", PROBLEM, "the data set that was found cannot be used", str(error))
    facts = {"kind": source.kind, "path": str(source.path), "train_size": source.train_size}
    return Finding("Data", OK, str(source), "" if source.kind == "full" else sources.WAYS, facts)


def _loopback() -> Finding:
    name = os.environ.get("GLOO_SOCKET_IFNAME") or devices.loopback()
    facts = {"name": name}
    if name not in (present := [each for _, each in socket.if_nameindex()]):
        remedy = f"Set $GLOO_SOCKET_IFNAME to one of {', '.join(present)}, or bring {name} up (ip link set {name} up)."
        return Finding("Network", PROBLEM, f"there is no network device {name} for the ranks to meet on", remedy, facts)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        found = f"{name} is there, but 127.0.0.1 cannot be reached: {error}"
        return Finding("Network", PROBLEM, found, f"Bring {name} up (ip link set {name} up).", facts)
    return Finding("Network", OK, f"{name}, on which the ranks of this machine meet", facts=facts)


def _folder(out: Path) -> Finding:
    existing = next(path for path in (out, *out.parents) if path.exists())
    facts: dict[str, Any] = {"path": str(out), "existing": str(existing)}
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"0")
        free = shutil.disk_usage(existing).free
    except OSError as error:
        found = f"{out} cannot be written to: {error.strerror}"
        return Finding("Runs folder", PROBLEM, found, "Choose another folder for the runs (--out).", facts)
    found = f"{out}, {free / GIB:.1f} GiB free"
    enough = free >= FREE_BYTES_WANTED
    remedy = "" if enough else "Free some space: a run takes up to 30 MB, a sweep some hundred."
    return Finding("Runs folder", OK if enough else PROBLEM, found, remedy, {**facts, "free_bytes": free})


def _ranks(number: int, device: str, folder: str | None) -> Finding:
    """Whether ranks can meet and add up numbers, twice: the first launch waits until torch is loaded."""
    name = f"{number} CPU ranks" if device == "cpu" else f"{number} GPU rank{'s' if number > 1 else ''}"
    config = RunConfig(num_gpus=number, device=device, data="subset", collective_timeout=SECONDS_TO_MEET)
    try:
        with tempfile.TemporaryDirectory(prefix=".ddp-course-doctor-", dir=folder) as place:
            first, second = (_seconds_to_meet(config, Path(place, each)) for each in ("first", "second"))
    except (CourseError, OSError) as error:
        happened, _, _ = str(error).partition("\n")
        remedy = "Train with --device cpu." if device == "cuda" else "The message says what failed."
        return Finding(name, WITHOUT if device == "cuda" else PROBLEM, happened, remedy)
    found = f"met over {'nccl' if device == 'cuda' else 'gloo'} {second:.2f} s after the launch; "
    found += f"the first launch, which loads torch, took {first:.1f} s"
    return Finding(name, OK, found, facts={"first_launch_seconds": first, "launch_seconds": second})


def _seconds_to_meet(config: RunConfig, out: Path) -> float:
    began = time.time()
    run = launch(add_up, config, out, time_limit=SECONDS_TO_MEET)
    wanted = config.world_size * (config.world_size + 1) / 2
    total = run.wait()
    if total != wanted:
        raise CourseError(f"The ranks added up to {total} instead of {wanted}: all_reduce does not work here.")
    return max(event["time"] for event in run.events() if event["kind"] == "met") - began


def add_up(config: RunConfig, worker: Worker) -> float:
    """Add up 1 + 2 + ... + world_size, a number a rank: a training function that needs them all."""
    import torch
    import torch.distributed as dist

    if worker.device.type == "cuda":
        torch.cuda.set_device(worker.device)
    timeout = timedelta(seconds=config.collective_timeout)
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size, timeout=timeout
    )
    number = torch.tensor(worker.rank + 1.0, device=worker.device)
    dist.all_reduce(number)
    total = number.item()
    worker.report("met")
    return total


def _compiler() -> Finding:
    wanted = os.environ.get("CXX")
    compiler = _first_program(*([wanted] if wanted else COMPILERS))
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    facts = {"compiler": compiler, "python_headers": headers}
    if compiler and headers:
        return Finding("torch.compile", OK, f"can compile, with {compiler}", facts=facts)
    missing = " and ".join([*([] if compiler else ["a C++ compiler"]), *([] if headers else ["Python's headers"])])
    remedy = "Only config.compile needs it. On Debian and Ubuntu: apt-get install g++ python3-dev."
    return Finding("torch.compile", WITHOUT, f"lacks {missing}", remedy, facts)


def _programs() -> Iterator[Finding]:
    """What the lessons are opened with, and what their tests in a browser need where those can run."""
    lab = _version("jupyterlab")
    remedy = "" if lab else "The command line works without. For the lessons: make setup, or pip install jupyterlab."
    yield Finding("JupyterLab", OK if lab else WITHOUT, lab or "not installed", remedy, {"version": lab})
    if _version("playwright"):
        where = _chromium()
        remedy = "" if where else "Only the tests in a browser need it: python -m playwright install chromium."
        yield Finding("Chromium", OK if where else WITHOUT, where or "not installed", remedy, {"path": where})


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _chromium() -> str | None:
    """The browser that playwright installed, or the system's."""
    usual = "~/Library/Caches/ms-playwright" if sys.platform == "darwin" else "~/.cache/ms-playwright"
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or usual).expanduser()
    installed = sorted(map(str, cache.glob("chromium-*")))
    return installed[-1] if installed else _first_program("chromium", "google-chrome")


def _first_program(*names: str) -> str | None:
    """The path of the first of these programs that is installed."""
    return next((path for name in names if (path := shutil.which(name))), None)

"""What this machine has, and where the ranks of a run go."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED, RunConfig
from course_lib.errors import DeviceError


@dataclass(frozen=True)
class Place:
    """Where one rank stands among all ranks, and what it runs on.

    Fields:
        rank, world_size: its number among all ranks, and how many there are.
        local_rank, local_world_size: the same on its node.
        node_rank: the number of its node.
        device: "cpu", or "cuda:i" with i the GPU on this machine.
        backend: "gloo" or "nccl".
        threads: CPU threads of this rank.
        init_method: where the ranks meet, for `torch.distributed.init_process_group`.
        hardware: the profile of the GPUs that it simulates; None where it is what it is.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    device: str
    backend: str
    threads: int
    init_method: str = ""
    hardware: str | None = None

    def meeting_at(self, init_method: str) -> Place:
        """The same place, with the address where the ranks meet."""
        return replace(self, init_method=init_method)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)


def core_count() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpu_count() -> int:
    """GPUs that this process may use; asking does not initialise CUDA."""
    # Imported here because it takes seconds, and CPU ranks can be started without it.
    import torch

    return torch.cuda.device_count()


def memory_bytes(device: str) -> int:
    """Memory of a device, "cpu" (of this machine) or "cuda:i"."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory)


def loopback() -> str:
    """The network device for ranks on one machine: gloo looks up the host's name otherwise, and many have none."""
    return "lo0" if sys.platform == "darwin" else "lo"


def cpu_name() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def place_ranks(config: RunConfig) -> list[Place]:
    """Give each rank its node, device and backend on this machine.

    NCCL on GPUs and gloo on CPUs. When ranks outnumber the GPUs they share them over gloo, since
    NCCL refuses two ranks on one GPU. Simulated ranks are one place: a GPU, or all cores.

    Raises:
        DeviceError: the device is not there, or more of them were asked for than exist.
    """
    if config.simulated:
        return [_simulator(config)]
    gpus = 0 if config.device == "cpu" else gpu_count()
    if config.device == "cuda":
        _refuse_missing_gpus(config, gpus)
    if gpus == 0 and config.sync_batchnorm:
        raise DeviceError("sync_batchnorm needs GPUs, and this run is on the CPU. Leave it out.", "sync_batchnorm")
    backend = "nccl" if gpus >= config.world_size else "gloo"
    return [
        Place(
            rank=rank,
            world_size=config.world_size,
            local_rank=rank % config.num_gpus,
            local_world_size=config.num_gpus,
            node_rank=rank // config.num_gpus,
            device=f"cuda:{rank % gpus}" if gpus else "cpu",
            backend=backend,
            threads=config.threads_per_rank,
        )
        for rank in range(config.world_size)
    ]


def _simulator(config: RunConfig) -> Place:
    return Place(
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        device="cuda:0" if gpu_count() else "cpu",
        backend="none",
        threads=core_count(),
        hardware=config.hardware,
    )


def _refuse_missing_gpus(config: RunConfig, gpus: int) -> None:
    if gpus == 0:
        raise DeviceError(
            "device is 'cuda', and PyTorch finds no GPU here. Use device 'cpu' to train on CPU ranks; "
            "`ddp-course doctor` says what is missing.",
            "device",
        )
    if config.world_size > gpus:
        raise DeviceError(
            f"{config.world_size} GPUs were asked for, and there are {gpus}. Use device 'auto' to let "
            f"{config.world_size} ranks share them (not a speed measurement), or at most {gpus} ranks.",
            "num_gpus" if config.num_gpus >= config.num_nodes else "num_nodes",
        )


def timing_of(place: Place) -> str:
    """How the times of a run with this place come about."""
    if place.hardware is not None:
        return SIMULATED
    return MEASURED_ON_CPU_RANKS if place.device == "cpu" else MEASURED_ON_GPUS


def speed_caveats(places: list[Place]) -> list[str]:
    """Why a run with these places is no measurement of speed; empty if it is one."""
    caveats = []
    threads = sum(place.threads for place in places)
    gpus = {place.device for place in places} - {"cpu"}
    if not gpus and threads > core_count():
        caveats.append(f"{len(places)} ranks with {threads} threads share {core_count()} cores")
    if gpus and len(gpus) < len(places):
        caveats.append(f"{len(places)} ranks share {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}")
    nodes = {place.node_rank for place in places}
    if len(nodes) > 1:
        caveats.append(f"{len(nodes)} nodes are played on one machine")
    return caveats

"""One queue of work for each device, so that replicas compute side by side in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from course_lib.errors import DeviceError

Device = torch.device | str


class Queue:
    """Runs what is submitted on one device, one after the other, in a thread of its own.

    Attributes:
        device: where it computes.
        stream: on a GPU, the CUDA stream of its work; None on a CPU.
        name: e.g. "cuda:1", or "cpu 1" for the second of several replicas on the CPU.
    """

    def __init__(self, device: Device, name: str, threads: int, cores: set[int] | None = None) -> None:
        self.device = torch.device(device)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.name = name
        self._thread = ThreadPoolExecutor(1, name, initializer=_settle, initargs=(threads, cores))

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run `work(*arguments)` after what was submitted before; the future is done when the device is."""
        return self._thread.submit(self._run, work, arguments)

    def synchronize(self) -> None:
        """Wait until the device has done what this queue gave it."""
        if self.stream is not None:
            self.stream.synchronize()

    def _run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.stream is None:
            return work(*arguments)
        # What others wrote on the device comes first: they use its default stream.
        self.stream.wait_stream(torch.cuda.default_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            result = work(*arguments)
        self.stream.synchronize()
        return result


class DeviceManager:
    """The devices that one process drives.

    Args:
        devices: one or a list of them ("cuda:0", "cpu", …; one may stand there more than once), or how many: GPUs where
            there are any, else replicas that share the CPU. By default all GPUs, or else two on the CPU.

    Raises:
        DeviceError: there is no such device, or no device at all was asked for.
    """

    def __init__(self, devices: int | str | Sequence[Device] | None = None) -> None:
        chosen = _choose(devices)
        on_cpu = sum(device.type == "cpu" for device in chosen)
        threads = max(1, torch.get_num_threads() // max(1, on_cpu))
        cores = _cores(on_cpu)
        seen: dict[torch.device, int] = {}
        self._queues = []
        for device in chosen:
            place = seen[device] = seen.get(device, -1) + 1
            alone = chosen.count(device) == 1
            name = str(device) if alone else f"{device} {place}"
            self._queues.append(Queue(device, name, threads, cores.get(place) if device.type == "cpu" else None))

    def num_devices(self) -> int:
        """How many devices there are, counting one that is used twice as two."""
        return len(self._queues)

    def get_queues(self) -> list[Queue]:
        """One queue for each device."""
        return list(self._queues)


def _cores(replicas: int) -> dict[int, set[int]]:
    """For each of several replicas on the CPU its own cores, where there are enough and the system lets us choose."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return {}
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // max(1, replicas)
    return {number: set(cores[number * each : (number + 1) * each]) for number in range(replicas if each else 0)}


def _settle(threads: int, cores: set[int] | None) -> None:
    """Say how many threads torch may compute with in this one, and on which cores.

    Left to itself, Linux may wake two replicas on one core and leave the other idle for as long as a step takes.
    """
    torch.set_num_threads(threads)
    if cores:
        os.sched_setaffinity(0, cores)


def _choose(devices: int | str | Sequence[Device] | None) -> list[torch.device]:
    gpus = torch.cuda.device_count()
    if devices is None:
        devices = gpus or 2
    if isinstance(devices, int):
        if devices < 1:
            raise DeviceError(f"{devices} devices were asked for, and it takes one at least.")
        if 0 < gpus < devices:
            raise DeviceError(
                f"{devices} devices were asked for, and there are {gpus} GPUs. To use one for several replicas, name "
                "the devices: ['cuda:0', 'cuda:0']."
            )
        return [torch.device("cuda", index) if gpus else torch.device("cpu") for index in range(devices)]
    try:
        chosen = [_indexed(torch.device(device)) for device in ([devices] if isinstance(devices, str) else devices)]
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"{devices!r} names no devices: {error}") from error
    if not chosen:
        raise DeviceError("The list of devices is empty. Name at least one, e.g. ['cpu', 'cpu'].")
    for device in chosen:
        if device.type not in ("cpu", "cuda") or (device.type == "cuda" and (device.index or 0) >= gpus):
            raise DeviceError(f"There is no device {str(device)!r} here: there are {gpus} GPUs, and 'cpu'.")
    return chosen


def _indexed(device: torch.device) -> torch.device:
    """The device with its number, so that "cuda" and "cuda:0" are one."""
    return torch.device("cuda", 0) if str(device) == "cuda" else device

"""GPUs that are not there: a program sees as many as it is told, and all that it puts on them stays on the CPU.

    device: the number of a GPU that was used, and what for

So the rank that a program takes for the number of its GPU can be seen without one. NCCL becomes gloo. As with CUDA,
what CUDA_VISIBLE_DEVICES says when a process uses its first GPU is what it sees from then on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # looks at the functions of torch when it is loaded, and not for those of this module
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from course_lib.grading.inside.channel import Channel

CPU = torch.device("cpu")
VISIBLE = "CUDA_VISIBLE_DEVICES"
MEMORY = 80 << 30


def install(channel: Channel, count: int = 2) -> None:
    """Pretend that this machine has `count` GPUs."""
    current = 0
    visible: list[int] | None = None  # the numbers of those that this process sees, once it has used one
    if not os.environ.get(VISIBLE):  # of the sandbox, where there are none
        os.environ.pop(VISIBLE, None)

    def seen() -> list[int]:
        said = os.environ.get(VISIBLE)
        numbers = range(count) if said is None else (int(each) for each in said.split(",") if each.strip().isdigit())
        return [number for number in numbers if number < count]

    def number_of(device: Any) -> int | None:
        """The GPU that is meant; None where none is."""
        if type(device) is int:
            return device
        if isinstance(device, str) and device.startswith("cuda"):
            device = torch.device(device)
        if isinstance(device, torch.device) and device.type == "cuda":
            return current if device.index is None else device.index
        return None

    def used(device: Any, what: str) -> bool:
        number = number_of(device)
        if number is None:
            return False
        nonlocal visible
        visible = seen() if visible is None else visible
        known = 0 <= number < len(visible)
        channel.tell("device", number=visible[number] if known else number, what=what)
        if not known:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return True

    def set_device(device: Any) -> None:
        nonlocal current
        if used(device, "set_device"):
            current = number_of(device) or 0

    def moved(original: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def to(self: Any, *arguments: Any, **named: Any) -> Any:
            arguments = tuple(CPU if used(each, what) else each for each in arguments)
            return original(
                self, *arguments, **{name: CPU if used(each, what) else each for name, each in named.items()}
            )

        return to

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*arguments: Any, device: Any = None, **named: Any) -> Any:
            return original(*arguments, device=CPU if used(device, "tensor") else device, **named)

        return make

    def on_cuda(self: Any, device: Any = None, *_: Any, **__: Any) -> Any:
        used(current if device is None else device, type(self).__name__)
        return self

    def init_ddp(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **named: Any) -> None:
        for device in device_ids or ():
            used(device, "device_ids")
        original_ddp(self, module, **named)

    @contextlib.contextmanager
    def on(device: Any) -> Iterator[None]:
        nonlocal current
        before = current
        set_device(device)
        try:
            yield
        finally:
            current = before

    def barrier(*arguments: Any, device_ids: Any = None, **named: Any) -> Any:
        for device in device_ids or ():
            used(device, "barrier")
        return original_barrier(*arguments, **named)

    def init_process_group(backend: Any = None, *arguments: Any, **named: Any) -> None:
        used(named.pop("device_id", None), "device_id")
        original_init("gloo", *arguments, **named)

    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: len(seen() if visible is None else visible)
    cuda.current_device = lambda: current
    cuda.set_device, cuda.device = set_device, on  # type: ignore[assignment, misc]
    cuda.synchronize = cuda.empty_cache = cuda.manual_seed_all = cuda.manual_seed = lambda *_, **__: None
    cuda.is_initialized = lambda: visible is not None
    cuda.init = cuda.reset_peak_memory_stats = lambda *_: None
    cuda.get_device_name = lambda *_: "pretended GPU"
    cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment, misc]
    cuda.get_device_properties = lambda *_: SimpleNamespace(name="pretended GPU", total_memory=MEMORY)  # type: ignore[assignment, misc]
    cuda.mem_get_info = lambda *_: (MEMORY, MEMORY)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_: 0)
    cuda.Event = Event  # type: ignore[assignment, misc]
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign, assignment]
    accelerator = torch.accelerator
    accelerator.is_available, accelerator.device_count = cuda.is_available, cuda.device_count
    accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    accelerator.set_device_index, accelerator.current_device_index = set_device, cuda.current_device
    for kind, what in ((torch.Tensor, "tensor"), (torch.nn.Module, "module")):
        kind.to, kind.cuda = moved(kind.to, what), on_cuda  # type: ignore[method-assign]
    for name in (
        "tensor",
        "zeros",
        "ones",
        "empty",
        "full",
        "arange",
        "rand",
        "randn",
        "randint",
        "randperm",
        "as_tensor",
    ):
        setattr(torch, name, made(getattr(torch, name)))
    original_default, original_barrier = torch.set_default_device, dist.barrier
    torch.set_default_device = lambda device: None if used(device, "default") else original_default(device)
    dist.barrier = distributed_c10d.barrier = barrier
    original_ddp, original_init = DistributedDataParallel.__init__, dist.init_process_group
    DistributedDataParallel.__init__ = init_ddp  # type: ignore[method-assign]
    dist.init_process_group = distributed_c10d.init_process_group = init_process_group  # type: ignore[assignment]


class Event:
    """A mark in the work of a GPU: here all work is done when it is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        """Set the mark."""
        self.at = time.perf_counter()

    def wait(self, *_: Any) -> None:
        """Wait for it."""

    synchronize = wait

    def query(self) -> bool:
        """Whether all before it is done."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds to another mark."""
        return 1000 * (other.at - self.at)

"""What a program asks of torch.distributed: who joins which group, and which collectives it calls, in which order.

    joining: what init_process_group was given; group: what came of it
    collective: its name, shapes and dtypes, the rank at the other end, and the line of the student's program
    left: the group was destroyed

What DistributedDataParallel sends by itself is not seen here.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from course_lib.grading.inside.channel import Channel

COLLECTIVES = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier"),
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "new_group"),
    *("send", "recv", "isend", "irecv", "batch_isend_irecv"),
)
# What these call in the end, and others may call without them: of a group, and of what it is made of.
METHODS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "allgather", "_allgather_base", "allgather_coalesced"),
    *("gather", "scatter", "reduce_scatter", "_reduce_scatter_base", "alltoall", "alltoall_base"),
    *("send", "recv", "recv_anysource", "barrier", "monitored_barrier"),
)
TOLD: tuple[str, ...] = ("backend", "init_method", "world_size", "rank")
untold = threading.local()  # where `is` is set, calls are not told: somebody else tells of them
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME")


def install(channel: Channel, seconds: float = 12.0) -> None:
    """Tell of each call; no call waits longer than `seconds` for others."""
    inside = threading.local()
    kept: list[Any] = []  # for ever: gloo hangs now and then when a group is taken apart, and after the work is done
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # also where Python takes itself apart in the end
    most = timedelta(seconds=seconds)
    distributed_c10d.default_pg_timeout = most

    def init_process_group(*arguments: Any, **named: Any) -> None:
        given = dict(zip(("backend", "init_method", "timeout", "world_size", "rank", "store"), arguments, strict=False))
        given |= named
        given["timeout"] = min(given.get("timeout") or most, most)
        told = {name: str(given[name]) for name in TOLD if name in given}
        store = given.get("store")
        if isinstance(store, dist.TCPStore):
            told["store"] = f"{store.host}:{store.port}"
        channel.tell(
            "joining", given=told, environ={name: os.environ.get(name) for name in VARIABLES}, parent=os.getppid()
        )
        original_init(**given)
        came = {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "backend": dist.get_backend()}
        channel.tell("group", **came, threads=torch.get_num_threads())
        channel.let_look()  # what a process says of its group, the server sees for itself
        kept.append(dist.group.WORLD)

    def init_ddp(self: DistributedDataParallel, *arguments: Any, **named: Any) -> None:
        kept.append(self)
        original_ddp(self, *arguments, **named)

    def destroy_process_group(*arguments: Any, **named: Any) -> None:
        channel.tell("left")
        original_destroy(*arguments, **named)

    def traced(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            # One collective that another one makes use of is not told; the messages of a batch are, one by one.
            if _is_told(inside) or name == "batch_isend_irecv":
                return original(*arguments, **named)
            inside.depth = 1
            try:
                seen = {**_seen(arguments, named), "peer": _peer(signature, arguments, named)}
                channel.tell("collective", name=name, **seen, line=_line())
                result = original(*arguments, **named)
                if name == "reduce" and result is None:
                    _spoil(*arguments, **named)
                return result
            finally:
                inside.depth = 0

        return call

    original_init, original_destroy = dist.init_process_group, dist.destroy_process_group
    original_ddp = DistributedDataParallel.__init__
    DistributedDataParallel.__init__ = init_ddp  # type: ignore[method-assign]
    for module in (dist, distributed_c10d):
        module.init_process_group = init_process_group  # type: ignore[assignment]
        module.destroy_process_group = destroy_process_group
    for name in COLLECTIVES:
        if hasattr(dist, name):
            # The same in both: P2POp looks whether it was given distributed_c10d's own isend.
            told = traced(name, getattr(dist, name))
            setattr(dist, name, told)
            setattr(distributed_c10d, name, told)
    for kind in (dist.ProcessGroup, Backend):
        for name in METHODS:
            if hasattr(kind, name):
                setattr(kind, name, _traced_method(channel, inside, name, getattr(kind, name)))


def _is_told(inside: threading.local) -> bool:
    """Whether what is called now is a piece of something that is told."""
    return bool(getattr(inside, "depth", 0) or getattr(untold, "is", False))


def _traced_method(channel: Channel, inside: threading.local, name: str, original: Callable[..., Any]) -> Any:
    """A method of a group, told where it is not called by one of `COLLECTIVES`."""

    def call(*arguments: Any, **named: Any) -> Any:
        if not _is_told(inside):
            channel.tell("collective", name=name, **_seen(arguments[1:], named), peer=None, line=_line())
        return original(*arguments, **named)

    return call


def _spoil(tensor: torch.Tensor, dst: int | None = None, *_: Any, **named: Any) -> None:
    """The sum is promised to one rank; what others are left with may be the right number by chance."""
    if dst is not None and dist.get_rank() != dst and named.get("group") in (None, dist.group.WORLD):
        with torch.no_grad():
            tensor.fill_(-777)


def _seen(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    values = [*arguments, *named.values()]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    return {
        "shapes": [list(tensor.shape) for tensor in tensors],
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
        "bytes": sum(tensor.nbytes for tensor in tensors),
        "op": next(
            (str(value) for value in values if isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType))), None
        ),
        "ranks": [value for value in values if type(value) is int],
    }


def _peer(signature: inspect.Signature, arguments: tuple[Any, ...], named: dict[str, Any]) -> int | None:
    """The rank at the other end of a message, or the root of a collective; None where there is none, or it is any."""
    try:
        given = signature.bind(*arguments, **named).arguments
    except TypeError:
        return None  # the call will say what is wrong with it
    peers = [given.get(name) for name in ("dst", "group_dst", "src", "group_src")]
    return next((peer for peer in peers if type(peer) is int), None)


def _line() -> int | None:
    """The line of the student's program that is at work."""
    frame: FrameType | None = sys._getframe(2)
    folder = os.getcwd() + os.sep
    while frame is not None:
        if frame.f_code.co_filename.startswith((folder, "<your code>")):
            return frame.f_lineno
        frame = frame.f_back
    return None

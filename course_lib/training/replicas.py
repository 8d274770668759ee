"""Data parallelism by hand: one process drives several devices, and shows each step that DDP hides.

    queues = DeviceManager(2).get_queues()
    replicas = prepare_replicas(model, queues)
    optimizers = [torch.optim.AdamW(replica.parameters()) for replica in replicas]
    for images, labels in batches:
        loss, times = data_parallel_step(forward, replicas, optimizers, (images, labels))
    write_back(replicas, model)

where `forward(replica, images, labels)` returns the mean loss over the samples that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import ReplicaError
from course_lib.training.device_queues import DeviceManager, Queue
from course_lib.training.gradient_sync import BUCKET_BYTES, OverlappedSync, sync_grads
from course_lib.training.replica import (
    Replica,
    broadcast_optimizer,
    broadcast_params,
    check_in_sync,
    prepare_replicas,
    write_back,
)
from course_lib.training.replica_layers import AbsentError, share_statistics
from course_lib.training.shards import Batch, map_batch, shard_batch

__all__ = [
    "DeviceManager",
    "PhaseTime",
    "Queue",
    "Replica",
    "StepResult",
    "broadcast_optimizer",
    "broadcast_params",
    "check_in_sync",
    "data_parallel_step",
    "prepare_replicas",
    "shard_batch",
    "sync_grads",
    "write_back",
]

Forward = Callable[..., Tensor]


class PhaseTime(NamedTuple):
    """When a replica was in a phase of the step: seconds of `time.perf_counter`; replica None is all of them."""

    replica: int | None
    phase: str
    start: float
    seconds: float


class StepResult(NamedTuple):
    """What a step did: the mean loss over the whole batch, and when each replica was in which phase."""

    loss: float
    times: list[PhaseTime]


def data_parallel_step(
    forward: Forward,
    replicas: Sequence[Replica],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Batch,
    *,
    pre_shard_hook: Callable[[Batch], Batch | None] | None = None,
    post_sync_hook: Callable[[Sequence[Replica]], None] | None = None,
    post_step_hook: Callable[[Sequence[Replica]], None] | None = None,
    accumulation_steps: int = 1,
    scaler: torch.amp.GradScaler | None = None,
    overlap: bool = False,
    bucket_bytes: int = BUCKET_BYTES,
) -> StepResult:
    """Deal a batch to the replicas, which compute side by side, and take the step that one model would on all of it.

    The replicas must be alike when the step begins (`check_in_sync` says whether they are), and then are after it. If
    one fails, or its gradient is not finite, none steps: no gradient is left, and the step may be tried again. Autocast
    is that of the caller.

    Args:
        forward: `forward(replica, *shard)` for a tuple or list, else `forward(replica, shard)`; returns the mean loss.
        replicas: from `prepare_replicas`.
        optimizers: one for each replica, all alike.
        batch: see `shard_batch`. A replica that gets no sample only takes the step.
        pre_shard_hook: called with the batch; may return another one.
        post_sync_hook: called with the replicas when their gradients are the same and unscaled: the place to clip them.
        post_step_hook: called with the replicas after the step: the place for schedules and averages of weights.
        accumulation_steps: backward passes into which each shard is cut; the result is the same, with less memory.
        scaler: of fp16 training. It sees gradients that are not finite, and lets all optimizers skip the step.
        overlap: exchange gradients while backward goes on.
        bucket_bytes: how much is exchanged at once.

    Raises:
        BatchError: the batch cannot be dealt.
        ReplicaError: a replica failed, or its gradient is not finite; names it. If an optimizer failed, it says which
            replicas have stepped already.
    """
    _check_optimizers(replicas, optimizers)
    if accumulation_steps < 1:
        raise ReplicaError(f"accumulation_steps must be at least 1, not {accumulation_steps}.")
    if pre_shard_hook is not None:
        changed = pre_shard_hook(batch)
        batch = batch if changed is None else changed
    shards, sizes = shard_batch(batch, len(replicas))
    passes = min(accumulation_steps, *filter(None, sizes))
    step = _Step(forward, passes, scaler)
    with _one_thread(), _all_or_nothing(replicas, scaler):
        losses = _compute(step, replicas, shards, sizes, overlap, bucket_bytes)
        if scaler is not None:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
        if post_sync_hook is not None:
            post_sync_hook(replicas)
        _update(step, replicas, optimizers, sizes)
    if scaler is not None:
        scaler.update()
    if post_step_hook is not None:
        post_step_hook(replicas)
    mean = sum(loss * size for loss, size in zip(losses, sizes, strict=False)) / sum(sizes)
    return StepResult(mean, sorted(step.times, key=lambda each: each.start))


def _compute(
    step: _Step,
    replicas: Sequence[Replica],
    shards: Sequence[Batch],
    sizes: Sequence[int],
    overlap: bool,
    bucket_bytes: int,
) -> list[float]:
    """Give all replicas the gradient of the whole batch; returns the loss of each that had a sample."""
    busy = [each for each in zip(replicas, shards, sizes, strict=True) if each[2]]
    for replica in replicas[len(busy) :]:  # these compute nothing, and a gradient is put into them meanwhile
        replica.queue.submit(replica.zero_grad).result()
    computing = [partial(step.compute, *each) for each in busy]
    exchanging = partial(step.phase, None, "sync")
    if overlap:
        with OverlappedSync(replicas, sizes, step.passes, bucket_bytes, step.finite, exchanging):
            return _side_by_side(replicas, computing, sizes)
    losses = _side_by_side(replicas, computing, sizes)
    with exchanging():
        sync_grads(replicas, sizes, bucket_bytes=bucket_bytes, finite=step.finite)
    return losses


def _update(
    step: _Step, replicas: Sequence[Replica], optimizers: Sequence[torch.optim.Optimizer], sizes: Sequence[int]
) -> None:
    """Let all replicas take the step; those that had no sample get the statistics of the others."""
    updating = [partial(step.update, *pair) for pair in zip(replicas, optimizers, strict=True)]
    if replicas[0].device.type == "cpu":  # many small operations, called from Python: two threads would be slower
        _one_by_one(replicas, updating)
    else:
        _side_by_side(replicas, updating, sizes)
    for replica, size in zip(replicas, sizes, strict=True):
        if not size:
            share_statistics(replicas[0].module, replica.module)


class _Step:
    """What the replicas do in one step, each in the thread of its queue; `times` takes down when."""

    def __init__(self, forward: Forward, passes: int, scaler: torch.amp.GradScaler | None) -> None:
        self.passes = passes
        # A scaler wants to see what is not finite.
        self.finite = scaler is None or not scaler.is_enabled()
        self._forward = forward
        self._scaler = scaler
        self.times: list[PhaseTime] = []
        # Autocast holds for a thread: the replicas' get the caller's.
        self._autocast = {
            kind: partial(torch.autocast, kind, torch.get_autocast_dtype(kind))
            for kind in ("cpu", "cuda")
            if torch.is_autocast_enabled(kind)
        }

    def compute(self, replica: Replica, shard: Batch, size: int) -> float:
        """Forward and backward of a replica on its shard of `size` samples; returns the mean loss."""
        replica.zero_grad()
        with self.phase(replica, "data"):
            shard = map_batch(shard, partial(Tensor.to, device=replica.device, non_blocking=True))
        losses = []
        autocast = self._autocast.get(replica.device.type, nullcontext)
        parts = zip(*shard_batch(shard, self.passes), strict=True) if self.passes > 1 else [(shard, size)]
        for part, part_size in parts:
            with self.phase(replica, "forward"), autocast():
                loss = self._forward(replica, *part) if isinstance(part, tuple | list) else self._forward(replica, part)
                _check_loss(loss)
                if part_size < size:
                    loss = loss * (part_size / size)
            with self.phase(replica, "backward"):
                (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            losses.append(loss.detach())
        return sum(loss.item() for loss in losses)

    def update(self, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        """Take the step, with the gradients that all replicas have alike, and forget them."""
        with self.phase(replica, "optimizer"):
            if self._scaler is None:
                optimizer.step()
            else:
                self._scaler.step(optimizer)
            replica.zero_grad()

    @contextmanager
    def phase(self, replica: Replica | None, name: str) -> Iterator[None]:
        """Time what is done within; on a GPU, until it is done."""
        start = time.perf_counter()
        yield
        if replica is not None:
            replica.queue.synchronize()
        number = None if replica is None else replica.number
        self.times.append(PhaseTime(number, name, start, time.perf_counter() - start))


def _side_by_side(replicas: Sequence[Replica], jobs: Sequence[Callable[[], Any]], sizes: Sequence[int]) -> list[Any]:
    """Do one job on the queue of each of the first replicas, all at the same time, and return the results.

    Raises:
        ReplicaError: one failed; names the first whose own fault it was.
    """
    with replicas[0].meeting.among(sizes[: len(jobs)]) as close:
        futures = [replica.queue.submit(job) for replica, job in zip(replicas, jobs, strict=False)]
        for future in futures:
            future.add_done_callback(lambda _: close())  # whoever still waits for this one waits in vain
        wait(futures)
    errors = {number: error for number, future in enumerate(futures) if (error := future.exception())}
    own = {number: error for number, error in errors.items() if not isinstance(error, AbsentError)}
    for number, error in (own or errors).items():
        raise _failed(replicas, number, error) from error
    return [future.result() for future in futures]


def _one_by_one(replicas: Sequence[Replica], jobs: Sequence[Callable[[], Any]]) -> None:
    """Do the optimizer's job for each replica in this thread, until one fails.

    Raises:
        ReplicaError: names it, and those that had stepped before.
    """
    for number, job in enumerate(jobs):
        try:
            job()
        except Exception as error:
            stepped = f" {number} of {len(replicas)} replicas had taken the step already: prepare all anew."
            raise _failed(replicas, number, error, stepped if number else "") from error


def _failed(replicas: Sequence[Replica], number: int, error: BaseException, more: str = "") -> ReplicaError:
    return ReplicaError(
        f"Replica {number} of {len(replicas)} ({replicas[number].queue.name}) failed: {type(error).__name__}: {error}. "
        f"All gradients were cleared.{more}"
    )


def _check_optimizers(replicas: Sequence[Replica], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Refuse optimizers that would leave their replicas where they are."""
    if len(optimizers) != len(replicas):
        raise ReplicaError(f"{len(replicas)} replicas need as many optimizers, and there are {len(optimizers)}.")
    for replica, optimizer in zip(replicas, optimizers, strict=True):
        own = {id(parameter) for parameter in replica.parameters()}
        if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            raise ReplicaError(
                f"Optimizer {replica.number} has none of the parameters of replica {replica.number}. Make one for "
                "each: [AdamW(replica.parameters()) for replica in replicas]."
            )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in this thread alone: torch's own threads would go on spinning on the cores that the replicas need."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _all_or_nothing(replicas: Sequence[Replica], scaler: torch.amp.GradScaler | None) -> Iterator[None]:
    """Leave no gradient behind, and no half-used scaler, when something fails within."""
    if scaler is not None:
        scaler.scale(torch.zeros((), device=replicas[0].device))  # sets it up, before several threads use it
    try:
        yield
    except BaseException:
        for replica in replicas:
            replica.queue.submit(replica.zero_grad).result()
        if scaler is not None:
            scaler.update(scaler.get_scale())
        raise


def _check_loss(loss: Any) -> None:
    if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
        raise TypeError("forward must return the mean loss: a tensor of one element that depends on the parameters")

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
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from threading import BrokenBarrierError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import BatchError, ReplicaError
from course_lib.training.device_queues import DeviceManager, Queue
from course_lib.training.gradient_sync import BUCKET_BYTES, OverlappedSync, sync_grads
from course_lib.training.replica import Replica, broadcast_params, check_in_sync, prepare_replicas, write_back

__all__ = [
    "DeviceManager",
    "PhaseTime",
    "Queue",
    "Replica",
    "StepResult",
    "broadcast_params",
    "check_in_sync",
    "data_parallel_step",
    "prepare_replicas",
    "shard_batch",
    "sync_grads",
    "write_back",
]

Batch = Any  # a tensor, or a tuple, list or dict of batches
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


def shard_batch(batch: Batch, num_shards: int) -> tuple[list[Batch], list[int]]:
    """Cut a batch into near-even shards along the first dimension of its tensors.

    Args:
        batch: a tensor, or tensors in tuples, lists and dicts, all of one length.
        num_shards: how many; where there are fewer samples, the last shards are empty.

    Returns:
        The shards, built like the batch, and how many samples each has. They are views.

    Raises:
        BatchError: lengths differ, the batch is empty, or something in it is no tensor; says what.
    """
    if num_shards < 1:
        raise BatchError(f"A batch cannot be cut into {num_shards} shards; it takes at least one.")
    lengths = dict(_lengths(batch, "batch"))
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise BatchError(f"All tensors of a batch must have as many samples: {told or 'this one holds no tensor'}.")
    (length,) = set(lengths.values())
    if length == 0:
        raise BatchError("The batch is empty: there is nothing to learn from it.")
    sizes = [length // num_shards + (number < length % num_shards) for number in range(num_shards)]
    ends = [sum(sizes[: number + 1]) for number in range(num_shards)]
    return [_map(batch, itemgetter(slice(end - size, end))) for size, end in zip(sizes, ends, strict=True)], sizes


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

    Either all replicas step or none does: after a failure no gradient is left, and the step may be tried again.

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
        ReplicaError: a replica failed, or its gradient is not finite; names it. Should an optimizer itself fail, others
            may have stepped: `broadcast_params` makes all alike again.
    """
    if len(optimizers) != len(replicas):
        raise ReplicaError(f"{len(replicas)} replicas need as many optimizers, and there are {len(optimizers)}.")
    if pre_shard_hook is not None:
        changed = pre_shard_hook(batch)
        batch = batch if changed is None else changed
    shards, sizes = shard_batch(batch, len(replicas))
    busy = [(replica, shard, size) for replica, shard, size in zip(replicas, shards, sizes, strict=True) if size]
    passes = min(accumulation_steps, *(size for _, _, size in busy))
    step = _Step(forward, passes, scaler)
    # What is done for all is done in the first queue's thread: in this one, torch's own threads would go on spinning on
    # the cores that the replicas need.
    first = replicas[0].queue
    with _all_or_nothing(replicas, scaler):
        for replica in replicas[len(busy) :]:  # these wait, and a gradient is put into them meanwhile
            replica.queue.submit(replica.zero_grad).result()
        computing = [partial(step.compute, *each) for each in busy]
        exchanging = partial(step.phase, None, "sync")
        if overlap:
            with OverlappedSync(replicas, sizes, passes, bucket_bytes, finite=scaler is None, timed=exchanging):
                losses = _side_by_side(replicas, computing)
        else:
            losses = _side_by_side(replicas, computing)
            with exchanging():
                sync = partial(sync_grads, bucket_bytes=bucket_bytes, finite=scaler is None)
                first.submit(sync, replicas, sizes).result()
        if scaler is not None:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
        if post_sync_hook is not None:
            post_sync_hook(replicas)
        updating = [partial(step.update, *pair) for pair in zip(replicas, optimizers, strict=True)]
        if first.device.type == "cpu":  # many small operations, called from Python: two threads would be slower
            first.submit(_one_by_one, replicas, updating).result()
        else:
            _side_by_side(replicas, updating)
    if scaler is not None:
        scaler.update()
    if post_step_hook is not None:
        post_step_hook(replicas)
    mean = sum(loss * size for loss, size in zip(losses, sizes, strict=False)) / sum(sizes)
    return StepResult(mean, sorted(step.times, key=lambda each: each.start))


class _Step:
    """What the replicas do in one step, each in the thread of its queue; `times` takes down when."""

    def __init__(self, forward: Forward, passes: int, scaler: torch.amp.GradScaler | None) -> None:
        self._forward = forward
        self._passes = passes
        self._scaler = scaler
        self.times: list[PhaseTime] = []

    def compute(self, replica: Replica, shard: Batch, size: int) -> float:
        """Forward and backward of a replica on its shard of `size` samples; returns the mean loss."""
        replica.zero_grad()
        with self.phase(replica, "data"):
            shard = _map(shard, partial(Tensor.to, device=replica.device, non_blocking=True))
        total = torch.zeros((), device=replica.device)
        for part, part_size in zip(*shard_batch(shard, self._passes), strict=True):
            with self.phase(replica, "forward"):
                loss = self._forward(replica, *part) if isinstance(part, tuple | list) else self._forward(replica, part)
                _check_loss(loss)
                loss = loss * (part_size / size)
            with self.phase(replica, "backward"):
                (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            total = total + loss.detach()
        return total.item()

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


def _side_by_side(replicas: Sequence[Replica], jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do one job on the queue of each of the first replicas, all at the same time, and return the results.

    Raises:
        ReplicaError: one failed; names the first whose own fault it was.
    """
    meeting = replicas[0].meeting
    with meeting.among(len(jobs)):
        futures = [replica.queue.submit(job) for replica, job in zip(replicas, jobs, strict=False)]
        for future in futures:
            future.add_done_callback(lambda done: meeting.abort() if done.exception() else None)
        wait(futures)
    return _results(replicas, futures)


def _one_by_one(replicas: Sequence[Replica], jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do one job for each replica in this thread; what fails is told as by `_side_by_side`."""
    futures = []
    for job in jobs:
        futures.append(future := Future[Any]())
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)
    return _results(replicas, futures)


def _results(replicas: Sequence[Replica], futures: Sequence[Future[Any]]) -> list[Any]:
    errors = {number: error for number, future in enumerate(futures) if (error := future.exception())}
    own = {number: error for number, error in errors.items() if not isinstance(error, BrokenBarrierError)}
    for number, error in (own or errors).items():
        raise ReplicaError(
            f"Replica {number} of {len(replicas)} ({replicas[number].queue.name}) failed: {type(error).__name__}: "
            f"{error}. All gradients were cleared."
        ) from error
    return [future.result() for future in futures]


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


def _lengths(batch: Batch, name: str) -> Iterator[tuple[str, int]]:
    """The name of each tensor in a batch, and how many samples it has."""
    if isinstance(batch, Tensor):
        if batch.ndim == 0:
            raise BatchError(f"{name} is a tensor without dimensions: its first one must count the samples.")
        yield name, len(batch)
    elif isinstance(batch, tuple | list):
        for place, part in enumerate(batch):
            yield from _lengths(part, f"{name}[{place}]")
    elif isinstance(batch, dict):
        for key, part in batch.items():
            yield from _lengths(part, f"{name}[{key!r}]")
    else:
        raise BatchError(f"{name} is a {type(batch).__name__}; a batch holds tensors, in tuples, lists and dicts.")


def _map(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with each of its tensors changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: _map(part, change) for key, part in batch.items()}
    parts = [_map(part, change) for part in batch]
    return parts if isinstance(batch, list) else tuple(parts)

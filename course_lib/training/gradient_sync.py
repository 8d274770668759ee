"""The gradient of the whole batch, from the gradients of its shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor, nn

from course_lib.errors import ReplicaError
from course_lib.training.collectives import HALVES
from course_lib.training.reductions import COMBINE, Wire, naive
from course_lib.training.replica import Replica

BUCKET_BYTES = 25 * 2**20  # as in DDP

Bucket = list[int]  # the places of its parameters in the list of a replica's parameters


def sync_grads(
    replicas: Sequence[Replica],
    weights: Sequence[float],
    *,
    bucket_bytes: int = BUCKET_BYTES,
    finite: bool = True,
) -> None:
    """Give every replica the weighted mean of all replicas' gradients.

    Where each gradient g_i is that of the mean loss over n_i samples, and `weights` are the n_i, the result is the
    gradient of the mean loss over all samples: sum(n_i g_i) / sum(n_i). The plain mean of the g_i is not, unless all
    n_i are equal. Gradients are sent in buckets: one exchange for many parameters, all to replica 0 and back, which
    between few devices is the fastest way. A gradient that only some replicas have counts as zero on the others; one
    that none has stays None.

    Args:
        replicas: after their backward passes.
        weights: one for each replica, not negative; what a replica of weight 0 has does not count.
        bucket_bytes: how much is sent at once.
        finite: refuse infinite gradients and those that are not numbers (a GradScaler wants to see them).

    Raises:
        ReplicaError: gradients do not fit together, or are not finite; names the replica and the parameter.
    """
    shares = _shares(replicas, weights)
    _check_alike(replicas)
    for bucket in make_buckets(replicas[0], bucket_bytes):
        reduce_bucket(replicas, bucket, shares, finite)


def make_buckets(replica: Replica, bucket_bytes: int) -> list[Bucket]:
    """Parameters that are sent together: neighbours of one dtype, the last first, as backward comes to them."""
    buckets: list[Bucket] = []
    size, dtype = 0, None
    for place, parameter in reversed(list(enumerate(replica.parameters()))):
        if not parameter.requires_grad:
            continue
        own = parameter.numel() * parameter.element_size()
        if not buckets or size + own > bucket_bytes or parameter.dtype != dtype:
            buckets.append([])
            size, dtype = 0, parameter.dtype
        buckets[-1].append(place)
        size += own
    return buckets


def reduce_bucket(replicas: Sequence[Replica], bucket: Bucket, shares: Sequence[float], finite: bool) -> None:
    """Put the weighted sum of a bucket's gradients into all replicas."""
    parameters = [list(replica.parameters()) for replica in replicas]
    used = [place for place in bucket if any(own[place].grad is not None for own in parameters)]
    if not used:
        return
    _check_dense(replicas, used)
    with torch.no_grad():
        flats = [_flat([own[place] for place in used], share) for own, share in zip(parameters, shares, strict=True)]
        # Adds up into these tensors, which nobody else has; `all_reduce` would copy them first.
        totals = naive(flats, COMBINE["sum"], Wire(None))
        if finite and not torch.isfinite(totals[0].sum()) and not torch.isfinite(totals[0]).all():
            _refuse_non_finite(replicas, shares)
        for total in totals:
            if total.is_cuda:  # before the gradients that were read for it are freed, on streams of their own
                torch.cuda.current_stream(total.device).synchronize()
        for own, total in zip(parameters, totals, strict=True):
            _hand_out(total, [own[place] for place in used])


class OverlappedSync:
    """Reduces each bucket as soon as all replicas have its gradients, while backward goes on.

    It is a context around the backward passes: at its end all gradients are synchronised. Each replica makes as many
    `passes`, and `timed` times the exchange of a bucket; the other arguments are those of `sync_grads`.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        weights: Sequence[float],
        passes: int,
        bucket_bytes: int,
        finite: bool,
        timed: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._replicas = replicas
        self._shares = _shares(replicas, weights)
        self._finite = finite
        self._timed = timed
        self._buckets = make_buckets(replicas[0], bucket_bytes)
        active = sum(share > 0 for share in self._shares)
        self._missing = [active * passes * len(bucket) for bucket in self._buckets]
        self._lock = threading.Lock()
        self._reducing: dict[int, Future[None]] = {}

    def __enter__(self) -> OverlappedSync:
        _check_alike(self._replicas)
        self._thread = ThreadPoolExecutor(1, "sync", torch.set_num_threads, (1,))
        # Started here, it may run on any core; started by a hook, it would stay on that replica's.
        self._thread.submit(torch.get_num_threads).result()
        self._hooks = []
        for replica, share in zip(self._replicas, self._shares, strict=True):
            parameters = list(replica.parameters()) if share > 0 else []
            for number, bucket in enumerate(self._buckets if parameters else []):
                note = partial(self._note, number)
                self._hooks += [parameters[place].register_post_accumulate_grad_hook(note) for place in bucket]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._thread.shutdown(wait=True)
        if kind is not None:
            return
        for number, bucket in enumerate(self._buckets):
            if number in self._reducing:
                self._reducing[number].result()
            else:  # a parameter in it was not used, so it never became complete
                self._reduce(bucket)

    def _note(self, number: int, parameter: Tensor) -> None:
        """A gradient of bucket `number` is there."""
        if parameter.device.type == "cuda":
            torch.cuda.current_stream(parameter.device).synchronize()
        with self._lock:
            self._missing[number] -= 1
            if self._missing[number] < 0:
                raise ReplicaError(
                    "A gradient came more often than once in a backward pass, and overlap cannot know which is the "
                    "last. Use overlap=False."
                )
            if self._missing[number] == 0:
                self._reducing[number] = self._thread.submit(self._reduce, self._buckets[number])

    def _reduce(self, bucket: Bucket) -> None:
        with self._timed():
            reduce_bucket(self._replicas, bucket, self._shares, self._finite)


def _flat(parameters: Sequence[nn.Parameter], share: float) -> Tensor:
    """The gradients in one piece, times the replica's share; in float32 where they are in half precision."""
    if share == 0:
        grads = [torch.zeros_like(parameter).flatten() for parameter in parameters]
    else:
        grads = [
            (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten()
            for parameter in parameters
        ]
    flat = torch.cat(grads)
    return (flat.float() if flat.dtype in HALVES else flat).mul_(share)


def _hand_out(flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    pieces = flat.split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view(parameter.shape).to(parameter.dtype)


def _shares(replicas: Sequence[Replica], weights: Sequence[float]) -> list[float]:
    if len(weights) != len(replicas):
        raise ReplicaError(f"There are {len(replicas)} replicas and {len(weights)} weights: it takes one for each.")
    if min(weights, default=0) < 0 or not 0 < sum(weights) < float("inf"):
        raise ReplicaError(f"The weights must be numbers of samples, not {list(weights)}.")
    return [weight / sum(weights) for weight in weights]


def _check_alike(replicas: Sequence[Replica]) -> None:
    """Refuse replicas of different models."""
    first = [(name, tuple(each.shape), each.requires_grad) for name, each in replicas[0].named_parameters()]
    for replica in replicas:
        own = [(name, tuple(each.shape), each.requires_grad) for name, each in replica.named_parameters()]
        for (name, shape, trained), other in zip(own, first, strict=False):
            if (name, shape, trained) != other:
                raise ReplicaError(
                    f"Parameter {name!r} of replica {replica.number} has shape {shape} and requires_grad {trained}; "
                    f"replica 0 has {other[0]!r} there, of shape {other[1]} and with {other[2]}. All replicas must be "
                    "copies of one model."
                )
        if len(own) != len(first):
            raise ReplicaError(f"Replica {replica.number} has {len(own)} parameters, and replica 0 has {len(first)}.")


def _check_dense(replicas: Sequence[Replica], places: Bucket) -> None:
    for replica in replicas:
        parameters = list(replica.named_parameters())
        for name, parameter in (parameters[place] for place in places):
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                raise ReplicaError(
                    f"The gradient of parameter {name!r} of replica {replica.number} is sparse, which cannot be "
                    "synchronised here. Make the layer with sparse=False."
                )


def _refuse_non_finite(replicas: Sequence[Replica], shares: Sequence[float]) -> None:
    """Name the first replica and parameter whose own gradient is not finite."""
    for replica, share in zip(replicas, shares, strict=True):
        for name, parameter in replica.named_parameters():
            if share > 0 and parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                raise ReplicaError(
                    f"The gradient of parameter {name!r} of replica {replica.number} is not finite. Look at the "
                    "shard and the loss of that replica; a smaller learning rate may help."
                )
    raise ReplicaError(
        "The gradients of all replicas add up to more than their dtype holds. Clip them, or use float32."
    )

"""Layers of a replica that need to know which replica it is: Dropout, and BatchNorm over the whole batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from course_lib.training.collectives import HALVES

# Of a dropout layer, how many dimensions at the end it drops as a whole.
DROPPED_TOGETHER: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class OwnDropout(_DropoutNd):
    """Dropout with a random stream of its own: with the CPU's one stream for all threads, no run is repeatable."""

    _together: int
    _generator: torch.Generator

    def forward(self, images: Tensor) -> Tensor:
        """What is left of `images`, in any shape, scaled so that its mean stays."""
        if not self.training or self.p == 0:
            return images
        shape = images.shape[: images.ndim - self._together] + (1,) * self._together
        kept = torch.empty(shape, dtype=images.dtype, device=images.device)
        kept.bernoulli_(1 - self.p, generator=self._generator)
        return images * (kept if self.p == 1 else kept.div_(1 - self.p))


class AbsentError(Exception):
    """Another replica ended its work, or failed, without coming to where this one waits."""


class Meeting:
    """Where the threads of several replicas exchange tensors in the middle of a step."""

    def __init__(self) -> None:
        self._step: _Exchanges | None = None

    @contextmanager
    def among(self, sizes: Sequence[int]) -> Iterator[Callable[[], None]]:
        """Within this, replicas with shards of these sizes meet; outside, each is alone.

        Gives a function that says that nobody who is not there will come any more.
        """
        step = self._step = _Exchanges(sizes)
        try:
            yield step.close
        finally:
            self._step = None
            step.close()

    def exchange(self, number: int, tensor: Tensor) -> list[tuple[Tensor, float]]:
        """Bring a tensor, and get what all brought, in order; each with its shard's size over one's own.

        Raises:
            AbsentError: another replica does not come.
        """
        step = self._step
        return [(tensor, 1.0)] if step is None else step.exchange(number, tensor)


class _Exchanges:
    """The exchanges of one step. All replicas come to the same ones, in the same order."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._change = threading.Condition()
        self._closed = False
        self._turns = [0] * len(sizes)  # how many exchanges each replica has come to
        self._brought: list[dict[int, Tensor]] = []  # to each of them

    def exchange(self, number: int, tensor: Tensor) -> list[tuple[Tensor, float]]:
        if tensor.device.type == "cuda":
            torch.cuda.current_stream(tensor.device).synchronize()  # others read it on streams of their own
        with self._change:
            turn = self._turns[number]
            self._turns[number] += 1
            if turn == len(self._brought):
                self._brought.append({})
            brought = self._brought[turn]
            brought[number] = tensor
            self._change.notify_all()
            self._change.wait_for(lambda: len(brought) == len(self._sizes) or self._closed)
        if len(brought) < len(self._sizes):
            raise AbsentError("another replica did not come to a layer that all must go through")
        return [(brought[other], size / self._sizes[number]) for other, size in enumerate(self._sizes)]

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()


class _SumOverReplicas(torch.autograd.Function):
    """The sum of one tensor from each replica; the gradient is summed likewise.

    A replica's loss is a mean over its own samples and counts by their number, so a gradient that comes from another
    replica is weighed by that one's number over one's own.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, meeting: Meeting, number: int) -> Tensor:
        ctx.meeting, ctx.number = meeting, number
        return _sum([brought.to(tensor.device) for brought, _ in meeting.exchange(number, tensor)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        brought = ctx.meeting.exchange(ctx.number, gradient)
        return _sum([other.to(gradient.device) * ratio for other, ratio in brought]), None, None


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).sum(0)


class SynchronisedBatchNorm(_BatchNorm):
    """BatchNorm whose mean and variance are those of the whole batch, over all replicas (as nn.SyncBatchNorm)."""

    _meeting: Meeting
    _number: int

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # forward takes any number of dimensions

    def forward(self, input: Tensor) -> Tensor:
        """`input`, [n, channels, ...], normalised for each channel."""
        if not (self.training or self.running_mean is None):
            return super().forward(input)
        wide = input.float() if input.dtype in HALVES else input
        others = [dimension for dimension in range(input.ndim) if dimension != 1]
        shape = [1, -1, *[1] * (input.ndim - 2)]
        count = self._sum(wide.new_tensor([wide.numel() // wide.shape[1]])).item()
        if count == 1:
            raise ValueError("BatchNorm needs more than one value of each channel to train")
        mean = self._sum(wide.sum(others)) / count
        centred = wide - mean.view(shape)
        variance = self._sum(centred.square().sum(others)) / count
        if self.training and self.running_mean is not None:
            self._track(mean.detach(), variance.detach() * count / (count - 1))
        result = centred / (variance.view(shape) + self.eps).sqrt()
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)

    def _sum(self, tensor: Tensor) -> Tensor:
        result: Tensor = _SumOverReplicas.apply(tensor, self._meeting, self._number)
        return result

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def adapt(module: nn.Module, number: int, meeting: Meeting | None, device: torch.device) -> None:
    """Make the layers that need it replica `number`'s own: Dropout and, where there is a `meeting`, BatchNorm.

    Such a layer stays the same object, with its parameters, hooks and places in the model, and only computes otherwise.
    """
    # Other seeds and other replicas have other streams.
    generator = torch.Generator(device).manual_seed((1_000_003 * torch.initial_seed() + number) % 2**63)
    for layer in module.modules():
        if type(layer) in DROPPED_TOGETHER:
            together = DROPPED_TOGETHER[type(layer)]
            layer.__class__ = OwnDropout
            vars(layer).update(_together=together, _generator=generator)
        elif meeting is not None and isinstance(layer, _BatchNorm):
            layer.__class__ = SynchronisedBatchNorm
            vars(layer).update(_meeting=meeting, _number=number)


def share_statistics(source: nn.Module, target: nn.Module) -> None:
    """Give a replica that had no sample in a step what synchronised BatchNorm has seen in it."""
    for layer, other in zip(source.modules(), target.modules(), strict=True):
        if isinstance(layer, SynchronisedBatchNorm):
            for buffer, own in zip(layer.buffers(), other.buffers(), strict=True):
                own.copy_(buffer)

"""Layers of a replica that need to know which replica it is: Dropout, and BatchNorm over the whole batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

# Of a dropout layer, how many dimensions at the end it drops as a whole.
DROPPED_TOGETHER = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class OwnDropout(_DropoutNd):
    """Dropout with a random stream of its own: with the CPU's one stream for all threads, no run is repeatable."""

    def __init__(self, layer: _DropoutNd, generator: torch.Generator) -> None:
        super().__init__(layer.p)
        self.train(layer.training)
        self._together = DROPPED_TOGETHER[type(layer)]
        self._generator = generator

    def forward(self, images: Tensor) -> Tensor:
        """What is left of `images`, in any shape, scaled so that its mean stays."""
        if not self.training or self.p == 0:
            return images
        shape = images.shape[: images.ndim - self._together] + (1,) * self._together
        kept = torch.empty(shape, dtype=images.dtype, device=images.device)
        kept.bernoulli_(1 - self.p, generator=self._generator)
        return images * kept if self.p == 1 else images * kept / (1 - self.p)


class Meeting:
    """Where the threads of several replicas exchange tensors in the middle of a step."""

    def __init__(self) -> None:
        self._barrier: threading.Barrier | None = None
        self._brought: dict[int, tuple[Tensor, int]] = {}

    @contextmanager
    def among(self, world_size: int) -> Iterator[None]:
        """Within this, as many replicas meet; outside, each is alone."""
        self._barrier = threading.Barrier(world_size)
        self._brought.clear()
        try:
            yield
        finally:
            self._barrier = None

    def abort(self) -> None:
        """Release all who wait, with an error: one of them will not come."""
        if self._barrier is not None:
            self._barrier.abort()

    def exchange(self, number: int, tensor: Tensor, samples: int) -> list[tuple[Tensor, int]]:
        """Bring a tensor, and get what all brought, in the order of the replicas."""
        if self._barrier is None:
            return [(tensor, samples)]
        if tensor.device.type == "cuda":
            torch.cuda.current_stream(tensor.device).synchronize()  # others read it on streams of their own
        self._brought[number] = (tensor, samples)
        self._barrier.wait()
        all_of_them = [self._brought[each] for each in sorted(self._brought)]
        self._barrier.wait()  # nobody brings the next one before all have read
        return all_of_them


class _SumOverReplicas(torch.autograd.Function):
    """The sum of one tensor from each replica; the gradient is summed likewise.

    A replica's loss is a mean over its own samples and counts by their number, so a gradient that comes from another
    replica is weighed by that one's number over one's own.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, meeting: Meeting, number: int, samples: int) -> Tensor:
        ctx.meeting, ctx.number, ctx.samples = meeting, number, samples
        return sum_to(tensor.device, [each for each, _ in meeting.exchange(number, tensor, samples)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        brought = ctx.meeting.exchange(ctx.number, gradient, ctx.samples)
        weighed = [each * (samples / ctx.samples) for each, samples in brought]
        return sum_to(gradient.device, weighed), None, None, None


def sum_to(device: torch.device, tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors from several devices, added up in their order."""
    total = tensors[0].to(device, copy=True)
    for tensor in tensors[1:]:
        total += tensor.to(device)
    return total


class SynchronisedBatchNorm(_BatchNorm):
    """BatchNorm whose mean and variance are those of the whole batch, over all replicas (as nn.SyncBatchNorm)."""

    def __init__(self, layer: _BatchNorm, meeting: Meeting, number: int) -> None:
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        self.weight, self.bias = layer.weight, layer.bias
        for name, buffer in layer.named_buffers():
            self.register_buffer(name, buffer)
        self.train(layer.training)
        self._meeting, self._number = meeting, number

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # forward takes any number of dimensions

    def forward(self, input: Tensor) -> Tensor:
        """`input`, [n, channels, ...], normalised for each channel."""
        if not (self.training or self.running_mean is None):
            return super().forward(input)
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        others = [dimension for dimension in range(input.ndim) if dimension != 1]
        shape = [1, -1, *[1] * (input.ndim - 2)]
        count = self._sum(wide.new_tensor([wide.numel() // wide.shape[1]]), len(input)).item()
        mean = self._sum(wide.sum(others), len(input)) / count
        centred = wide - mean.view(shape)
        variance = self._sum(centred.square().sum(others), len(input)) / count
        if self.training and self.running_mean is not None:
            self._track(mean.detach(), variance.detach() * count / max(1, count - 1))
        result = centred / (variance.view(shape) + self.eps).sqrt()
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)

    def _sum(self, tensor: Tensor, samples: int) -> Tensor:
        result: Tensor = _SumOverReplicas.apply(tensor, self._meeting, self._number, samples)
        return result

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def adapt(module: nn.Module, number: int, meeting: Meeting | None, device: torch.device, seed: int) -> nn.Module:
    """The module with its layers that need it made replica `number`'s own; with a `meeting`, BatchNorm too."""
    generator = torch.Generator(device).manual_seed(seed)

    def own(layer: nn.Module) -> nn.Module:
        if type(layer) in DROPPED_TOGETHER:
            return OwnDropout(layer, generator)  # type: ignore[arg-type]
        if meeting is not None and isinstance(layer, _BatchNorm):
            return SynchronisedBatchNorm(layer, meeting, number)
        for name, child in layer.named_children():
            setattr(layer, name, own(child))
        return layer

    return own(module)

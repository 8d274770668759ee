"""BatchNorm and Dropout for a batch that holds the images of several ranks, one rank's after the other's.

All other layers of the course's models look at one image at a time, so they need not know to which rank it belongs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from course_lib.training.replica_layers import DROPPED_TOGETHER


class VirtualRanks:
    """The ranks that one model plays, and what each of them has for itself: the random stream of its dropout.

    `network` is changed in place: its BatchNorm and Dropout layers stay the same objects, with their parameters and
    places, and only compute otherwise. A part of a checkpoint: it has a `state_dict`.

    Args:
        network: the model.
        seed: rank r draws from the stream of `seed + r`, as the process of rank r does under ddp.train.
        world_size: how many ranks there are.
        device: where the network is.

    Attributes:
        now: the ranks whose images the next batch holds, as many of each. Rank 0 comes alone, since it keeps the
            running statistics: DDP copies rank 0's to all, so no other rank's are ever used.
    """

    def __init__(self, network: nn.Module, seed: int, world_size: int, device: torch.device | str) -> None:
        self.now = range(1)
        self._streams: list[torch.Generator] = []
        for layer in network.modules():
            if type(layer) in DROPPED_TOGETHER:
                vars(layer).update(_ranks=self, _together=DROPPED_TOGETHER[type(layer)])
                layer.__class__ = VirtualDropout
            elif isinstance(layer, _BatchNorm):
                vars(layer).update(_ranks=self)
                layer.__class__ = VirtualBatchNorm
        if any(isinstance(layer, VirtualDropout) for layer in network.modules()):
            self._streams = [torch.Generator(device).manual_seed(seed + rank) for rank in range(world_size)]

    def streams(self) -> list[torch.Generator]:
        """The random streams of the ranks whose turn it is."""
        return self._streams[self.now.start : self.now.stop]

    def state_dict(self) -> dict[str, Any]:
        """Where the streams are."""
        states = [stream.get_state() for stream in self._streams]
        return {"streams": torch.stack(states) if states else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the streams back to where they were.

        Raises:
            ValueError: the state is of another number of ranks.
            AttributeError: it has no streams, and this model needs them.
        """
        if self._streams:
            for stream, there in zip(self._streams, state["streams"].cpu(), strict=True):
                stream.set_state(there.clone())  # given a row of a larger tensor, torch crashes


class VirtualDropout(_DropoutNd):
    """Dropout in which each rank's part of the batch has a random stream of its own."""

    _ranks: VirtualRanks
    _together: int

    def forward(self, images: Tensor) -> Tensor:
        """What is left of `images`, in any shape, scaled so that its mean stays."""
        if not self.training or self.p == 0:
            return images
        # Rank by rank the numbers that nn.Dropout draws in the rank's process, and in the same places, which depend on
        # how the images lie in memory.
        kept = torch.empty_like(images)
        if self._together:
            kept = images.new_empty(images.shape[: -self._together] + (1,) * self._together)
        streams = self._ranks.streams()
        for part, stream in zip(kept.chunk(len(streams)), streams, strict=True):
            part.bernoulli_(1 - self.p, generator=stream)
        return images * (kept if self.p == 1 else kept.div_(1 - self.p))


class VirtualBatchNorm(_BatchNorm):
    """BatchNorm that normalises each rank's part of the batch by that part's own mean and variance.

    A call for each rank is faster than one over all of them, which would have to move the memory of the batch twice.
    """

    _ranks: VirtualRanks

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # forward takes any number of dimensions

    def forward(self, input: Tensor) -> Tensor:
        """`input`, [n, channels, ...], normalised for each channel and rank."""
        ranks = self._ranks.now
        if not self.training or ranks.start == 0:
            return super().forward(input)
        parts = input.chunk(len(ranks))
        return torch.cat([batch_norm(part, None, None, self.weight, self.bias, True, 0.0, self.eps) for part in parts])

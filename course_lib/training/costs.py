"""What a model costs: the operations that one image takes, and the bytes of its gradient and of its activations.

Nothing is computed for it, since a tensor on the device "meta" has a shape and no values. Each cost is counted once.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from course_lib.training import models

IMAGES = 8


@cache
def flops_per_sample(model: str) -> float:
    """Floating-point operations of one image's forward and backward pass through the model of that name.

    Counted by torch over its matrix multiplications and convolutions, an addition and a multiplication each.
    """
    with torch.device("meta"):
        network = models.build(model)
        images = torch.empty(IMAGES, 1, 28, 28)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    return counter.get_total_flops() / IMAGES


@cache
def gradient_bytes(model: str) -> int:
    """Bytes of one gradient of the model of that name: float32, as its parameters."""
    with torch.device("meta"):
        network = models.build(model)
    return sum(parameter.nbytes for parameter in network.parameters())


@cache
def activation_bytes(model: str) -> float:
    """Bytes that the forward pass of one image keeps for the backward pass, in float32; the parameters do not count."""
    with torch.device("meta"):
        network = models.build(model)
        images = torch.empty(IMAGES, 1, 28, 28)
    parameters = {_storage(parameter) for parameter in network.parameters()}
    kept: dict[int, Tensor] = {}  # views of one storage are kept once

    def keep(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in parameters:
            kept[_storage(tensor)] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(images)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / IMAGES


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata

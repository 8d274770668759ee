"""What a model costs: the operations that one image takes, and the bytes of its gradient."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.training import models

IMAGES = 8


def flops_per_sample(model: str) -> float:
    """Floating-point operations of one image's forward and backward pass through the model of that name.

    Counted by torch over its matrix multiplications and convolutions, an addition and a multiplication each; nothing
    is computed, since a tensor on the device "meta" has a shape and no values.
    """
    with torch.device("meta"):
        network = models.build(model)
        images = torch.empty(IMAGES, 1, 28, 28)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    return counter.get_total_flops() / IMAGES


def gradient_bytes(model: str) -> int:
    """Bytes of one gradient of the model of that name: float32, as its parameters."""
    with torch.device("meta"):
        network = models.build(model)
    return sum(parameter.nbytes for parameter in network.parameters())

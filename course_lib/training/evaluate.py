"""Accuracy and loss that are exact on any number of ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.training.data import ImageSet


def evaluate(model: nn.Module, image_set: ImageSet, indices: Tensor, batch_size: int) -> Tensor:
    """The model's (correct, loss_sum, count) over the images at `indices`, as a float64 tensor [3] on their device.

    These are sums, so adding them over ranks that share out the images, and dividing once, gives the accuracy and
    the loss of the whole set: no image is padded or seen twice, and no average of averages is taken. `indices` may
    be empty. Dropout and BatchNorm are in evaluation mode inside, and every module's mode is as before afterwards.
    Give it the bare model, not DDP's wrapper, which would make the ranks wait for each other.
    """
    device = image_set.images.device
    correct = torch.zeros((), dtype=torch.int64, device=device)
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for batch in indices.split(batch_size) if len(indices) else ():
                images, labels = image_set.batch(batch)
                logits = model(images).float()
                correct += (logits.argmax(1) == labels).sum()
                loss_sum += cross_entropy(logits, labels, reduction="none").double().sum()
    finally:
        for module, training in modes:
            module.training = training
    return torch.stack([correct.double(), loss_sum, torch.full_like(loss_sum, len(indices))])

"""What must hold while a run trains: the loss is finite, and all ranks have the same weights."""

from __future__ import annotations

import hashlib
import math

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.errors import NonFiniteLossError, OutOfSyncError

# Looking at a loss on the GPU waits for the GPU, so it is done once in so many steps. What is looked at is a
# sum over the epoch, which stays as it is once it is not finite.
STEPS_BETWEEN_LOOKS_ON_GPU = 20
_KNUTH = 2654435761  # The Art of Computer Programming, volume 3, section 6.4


def check_finite(loss: Tensor, step: int, lr: float) -> None:
    """Stop where the loss, summed over the epoch so far, is infinite or not a number.

    Raises:
        NonFiniteLossError: names the step and the learning rate, and what to try.
    """
    if loss.device.type == "cuda" and step % STEPS_BETWEEN_LOOKS_ON_GPU:
        return
    value = loss.item()
    if not math.isfinite(value):
        raise NonFiniteLossError(
            f"The loss became {value} at step {step}, with learning rate {lr:.3g}. Try a smaller lr, a longer warm-up "
            "(warmup_epochs) or clip_norm; with lr_rule 'linear' the learning rate grows with the number of GPUs."
        )


def fingerprint(network: nn.Module) -> Tensor:
    """Two sums over the bytes of each parameter, int64 [parameters, 2]: equal for equal weights.

    The second weighs each byte by a number that its place is mixed to (Knuth's multiplicative hash), so
    that an exchange of elements shows too; two different sets of weights agree by chance only. Buffers
    are left out: BatchNorm's statistics rightly differ between ranks.
    """
    return torch.stack([_sums(parameter.detach()) for parameter in network.parameters()])


def fingerprint_text(network: nn.Module) -> str:
    """The fingerprint as 16 hexadecimal digits, to compare runs by."""
    return hashlib.sha256(fingerprint(network).cpu().numpy().tobytes()).hexdigest()[:16]


def check_in_sync(network: nn.Module) -> None:
    """Compare the weights of all ranks, bit for bit; every rank must call it.

    Raises:
        OutOfSyncError: names the first parameter that differs, and the ranks in which it does.
    """
    mine = fingerprint(network)
    prints = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(prints, mine)
    for index, (name, _) in enumerate(network.named_parameters()):
        others = [rank for rank, each in enumerate(prints) if not torch.equal(each[index], prints[0][index])]
        if others:
            raise OutOfSyncError(
                f"The weights of the ranks are no longer the same: parameter {name!r} of rank "
                f"{', '.join(map(str, others))} differs from rank 0's. Something changed them on one rank alone: look "
                "for an update outside the optimizer, or for a forward pass that bypasses DDP."
            )


def _sums(parameter: Tensor) -> Tensor:
    bits = parameter.contiguous().view(-1).view(torch.uint8).to(torch.int64)
    places = torch.arange(1, len(bits) + 1, device=bits.device) * _KNUTH % 2**32
    mixed = places ^ (places >> 15)
    return torch.stack([bits.sum(), (bits * mixed).sum()])

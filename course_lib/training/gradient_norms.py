"""How large gradients are: the one that the optimizer takes, and a rank's own, before DDP averages it with others."""

# Without `from __future__ import annotations`: DDP compares the hook's annotations with these types, not with text.

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm


def gradient_norm(network: nn.Module) -> Tensor:
    """The 2-norm of all gradients of a network together, a scalar tensor; nothing waits for the GPU."""
    return get_total_norm(parameter.grad for parameter in network.parameters() if parameter.grad is not None)


def unscaled(norm: Tensor, loss_factor: float, scaler: torch.amp.GradScaler) -> Tensor:
    """The norm as it is without what the loss was multiplied by before the backward pass; NaN for a factor of 0.

    Args:
        norm: of gradients that were not unscaled yet, a scalar tensor.
        loss_factor: what the mean loss was multiplied by, the scaler's part aside.
        scaler: what scaled it further; it was not updated since.
    """
    # The scaler tells its factor as a number only by waiting for the GPU; what it makes of a tensor is one.
    return norm / scaler.scale(torch.full_like(norm, loss_factor))


class LocalGradientNorm:
    """Watches the gradients that a DDP model is about to average.

    DDP collects gradients in buckets and sends each one off during the backward pass; what comes back takes its place.
    A communication hook stands in between. With accumulation it is called in the last pass, when a bucket holds the sum
    over all of them.

    Args:
        model: a DDP model without a communication hook.
    """

    def __init__(self, model: DistributedDataParallel) -> None:
        self._process_group = model.process_group
        self._bucket_norms: list[Tensor] = []
        model.register_comm_hook(None, self._note_and_average)

    def take(self, loss_factor: float, scaler: torch.amp.GradScaler) -> Tensor:
        """The 2-norm of this rank's own gradient in the backward pass that has just ended.

        Ask once a step, before the scaler is updated. Nothing waits for the GPU.

        Args:
            loss_factor: what the rank's mean loss was multiplied by before the backward pass, the scaler's part aside.
            scaler: what scaled it further.

        Returns:
            The norm of the gradient of the mean loss, a scalar tensor; NaN if the factor is 0.
        """
        norm = torch.linalg.vector_norm(torch.stack(self._bucket_norms))
        self._bucket_norms.clear()
        return unscaled(norm, loss_factor, scaler)

    def _note_and_average(
        self,
        state: None,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        self._bucket_norms.append(torch.linalg.vector_norm(bucket.buffer()))
        return allreduce_hook(self._process_group, bucket)  # what DDP does where there is no hook

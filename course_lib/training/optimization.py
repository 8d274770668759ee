"""The optimizer, its learning rate and its precision, as a RunConfig asks for them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from course_lib.config import RunConfig
from course_lib.errors import DeviceError
from course_lib.training.schedules import lr_factor, scaled_lr

MOMENTUM = 0.9
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(network: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or AdamW, at the learning rate that suits the global batch."""
    lr = scaled_lr(config.lr, config.lr_rule, config.global_batch_size, config.batch_size)
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            network.parameters(), lr, momentum=MOMENTUM, nesterov=True, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW(network.parameters(), lr, weight_decay=config.weight_decay)


def make_schedule(optimizer: torch.optim.Optimizer, config: RunConfig, steps_per_epoch: int) -> LambdaLR:
    """The learning rate over the run; call its `step` after each step of the optimizer."""
    total_steps = config.epochs * steps_per_epoch
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    return LambdaLR(
        optimizer,
        partial(lr_factor, total_steps=total_steps, warmup_steps=warmup_steps, schedule=config.schedule),
    )


def autocast(config: RunConfig, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass in `config.precision`; for "fp32" it changes nothing."""
    if config.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[config.precision])


def make_scaler(config: RunConfig, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss so that fp16 gradients do not vanish; for other precisions it changes nothing.

    Raises:
        DeviceError: the device does not have the precision that was asked for.
    """
    on_gpu = device.type == "cuda"
    if config.precision == "bf16" and on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise DeviceError(f"{torch.cuda.get_device_name()} has no bf16. Use precision 'fp16' or 'fp32'.")
    return torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")

"""What a training program does, whatever its style: which samples it reads, its weights and its gradients.

    forward: training, rows [n, values] (the first values of each sample), and a mark of the weights; the weights too,
        where they are not those of the pass before
    step: the optimizer, its learning rates, the gradients as they are when it steps

A model is the outermost module with parameters that is called, without what wraps it for data parallelism.
"""

from __future__ import annotations

import os
import threading
from hashlib import sha1  # by its own name: a program may change what hashlib has
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from course_lib.grading.inside.channel import Channel

WRAPPERS = (DistributedDataParallel, DataParallel)
MOST_WEIGHTS = 200_000  # of a model whose weights are told; of a larger one only their mark is


def install(channel: Channel, values: int = 8, mirrored: dict[str, int] | None = None) -> None:
    """Tell of each forward pass and of each step of an optimizer; `values` of each sample are told.

    `mirrored`: for a rank, the number of a pass of training, from 0, in which its model gets the samples backwards,
    their last values first, after these were told. What others learn of that, they learn from this rank.
    """
    calls = threading.local()
    told = None  # the process, and the mark of its weights
    passes = 0  # of training

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        stack = calls.__dict__.setdefault("stack", [])
        changed = None
        is_root = not stack or all(isinstance(above, WRAPPERS) for above in stack)
        if is_root and not isinstance(module, WRAPPERS) and any(True for _ in module.parameters()):
            nonlocal told, passes
            training = module.training and torch.is_grad_enabled()
            with temporarily_clear_interpreter_stack():  # of `torch.func`, where that is at work
                weights, mark = _weights(module)
                known, told = told == (os.getpid(), mark), (os.getpid(), mark)
                new = {} if known else {"weights": weights if len(weights) <= MOST_WEIGHTS else None}
                channel.tell("forward", training=training, rows=_rows(inputs, values), mark=mark, **new)
            passes += training
            if training and mirrored and passes - 1 == mirrored.get(_rank()):
                changed = _with_first_backwards(inputs)
        stack.append(module)
        return changed

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        calls.stack.pop()

    register_module_forward_pre_hook(enter)  # type: ignore[arg-type]  # it may give other inputs, says its text
    register_module_forward_hook(leave, always_call=True)
    register_optimizer_step_pre_hook(lambda optimizer, *_: channel.tell("step", **_step(optimizer)))


def _rank() -> str:
    return str(dist.get_rank()) if dist.is_initialized() else ""


def _with_first_backwards(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    place = next((place for place, each in enumerate(inputs) if _is_samples(each)), None)
    if place is None:
        return inputs
    samples = inputs[place]
    return (*inputs[:place], samples.flatten(1).flip(1).reshape(samples.shape), *inputs[place + 1 :])


def _is_samples(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 1


@torch.no_grad()
def _rows(inputs: tuple[Any, ...], values: int) -> torch.Tensor:
    tensors = [each for each in inputs if _is_samples(each)]
    if not tensors:
        return torch.empty(0, values).double()
    return _whole(tensors[0]).reshape(len(tensors[0]), -1)[:, :values].double()


@torch.no_grad()
def _weights(module: nn.Module) -> tuple[torch.Tensor, str]:
    """All values, and a mark of them."""
    flat = _flat(list(module.parameters()))
    return flat, sha1(flat.numpy().tobytes()).hexdigest()


@torch.no_grad()
def _step(optimizer: Optimizer) -> dict[str, Any]:
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flat = _flat(gradients)
    return {
        "optimizer": type(optimizer).__name__,
        "lr": [float(group["lr"]) for group in groups],
        "gradient": flat if len(flat) <= MOST_WEIGHTS else None,
        "missing": sum(each.grad is None for each in parameters),
    }


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """All values of some tensors after each other, as float32."""
    parts = [_whole(tensor).float().reshape(-1).cpu() for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor, also of one that `torch.func` differentiates by, or that is sharded over the ranks."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    # All ranks are in the same pass where one is sharded, so all of them come here.
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach()

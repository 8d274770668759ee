"""Functions of a student's that save and load a training state, on a rank of a group; and what was saved, read."""

from __future__ import annotations

import functools
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import load as load_file  # by its own name: a program may change what torch has
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from course_lib.grading.inside.harnesses.calls import function_of, join
from course_lib.grading.inside.harnesses.meeting import wait_for_all
from course_lib.grading.inside.harnesses.training import model_of, weights_of

BUFFER = "running_mean"  # a tensor of the model's that is not trained
SECONDS_TO_SAVE, SECONDS_TO_MOVE = 0.2, 0.05  # so that who does not wait for it is seen


def save(names: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """A student's function gets (path, model, optimizer, epochs done) after each of some steps.

    `inputs`: {"function", "model", "buffer", "lr", "path", "batches", "killed"}; where killed, a process that writes
    more than half of what the file had is killed in its midst.

    Returns:
        Of each call: whether the file was there after it, the weights and the buffer; and the weights after one more
        step.
    """
    join()
    function = function_of(names, inputs)
    model, optimizer = _state(inputs)
    _make_saving_slow()
    came = []
    for done, batch in enumerate(inputs["batches"], start=1):
        _step(model, optimizer, batch)
        if inputs["killed"] and done == len(inputs["batches"]):
            wait_for_all()
            _limit_files(os.path.getsize(inputs["path"]) // 2)
        function(inputs["path"], model, optimizer, done)
        there = _read(inputs["path"])
        came.append({"there": "error" not in there, "weights": weights_of(model), "buffer": _buffer_of(model)})
    _step(model, optimizer, inputs["next"])
    return [*came, {"weights": weights_of(model)}]


def load(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """A student's function gets (path, model, optimizer); then one step is taken.

    Returns:
        What it returned, the weights before it, after it, and after the step, and the buffer before and after it.
    """
    join()
    function = function_of(names, inputs)
    model, optimizer = _state(inputs)
    before, first = weights_of(model), _buffer_of(model)
    value = function(inputs["path"], model, optimizer)
    loaded, buffer = weights_of(model), _buffer_of(model)
    _step(model, optimizer, inputs["next"])
    buffers = {"buffer_before": first, "buffer": buffer}
    return {"value": value, "before": before, "weights": loaded, "after": weights_of(model), **buffers}


def read(names: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """What is in some files: {"value": …} or {"error": …} of each; none of the student's code is run."""
    return [_read(path) for path in inputs["paths"]]


def _read(path: str) -> dict[str, Any]:
    try:
        return {"value": load_file(path, weights_only=False)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def _state(inputs: dict[str, Any]) -> tuple[nn.Module, AdamW]:
    plain = model_of(inputs["model"])
    plain.register_buffer(BUFFER, inputs["buffer"].clone())
    model = DistributedDataParallel(plain)
    return model, AdamW(model.parameters(), lr=inputs["lr"])


def _buffer_of(model: nn.Module) -> torch.Tensor:
    return model.get_buffer(f"module.{BUFFER}").clone()


def _step(model: nn.Module, optimizer: AdamW, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def _make_saving_slow() -> None:
    for module, name, seconds in (
        (torch, "save", SECONDS_TO_SAVE),
        (os, "replace", SECONDS_TO_MOVE),
        (os, "rename", SECONDS_TO_MOVE),
    ):
        setattr(module, name, _slow(getattr(module, name), seconds))


def _slow(original: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    @functools.wraps(original)
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return original(*arguments, **named)

    return slow


def _limit_files(size: int) -> None:
    """From now on, a process that writes more into a file is killed by the kernel while it does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

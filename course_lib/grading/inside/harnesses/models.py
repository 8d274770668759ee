"""Calls of functions that a student wrote, on models that are built here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.grading.inside.harnesses.functions import SECONDS, leave, prepare, together
from course_lib.grading.inside.harnesses.meeting import join
from course_lib.grading.inside.probes import answers
from course_lib.grading.inside.student import describe

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def call_in_group(names: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Call functions with a model first, on a rank of a group (see functions.py).

    `inputs["calls"]` are [[function, [specification, argument, …]], …], where a specification is {"parameters": {name:
    tensor}, "gradients": {name: tensor or None}, "frozen": [name, …], "buffers": {name: tensor}}.

    Tells of each call what functions.py does, and "parameters", "gradients" and "buffers" as they are then, and the
    names of those "trained", of the objects that the model had before, since an optimizer would have these.
    """
    prepare(inputs["seed"])
    join(inputs["meeting"], SECONDS)
    for function, (specification, *rest) in inputs["calls"]:
        model = _model(specification)
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        answer = _tried(lambda function=function, model=model, rest=rest: _of(names, function)(model, *rest))
        state = {
            "parameters": {name: parameter.detach() for name, parameter in parameters.items()},
            "gradients": {name: parameter.grad for name, parameter in parameters.items()},
            "buffers": buffers,
            "trained": [name for name, parameter in parameters.items() if parameter.requires_grad],
        }
        answers.tell({**answer, **state})
        if "error" in answer or not together():
            return
    leave(inputs["meeting"])


def train_in_group(names: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Let a function take the steps of a training, on a rank of a group.

    `inputs["calls"]` are [[function, [{"sizes": of the layers, "weights": [tensor, …], "optimizer": name, "lr": …,
    "batches": [[images, labels], …]}]], …].

    Tells of each call {"value": [what each step returned], "weights": [[tensor, …] after each step]}, or an error.
    """
    prepare(inputs["seed"])
    join(inputs["meeting"], SECONDS)
    for function, (training,) in inputs["calls"]:
        model = perceptron(training["sizes"], training["weights"])
        optimizer = OPTIMIZERS[training["optimizer"]](model.parameters(), lr=training["lr"])
        weights: list[list[Tensor]] = []
        answer = _tried(
            lambda function=function, model=model, optimizer=optimizer, weights=weights, training=training: _steps(
                _of(names, function), model, optimizer, training["batches"], weights
            )
        )
        answers.tell({**answer, "weights": weights})
        if "error" in answer or not together():
            return
    leave(inputs["meeting"])


def perceptron(sizes: list[int], weights: list[Tensor]) -> nn.Sequential:
    """Layers of these sizes with tanh between them, and these parameters."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)
    return model


def _steps(function: Any, model: nn.Module, optimizer: Any, batches: list[Any], weights: list[list[Tensor]]) -> Any:
    parameters = list(model.parameters())
    told = []
    for images, labels in batches:
        told.append(function(model, optimizer, images, labels))
        weights.append([parameter.detach().clone() for parameter in parameters])
    return told


def _model(specification: dict[str, Any]) -> nn.Module:
    model = nn.Module()
    for name, value in specification["parameters"].items():
        parameter = nn.Parameter(value.clone(), requires_grad=name not in specification["frozen"])
        gradient = specification["gradients"].get(name)
        parameter.grad = None if gradient is None else gradient.clone()
        model.register_parameter(name, parameter)
    for name, value in specification["buffers"].items():
        model.register_buffer(name, value.clone())
    return model


def _of(names: dict[str, Any], name: str) -> Any:
    if not callable(names.get(name)):
        raise NameError(f"There is no function {name!r}.")
    return names[name]


def _tried(work: Any) -> dict[str, Any]:
    common: dict[str, list[Any]] = {"after": [], "disturbed": []}
    try:
        return {"value": work(), **common}
    except Exception as error:
        return {"error": describe(error), **common}

"""Training functions that a student wrote, on a rank of a group: with a small model and its data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import TensorDataset

from course_lib.grading.inside.harnesses.calls import function_of, join


def model_of(spec: dict[str, Any]) -> nn.Module:
    """Linear layers of these `sizes` with tanh between them, and these `weights` after each other."""
    sizes = spec["sizes"]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    vector_to_parameters(spec["weights"].clone(), model.parameters())
    return model


def weights_of(model: nn.Module) -> torch.Tensor:
    """All weights after each other."""
    return parameters_to_vector(model.parameters()).detach().clone()


def steps(names: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Call function(model, optimizer, *arguments), several times with one model in DistributedDataParallel, and SGD.

    Returns:
        Of each call, what it returned and the weights after it.
    """
    join()
    function = function_of(names, inputs)
    model = DistributedDataParallel(model_of(inputs["model"]))
    optimizer = torch.optim.SGD(model.parameters(), **inputs["optimizer"])
    came = []
    for arguments in inputs["calls"]:
        value = function(model, optimizer, *arguments)
        came.append({"value": value, "weights": weights_of(model)})
    return came


def train(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Call function(model, dataset, *arguments), once; `dataset` is a list of tensors with a row for each sample.

    Returns:
        What the function returned, and the weights that the model then has.
    """
    join()
    function = function_of(names, inputs)
    model = model_of(inputs["model"])
    value = function(model, TensorDataset(*inputs["dataset"]), *inputs["arguments"])
    return {"value": value, "weights": weights_of(model)}

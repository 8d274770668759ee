"""One process that takes the same steps with the samples of all ranks, which is what they together should do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_lib.grading import samples
from course_lib.grading.evidence import Round
from course_lib.grading.laws.finding import listed

NEAR = 0.005  # of an update: a prediction that is further off is another one; gradients sent as float16 come to 7e-4
NEAR_ADAPTIVE = 0.03  # by an optimizer that divides by the gradients' size: rounding of small ones becomes large
Parts = Mapping[int, Round]  # of each rank, in one step


@dataclass(frozen=True)
class Reference:
    """One process that would do the same.

    Fields:
        model: makes the model, with any weights.
        inputs, targets: the training set as the model gets it, one row a sample.
        loss: of outputs and targets; the mean over the samples.
        optimizer: makes the optimizer for parameters.
        mirrored: for a rank, the pass in which its samples were given backwards (see inside/probes/training.py).
    """

    model: Callable[[], nn.Module]
    inputs: torch.Tensor
    targets: torch.Tensor
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    mirrored: Mapping[int, int] = field(default_factory=dict)

    def batch(self, samples: list[int], mirrored: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and targets of these samples."""
        inputs = self.inputs[samples]
        return inputs.flatten(1).flip(1).reshape(inputs.shape) if mirrored else inputs, self.targets[samples]


def size_of(model: nn.Module) -> int:
    """How many values the parameters of a model have."""
    return sum(parameter.numel() for parameter in model.parameters())


@contextmanager
def as_in_the_sandbox() -> Iterator[None]:
    """Compute as programs there do, and leave no trace of it in the threads and random numbers of the caller."""
    threads, with_onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # a property of that module
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.mkldnn.enabled = with_onednn


class Replay:
    """A process that takes the same steps, each from the weights that were seen."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._model = reference.model()
        self._optimizer = reference.optimizer(list(self._model.parameters()))
        self._state = self._optimizer.state_dict()
        self._states: list[dict[str, object]] = []
        self.gradient = torch.empty(0)
        self.near = NEAR if isinstance(self._optimizer, torch.optim.SGD) else NEAR_ADAPTIVE
        self.clips = False  # whether a hook of the optimizer changes the gradient
        self.size = size_of(self._model)
        self.mirrored = reference.mirrored
        self.lr = float(self._optimizer.param_groups[0]["lr"])

    def updates(
        self, weights: torch.Tensor, parts: Parts, exact: bool = False, mirror: bool = True
    ) -> list[torch.Tensor]:
        """How the weights would change: by the mean over all samples, and by the mean of the batches' means.

        Unless `mirror`, as if no samples had been given backwards.
        """
        batches = []
        for rank, part in parts.items():
            for passes, rows in enumerate(part.batches, start=part.passes_before):
                numbers = [number for number in samples.ids(rows) if number is not None]
                if len(numbers) < len(rows) or any(number >= len(self._reference.inputs) for number in numbers):
                    return []
                batches.append(self._reference.batch(numbers, mirror and self.mirrored.get(rank) == passes))
        inputs, targets = (torch.cat(each) for each in zip(*batches, strict=True))
        ways = [[(inputs, targets)]]
        if len({len(each) for _, each in batches}) > 1 and not exact:
            ways.append(batches)
        found: list[torch.Tensor] = []
        self._states = []
        for way in ways:
            self._optimizer.load_state_dict(deepcopy(self._state))  # a step changes the tensors in it
            vector_to_parameters(weights.clone(), self._model.parameters())
            self._optimizer.zero_grad()
            for inputs, targets in way:
                (self._reference.loss(self._model(inputs), targets) / len(way)).backward()
            gradient = parameters_to_vector([_gradient(each) for each in self._model.parameters()])
            self._optimizer.step()
            if not found:
                self.gradient = gradient
                after = parameters_to_vector([_gradient(each) for each in self._model.parameters()])
                self.clips = not torch.equal(gradient, after)
            found.append(parameters_to_vector(self._model.parameters()).detach() - weights)
            self._states.append(self._optimizer.state_dict())
        self._found = found
        return found

    def unchanged(self, update: torch.Tensor, right: torch.Tensor) -> str:
        """The parameters that an update leaves as they are and the right one does not, in words; empty if none."""
        named = dict(self._model.named_parameters())
        parts = [each.split([parameter.numel() for parameter in named.values()]) for each in (update, right)]
        still = [name for name, *each in zip(named, *parts, strict=True) if not each[0].any() and each[1].any()]
        return "any weights" if len(still) == len(named) > 1 else listed(still, 3)

    def take(self, weights: torch.Tensor, update: torch.Tensor) -> None:
        """Go on from the one of the updates that was seen."""
        place = next(place for place, each in enumerate(self._found) if each is update)
        self._state = self._states[place]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

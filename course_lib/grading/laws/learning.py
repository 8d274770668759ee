"""The ranks together learn as one process does: from the same start, with the mean gradient, in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_lib.grading import samples
from course_lib.grading.evidence import Evidence, Rank, Round
from course_lib.grading.laws.finding import Finding, listed, ranks

SAME = 1e-5  # weights further apart are not the same; right programs come to 2e-6
NEAR = 0.005  # of an update: a prediction that is further off is another one; gradients sent as float16 come to 7e-4
NEAR_ADAPTIVE = 0.03  # by an optimizer that divides by the gradients' size: rounding of small ones becomes large


@dataclass(frozen=True)
class Reference:
    """One process that would do the same.

    Fields:
        model: makes the model, with any weights.
        inputs, targets: the training set as the model gets it, one row a sample.
        loss: of outputs and targets; the mean over the samples.
        optimizer: makes the optimizer for parameters.
    """

    model: Callable[[], nn.Module]
    inputs: torch.Tensor
    targets: torch.Tensor
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def size_of(model: nn.Module) -> int:
    """How many values the parameters of a model have."""
    return sum(parameter.numel() for parameter in model.parameters())


def same_start(evidence: Evidence) -> Iterator[Finding]:
    """All ranks begin with the same weights."""
    apart = _apart(evidence, 0)
    if apart:
        yield Finding(
            "different-start",
            f"Before the first step the weights of {ranks(apart)} are not those of rank {min(evidence.ranks)}.",
            "Do all runners start from the same line? Who hands out the first weights?",
        )


def in_step(evidence: Evidence) -> Iterator[Finding]:
    """All ranks have the same weights before each step."""
    steps = min((len(rank.rounds) for rank in evidence.ranks.values()), default=0)
    for step in range(1, steps):
        apart = _apart(evidence, step)
        if apart and not _apart(evidence, 0):
            first = min(evidence.ranks)
            yield Finding(
                "drift",
                f"After {step} step{'s' * (step > 1)} the weights of {ranks(apart)} are not those of rank {first}.",
                "After a step, do all ranks own the same weights? What would make them?",
            )
            return


def as_one_process(evidence: Evidence, reference: Reference, exact: bool = False) -> Iterator[Finding]:
    """Each step changes the weights as one process would that has the samples of all ranks.

    Unless `exact`, the mean of the batches' means is as good where these are of different size.
    """
    with on_one_thread():
        yield from _replayed(evidence, reference, exact)


@contextmanager
def on_one_thread() -> Iterator[None]:
    """On one thread, which small models are faster on, and without a trace in the random numbers of the caller."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def _replayed(evidence: Evidence, reference: Reference, exact: bool) -> Iterator[Finding]:
    first = evidence.ranks[min(evidence.ranks)]
    sizes = {None if each.weights is None else len(each.weights) for each in first.rounds}
    replay = Replay(reference)
    if sizes - {replay.size}:
        yield Finding(
            "other-model",
            f"The model has {listed(sizes)} values; the one that was given has {replay.size}.".replace("None", "many"),
            "Is it still the model of the program for one GPU?",
        )
        return
    for step, (before, after) in enumerate(zip(first.rounds, _afterwards(first), strict=True)):
        parts = [rank.rounds[step] for rank in evidence.ranks.values() if step < len(rank.rounds)]
        if after is None or before.weights is None:
            return
        candidates = replay.updates(before.weights, parts, exact)
        if not candidates:
            yield Finding(
                "unknown-samples",
                f"In step {step} there are samples that are not in the training set as it was given.",
                "What happens to an image between the file and the model?",
            )
            return
        update = after - before.weights
        if min(_off(update, each) for each in candidates) > replay.near:
            if before.lr and max(abs(lr / replay.lr - 1) for lr in before.lr) > NEAR:
                yield Finding(
                    "learning-rate",
                    f"In step {step} the learning rate is {before.lr[0]:.3g}; the program was given {replay.lr:.3g}.",
                    "Does a mean gradient need another learning rate than the one that was asked for?",
                )
            else:
                yield _wrong_update(step, before.gradient, replay, len(parts), update, candidates[0])
            return
        replay.take(before.weights, min(candidates, key=lambda each: _off(update, each)))


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
        self.lr = float(self._optimizer.param_groups[0]["lr"])

    def updates(self, weights: torch.Tensor, parts: list[Round], exact: bool = False) -> list[torch.Tensor]:
        """How the weights would change: by the mean over all samples, and by the mean of the batches' means."""
        batches = [samples.ids(batch) for part in parts for batch in part.batches]
        if any(sample is None for batch in batches for sample in batch):
            return []
        together = [sample for batch in batches for sample in batch]
        ways = [[together]]
        if len({len(batch) for batch in batches}) > 1 and not exact:
            ways.append(batches)
        found: list[torch.Tensor] = []
        self._states = []
        for way in ways:
            self._optimizer.load_state_dict(self._state)
            vector_to_parameters(weights.clone(), self._model.parameters())
            self._optimizer.zero_grad()
            for batch in way:
                inputs, targets = self._reference.inputs[batch], self._reference.targets[batch]
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

    def take(self, weights: torch.Tensor, update: torch.Tensor) -> None:
        """Go on from the one of the updates that was seen."""
        place = next(place for place, each in enumerate(self._found) if each is update)
        self._state = self._states[place]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _afterwards(rank: Rank) -> list[torch.Tensor | None]:
    """The weights after each step: those of the next one, or those that are evaluated after the last."""
    following = [each.weights for each in rank.rounds[1:]]
    last = rank.process.of("forward")[-1]
    return [*following, None if last["training"] else rank.weights(last)]


def _apart(evidence: Evidence, step: int) -> list[int]:
    """The ranks whose weights before a step are not those of the first rank."""
    rounds = {number: rank.rounds[step] for number, rank in evidence.ranks.items() if step < len(rank.rounds)}
    if len(rounds) < 2:
        return []
    first, *others = rounds
    return [number for number in others if not _same(rounds[first], rounds[number])]


def _same(one: Round, other: Round) -> bool:
    if one.mark == other.mark:
        return True
    if one.weights is None or other.weights is None or one.weights.shape != other.weights.shape:
        return False
    return bool(torch.isclose(one.weights, other.weights, rtol=0.0, atol=SAME, equal_nan=True).all())


def _off(update: torch.Tensor, predicted: torch.Tensor) -> float:
    """How far an update is from the predicted one, as a share of it."""
    if update.shape != predicted.shape:
        return float("inf")
    return float((update - predicted).norm() / predicted.norm().clamp_min(1e-9))


def _wrong_update(
    step: int,
    gradient: torch.Tensor | None,
    replay: Replay,
    world_size: int,
    update: torch.Tensor,
    right: torch.Tensor,
) -> Finding:
    """What kind of wrong step it was, by the gradient that the optimizer had."""
    ratio = _ratio(gradient, replay.gradient)
    is_one = ratio is not None and abs(ratio - 1) < NEAR
    if ratio is None or (is_one and not _right(gradient, replay.gradient)) or (replay.clips and not is_one):
        size = float(update.norm() / right.norm().clamp_min(1e-9))
        return Finding(
            "other-update",
            f"Step {step} changed the weights otherwise than one process with the same {world_size} batches would: "
            f"by {size:.2f} times as much, and not in the same direction.",
            "What does the optimizer see: the mean gradient of all ranks, or that of one?",
        )
    words = f"In step {step} the gradient is {ratio:.3g} times that of one process with the samples of all ranks."
    if abs(ratio - world_size) < 0.05 * world_size and world_size > 1:
        return Finding("summed", words, "A sum of several opinions is not their average.")
    if abs(ratio - 1 / world_size) < 0.05 / world_size and world_size > 1:
        return Finding("divided-twice", words, "Somebody had divided already. Who?")
    if is_one:
        return Finding(
            "other-step",
            f"In step {step} the gradient is right, and the weights do not change as the optimizer would change them.",
            "What else changes the weights, or the learning rate, between two steps?",
        )
    return Finding("scale", words, "By what was the loss divided, and how often?")


def _right(gradient: torch.Tensor | None, expected: torch.Tensor) -> bool:
    """Whether a gradient is the expected one but for rounding."""
    return gradient is not None and float((gradient - expected).norm()) < 1e-3 * float(expected.norm())


def _ratio(gradient: torch.Tensor | None, expected: torch.Tensor) -> float | None:
    """The gradient as a multiple of the expected one; None where it points elsewhere."""
    if gradient is None or gradient.shape != expected.shape or not gradient.norm() > 0:
        return None
    ratio = float(gradient @ expected / (expected @ expected))
    return ratio if float((gradient - ratio * expected).norm()) < 0.05 * float(gradient.norm()) else None

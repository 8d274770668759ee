"""Exercise 2, its second half: the same start on all ranks, and a whole step of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.grading.answers import NO_RESULT, Group, GroupCalls, call_in_groups
from course_lib.grading.inside.harnesses.models import perceptron
from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.laws.values import close, figure, number, of_other_type, tensors_close
from course_lib.grading.parts import Attempt, Broken

MODELS, TRAINING = "models:call_in_group", "models:train_in_group"
WORLD_SIZES = (1, 2, 4)
TRAINED_ON = (1, 3)
TRAINED, FIXED = ["weight", "bias"], "fixed"  # the parameters of the models in 2.3
LAYERS, STEPS = [5, 6, 3], 4
RATES = {"sgd": 0.3, "adam": 0.02}
Replay = tuple[list[list[Tensor]], list[float]]  # the weights after each step, and the losses
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of torch.optim.Adam, as long as nobody says otherwise

# 2.3: the same start.


def started(attempt: Attempt) -> tuple[GroupCalls, dict[int, Group]]:
    """The calls of `same_start`, with other weights and buffers on each rank, and what came of them."""

    def make() -> tuple[GroupCalls, dict[int, Group]]:
        generator = attempt.random
        calls = {size: [[("same_start", [_any_model(generator)])] for _ in range(size)] for size in WORLD_SIZES}
        return calls, call_in_groups(attempt, calls, MODELS)

    return attempt.once("started", make)


def starts_like_rank_0(what: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of the parameters, or of the buffers."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        calls, groups = started(attempt)
        for world_size in WORLD_SIZES:
            before = [calls[world_size][rank][0][1][0][what] for rank in range(world_size)]
            for rank, answer in enumerate(groups[world_size].of(0)):
                yield from _judged_start(world_size, rank, what, answer.named(what), before)
                if what == "parameters" and answer.told.get("trained") != TRAINED:
                    yield Finding(
                        "no-longer-trained",
                        f"On {counted(world_size, 'rank')}, rank {rank} has other parameters with requires_grad than "
                        "before.",
                        "Who copies values need not change what is trained: `torch.no_grad()` is for that.",
                    )

    return judge


def _judged_start(
    world_size: int, rank: int, what: str, found: dict[str, Any], before: list[dict[str, Tensor]]
) -> Iterator[Finding]:
    for name, wanted in before[0].items():
        value = found.get(name)
        if isinstance(value, Tensor) and value.dtype == wanted.dtype and torch.equal(value, wanted):
            continue
        who = f"On {counted(world_size, 'rank')}, rank {rank}"
        if isinstance(value, Tensor) and torch.equal(value, before[rank][name]):
            yield Finding(
                "not-copied",
                f"{who} still has {what} of its own ({name!r}).",
                "An optimizer holds the very tensors that the model has. Which of the model's tensors do you reach, "
                "and do you change them in place?",
            )
        elif any(isinstance(value, Tensor) and torch.equal(value, each[name]) for each in before):
            yield Finding("other-rank", f"{who} has the {what} of another rank than 0.", "From whom does each copy?")
        elif (
            len(before) > 1
            and isinstance(value, Tensor)
            and tensors_close(value, torch.stack([each[name] for each in before]).float().mean(0))
        ):
            yield Finding(
                "averaged-start",
                f"{who} has the mean of all ranks' {what}.",
                "The mean of several random starts is smaller than each of them. Whose start is as good as any?",
            )
        else:
            yield Finding("wrong-start", f"{who} has {what} that no rank had ({name!r}).", "Who sends, who receives?")
        return


# 2.4: a whole step.


def trained(attempt: Attempt) -> tuple[dict[str, Replay], dict[int, Group]]:
    """What one process would do with some batches, by the optimizer, and what `train_step` did with them on ranks."""

    def make() -> tuple[dict[str, Replay], dict[int, Group]]:
        trainings = {name: _training(attempt.random, name) for name in RATES}
        calls: GroupCalls = {}
        for size in TRAINED_ON:
            cuts = {name: _cuts(attempt.random, each, size) for name, each in trainings.items()}
            calls[size] = [
                [("train_step", [_of_rank(each, cuts[name], rank)]) for name, each in trainings.items()]
                for rank in range(size)
            ]
        groups = call_in_groups(attempt, calls, TRAINING)
        return {name: _replayed(each) for name, each in trainings.items()}, groups

    return attempt.once("trained", make)


def as_one_process(attempt: Attempt) -> Iterator[Finding]:
    """After each step, the weights of all ranks are those of one process that has the whole batch."""
    replays, groups = trained(attempt)
    for world_size, (place, (name, (weights, _))) in product(TRAINED_ON, enumerate(replays.items())):
        for rank, answer in enumerate(groups[world_size].of(place)):
            for step, wanted in enumerate(weights):
                if not _same_weights(answer.told.get("weights"), step, wanted):
                    first = "Which gradient does the optimizer use, and of how many samples is it the mean?"
                    later = "What must happen in a step, and in which order? What is left of the step before?"
                    yield Finding(
                        "not-as-one",
                        f"On {counted(world_size, 'rank')} with {name.upper()}, the weights of rank {rank} after "
                        f"step {step + 1} "
                        "are not those of one process that had the whole batch.",
                        later if step else first,
                    )
                    return


def whole_loss(attempt: Attempt) -> Iterator[Finding]:
    """What it returns is the mean loss of the whole batch, the same on all ranks."""
    replays, groups = trained(attempt)
    for world_size in TRAINED_ON:
        _, losses = replays["sgd"]
        for rank, answer in enumerate(groups[world_size].of(0)):
            told = answer.value if isinstance(answer.value, list) else []
            if len(told) != len(losses):
                raise Broken(NO_RESULT)
            for step, (value, expected) in enumerate(zip(told, losses, strict=True)):
                found = number(value)
                if found is None:
                    raise Broken(of_other_type("train_step", value, "the loss of the whole batch, a number"))
                if not close(found, expected, 1e-4):
                    yield Finding(
                        "loss",
                        f"On {counted(world_size, 'rank')}, rank {rank} returned {figure(found)} in step {step + 1}; "
                        "the "
                        f"mean loss of all ranks' samples was {figure(expected)}.",
                        "Of whose samples is that loss the mean? It is averaged as the gradients are, before the step.",
                    )
                    return


def _training(generator: np.random.Generator, optimizer: str) -> dict[str, Any]:
    counts = [int(each) for each in generator.choice(np.arange(21, 30), STEPS, replace=False)]
    shapes = [shape for inputs, outputs in pairwise(LAYERS) for shape in ((outputs, inputs), (outputs,))]
    return {
        "sizes": LAYERS,
        "weights": [_normal(generator, shape) for shape in shapes],
        "optimizer": optimizer,
        "lr": RATES[optimizer],
        "batches": [
            [_normal(generator, (count, LAYERS[0])), torch.from_numpy(generator.integers(0, LAYERS[-1], count))]
            for count in counts
        ],
    }


def _cuts(generator: np.random.Generator, training: dict[str, Any], world_size: int) -> list[list[int]]:
    """How many samples of each batch each rank has: at least one."""
    cuts = []
    for count in (len(labels) for _, labels in training["batches"]):
        places = sorted(int(place) for place in generator.choice(np.arange(1, count), world_size - 1, replace=False))
        cuts.append([after - before for before, after in zip([0, *places], [*places, count], strict=True)])
    return cuts


def _of_rank(training: dict[str, Any], cuts: list[list[int]], rank: int) -> dict[str, Any]:
    batches = [
        [images.split(sizes)[rank].clone(), labels.split(sizes)[rank].clone()]
        for (images, labels), sizes in zip(training["batches"], cuts, strict=True)
    ]
    return {**training, "batches": batches}


def _replayed(training: dict[str, Any]) -> Replay:
    """Weights after each step, and losses, of one process.

    The optimizers are written out: torch's load its compiler when the first is made, which takes seconds.
    """
    model = perceptron(training["sizes"], training["weights"]).double()
    parameters = list(model.parameters())
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    weights, losses = [], []
    for step, (images, labels) in enumerate(training["batches"], start=1):
        loss = cross_entropy(model(images.double()), labels)
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient, mean, square in zip(parameters, gradients, first, second, strict=True):
            mean.lerp_(gradient, 1 - BETAS[0])
            square.lerp_(gradient**2, 1 - BETAS[1])
            direction = gradient
            if training["optimizer"] == "adam":
                direction = mean / (1 - BETAS[0] ** step) / ((square / (1 - BETAS[1] ** step)).sqrt() + EPSILON)
            parameter.data -= training["lr"] * direction
        losses.append(loss.item())
        weights.append([parameter.detach().clone() for parameter in parameters])
    return weights, losses


def _same_weights(told: Any, step: int, wanted: list[Tensor]) -> bool:
    if not isinstance(told, list) or len(told) <= step or not isinstance(told[step], list):
        return False
    pairs = zip(told[step], wanted, strict=False)
    return len(told[step]) == len(wanted) and all(
        isinstance(each, Tensor) and tensors_close(each, other, 1e-4) for each, other in pairs
    )


def _any_model(generator: np.random.Generator) -> dict[str, Any]:
    parameters = {
        "weight": _normal(generator, (3, 2)),
        "bias": _normal(generator, (3,)),
        FIXED: _normal(generator, (2,)),
    }
    buffers = {
        "running_mean": _normal(generator, (3,)),
        "batches_seen": torch.tensor(int(generator.integers(2**24, 2**40)) | 1),
    }
    return {"parameters": parameters, "gradients": {}, "frozen": [FIXED], "buffers": buffers}


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator.normal(size=shape)).float()

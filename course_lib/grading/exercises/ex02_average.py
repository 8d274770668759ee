"""Exercise 2: average by hand. The gradient of the whole batch, from shards of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.grading.answers import Answer, Call, Group, GroupCalls, call, call_in_groups, failed
from course_lib.grading.exercises.ex02_steps import MODELS, WORLD_SIZES, as_one_process, starts_like_rank_0, whole_loss
from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.laws.means import right_mean_of, weighted, wrong_gradient
from course_lib.grading.laws.values import kept, of_other_type, tensors_close, unchanged
from course_lib.grading.parts import Attempt, Check, Exercise, Part

TEMPLATE = {"first": (3, 2), "second": (4,), "fixed": (2,), "third": (5, 1)}  # the parameters of a model
FROZEN = "fixed"


# 2.1: a weighted mean.


def shards(attempt: Attempt) -> dict[str, tuple[list[Tensor], list[int]]]:
    """Gradients of shards, and their sizes: uneven ones, one that is empty, one alone, and in float64."""

    def make() -> dict[str, tuple[list[Tensor], list[int]]]:
        generator, draw = attempt.random, attempt.random.integers
        return {
            "uneven": _shards(generator, [int(size) for size in draw(1, 30, 4)] + [40], (3, 2)),
            "two": _shards(generator, [int(draw(1, 5)), int(draw(7, 12))], (4,)),
            "empty": _shards(generator, [0, int(draw(3, 9)), 0, int(draw(10, 20)), 0], (2, 2)),
            "alone": _shards(generator, [int(draw(3, 9))], (6,)),
            "double": _shards(generator, [int(draw(3, 9)), int(draw(10, 20))], (2, 3, 2), torch.float64),
        }

    return attempt.once("shards", make)


def means(attempt: Attempt) -> dict[str, Answer]:
    """What `mean_gradient` gave for them."""
    return attempt.once(
        "means",
        lambda: dict(
            zip(
                shards(attempt),
                call(attempt, *(("mean_gradient", list(given)) for given in shards(attempt).values())),
                strict=True,
            )
        ),
    )


def right_mean(*names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that the mean is that of the whole batch."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for name in names:
            gradients, sizes = shards(attempt)[name]
            answer = means(attempt)[name]
            yield from failed("mean_gradient", answer)
            if answer.error is None:
                yield from right_mean_of(answer.value, gradients, sizes)

    return judge


def leaves_gradients(attempt: Attempt) -> Iterator[Finding]:
    """What it was given is as it was."""
    for name, (gradients, sizes) in shards(attempt).items():
        answer = means(attempt)[name]
        yield from failed("mean_gradient", answer)
        if answer.error is None and not (isinstance(answer.value, Tensor) and answer.value.shape == gradients[0].shape):
            yield of_other_type("mean_gradient", answer.value, "a tensor of the shape of one gradient")
        yield from kept("mean_gradient", answer.after, [gradients, sizes], ("gradients", "sizes"))


# 2.2: the same, over ranks.


def averaged(attempt: Attempt) -> tuple[GroupCalls, dict[int, Group]]:
    """The calls of `average_gradients`, and what came of them: uneven shards, even ones, then one rank without any."""

    def make() -> tuple[GroupCalls, dict[int, Group]]:
        first_alone = int(attempt.random.integers(2))
        calls = {size: _averaging(attempt.random, size, first_alone) for size in WORLD_SIZES}
        return calls, call_in_groups(attempt, calls, MODELS)

    return attempt.once("averaged", make)


UNEVEN, MORE, EMPTY = 0, 1, 2  # the calls, in this order


def _averaging(generator: np.random.Generator, world_size: int, first_alone: int) -> list[list[Call]]:
    sizes = [[int(each) for each in generator.integers(1, 20, world_size)] for _ in (UNEVEN, MORE, EMPTY)]
    for each in sizes:
        each[-1] += 20
    if world_size > 1:
        sizes[EMPTY][(world_size // 2 + first_alone) % 2] = 0  # rank 0 in one of the groups, rank 1 in the other
    weights = _tensors(generator)
    return [
        [("average_gradients", [_model(generator, weights, each[rank] > 0), each[rank]]) for each in sizes]
        for rank in range(world_size)
    ]


def average_right(call_number: int, world_sizes: Sequence[int] = WORLD_SIZES) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that all ranks have the gradient of the whole batch, in one of the calls."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        calls, groups = averaged(attempt)
        for world_size in world_sizes:
            given = [calls[world_size][rank][call_number][1] for rank in range(world_size)]
            found = [answer.named("gradients") for answer in groups[world_size].of(call_number)]
            yield from _judged_average(world_size, given, found)

    return judge


def _judged_average(world_size: int, given: list[list[Any]], found: list[dict[Any, Any]]) -> Iterator[Finding]:
    sizes = [samples for _, samples in given]
    said = f"On {counted(world_size, 'rank')} with {', '.join(map(str, sizes))} samples"
    for name in TEMPLATE:
        if name == FROZEN:
            continue
        shares = [model["gradients"].get(name) for model, _ in given]
        gradients = [torch.zeros(TEMPLATE[name]) if share is None else share for share in shares]
        expected = weighted(gradients, sizes)
        for rank in range(world_size):
            value = found[rank].get(name)
            if not isinstance(value, Tensor) or value.shape != expected.shape:
                yield Finding(
                    "no-gradient",
                    f"{said}: rank {rank} has no gradient afterwards.",
                    "Each rank takes the step. What does a rank have that had no sample of its own?",
                )
                return
            if not tensors_close(value, expected):
                if world_size > 1 and sizes[rank] and tensors_close(value, gradients[rank]):
                    yield Finding(
                        "own-gradient",
                        f"{said}: rank {rank} has the gradient of its own samples, as before.",
                        "Where does the result of your sum stand, and where does the optimizer look?",
                    )
                else:
                    yield wrong_gradient(f"{said}, rank {rank}", value, expected, gradients, sizes)
                return


def frozen_and_weights(attempt: Attempt) -> Iterator[Finding]:
    """The weights, and the gradient of what is not trained, are as they were."""
    calls, groups = averaged(attempt)
    for world_size, number in product(WORLD_SIZES, (MORE, EMPTY)):
        for rank, answer in enumerate(groups[world_size].of(number)):
            before = calls[world_size][rank][number][1][0]["parameters"]
            after, gradients = answer.named("parameters"), answer.named("gradients")
            undone = all(each is None for each in gradients.values()) or _same(gradients, calls, world_size, rank)
            if number == MORE and undone:
                yield Finding("does-nothing", "The gradients are as they were.", "There is still work to do.")
                return
            if gradients.get(FROZEN) is not None:
                yield Finding(
                    "frozen",
                    f"On {counted(world_size, 'rank')}, a parameter that is not trained has a gradient afterwards.",
                    "Which parameters of a model does the optimizer move? `requires_grad` says it.",
                )
                return
            if not all(unchanged(after.get(name), value) for name, value in before.items()):
                yield Finding(
                    "weights-changed",
                    f"On {counted(world_size, 'rank')}, the weights of rank {rank} are not what they were.",
                    "Only the gradients are averaged here; the optimizer takes the step.",
                )
                return


def _same(gradients: dict[str, Any], calls: Any, world_size: int, rank: int) -> bool:
    before = calls[world_size][rank][MORE][1][0]["gradients"]
    trained = [name for name in TEMPLATE if name != FROZEN]
    return world_size > 1 and all(
        isinstance(gradients.get(name), Tensor) and torch.equal(gradients[name], before[name]) for name in trained
    )


# What the models are made of.


def _model(generator: np.random.Generator, weights: dict[str, Tensor], has_gradients: bool) -> dict[str, Any]:
    gradients = _tensors(generator) if has_gradients else {}
    gradients.pop(FROZEN, None)
    return {"parameters": weights, "gradients": gradients, "frozen": [FROZEN], "buffers": {}}


def _tensors(generator: np.random.Generator) -> dict[str, Tensor]:
    return {name: _normal(generator, shape) for name, shape in TEMPLATE.items()}


def _shards(
    generator: np.random.Generator, sizes: list[int], shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], list[int]]:
    gradients = [_normal(generator, shape).to(dtype) if size else torch.zeros(shape, dtype=dtype) for size in sizes]
    return gradients, sizes


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator.normal(size=shape)).float()


PARTS = (
    Part(
        "2.1",
        "The mean of uneven shards",
        ("mean_gradient",),
        (
            Check("it is the gradient of the whole batch", 2, right_mean("uneven", "two", "alone", "double")),
            Check("a shard without samples counts for nothing", 1, right_mean("empty")),
            Check("the gradients that it is given stay as they are", 1, leaves_gradients),
        ),
        (
            "The gradient of a mean loss is a sum over samples, divided by their number. Which sum was "
            "divided by what?",
            "Undo the division of each shard: its gradient times its size is the sum over its samples. "
            "Sums can be added.",
            "Add `gradient * size` of all shards, and divide once, by the number of all samples.",
        ),
        names=("mean_gradient",),
    ),
    Part(
        "2.2",
        "The same, over ranks",
        ("average_gradients",),
        (
            Check("all ranks have the gradient of the whole batch", 3, average_right(UNEVEN)),
            Check("a rank without samples takes part", 1, average_right(EMPTY)),
            Check("weights, and what is not trained, stay as they are", 1, frozen_and_weights),
        ),
        (
            "Each rank knows its own gradients and its own number of samples. What must all ranks add up?",
            "`torch.distributed.all_reduce` replaces a tensor by the sum of all ranks' tensors. The "
            "number of samples is a "
            "sum as well.",
            "All ranks must make the same calls in the same order. A rank whose `grad` is None has "
            "something to add, too: "
            "which tensor changes no sum?",
        ),
        names=("average_gradients",),
    ),
    Part(
        "2.3",
        "The same start",
        ("same_start",),
        (
            Check("all ranks have rank 0's weights", 1, starts_like_rank_0("parameters")),
            Check("and its buffers", 1, starts_like_rank_0("buffers")),
        ),
        (
            "Equal steps from different places lead to different places. Which rank's weights shall all have?",
            "`torch.distributed.broadcast` overwrites a tensor on all ranks with that of one rank.",
            "A model has `parameters()`, and it has `buffers()`, such as the running statistics of "
            "BatchNorm. Both are in "
            "`state_dict()`, which gives the model's own tensors, not copies.",
        ),
        names=("same_start",),
    ),
    Part(
        "2.4",
        "A whole step",
        ("average_gradients", "train_step"),
        (
            Check("after each step all ranks have the weights of one process", 3, as_one_process),
            Check("the loss that it returns is that of the whole batch", 1, whole_loss),
        ),
        (
            "Write down the lines of a step on one GPU. Between which two does the average belong?",
            "Gradients of the step before are still there, unless somebody removes them.",
            "The loss is a mean over this rank's samples, as the gradients are. It takes the same weights "
            "to average it.",
        ),
        names=("average_gradients", "train_step"),
    ),
)
EXERCISE = Exercise("02_average_by_hand", "Average by hand", PARTS)

"""A mean of gradients against that of the whole batch, and against what is mostly in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.values import described, dtype, figure, of_other_type, tensors_close

RATIOS = (
    ("not-divided", lambda n, size: size, "the sum of the ranks' gradients", "A sum of opinions is not their average."),
    ("not-divided", lambda n, size: n, "too large by the number of samples", "What do you divide the sum by?"),
    (
        "divided-twice",
        lambda n, size: 1 / size,
        "the right one, divided once more by the number of ranks",
        "Somebody had divided before. Who?",
    ),
    ("divided-twice", lambda n, size: 1 / n, "too small by the number of samples", "How often do you divide?"),
)


def right_mean_of(value: Any, gradients: list[Tensor], sizes: list[int]) -> Iterator[Finding]:
    """One mean against the right one, and against what is mostly in its place."""
    expected = weighted(gradients, sizes)
    said = f"From shards of {', '.join(map(str, sizes))} samples"
    if not isinstance(value, Tensor):
        yield of_other_type("mean_gradient", value, "a tensor like one of the gradients")
    elif value.shape != expected.shape:
        yield Finding(
            "shape",
            f"{said}: the gradients are of shape {tuple(expected.shape)}, the answer is {described(value)}.",
            "Along what is added up, and what must stay?",
        )
    elif value.dtype != gradients[0].dtype:
        yield Finding(
            "dtype",
            f"{said}: the gradients are {dtype(gradients[0])}, the mean is {dtype(value)}.",
            "Which type does each of your tensors have, and which one wins when they meet?",
        )
    elif not tensors_close(value, expected):
        yield wrong_gradient(said, value, expected, gradients, sizes)


def wrong_gradient(
    said: str, value: Tensor, expected: Tensor, gradients: Sequence[Tensor], sizes: Sequence[int]
) -> Finding:
    """Which other mean it is, if it is one that we know."""
    if len(sizes) > 1 and tensors_close(value, torch.stack(list(gradients)).mean(0)):
        return Finding(
            "mean-of-means",
            f"{said}: it is the plain mean of the {len(sizes)} gradients.",
            "Does a shard of few samples speak as loudly as one of many?",
        )
    if not bool(torch.isfinite(value.double()).all()):
        return Finding("not-finite", f"{said}: it has values that are no numbers.", "What is divided by what?")
    for fault, factor, words, idea in RATIOS:
        if len(sizes) > 1 and tensors_close(value, expected * factor(sum(sizes), len(sizes))):
            return Finding(fault, f"{said}: it is {words}.", idea)
    off = (value.double() - expected.double()).norm() / expected.double().norm()
    return Finding(
        "wrong-mean",
        f"{said}: it is {figure(100 * off.item())} % off the gradient of the whole batch.",
        "Of how many samples is each gradient the mean, and of how many should yours be?",
    )


def weighted(gradients: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The mean of gradients, weighted by the sizes of their shards; in float64."""
    total = sum(gradient.double() * size for gradient, size in zip(gradients, sizes, strict=True))
    return torch.as_tensor(total) / sum(sizes)

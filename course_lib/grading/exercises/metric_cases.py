"""What the ranks of exercise 5 are given, and what each of its numbers is then."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

# What each rank gets, and the right answer; then what is often told instead: (fault, words, value on each rank).
Case = tuple[list[list[Any]], float, list[tuple[str, str, list[float]]]]


# 5.1: accuracy.


def _uneven(generator: np.random.Generator, world_size: int) -> Case:
    sizes = [int(size) for size in generator.integers(3, 30, world_size)]
    sizes[-1] += 300  # more than fits into a byte
    return _accuracy(generator, sizes)


def _even(generator: np.random.Generator, world_size: int) -> Case:
    return _accuracy(generator, [int(generator.integers(5, 12))] * world_size)


def _without(generator: np.random.Generator, world_size: int) -> Case:
    sizes = [int(size) for size in generator.integers(3, 30, world_size)]
    if world_size > 1:
        sizes[int(generator.integers(world_size))] = 0
    return _accuracy(generator, sizes)


def _accuracy(generator: np.random.Generator, sizes: list[int]) -> Case:
    """Ranks of which each is right more seldom than the one before; the answer is never 0 or 1."""
    given, right = [], []
    for rank, size in enumerate(sizes):
        hits = _hits(generator, size, 0.9 - 0.7 * rank / len(sizes))
        given.append(_predicted(generator, hits))
        right.append(int(hits.sum()))
    shares = [hit / size if size else 0.0 for hit, size in zip(right, sizes, strict=True)]
    mistakes = [
        ("own-value", "Each rank tells that of its own samples.", shares),
        ("mean-of-means", "It is the mean of the ranks' own.", [sum(shares) / len(shares)] * len(sizes)),
    ]
    return given, sum(right) / sum(sizes), mistakes


ACCURACY = (_uneven, _even, _without)


# 5.2: with what a sampler has filled up.


def _padded(generator: np.random.Generator, world_size: int, luck: bool) -> Case:
    samples = world_size * int(generator.integers(3, 7)) + (1 if world_size > 1 else 0)
    return _with_indices(generator, samples, world_size, luck)


def _few(generator: np.random.Generator, world_size: int, luck: bool) -> Case:
    return _with_indices(generator, max(2, world_size - 1), world_size, luck)


def _whole(generator: np.random.Generator, world_size: int) -> Case:
    """Nothing is filled up, and nearly all is right: whoever leaves out a sample has another number."""
    return _with_indices(generator, world_size * int(generator.integers(3, 7)), world_size, luck=True, share=1.0)


def _one(generator: np.random.Generator, world_size: int) -> Case:
    """One sample, which comes to all ranks."""
    return _with_indices(generator, 1, world_size, luck=True)


def _with_indices(
    generator: np.random.Generator, samples: int, world_size: int, luck: bool, share: float | None = None
) -> Case:
    """As DistributedSampler deals: a shuffled list, its beginning once more at its end, then like cards.

    With luck, what comes twice is right where the others are mostly wrong; without, it is the other way round. `share`
    of the samples are right, where it is given.
    """
    order = generator.permutation(samples)
    total = -(-samples // world_size) * world_size
    dealt = np.resize(order, total)
    hits = _hits(generator, samples, share or (0.3 if luck else 0.7)).numpy()
    hits[dealt[samples:]] = luck
    others = np.setdiff1d(order, dealt[samples:])
    hits[others[:1]] = not luck
    given = []
    for rank in range(world_size):
        own = torch.from_numpy(dealt[rank::world_size].copy())
        given.append([own, *_predicted(generator, torch.from_numpy(hits)[own]), samples])
    counted = [float(hits[dealt[rank::world_size]].sum()) for rank in range(world_size)]
    mistakes = [
        ("duplicates", "Samples that come twice count twice there.", [float(hits[dealt].mean())] * world_size),
        ("duplicates", "Hits that come twice count twice there.", [sum(counted) / samples] * world_size),
        ("own-value", "Each rank tells that of its own samples.", [hit / (total // world_size) for hit in counted]),
    ]
    return given, float(hits.mean()), mistakes


PADDED = (
    partial(_padded, luck=True),
    partial(_padded, luck=False),
    _whole,
    partial(_few, luck=True),
    partial(_few, luck=False),
    _one,
)


# 5.3: images per second.


def _speed(generator: np.random.Generator, world_size: int, longest: float = 9.0) -> Case:
    images = [int(count) for count in generator.integers(1_000, 9_000, world_size)]
    seconds = [float(time) for time in generator.uniform(longest / 5, longest, world_size)]
    rates = [count / time for count, time in zip(images, seconds, strict=True)]
    mistakes: list[tuple[str, str, list[float]]] = [
        ("own-value", "Each rank tells its own.", rates),
        ("sum-of-rates", "It is the sum of the ranks' rates.", [sum(rates)] * world_size),
        ("mean-of-rates", "It is the mean of the ranks' rates.", [sum(rates) / world_size] * world_size),
        ("mean-time", "The mean of their times was taken.", [sum(images) / (sum(seconds) / world_size)] * world_size),
        ("sum-of-times", "The times were added up.", [sum(images) / sum(seconds)] * world_size),
        ("mean-time", "Each rank took its own time.", [sum(images) / time for time in seconds]),
        ("images-of-one", "Each rank took its own images.", [count / max(seconds) for count in images]),
    ]
    given: list[list[Any]] = [[count, time] for count, time in zip(images, seconds, strict=True)]
    return given, sum(images) / max(seconds), mistakes


def _idle(generator: np.random.Generator, world_size: int) -> Case:
    """One rank had nothing to do, and is done at once."""
    given, _, _ = _speed(generator, world_size)
    if world_size > 1:
        given[0] = [0, 0.0]
    return given, sum(each[0] for each in given) / max(each[1] for each in given), []


SPEED = (_speed, _idle, partial(_speed, longest=0.5))


# 5.4: a score that is no mean.


def _scored(generator: np.random.Generator, world_size: int) -> Case:
    return _f1([_binary(generator, int(generator.integers(12, 40)), rank / world_size) for rank in range(world_size)])


def _without_positives(generator: np.random.Generator, world_size: int) -> Case:
    given = [_binary(generator, int(generator.integers(12, 40)), 0.0) for _ in range(world_size)]
    if world_size > 1:
        predictions = torch.tensor([0, 0, 1] * 3)  # wrong ones count, whether there is a positive label or not
        given[int(generator.integers(world_size))] = [predictions, torch.zeros(9, dtype=torch.long)]
    return _f1(given)


def _no_positives_at_all(generator: np.random.Generator, world_size: int) -> Case:
    return _f1([[torch.zeros(5, dtype=torch.long), torch.zeros(5, dtype=torch.long)] for _ in range(world_size)])


def _no_hits(generator: np.random.Generator, world_size: int) -> Case:
    """All that is marked is marked wrongly: the score is 0, and precision and recall are, too."""
    given = [_binary(generator, int(generator.integers(12, 40)), 0.5) for _ in range(world_size)]
    return _f1([[torch.where(labels == 1, 0, predictions), labels] for predictions, labels in given])


def _binary(generator: np.random.Generator, count: int, negative: float) -> list[Tensor]:
    """Predictions and labels; both classes are in both, the positive one more seldom as `negative` goes to 1."""
    labels = torch.from_numpy((generator.random(count) > 0.4 + 0.5 * negative).astype(np.int64))
    predictions = torch.where(torch.from_numpy(generator.random(count) < 0.3), 1 - labels, labels)
    for place, (predicted, label) in enumerate(((1, 1), (1, 0), (0, 1), (0, 0), (0, 0))):
        predictions[place], labels[place] = predicted, label
    return [predictions, labels]


def _f1(given: list[list[Any]]) -> Case:
    scores = [_score(*each) for each in given]
    sizes = [len(labels) for _, labels in given]
    weighted = sum(score * size for score, size in zip(scores, sizes, strict=True)) / sum(sizes)
    together = [torch.cat([each[place] for each in given]) for place in (0, 1)]
    mistakes = [
        ("own-value", "Each rank tells that of its own samples.", scores),
        ("not-the-score", "It is the mean of the ranks' scores.", [sum(scores) / len(scores)] * len(scores)),
        ("not-the-score", "It is the weighted mean of the ranks' scores.", [weighted] * len(scores)),
    ]
    return given, _score(*together), mistakes


def _score(predictions: Tensor, labels: Tensor) -> float:
    """2 TP / (2 TP + FP + FN), and 0 where there is nothing to divide by."""
    hits = int(((predictions == 1) & (labels == 1)).sum())
    marked = int((predictions == 1).sum()) + int((labels == 1).sum())
    return 2 * hits / marked if marked else 0.0


SCORES = (_scored, _without_positives, _no_positives_at_all, _no_hits)


def _hits(generator: np.random.Generator, count: int, share: float) -> Tensor:
    """Which samples are right, at least one of them and not all, where there are several."""
    hits = torch.from_numpy(generator.random(count) < share)
    if count > 1:
        hits[0], hits[1] = True, False
    return hits


def _predicted(generator: np.random.Generator, hits: Tensor) -> list[Tensor]:
    """Predictions and labels of ten classes with these hits."""
    labels = torch.from_numpy(generator.integers(0, 10, len(hits)))
    others = (labels + torch.from_numpy(generator.integers(1, 10, len(hits)))) % 10
    return [torch.where(hits, labels, others), labels]

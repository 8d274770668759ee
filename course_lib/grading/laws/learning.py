"""The ranks together learn as one process does: from the same start, with the mean gradient, in step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import torch
from torch import nn

from course_lib.grading.evidence import Evidence, Rank, Round
from course_lib.grading.laws.finding import Finding, counted, listed, ranks
from course_lib.grading.laws.replay import NEAR, Parts, Reference, Replay, as_in_the_sandbox, size_of

SAME = 1e-5  # weights further apart are not the same; right programs come to 2e-6
ROUNDING = 1e-3  # of a gradient: less than that is no difference
ASIDE = 0.05  # of a gradient: what points elsewhere may be so large where only its size is wrong
UNRELATED = 0.1  # the cosine of two gradients, below which they are
OTHER_GRADIENT = "other-gradient"


def same_model(known: Sequence[torch.Tensor | None], model: nn.Module) -> Iterator[Finding]:
    """Weights are those of a model like this one, where they are known."""
    return _other_sizes([weights for weights in known if weights is not None], size_of(model))


def _other_sizes(known: Sequence[torch.Tensor | None], size: int, unknown: str = "") -> Iterator[Finding]:
    sizes = {unknown if weights is None else len(weights) for weights in known}
    if sizes - {size}:
        yield Finding(
            "other-model",
            f"The model has {listed(sizes)} values; the one that was given has {size}.",
            "Is it still the model of the program for one GPU?",
        )


def same_start(evidence: Evidence) -> Iterator[Finding]:
    """All ranks begin with the same weights, which are numbers."""
    known = [each.weights for each in _parts(evidence, 0).values() if each.weights is not None]
    if not all(bool(torch.isfinite(weights).all()) for weights in known):
        yield _not_finite("Before the first step")
    apart = _apart(evidence, 0)
    if apart:
        yield Finding(
            "different-start",
            f"Before the first step the weights of {ranks(apart)} are not those of rank {min(evidence.ranks)}.",
            "Do all runners start from the same line? Who hands out the first weights?",
        )


def in_step(evidence: Evidence, mirrored: Mapping[int, int] = MappingProxyType({})) -> Iterator[Finding]:
    """All ranks have the same weights before each step; `mirrored` as in `Reference`."""
    steps = min((len(rank.rounds) for rank in evidence.ranks.values()), default=0)
    if steps > 1 and all(len({each.mark for each in rank.rounds}) == 1 for rank in evidence.ranks.values()):
        yield Finding(
            "never-moves",
            f"In {counted(steps, 'step')} the weights of no rank changed.",
            "Those who stand still are in step, and get nowhere. Which line moves the weights, and how far?",
        )
        return
    for step in range(1, steps):
        apart = _apart(evidence, step)
        if apart and not _apart(evidence, 0):
            first = min(evidence.ranks)
            if step > 1 and (unheard := _mirrored_of(_parts(evidence, step - 1), mirrored)):
                yield _not_shared(unheard)
                return
            yield Finding(
                "drift",
                f"After {counted(step, 'step')} the weights of {ranks(apart)} are not those of rank {first}.",
                "After a step, do all ranks own the same weights? What would make them?",
            )
            return


def in_step_at_each_pass(evidence: Evidence) -> Iterator[Finding]:
    """As `in_step`, also where ranks leave out steps: all have the same weights before each pass of theirs."""
    told = [[rank.weights(event) for event in rank.passes] for rank in evidence.ranks.values()]
    for number, weights in enumerate(zip(*told, strict=False)):
        first, *others = weights
        apart = [rank for rank, each in zip(list(evidence.ranks)[1:], others, strict=True) if not _near(first, each)]
        if apart:
            yield Finding(
                "drift",
                f"After {counted(number, 'batch')} the weights of {ranks(apart)} are not those of rank "
                f"{min(evidence.ranks)}.",
                "After a step, do all ranks own the same weights? What would make them?",
            )
            return


def as_one_process(evidence: Evidence, reference: Reference, exact: bool = False) -> Iterator[Finding]:
    """Each step changes the weights as one process would that has the samples of all ranks.

    Unless `exact`, the mean of the batches' means is as good where these are of different size.
    """
    with as_in_the_sandbox():
        yield from _replayed(evidence, reference, exact)


def _replayed(evidence: Evidence, reference: Reference, exact: bool) -> Iterator[Finding]:
    first = evidence.ranks[min(evidence.ranks)]
    replay = Replay(reference)
    if other := next(_other_sizes([each.weights for each in first.rounds], replay.size, "many"), None):
        yield other
        return
    for step, (before, after) in enumerate(zip(first.rounds, _afterwards(first), strict=True)):
        parts = _parts(evidence, step)
        if after is None or before.weights is None:
            return
        update = after - before.weights
        if not bool(torch.isfinite(update).all()):
            yield _not_finite(f"After step {step}")
            return
        candidates = replay.updates(before.weights, parts, exact)
        if not candidates:
            yield Finding(
                "unknown-samples",
                f"In step {step} there are samples that are not in the training set as it was given.",
                "What happens to an image between the file and the model?",
            )
            return
        if min(_off(update, each) for each in candidates) > replay.near:
            yield from islice(_wrong_step(step, first, replay, parts, exact, update), 1)
            return
        replay.take(before.weights, min(candidates, key=lambda each: _off(update, each)))


def _wrong_step(
    step: int, rank: Rank, replay: Replay, parts: Parts, exact: bool, update: torch.Tensor
) -> Iterator[Finding]:
    """What kind of wrong step a rank took; what is told first fits best."""
    before = rank.rounds[step]
    assert before.weights is not None
    if before.lr and max(abs(lr / replay.lr - 1) for lr in before.lr) > NEAR:
        yield Finding(
            "learning-rate",
            f"In step {step} the learning rate is {before.lr[0]:.3g}; the program was given {replay.lr:.3g}.",
            "Does a mean gradient need another learning rate than the one that was asked for?",
        )
    if unheard := _not_heard_of(replay, before.weights, parts, exact, update):
        yield unheard
    right = replay.updates(before.weights, parts, exact)[0]
    if still := replay.unchanged(update, right):
        yield Finding(
            "weights-left-out",
            f"Step {step} did not change {still}, which one process would change.",
            "Which weights does the optimizer hold, and is their gradient there when it steps?",
        )
    if step and _is_kept(before.gradient, rank.rounds[step - 1].gradient, replay.gradient):
        yield Finding(
            "gradients-kept",
            f"The gradient in step {step} is that of this step and of the one before together.",
            "What becomes of a gradient after the optimizer has used it?",
        )
    if _is_unrelated(replay, before, parts):
        yield Finding(
            OTHER_GRADIENT,
            f"In step {step} the gradient has nothing to do with that of the images which the ranks read.",
            "From which loss, of which images, does it come?",
        )
    replay.updates(before.weights, parts, exact)
    yield _wrong_update(step, before.gradient, replay, len(parts), update, right)


def _not_finite(when: str) -> Finding:
    return Finding(
        "not-finite",
        f"{when} there are weights that are no numbers, or infinite.",
        "What is divided by what, and what grows with each step? A mean of which one part is NaN is NaN.",
    )


def _parts(evidence: Evidence, step: int) -> dict[int, Round]:
    return {number: rank.rounds[step] for number, rank in evidence.ranks.items() if step < len(rank.rounds)}


def _afterwards(rank: Rank) -> list[torch.Tensor | None]:
    """The weights after each step: those of the next one, or those that are evaluated after the last."""
    return [*(each.weights for each in rank.rounds[1:]), rank.last_weights]


def _apart(evidence: Evidence, step: int) -> list[int]:
    """The ranks whose weights before a step are not those of the first rank."""
    rounds = _parts(evidence, step)
    if len(rounds) < 2:
        return []
    first, *others = rounds
    return [number for number in others if not _same(rounds[first], rounds[number])]


def _same(one: Round, other: Round) -> bool:
    return one.mark == other.mark or _near(one.weights, other.weights)


def _near(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(torch.isclose(one, other, rtol=0.0, atol=SAME, equal_nan=True).all())


def _off(update: torch.Tensor, predicted: torch.Tensor) -> float:
    """How far an update is from the predicted one, as a share of it."""
    if update.shape != predicted.shape:
        return float("inf")
    return float((update - predicted).norm() / predicted.norm().clamp_min(1e-9))


def _not_heard_of(
    replay: Replay, weights: torch.Tensor, parts: Parts, exact: bool, update: torch.Tensor
) -> Finding | None:
    """A step that is right but for the samples which a rank was given backwards: only that rank can tell of them."""
    disturbed = _mirrored_of(parts, replay.mirrored)
    as_if = replay.updates(weights, parts, exact, mirror=False) if disturbed else []
    return _not_shared(disturbed) if any(_off(update, each) <= NEAR for each in as_if) else None


def _mirrored_of(parts: Parts, mirrored: Mapping[int, int]) -> list[int]:
    """The ranks that were given samples backwards in this step."""
    passes = {rank: range(part.passes_before, part.passes_before + len(part.batches)) for rank, part in parts.items()}
    return [rank for rank, each in passes.items() if mirrored.get(rank) in each]


def _not_shared(disturbed: list[int]) -> Finding:
    return Finding(
        "not-shared",
        f"The check put other images into the model of {ranks(disturbed)}, which no other rank has seen. The weights "
        "of the others changed as if that had not been: they do not come from the gradients of all ranks.",
        "Does each rank work on its own images alone, and get the gradients of the others from the others?",
    )


def _is_kept(gradient: torch.Tensor | None, before: torch.Tensor | None, expected: torch.Tensor) -> bool:
    """Whether a gradient has been added to that of the step before."""
    return gradient is not None and before is not None and _right(gradient - before, expected)


def _is_unrelated(replay: Replay, before: Round, parts: Parts) -> bool:
    """Whether a gradient points nowhere near that of all ranks' samples, nor near that of any rank's."""
    if before.gradient is None or before.weights is None or len(before.gradient) != replay.size:
        return False
    for some in (parts, *({rank: part} for rank, part in parts.items())):
        replay.updates(before.weights, some)
        norms = float(before.gradient.norm() * replay.gradient.norm())
        if norms == 0 or abs(float(before.gradient @ replay.gradient)) > UNRELATED * norms:
            return False
    return True


def _wrong_update(
    step: int,
    gradient: torch.Tensor | None,
    replay: Replay,
    world_size: int,
    update: torch.Tensor,
    right: torch.Tensor,
) -> Finding:
    """What kind of wrong step it was, by the gradient that the optimizer had."""
    ratio = ratio_of(gradient, replay.gradient)
    is_one = ratio is not None and abs(ratio - 1) < NEAR
    if ratio is None or (is_one and not _right(gradient, replay.gradient)) or (replay.clips and not is_one):
        size = float(update.norm() / right.norm().clamp_min(1e-9))
        return Finding(
            "other-update",
            f"Step {step} changed the weights otherwise than one process with the same "
            f"{counted(world_size, 'batch')} would: by {size:.2f} times as much, and not in the same direction.",
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
    return gradient is not None and float((gradient - expected).norm()) < ROUNDING * float(expected.norm())


def ratio_of(gradient: torch.Tensor | None, expected: torch.Tensor) -> float | None:
    """The gradient as a multiple of the expected one; None where it differs by more than its size."""
    if gradient is None or gradient.shape != expected.shape or not gradient.norm() > 0:
        return None
    ratio = float(gradient @ expected / (expected @ expected))
    aside = float((gradient - ratio * expected).norm())
    by_size = max(abs(ratio - 1), ROUNDING) * float(expected.norm())
    return ratio if aside < min(by_size, ASIDE * float(gradient.norm())) else None

"""What a program reports about all ranks is true of all of them: its speed and its accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_lib.grading import samples
from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.laws.finding import Finding, listed

NEAR = 1.7  # times slower is another speed: the clock of a loaded machine is not exact
FASTER = 1.3  # times faster is another speed: right programs come to 1.1
EXACT = 1e-5  # that a weight may be off
FOUR_DIGITS = 6e-5  # that a share of right answers may be off
CLOSE_CALL = 1e-3  # between the two best outputs: either may win when batches are made up otherwise


def entries(content: bytes | None, names: Sequence[str], epochs: int) -> list[dict[str, float]] | Finding:
    """What the file of results says: for each epoch, numbers by these names; or what is wrong with it."""
    if content is None:
        return Finding("no-result", "There is no result.json.", "Which process writes the results, and is it reached?")
    try:
        read = json.loads(content)
    except (ValueError, RecursionError):
        return Finding("torn-result", "result.json is no complete JSON.", "How many processes write this file at once?")
    if not isinstance(read, list) or len(read) != epochs:
        return Finding(
            "no-result",
            f"result.json should hold a list with an entry for each of {epochs} epochs; it does not.",
            "What did the program for one GPU write? That is what others will read.",
        )
    for name in names:
        if not all(isinstance(each, dict) and _is_number(each.get(name)) for each in read):
            return Finding(
                "no-result",
                f"Not every entry of result.json has a number called {name}.",
                "What did the program for one GPU write? That is what others will read.",
            )
    return [{name: float(each[name]) for name in names} for each in read]


def _is_number(value: Any) -> bool:
    """Whether it is one that a float can hold; JSON knows larger ones."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 64)


def speed(evidence: Evidence, said: list[float]) -> Iterator[Finding]:
    """The images a second that are reported for each epoch are those of all ranks together."""
    true = [_speed(list(evidence.ranks.values()), epoch, len(said)) for epoch in range(len(said))]
    # A rank may be slower than it was seen to be, on a loaded machine, but not faster.
    wrong = [epoch for epoch, each in enumerate(true) if said[epoch] > each.high * FASTER]
    if not wrong and any(each.low / NEAR <= number for number, each in zip(said, true, strict=True)):
        if _is_since_start(said[-1], true):
            yield Finding(
                "speed-since-start",
                f"{said[-1]:.3g} images/s were reported for the last epoch; all ranks together made about "
                f"{true[-1].low:.3g} in it, and {said[-1]:.3g} if the seconds of the epochs before were counted too.",
                "When does the clock start, and how often?",
            )
        return
    epoch = wrong[-1] if wrong else len(said) - 1
    each, made, own = said[epoch], true[epoch], true[epoch].own
    which = "the last epoch" if epoch == len(said) - 1 else f"epoch {epoch}"
    seen = f"{each:.3g} images/s were reported for {which}; all ranks together made about {made.low:.3g}"
    if each <= 0:
        yield Finding(
            "one-rank-only",
            f"What was reported for {which} is no speed: {each:.3g} images/s.",
            "A sum is promised to one rank only. Which rank writes it?",
        )
    elif any(abs(math.log(max(each, 1e-9) / local)) < math.log(NEAR) for local in own if local > 0):
        yield Finding(
            "local-speed",
            f"{seen}, and one of them about {own[0]:.3g}.",
            "Whose images were counted: those of one rank, or of all?",
        )
    elif each > made.high:
        yield Finding(
            "speed-too-high", f"{seen}.", "Which images were counted: all of them once, and only those of this epoch?"
        )
    else:
        yield Finding("speed-too-low", f"{seen}.", "Which images and which seconds were counted, and of which ranks?")


class Speed(NamedTuple):
    """How fast the ranks were in an epoch: images a second, and between when and when.

    Fields:
        low, high: of all ranks, by the slowest rank's time, and as a sum of their speeds.
        own: of each rank.
    """

    low: float
    high: float
    own: list[float]
    begin: float
    end: float


def _speed(ranks: list[Rank], epoch: int, epochs: int) -> Speed:
    counts, times = [], []
    for rank in ranks:
        per_epoch = -(-len(rank.rounds) // epochs)
        rounds = rank.rounds[epoch * per_epoch : (epoch + 1) * per_epoch]
        if rounds:
            counts.append(sum(len(each.rows) for each in rounds))
            times.append((rounds[0].begin, rounds[-1].end))
    seconds = [max(end - begin, 1e-3) for begin, end in times]
    own = [count / time for count, time in zip(counts, seconds, strict=True)]
    begins, ends = zip(*times, strict=True) if times else ((0.0,), (0.0,))
    return Speed(sum(counts) / max(seconds, default=1.0), sum(own), own, min(begins), max(ends))


def _is_since_start(said: float, true: list[Speed]) -> bool:
    """Whether the last epoch's images were divided by the seconds since the first one began."""
    last = true[-1]
    if len(true) == 1 or said > last.low / NEAR or last.end <= true[0].begin:
        return False
    since = last.low * (last.end - last.begin) / (last.end - true[0].begin)
    return abs(math.log(max(said, 1e-9) / max(since, 1e-9))) < math.log(FASTER)


def accuracy(said: list[float], outputs: list[torch.Tensor | None], labels: torch.Tensor) -> Iterator[Finding]:
    """The accuracy that is reported for each epoch is that of the model over all samples, exactly.

    `outputs` are those of the model after each epoch, [n, classes]; None where its weights are not known.
    """
    for epoch, (each, output) in enumerate(zip(said, outputs, strict=True)):
        if output is None:
            continue
        best = output.topk(2).values
        unsure = int(((best[:, 0] - best[:, 1]) < CLOSE_CALL).sum())
        count, correct = len(labels), int((output.argmax(1) == labels).sum())
        right = [number / count for number in range(correct - unsure, correct + unsure + 1)]
        if not any(abs(each - share) <= FOUR_DIGITS for share in right):
            idea = "Each image counts once. Over whose images was the accuracy, and were some of them counted twice?"
            if any(abs(each / 100 - share) <= FOUR_DIGITS for share in right):
                idea = "In which unit did the program for one GPU report it?"
            elif any(abs(each - round(share, digits)) < 1e-9 for share in right for digits in (1, 2, 3)):
                idea = "How many of its digits are in the file?"
            yield Finding(
                "accuracy",
                f"After epoch {epoch} an accuracy of {each:.4f} was reported. The model has {correct} of {count} "
                f"validation images right, which is {correct / count:.4f}.",
                idea,
            )
            return


def weights_after(rank: Rank, epochs: int) -> list[torch.Tensor | None]:
    """The weights of a rank after each epoch; None where they are not known."""
    passes, per_epoch = rank.passes, -(-len(rank.passes) // epochs)
    known: list[torch.Tensor | None] = []
    for epoch in range(1, epochs + 1):
        if epoch < epochs and epoch * per_epoch < len(passes):
            known.append(rank.weights(passes[epoch * per_epoch]))
        else:
            known.append(rank.last_weights)
    return known


def evaluated_by(evidence: Evidence, epochs: int) -> list[dict[int, int]]:
    """After each epoch, for samples the first rank that evaluated them; empty where it is not clear when it did."""
    found: list[dict[int, int]] = [{} for _ in range(epochs)]
    for number, rank in evidence.ranks.items():
        for epoch, part in enumerate(rank.evaluations if len(rank.evaluations) == epochs else ()):
            for sample in (sample for event in part for sample in samples.ids(event["rows"])):
                if sample is not None:
                    found[epoch].setdefault(sample, number)
    return found


def same_weights(given: Any, expected: dict[str, torch.Tensor], known: bool = True) -> Iterator[Finding]:
    """A state dict has the names and shapes of a plain model, and its weights where these are known."""
    if not isinstance(given, dict):
        yield Finding("no-weights", "model.pt holds no state dict.", "What did the program for one GPU save?")
        return
    missing, other = [name for name in expected if name not in given], [name for name in given if name not in expected]
    if missing or other:
        words = f"A plain WideResNet misses {listed(missing, 2) or 'nothing'} in model.pt"
        yield Finding(
            "names-of-weights",
            f"{words}, and does not know {listed(other, 2) or 'anything else there'}."[:300],
            "Does the file still wear the wrapper? Who will load it, and into which model?",
        )
        return
    for name, weights in expected.items():
        tensor = given[name]
        if not isinstance(tensor, torch.Tensor) or tensor.shape != weights.shape:
            yield Finding("no-weights", f"{name} in model.pt is no tensor of its shape.", "What is in the file?")
            return
        if known and not torch.isclose(tensor.float(), weights, rtol=0.0, atol=EXACT).all():
            yield Finding(
                "other-weights",
                f"{name} in model.pt is not what the model had after the last epoch.",
                "When is the model saved, and which of the models?",
            )
            return

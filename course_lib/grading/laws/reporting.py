"""What a program reports about all ranks is true of all of them: its speed and its accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.laws.finding import Finding, listed

NEAR = 1.7  # times faster or slower is another speed: the clock of a loaded machine is not exact
EXACT = 1e-5  # that a share of right answers may be off
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
    epochs = len(said)
    bounds = [_speeds(list(evidence.ranks.values()), epoch, epochs) for epoch in range(epochs)]
    fits = [low / NEAR <= each <= high * NEAR for each, (low, high, _) in zip(said, bounds, strict=True)]
    if any(fits):
        return
    each, (low, high, own) = said[-1], bounds[-1]
    seen = f"{each:.3g} images/s were reported for the last epoch; all ranks together made about {low:.3g}"
    if any(abs(math.log(max(each, 1e-9) / local)) < math.log(NEAR) for local in own if local > 0):
        yield Finding(
            "local-speed",
            f"{seen}, and one of them about {own[0]:.3g}.",
            "Whose images were counted: those of one rank, or of all?",
        )
    elif each > high:
        yield Finding("speed-too-high", f"{seen}.", "Was something added up that was a sum already?")
    else:
        yield Finding("speed-too-low", f"{seen}.", "Which images and which seconds were counted, and of which ranks?")


def _speeds(ranks: list[Rank], epoch: int, epochs: int) -> tuple[float, float, list[float]]:
    """Images a second of all ranks, by the slowest rank's time and as a sum of their speeds; and those of each."""
    counts, seconds = [], []
    for rank in ranks:
        per_epoch = -(-len(rank.rounds) // epochs)
        rounds = rank.rounds[epoch * per_epoch : (epoch + 1) * per_epoch]
        if rounds:
            counts.append(sum(len(each.rows) for each in rounds))
            seconds.append(max(rounds[-1].end - rounds[0].begin, 1e-3))
    own = [count / time for count, time in zip(counts, seconds, strict=True)]
    return sum(counts) / max(seconds, default=1.0), sum(own), own


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
        if not any(abs(each - share) <= EXACT for share in right):
            yield Finding(
                "accuracy",
                f"After epoch {epoch} an accuracy of {each:.4f} was reported. The model has {correct} of {count} "
                f"validation images right, which is {correct / count:.4f}.",
                "Each image counts once. Over whose images was the accuracy, and were some of them counted twice?",
            )
            return


def weights_after(evidence: Evidence, epochs: int) -> list[torch.Tensor | None]:
    """The weights after each epoch, as the first rank has them; None where they are not known."""
    first = evidence.ranks[min(evidence.ranks)]
    rounds, evaluated = first.rounds, [event for event in first.process.of("forward") if not event["training"]]
    per_epoch = -(-len(rounds) // epochs)
    known: list[torch.Tensor | None] = []
    for epoch in range(1, epochs + 1):
        if epoch < epochs and epoch * per_epoch < len(rounds):
            known.append(rounds[epoch * per_epoch].weights)
        elif evaluated:
            known.append(first.weights(evaluated[-1]))
        else:
            known.append(None)
    return known


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

"""Laws of the final project: equal to one process, efficient, and accurate."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from course_lib.grading import calling, samples
from course_lib.grading.calling import Group
from course_lib.grading.evidence import Evidence
from course_lib.grading.laws import dealing, learning, starting
from course_lib.grading.laws.exchanges import is_message, messages_of_steps
from course_lib.grading.laws.finding import Finding, counted, ranks
from course_lib.grading.laws.replay import Reference
from course_lib.grading.laws.values import numbers
from course_lib.grading.parts import Attempt
from course_lib.grading.sandbox import Program

WORLD_SIZE, NODES = 3, 3
EPOCHS, GLOBAL_BATCH_SIZE, LR = 2, 12, 0.5
TRAIN, VAL, LENGTH = 43, 23, 24
SAVED = "model.pt"
SLOW = 0.01  # seconds that one rank takes longer in each pass
# Of what travels during the training: messages a step, and times the bytes of the gradient. Some more an epoch, for the
# accuracy.
MESSAGES, MESSAGES_AN_EPOCH, BYTES = 4, 6, 1.25


@dataclass(frozen=True)
class Run:
    """What came of the project on three nodes with a rank each.

    Fields:
        data: the arrays that it was given.
        saved: what is in the file that it wrote: {"value": …} or {"error": …}; empty where there is none.
    """

    evidence: Evidence
    data: dict[str, np.ndarray]
    saved: dict[str, Any]


@cache
def one_device() -> ModuleType:
    """The program as it is given: what one process would do is what it does."""
    module = ModuleType("one_device")
    source = files("course_lib.grading.programs").joinpath("one_device.py")
    exec(compile(source.read_text(), "one_device.py", "exec"), module.__dict__)
    return module


def run(attempt: Attempt) -> Run:
    """The project; run when it is first asked for."""
    return attempt.once("run", lambda: _run(attempt))


def _run(attempt: Attempt) -> Run:
    data = _data(attempt.random)
    packed = io.BytesIO()
    np.savez(packed, **data)  # type: ignore[arg-type]  # numpy's stubs mistake names for options
    inputs = {"function": "main", "arguments": [EPOCHS, GLOBAL_BATCH_SIZE, LR]}
    probes = {"training": {}, "files": {}, "traffic": {}, "disturbances": {"slow": {"1": SLOW}}}
    group = Group(WORLD_SIZE, "nodes:main", lambda rank: inputs, NODES, probes)
    (evidence,) = calling.run(
        attempt, group, files={"sequences.npz": packed.getvalue()}, collect=(SAVED,), seconds=18.0
    )
    saved = evidence.record.files.get(SAVED)
    if saved is None:
        return Run(evidence, data, {})
    reader = Program(harness="checkpoints:read", inputs={"paths": [SAVED]})
    read = attempt.run([reader], {SAVED: saved}).program().of("returned")
    return Run(evidence, data, read[0]["value"][0] if read else {"error": ""})


def _data(random: np.random.Generator) -> dict[str, np.ndarray]:
    train_tokens, train_lengths = _sequences(TRAIN, random)
    val_tokens, val_lengths = _sequences(VAL, random)
    train = {"train_tokens": train_tokens, "train_lengths": train_lengths}
    return {**train, "val_tokens": val_tokens, "val_lengths": val_lengths}


def _sequences(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sequences that can be learnt, of very different lengths; each begins with four tokens that say which it is."""
    tokens = np.zeros((count, LENGTH), dtype=np.uint8)
    tokens[:, :4] = np.stack([np.full(count, 0), np.full(count, 255), np.arange(count) >> 8, np.arange(count)], 1)
    tokens[:, 4] = random.integers(100, 104, count)
    for place in range(5, LENGTH):
        tokens[:, place] = 100 + (tokens[:, place - 1] * 3 + random.integers(0, 2, count)) % 4
    return tokens, np.where(random.random(count) < 0.5, 5, LENGTH)


def joined(seen: Run) -> Iterator[Finding]:
    """Three ranks on three nodes are one group, and come to an end."""
    yield from starting.joined(seen.evidence, WORLD_SIZE)
    yield from calling.finished(seen.evidence)
    if len(seen.evidence.ranks) < WORLD_SIZE:
        number = len(seen.evidence.ranks)
        yield Finding("no-group", f"{number} of 3 ranks joined a group.", "Which call makes them a group?")


def _trained(seen: Run) -> Iterator[Finding]:
    yield from joined(seen)
    idle = [number for number, rank in seen.evidence.ranks.items() if not rank.rounds]
    if idle:
        yield Finding("idle-rank", f"{ranks(idle).capitalize()} did not train.", "Which lines does each rank reach?")


def dealt(seen: Run) -> Iterator[Finding]:
    """Each sequence goes to one rank, anew in each epoch, as many steps on all ranks."""
    yield from _trained(seen)
    yield from starting.equally_long(seen.evidence)
    yield from dealing.dealt(seen.evidence, EPOCHS, TRAIN, GLOBAL_BATCH_SIZE)
    yield from dealing.reshuffled(seen.evidence, EPOCHS)
    yield from dealing.full(seen.evidence, GLOBAL_BATCH_SIZE)


def as_one(seen: Run) -> Iterator[Finding]:
    """Each step is that of one process: the mean over all tokens of the global batch."""
    yield from _trained(seen)
    yield from learning.same_start(seen.evidence)
    yield from learning.in_step(seen.evidence)
    given = one_device()
    tokens = torch.from_numpy(seen.data["train_tokens"]).long()
    targets = given.targets_of(tokens, torch.from_numpy(seen.data["train_lengths"]).long())
    reference = Reference(
        given.NextToken, tokens, targets, given.loss_of, lambda each: torch.optim.SGD(each, LR, momentum=0.9)
    )
    for finding in learning.as_one_process(seen.evidence, reference, exact=True):
        counts = [_tokens(seen, rank) for rank in seen.evidence.ranks]
        idea = "A rank with few tokens should not speak as loudly as one with many. What must they tell each other?"
        yield Finding(
            finding.fault,
            f"{finding.seen} In the first step the ranks had {counts} tokens to predict.",
            idea if finding.fault in ("other-update", "scale") else finding.idea,
        )


def _tokens(seen: Run, rank: int) -> int:
    first = seen.evidence.ranks[rank].rounds[0]
    numbers = [number for number in samples.ids(first.rows) if number is not None]
    return int((seen.data["train_lengths"][numbers] - 1).sum())


def shared_work(seen: Run) -> Iterator[Finding]:
    """Each rank takes its part of the global batch, and of the validation."""
    yield from _trained(seen)
    for number, rank in seen.evidence.ranks.items():
        most = max(len(each.rows) for each in rank.rounds)
        if most != GLOBAL_BATCH_SIZE // WORLD_SIZE:
            yield Finding(
                "batch-size",
                f"The global batch has {GLOBAL_BATCH_SIZE} sequences, and there are {WORLD_SIZE} ranks; "
                f"rank {number} took {most} a step.",
                "Whose batch size is that number: one rank's, or everybody's?",
            )
            return
    looked = {
        number: sum(len(event["rows"]) for part in rank.evaluations for event in part)
        for number, rank in seen.evidence.ranks.items()
    }
    busiest = max(looked, key=lambda number: looked[number])
    if looked[busiest] > EPOCHS * (VAL / WORLD_SIZE + 2):
        yield Finding(
            "unshared-evaluation",
            f"There are {VAL} validation sequences; in {counted(EPOCHS, 'epoch')} rank {busiest} looked at "
            f"{looked[busiest]}.",
            "Is anybody marking a paper that another one marks too, and what do the others do meanwhile?",
        )


def few_messages(seen: Run) -> Iterator[Finding]:
    """The ranks send about the gradient in each step, in few messages."""
    wrong = next(as_one(seen), None)
    if wrong is not None:
        yield wrong
        return
    for number, rank in seen.evidence.ranks.items():
        weights, steps = rank.rounds[0].weights, len(rank.rounds)
        if weights is None:
            return
        events = rank.process.events
        began = next(place for place, event in enumerate(events) if event["kind"] == "forward")
        sent = [event for event in events[began:] if is_message(event)]
        volume = sum(event["bytes"] for event in sent) / weights.nbytes / steps
        most = max(messages_of_steps(events[began:]), default=0)
        if len(sent) > MESSAGES * steps + MESSAGES_AN_EPOCH * EPOCHS or most > MESSAGES:
            yield Finding(
                "many-messages",
                f"Rank {number} took part in {counted(len(sent), 'exchange')} in {counted(steps, 'step')}; in one step "
                f"in {most}.",
                "Each message has to travel, however small it is. Which of them can go together?",
            )
            return
        if volume > BYTES:
            yield Finding(
                "much-traffic",
                f"In each step, rank {number} exchanged {volume:.2f} times the bytes of the gradient.",
                "What must all ranks know after a step, and what do they have already?",
            )
            return


def right_accuracy(seen: Run) -> Iterator[Finding]:
    """After each epoch, all ranks know the accuracy over all tokens of the validation set."""
    yield from _trained(seen)
    right = list(_accuracies(seen))
    for number, answer in enumerate(calling.answers(seen.evidence)):
        values = numbers(answer["value"])
        if values is None or len(values) != EPOCHS:
            yield Finding(
                "no-accuracies", f"`main` should return {EPOCHS} floats on each rank; on rank {number} it did not.",
                "Which ranks know the accuracy?",
            )  # fmt: skip
            return
        for epoch, (value, expected) in enumerate(zip(values, right, strict=False)):
            if not abs(value - expected) <= 1e-6:  # nor is it, where it is no number
                yield Finding(
                    "other-accuracy",
                    f"After epoch {epoch}, rank {number} returned {value:.4f}; one process finds {expected:.4f}.",
                    "How many tokens has each rank, and does each of them count once?",
                )
                return


def _accuracies(seen: Run) -> Iterator[float]:
    """What the weights after each epoch come to, as far as they are known."""
    first = seen.evidence.ranks[0]
    per_epoch = len(first.rounds) // EPOCHS
    after = [first.rounds[epoch * per_epoch].weights for epoch in range(1, EPOCHS)]
    after.append(_at_the_end(seen))
    given = one_device()
    tokens = torch.from_numpy(seen.data["val_tokens"]).long()
    targets = given.targets_of(tokens, torch.from_numpy(seen.data["val_lengths"]).long())
    model: nn.Module = given.NextToken()
    for weights in after:
        if weights is None:
            return
        torch.nn.utils.vector_to_parameters(weights.clone(), model.parameters())
        with torch.no_grad():
            found = model(tokens).argmax(2)
        yield float((found == targets)[targets != -100].double().mean())


def _at_the_end(seen: Run) -> torch.Tensor | None:
    """The weights that are evaluated last, as far as they are known."""
    last = [(rank, event) for rank in seen.evidence.ranks.values() for event in rank.process.of("forward")[-1:]]
    return next((rank.weights(event) for rank, event in last if not event["training"]), None)


def one_file(seen: Run) -> Iterator[Finding]:
    """One rank writes the trained model, for a program without DDP."""
    yield from _trained(seen)
    writers = [
        number
        for number, rank in seen.evidence.ranks.items()
        if any(event["path"] == SAVED and event["how"] != "remove" for event in rank.process.of("wrote"))
    ]
    if len(writers) > 1:
        yield Finding(
            "several-writers", f"{ranks(writers).capitalize()} wrote {SAVED}.", "How many pens may be on one page?"
        )
        return
    if not seen.saved:
        yield Finding("no-file", f"No rank wrote {SAVED}.", "Which rank writes, and does it come so far?")
        return
    state = seen.saved.get("value")
    names = list(one_device().NextToken().state_dict())
    if not isinstance(state, dict) or set(state) != set(names):
        wrapped = isinstance(state, dict) and any(str(name).startswith("module.") for name in state)
        idea = "Does the file still wear the wrapper?" if wrapped else "What is in the file besides names and tensors?"
        yield Finding("keys", f"{SAVED} cannot be loaded into a model without DDP.", idea)
        return
    flat = torch.cat([state[name].reshape(-1) for name in names]) if _are_tensors(state) else torch.empty(0)
    last = _at_the_end(seen)
    if last is not None and (flat.shape != last.shape or not torch.allclose(flat, last, atol=1e-5)):
        yield Finding("other-weights", f"{SAVED} does not hold the weights of the end.", "When was it written?")


def _are_tensors(state: dict[str, Any]) -> bool:
    return all(type(value) is torch.Tensor for value in state.values())


def holds(law: Callable[[Run], Iterator[Finding]]) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that a law holds; only its first finding is told, since the others follow from it."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        finding = next(law(run(attempt)), None)
        if finding is not None:
            yield finding

    return judge

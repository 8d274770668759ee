"""How the patients of the clinic should behave once they are mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from course_lib.grading import calling, samples
from course_lib.grading.calling import Group
from course_lib.grading.evidence import Evidence
from course_lib.grading.inside.harnesses.training import model_of
from course_lib.grading.laws import dealing, learning, starting
from course_lib.grading.laws.finding import Finding, counted, ranks
from course_lib.grading.laws.replay import Reference
from course_lib.grading.laws.values import number, numbers
from course_lib.grading.parts import Attempt

SIZES = (9, 6, 3)
COUNT, BATCH_SIZE, EPOCHS, LR, CLIP = 25, 4, 2, 0.2, 0.1
WORLD_SIZE = 3
LIMIT = 0.5  # of the mean loss, in `train_until`
Cure = Callable[[Attempt], Iterator[Finding]]


@dataclass(frozen=True)
class Trained:
    """What came of `train(model, dataset)`."""

    evidence: Evidence
    reference: Reference


def learns(same_start: bool = True, losses: bool = False, clip: bool = False, counts: Sequence[int] = (COUNT,)) -> Cure:
    """`train(model, dataset)` deals the samples, and learns as one process does; its first finding is told.

    Args:
        same_start: whether the ranks get the same weights.
        losses: whether it returns the losses on rank 0.
        clip: whether the mean gradient is clipped.
        counts: how many samples there are, in a run of its own each.
    """

    def judge(attempt: Attempt) -> Iterator[Finding]:
        for count in counts:
            seen = _train(attempt, count, same_start, clip)
            finding = next(_trained_well(seen), None)
            if finding is None and losses:
                finding = next(_right_losses(seen), None)
            if finding is not None:
                yield finding
                return

    return judge


def _train(attempt: Attempt, count: int, same_start: bool, clip: bool) -> Trained:
    images, labels = samples.images(count, SIZES[-1], attempt.random, size=3)
    dataset = [torch.from_numpy(images).reshape(count, 9) / 255, torch.from_numpy(labels).long()]
    models = [samples.model(SIZES, attempt.random) for _ in range(WORLD_SIZE)]
    if same_start:
        models = models[:1] * WORLD_SIZE

    def inputs(rank: int) -> dict[str, Any]:
        return {"function": "train", "model": models[rank], "dataset": dataset, "arguments": []}

    (evidence,) = calling.run(attempt, Group(WORLD_SIZE, "training:train", inputs, probes={"training": {}}))
    make = _clipping if clip else lambda parameters: torch.optim.SGD(parameters, LR)
    return Trained(evidence, Reference(lambda: model_of(models[0]), dataset[0], dataset[1], cross_entropy, make))


def _trained_well(seen: Trained) -> Iterator[Finding]:
    yield from calling.finished(seen.evidence)
    idle = [number for number, rank in seen.evidence.ranks.items() if not rank.rounds]
    if idle:
        yield Finding("idle-rank", f"{ranks(idle).capitalize()} took no step.", "Which lines does each rank reach?")
        return
    yield from starting.equally_long(seen.evidence)
    yield from dealing.dealt(seen.evidence, EPOCHS, len(seen.reference.targets), BATCH_SIZE * WORLD_SIZE)
    yield from dealing.reshuffled(seen.evidence, EPOCHS)
    yield from dealing.batches(seen.evidence, BATCH_SIZE)
    yield from learning.same_start(seen.evidence)
    yield from learning.in_step(seen.evidence)
    yield from learning.as_one_process(seen.evidence, seen.reference)
    weights = [answer["weights"] for answer in calling.answers(seen.evidence)]
    if apart := [rank for rank, each in enumerate(weights) if not torch.allclose(each, weights[0], atol=1e-5)]:
        yield Finding(
            "drift",
            f"In the end the weights of {ranks(apart)} are not those of rank 0.",
            "After a step, do all ranks own the same weights? What would make them?",
        )


def _clipping(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, LR)

    def clip(*_: Any) -> None:
        clip_grad_norm_(parameters, CLIP)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def _right_losses(seen: Trained) -> Iterator[Finding]:
    """Rank 0 returns the mean loss over all ranks of each step."""
    told = numbers(calling.answers(seen.evidence)[0]["value"])
    steps = len(seen.evidence.ranks[0].rounds)
    if told is None or len(told) != steps:
        yield Finding(
            "no-losses", f"Rank 0 should return a list of {steps} floats.", "What did the patient return before?"
        )
        return
    model = seen.reference.model()
    for step, (loss, mine) in enumerate(zip(told, seen.evidence.ranks[0].rounds, strict=True)):
        if mine.weights is None:
            return
        torch.nn.utils.vector_to_parameters(mine.weights.clone(), model.parameters())
        rounds = [rank.rounds[step] for rank in seen.evidence.ranks.values()]
        losses = [_loss(seen, model, samples.ids(each.rows)) for each in rounds]
        if not abs(loss - sum(losses) / len(losses)) <= 1e-4:
            own = " It is that of rank 0 alone." if abs(loss - losses[0]) < 1e-4 else ""
            yield Finding(
                "other-loss",
                f"In step {step} the loss that was returned is not the mean over the ranks.{own}",
                "Which ranks must take part, so that rank 0 learns the mean?",
            )
            return


def _loss(seen: Trained, model: nn.Module, numbers: list[int | None]) -> float:
    batch = [number for number in numbers if number is not None]
    with torch.no_grad():
        return float(seen.reference.loss(model(seen.reference.inputs[batch]), seen.reference.targets[batch]))


def accuracy(attempt: Attempt) -> Iterator[Finding]:
    """`accuracy(model, dataset)` is on all ranks that of one process; the first samples are harder than the others."""
    exams = {world_size: _exam(attempt) for world_size in (3, 4)}

    def group(world_size: int) -> Group:
        model, dataset, _ = exams[world_size]
        inputs = {"function": "accuracy", "model": model, "dataset": dataset, "arguments": []}
        return Group(world_size, "training:train", lambda rank: inputs)

    found = calling.run(attempt, *map(group, exams))
    for (world_size, (_, dataset, right)), seen in zip(exams.items(), found, strict=True):
        for finding in calling.finished(seen):
            yield finding
            return
        values = [number(answer["value"]) for answer in calling.answers(seen)]
        wrong = [rank for rank, value in enumerate(values) if value is None or not abs(value - right) <= 1e-6]
        if wrong:
            value = values[wrong[0]]
            shown = "no number" if value is None else f"{value:.4f}"
            yield Finding(
                "other-accuracy",
                f"On {counted(world_size, 'rank')}, {counted(len(dataset[0]), 'sample')}, {ranks(wrong)} returned "
                f"{shown}; "
                f"one process finds {right:.4f}.",
                "Which samples are counted, how often, and how much does each weigh? Which ranks learn the sum?",
            )
            return


def _exam(attempt: Attempt) -> tuple[dict[str, Any], list[torch.Tensor], float]:
    """A model and samples that no small number of ranks divides; the first are mostly wrong, the last right."""
    count = int(attempt.random.choice([37, 41, 49, 53]))  # 1 more than a multiple of 4, none divides by 3
    model = samples.model(SIZES, attempt.random)
    inputs = torch.from_numpy(attempt.random.normal(0, 1, (count, 9))).float()
    with torch.no_grad():
        found = model_of(model)(inputs).argmax(1)
    hard = torch.from_numpy(attempt.random.random(count) < torch.linspace(1.0, 0.1, count).numpy())
    hard[:5], hard[-1] = True, False  # the shares of the ranks differ, and what fills them up is wrong
    targets = torch.where(hard, (found + 1) % SIZES[-1], found)
    return model, [inputs, targets], float((found == targets).double().mean())


def stops_together(attempt: Attempt) -> Iterator[Finding]:
    """`train_until(losses)` stops on all ranks after the first epoch whose mean loss is below the limit."""
    cases = {world_size: _losses(attempt, world_size) for world_size in (2, 3)}

    def group(world_size: int) -> Group:
        losses, _ = cases[world_size]
        name = "calls:call_once_in_group"
        return Group(world_size, name, lambda rank: {"function": "train_until", "arguments": [losses[rank], LIMIT]})

    found = calling.run(attempt, *map(group, cases))
    for (world_size, (_, right)), seen in zip(cases.items(), found, strict=True):
        for finding in calling.finished(seen):
            yield finding
            return
        values = [answer["value"] for answer in calling.answers(seen)]
        wrong = [rank for rank, value in enumerate(values) if type(value) is not int or value != right]
        if wrong:
            value = values[wrong[0]]
            shown = value if type(value) is int else f"a {type(value).__name__}"
            idea = "By which number do the ranks decide, and do all of them know it?"
            if set(map(repr, values)) == {repr(right - 1)}:
                idea = "Do you return how many epochs it took, or the number of the last one, counted from 0?"
            yield Finding(
                "other-epoch",
                f"The mean loss over the {counted(world_size, 'rank')} was below the limit after "
                f"{counted(right, 'epoch')}; "
                f"on {ranks(wrong)} the function returned {shown}.",
                idea,
            )
            return


def _losses(attempt: Attempt, world_size: int) -> tuple[list[list[float]], int]:
    """Losses that fall, on each rank at another pace; and after how many epochs their mean is below the limit."""
    while True:
        pace = attempt.random.uniform(0.05, 0.5, world_size)
        losses = [[float(1.2 * (1 - each) ** epoch) for epoch in range(12)] for each in pace]
        means = [sum(each) / world_size for each in zip(*losses, strict=True)]
        below = [epoch for epoch, mean in enumerate(means, start=1) if mean < LIMIT]
        own = {next((epoch for epoch, loss in enumerate(each, start=1) if loss < LIMIT), 12) for each in losses}
        if below and below[0] < 10 and below[0] not in own and len(own) == world_size:
            return losses, below[0]


def two_jobs(attempt: Attempt) -> Iterator[Finding]:
    """Two jobs at once, each of which adds up numbers of its own."""
    yield from _sums(attempt, (2, 2), nodes=1)


def two_nodes(attempt: Attempt) -> Iterator[Finding]:
    """One job on two nodes."""
    yield from _sums(attempt, (4,), nodes=2)


def _sums(attempt: Attempt, jobs: tuple[int, ...], nodes: int) -> Iterator[Finding]:
    """`total(number)` is called on each rank, and returns the sum over all ranks of its job."""
    numbers = [[int(each) for each in attempt.random.integers(1, 1000, ranks)] for ranks in jobs]

    def inputs(job: int) -> Callable[[int], dict[str, Any]]:
        return lambda rank: {"function": "total", "arguments": [numbers[job][rank]]}

    groups = [Group(size, "nodes:main", inputs(job), nodes) for job, size in enumerate(jobs)]
    found = calling.run(attempt, *groups, seconds=10.0)
    shared = set.intersection(*(set(_places(seen)) for seen in found))
    if len(jobs) > 1 and shared:
        yield Finding(
            "port",
            f"Two jobs ran at the same time, and both met at {min(shared)}, though each was told another port.",
            "Somebody may live at that address already. Who knows which one is free?",
        )
        return
    for job, seen in enumerate(found):
        where = f"In job {job} of {len(jobs)} that ran at the same time: " if len(jobs) > 1 else ""
        for finding in [*starting.joined(seen, jobs[job]), *calling.finished(seen)]:
            yield Finding(finding.fault, where + finding.seen, finding.idea)
            return
        values = [number(answer["value"]) for answer in calling.answers(seen)]
        wrong = [rank for rank, value in enumerate(values) if value != sum(numbers[job])]
        if wrong:
            yield Finding(
                "other-total",
                f"{where}{ranks(wrong).capitalize()} returned another number than the sum over all ranks.",
                "Who is in the group, and is each rank there once?",
            )
            return


def _places(seen: Evidence) -> Iterator[str]:
    """Where the ranks of a job met: addresses, or files."""
    for _, place in starting.meetings(seen):
        yield place
    for process in seen.record.processes:
        for event in process.of("joining"):
            if (method := event["given"].get("init_method", "")).startswith("file:"):
                yield method

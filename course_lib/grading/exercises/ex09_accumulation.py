"""Exercise 9: gradient accumulation. Several micro-batches for one step, and one exchange of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from course_lib.grading import calling, samples
from course_lib.grading.evidence import Evidence
from course_lib.grading.inside.harnesses.training import model_of
from course_lib.grading.laws.exchanges import exchanged
from course_lib.grading.laws.finding import Finding, counted, ranks
from course_lib.grading.laws.learning import ratio_of
from course_lib.grading.laws.replay import NEAR
from course_lib.grading.parts import Attempt, Check, Exercise, Part

SIZES = (8, 12, 3)
OPTIMIZER: dict[str, Any] = {"lr": 0.3, "momentum": 0.9}
MOST_BYTES = 1.3  # times those of the gradient: the mean loss, or the number of samples, may travel too
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """What a function is called with, and the steps that should come of it.

    Fields:
        calls: of each rank, the arguments of each call after model and optimizer.
        windows: of each step, the micro-batches of all ranks.
        steps: after each call, how many steps there should have been.
        values: what each call should return; None where that is not said.
    """

    function: str
    calls: list[list[list[Any]]]
    windows: list[list[Batch]]
    steps: list[int]
    values: list[int] | None = None


@dataclass(frozen=True)
class Run:
    """What came of a case."""

    case: Case
    evidence: Evidence
    model: dict[str, Any]


def run(attempt: Attempt, name: str, make: Callable[[np.random.Generator], Case]) -> Run:
    """The case on gloo ranks; run when it is first asked for."""
    return attempt.once(name, lambda: _run(attempt, make(attempt.random)))


def _run(attempt: Attempt, case: Case) -> Run:
    model = samples.model(SIZES, attempt.random)

    def inputs(rank: int) -> dict[str, Any]:
        return {"function": case.function, "model": model, "optimizer": OPTIMIZER, "calls": case.calls[rank]}

    group = calling.Group(len(case.calls), "training:steps", inputs, probes={"training": {}, "traffic": {}})
    return Run(case, calling.run(attempt, group)[0], model)


def batch(random: np.random.Generator, size: int) -> Batch:
    """A micro-batch: inputs [size, 8] that are not alike, and their classes."""
    scale = random.uniform(0.5, 2.0)  # so that it matters how much each micro-batch weighs
    inputs = torch.from_numpy(random.normal(0, scale, (size, SIZES[0]))).float()
    return inputs, torch.from_numpy(random.integers(0, SIZES[-1], size))


def one_step_a_call(random: np.random.Generator, world_size: int, function: str, even: bool) -> Case:
    """Calls with 4, 3, 1 and 2 micro-batches; of one size, or of many."""
    size = int(random.integers(3, 6))
    counts = [4, 3, 1, 2]
    sizes = {False: lambda: int(random.integers(1, 9)), True: lambda: size}[even]
    data = [[[batch(random, sizes()) for _ in range(count)] for count in counts] for _ in range(world_size)]
    windows = [[each for rank in data for each in rank[call]] for call in range(len(counts))]
    return Case(function, [[[each] for each in rank] for rank in data], windows, [1, 2, 3, 4])


def many_steps_a_call(random: np.random.Generator, world_size: int) -> Case:
    """Two epochs of 7 or 8 batches with a step after every 3, and one of 4 batches with a step after each."""
    size = int(random.integers(3, 6))
    epochs = [(int(random.integers(7, 9)), 3), (int(random.integers(4, 6)), 2), (4, 1)]
    data = [[[batch(random, size) for _ in range(count)] for count, _ in epochs] for _ in range(world_size)]
    windows = [
        [each for rank in data for each in rank[epoch][first : first + every]]
        for epoch, (count, every) in enumerate(epochs)
        for first in range(0, count, every)
    ]
    per_call = [-(-count // every) for count, every in epochs]
    calls = [[[rank[epoch], every] for epoch, (_, every) in enumerate(epochs)] for rank in data]
    return Case("train_epoch", calls, windows, list(accumulate(per_call)), per_call)


# The laws, of one run.


def as_one_process(seen: Run) -> Iterator[Finding]:
    """After each call the weights are those of one process that has the micro-batches of all ranks."""
    yield from calling.finished(seen.evidence)
    came = calling.answers(seen.evidence)
    if any(answer is None for answer in came):
        return
    expected = list(_replay(seen))
    for call, due in enumerate(seen.case.steps):
        after = [answer[call]["weights"] for answer in came]
        if strange := [rank for rank, weights in enumerate(after) if not bool(torch.isfinite(weights).all())]:
            seen_there = f"After call {call} the weights of {ranks(strange)} are no finite numbers."
            yield Finding("not-finite", seen_there, "What is divided by what? What grows with each step?")
            return
        apart = [rank for rank, weights in enumerate(after) if not torch.allclose(weights, after[0], atol=1e-5)]
        if apart:
            yield Finding(
                "drift",
                f"After call {call} the weights of {ranks(apart)} are not those of rank 0.",
                "Which micro-step is the one before the optimizer moves, and do the ranks talk in it?",
            )
            return
        before = expected[seen.case.steps[call - 1] - 1][1] if call else seen.model["weights"]
        right = expected[due - 1][1]
        if not float((after[0] - right).norm()) <= NEAR * float((right - before).norm()):
            yield _wrong(seen, call, expected)
            return


def _replay(seen: Run) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of each step of one process: the weights before and after it, and the gradient."""
    model = model_of(seen.model)
    optimizer = torch.optim.SGD(model.parameters(), **OPTIMIZER)
    for window in seen.case.windows:
        before = parameters_to_vector(model.parameters()).detach().clone()
        optimizer.zero_grad()
        inputs, targets = (torch.cat(each) for each in zip(*window, strict=True))
        cross_entropy(model(inputs), targets).backward()
        gradient = parameters_to_vector([each.grad for each in model.parameters()])  # type: ignore[misc]
        optimizer.step()
        yield before, parameters_to_vector(model.parameters()).detach().clone(), gradient


def _wrong(seen: Run, call: int, expected: Sequence[tuple[torch.Tensor, ...]]) -> Finding:
    """What kind of wrong step was taken, by the gradients that the optimizer had."""
    due = seen.case.steps[-1]
    taken = max(len(rank.process.of("step")) for rank in seen.evidence.ranks.values())
    if taken != due:
        return Finding(
            "number-of-steps",
            f"The optimizer took {counted(taken, 'step')} where {due} were due.",
            "After which micro-batches does the optimizer move, and what becomes of those that are left at the end?",
        )
    first = next(iter(seen.evidence.ranks.values()))
    for step, (event, (_, _, gradient)) in enumerate(zip(first.process.of("step"), expected, strict=False)):
        had = event["gradient"]
        if had is None or had.shape != gradient.shape or torch.allclose(had, gradient, rtol=NEAR, atol=1e-4):
            continue
        micro = len(seen.case.windows[step]) // len(seen.case.calls)
        ratio = ratio_of(had, gradient)
        words = f"In step {step}, of {micro} micro-batches a rank, the gradient is "
        if ratio is not None and abs(ratio - 1) > NEAR:
            return Finding(
                "scale",
                f"{words}{ratio:.3g} times that of one process with all of them at once.",
                "How many micro-batches, and how many ranks, add to this gradient, and who divides by what?",
            )
        return Finding(
            "other-gradient",
            f"{words}another one than that of one process with all of them at once.",
            "Which samples are in this gradient, does each weigh the same, and is anything left from the step before?",
        )
    return Finding(
        "other-update",
        f"After call {call} the weights are not those of one process that has the micro-batches of all ranks.",
        "Which gradients does the optimizer see, and how often does it move?",
    )


def one_exchange(seen: Run) -> Iterator[Finding]:
    """The gradients travel once a step, however many micro-batches there are."""
    wrong = next(as_one_process(seen), None)
    if wrong is not None:
        yield wrong
        return
    size = seen.model["weights"].nbytes
    due = seen.case.steps[-1]
    for number, rank in seen.evidence.ranks.items():
        sent = sum(exchanged(event) for kind in ("sent", "collective") for event in rank.process.of(kind))
        if sent > MOST_BYTES * size * due:
            yield Finding(
                "too-many-exchanges",
                f"Rank {number} took {counted(due, 'step')}, and exchanged {sent / size:.1f} times the gradient.",
                "Who makes the ranks talk, and need they after each micro-batch? Which context of DDP keeps them "
                "quiet, and until when?",
            )
            return


def right_count(seen: Run) -> Iterator[Finding]:
    """The function says how many steps it took."""
    yield from calling.finished(seen.evidence)
    for rank, answer in enumerate(calling.answers(seen.evidence)):
        for call, due in enumerate(seen.case.values or ()):
            value = answer[call]["value"] if answer else None
            if type(value) is not int or value != due:
                shown = value if type(value) in (int, float, type(None)) else f"a {type(value).__name__}"
                idea = "What becomes of the batches that are left at the end?"
                if type(value) is float and value == due:
                    idea = "A number of steps is an int. Where does the fraction come from?"
                elif call and value == seen.case.steps[call]:
                    idea = "Where does your count begin in the next call?"
                yield Finding(
                    "number-of-steps",
                    f"Call {call} on rank {rank} should take {counted(due, 'step')}, and returned {shown}.",
                    idea,
                )
                return


def holds(
    law: Callable[[Run], Iterable[Finding]], name: str, make: Callable[[np.random.Generator], Case]
) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that a law holds; only its first finding is told, since the others follow from it."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        finding = next(iter(law(run(attempt, name, make))), None)
        if finding is not None:
            yield finding

    return judge


def _even(random: np.random.Generator) -> Case:
    return one_step_a_call(random, 2, "accumulate", even=True)


def _even_on_three(random: np.random.Generator) -> Case:
    return one_step_a_call(random, 3, "accumulate", even=True)


def _uneven(random: np.random.Generator) -> Case:
    return one_step_a_call(random, 3, "accumulate_exactly", even=False)


def _epochs(random: np.random.Generator) -> Case:
    return many_steps_a_call(random, 2)


PARTS = (
    Part(
        "9.1",
        "One step from several micro-batches",
        ("accumulate",),
        (
            Check("a step on 2 ranks is that of one process with all samples", 2, holds(as_one_process, "2", _even)),
            Check("on 3 ranks too", 1, holds(as_one_process, "3", _even_on_three)),
            Check("the ranks exchange gradients once a step", 2, holds(one_exchange, "2", _even)),
        ),
        (
            "Gradients add up in `.grad` until somebody sets them to zero. What is the sum of k means?",
            "Divide each loss by the number of micro-batches of this step. DDP divides by the ranks already.",
            "All micro-batches but the last go under `model.no_sync()`, the forward pass too.",
        ),
        ("accumulate",),
    ),
    Part(
        "9.2",
        "An epoch",
        ("train-epoch",),
        (
            Check("each step is that of one process", 2, holds(as_one_process, "2", _epochs)),
            Check("the batches that are left make a step of their own", 1, holds(right_count, "2", _epochs)),
            Check("the ranks exchange gradients once a step", 2, holds(one_exchange, "2", _epochs)),
        ),
        (
            "Write down for 7 batches and a step after every 3: which batches belong to which step?",
            "The last step of an epoch may have fewer batches. By what is their loss divided?",
            "A batch is the last of its step if its number is the last of its three, or the last of all.",
        ),
        ("train_epoch",),
    ),
    Part(
        "9.3",
        "Each sample weighs the same",
        ("accumulate-exactly",),
        (Check("micro-batches of any size, on 3 ranks", 3, holds(as_one_process, "3", _uneven)),),
        (
            "A mean of means favours the samples of small batches.",
            "Add up the losses of samples, and divide by the number of all samples of the step, on all ranks.",
            "DDP divides by the number of ranks, whatever you do. What must you multiply by, so that nothing is left?",
        ),
        ("accumulate_exactly",),
    ),
)
EXERCISE = Exercise("09_accumulation", "Gradient accumulation", PARTS)

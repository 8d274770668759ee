"""Learning rates and numbers of steps against the right ones, and against what is mostly in their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, cos, pi, sqrt
from typing import Any

from course_lib.grading.laws.finding import Finding, counted
from course_lib.grading.laws.values import close, figure

TOLERANCE = 1e-4  # of a schedule in float32
FALLEN = 0.95  # of the peak: where a curve should be below that, one can see whether it falls


def right_rate(found: float, lr: float, base: int, batch: int, ranks: int, rule: str) -> Iterator[Finding]:
    """The rate that a rule gives."""
    powers = {"linear": 1.0, "sqrt": 0.5, "none": 0.0}
    k = batch * ranks / base
    if close(found, lr * k ** powers[rule]):
        return
    seen = (
        f"{rule}, {counted(ranks, 'rank')} with {counted(batch, 'sample')} each, tuned for {base}: the rate is "
        f"{figure(found / lr)} times the one that was given; it should be {figure(k ** powers[rule])} times."
    )
    instead = (
        ("other-rule", k if rule != "linear" else sqrt(k), "Which rule was asked for?"),
        ("other-rule", 1.0, "Is the rule used at all?"),
        ("batch-of-one-rank", (batch / base) ** powers[rule], "Whose batch is that: one rank's, or everybody's?"),
        ("ranks-only", ranks ** powers[rule], "Was the rate tuned for the batch that one rank has here?"),
        ("turned-round", 1 / k ** powers[rule], "Does a larger batch allow larger steps, or smaller ones?"),
        ("twice", k ** (2 * powers[rule]), "How often does the number of ranks come into it?"),
        ("whole-number", (batch * ranks // base) ** powers[rule], "What does `//` do with what is left?"),
    )
    for fault, factor, idea in instead:
        if close(found / lr, factor):
            yield Finding(fault, seen, idea)
            return
    yield Finding("wrong-rate", seen, "By which factor is the global batch larger than the one that it was tuned for?")


def steps_of(samples: int, ranks: int, batch: int, drop: bool) -> int:
    """As DistributedSampler deals, and a loader that treats the rest of its samples alike."""
    return samples // ranks // batch if drop else ceil(ceil(samples / ranks) / batch)


def miscounted(seen: str, found: float, samples: int, ranks: int, batch: int, drop: bool) -> Finding:
    """Another number of steps than it should be."""
    if ranks > 1 and (close(found, samples // batch) or close(found, ceil(samples / batch))):
        return Finding(
            "not-sharded", seen, "That many batches are in the whole data. How many of them does one rank take?"
        )
    if (
        close(found, steps_of(samples, ranks, batch, not drop))
        or abs(found - steps_of(samples, ranks, batch, drop)) <= 1
    ):
        return Finding("rounding", seen, "What becomes of the samples, and then of the batch, that is left over?")
    return Finding("wrong-count", seen, "How many samples does a rank have, and how many batches are these?")


def factor(step: int, warmup: int, total: int) -> float:
    """What the peak is multiplied by."""
    if step < warmup:
        return (step + 1) / warmup
    return (1 + cos(pi * (step - warmup) / (total - warmup))) / 2


def off_the_curve(found: float, step: int, warmup: int, total: int) -> Finding:
    """Another rate than it should be, as a part of the peak."""
    expected = factor(step, warmup, total)
    seen = (
        f"Step {step} of {total}, with {counted(warmup, 'step')} of warm-up: the rate is {figure(found)} times the "
        f"peak; it should "
        f"be {figure(expected)} times."
    )
    if step < warmup:
        if close(found, step / warmup) or (step == 0 and found == 0):
            return Finding("starts-at-zero", seen, "Does the first step move anything? Steps are counted from 0.")
        if close(found, _cosine(step, total)) or close(found, 1.0):
            return Finding("no-warm-up", seen, "What holds in the first steps, and is it asked before the rest?")
        return Finding(
            "wrong-warm-up", seen, "It is a straight line. Where is it in the first step of all, and where in the last?"
        )
    if close(found, _cosine(step, total)):
        return Finding("decay-from-start", seen, "At which step does the way down begin, and how long is it?")
    if close(found, 1.0, 1e-3) and expected < FALLEN:
        return Finding("no-decay", seen, "Where does the curve end?")
    if close(found, 1 - (step - warmup) / (total - warmup)):
        return Finding("straight-decay", seen, "Which curve leaves the peak slowly and comes to rest slowly?")
    return Finding(
        "wrong-decay", seen, "How far along the way down is this step, from 0 at its beginning to 1 at its end?"
    )


def _cosine(step: int, total: int) -> float:
    return (1 + cos(pi * step / total)) / 2


def right_schedule(rates: Sequence[float], given: Sequence[Any]) -> Iterator[Finding]:
    """All rates of a training; told by what is most visible."""
    samples, ranks, batch, epochs, warmup_epochs, lr, base = given
    steps = steps_of(samples, ranks, batch, False)
    total, warmup = epochs * steps, warmup_epochs * steps
    peak = lr * batch * ranks / base
    expected = [peak * factor(step, warmup, total) for step in range(total)]
    if len(rates) == total and all(
        close(one, other, TOLERANCE) or abs(one - other) < 1e-6 * peak
        for one, other in zip(rates, expected, strict=True)
    ):
        return
    length = f"{counted(steps, 'step')} an epoch, {warmup_epochs} of {counted(epochs, 'epoch')}"
    seen = f"{counted(ranks, 'rank')}, {length} to warm up:"
    if not rates or not close(max(rates), peak, TOLERANCE):
        top = figure(max(rates) / lr) if rates else "nothing"
        yield Finding(
            "wrong-peak",
            f"{seen} the largest rate is {top} times the one that was given; it should be {figure(peak / lr)} times.",
            "Which batch was the rate tuned for, and which one is taken here by all ranks together?",
        )
    elif not close(rates.index(max(rates)) + 1, warmup) and rates.index(max(rates)) != warmup:
        yield Finding(
            "peak-elsewhere",
            f"{seen} the peak comes in step {rates.index(max(rates))}; "
            f"the warm-up is over after {counted(warmup, 'step')}.",
            "How many steps does a rank take in the epochs of the warm-up?",
        )
    elif rates[-1] > expected[-1] + (1 - FALLEN) * peak:
        yield Finding(
            "does-not-end",
            f"{seen} the last rate is {figure(rates[-1] / peak)} of the peak; it should be nearly nothing.",
            "How long does the schedule think that the training is?",
        )
    else:
        falling = all(one >= other for one, other in pairwise(rates[warmup:]))
        yield Finding(
            "wrong-shape",
            f"{seen} peak and end are right, and what is between {'falls otherwise' if falling else 'does not fall'}.",
            "Take the rate of each step from part 6.3.",
        )

"""Exercise 11: the clinic. Programs with one fault each: it is named, then mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from course_lib.grading.exercises import cures
from course_lib.grading.laws.finding import Finding, listed
from course_lib.grading.parts import Attempt, Broken, Check, Exercise, Part, answers_of
from course_lib.grading.sandbox import Program

# What a fault may be called, and what it is; the notebook has the same table.
FAULTS = {
    "same-samples": "the ranks read the same samples",
    "same-order": "each epoch has the same order",
    "different-start": "the ranks begin with different weights",
    "no-average": "the gradients of a rank are its own",
    "sum": "gradients are added up, and not divided",
    "divided-twice": "gradients are divided twice",
    "clipped-early": "each rank clips its own gradient before the average",
    "uneven-steps": "the ranks take different numbers of steps",
    "missing-rank": "not all ranks reach a line where all are awaited",
    "own-decision": "each rank decides by its own figures when to stop",
    "mean-of-means": "shares of different size weigh the same",
    "padding": "samples that only fill a share up are counted",
    "wrong-receiver": "a rank reads a result that only another one gets",
    "fixed-address": "two programs want the same address",
    "local-rank": "the rank on the node is taken for the rank among all",
    "many-writers": "several ranks write one file",
    "loaded-on-one": "only one rank loads what was saved",
    "schedule": "the schedule counts the steps of one process",
}


def named(variable: str, *right: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check that the fault, as this variable says, has one of these names."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        inputs = {"code": attempt.code, "name": variable}
        record = attempt.run([Program(harness="calls:value_of", inputs=inputs)], seconds=5.0)
        try:
            said = answers_of(record)[0]
        except Broken as error:
            yield error.finding
            return
        fault = said.get("value")
        if type(fault) is not str or not fault:
            yield Finding("no-name", f"`{variable}` is not set to a name.", "Choose a name from the table at the top.")
        elif fault.strip() not in FAULTS:
            yield Finding(
                "unknown-name",
                f"{fault[:40]!r} is not in the table.",
                f"The names are {listed(FAULTS, len(FAULTS))}.",
            )
        elif fault.strip() not in right:
            yield Finding(
                "other-fault",
                f"{fault.strip()!r}: {FAULTS[fault.strip()]}. That is not what this one suffers from.",
                "Follow the lines for rank 0, then for rank 1. Where do the two first differ, or fail to?",
            )

    return judge


def _patient(
    number: int, title: str, fault: tuple[str, ...], mended: str, cure: cures.Cure, hints: tuple[str, str, str]
) -> Part:
    variable = f"fault_{number}"  # of its own, by which `check` finds the cell: several patients have a `train`
    checks = (Check("the fault has its name", 1, named(variable, *fault)), Check(mended, 2, cure))
    return Part(f"11.{number}", title, (f"patient-{number}",), checks, hints, (variable,))


LEARNS = "all ranks together learn as one process"
EXACT = "the accuracy is that of one process, on any number of ranks"
PARTS = (
    _patient(
        1,
        "No faster than before",
        ("same-samples",),
        LEARNS,
        cures.learns(),
        (
            "The loss falls nicely, and four ranks take as long as one. How many samples does each read?",
            "Who tells the loader which samples are for this rank?",
            "A `DistributedSampler` takes the place of `shuffle=True`, and must be told the epoch.",
        ),
    ),
    _patient(
        2,
        "Every day the same",
        ("same-order",),
        LEARNS,
        cures.learns(),
        (
            "Print the first batch of two epochs.",
            "The sampler shuffles by its seed and by a number that somebody has to tell it.",
            "That number is the epoch.",
        ),
    ),
    _patient(
        3,
        "Talking past the translator",
        ("no-average",),
        LEARNS,
        cures.learns(),
        (
            "After a step, do all ranks have the same weights?",
            "DDP sees what goes through it. What goes past it?",
            "The forward pass whose loss is used must go through the wrapper.",
        ),
    ),
    _patient(
        4,
        "Big steps",
        ("sum",),
        LEARNS,
        cures.learns(),
        (
            "The more ranks, the wilder the loss. How long is a step?",
            "Compare the gradient with that of one process that has all samples.",
            "`all_reduce` adds up. Who divides?",
        ),
    ),
    _patient(
        5,
        "Runners from different lines",
        ("different-start",),
        LEARNS,
        cures.learns(same_start=False),
        (
            "Every rank takes the same steps. Why do they not meet?",
            "Print the first weight on each rank before the first step.",
            "DDP hands out the weights of rank 0 when it is made. Here nobody does.",
        ),
    ),
    _patient(
        6,
        "The last batch never comes",
        ("uneven-steps",),
        LEARNS,
        cures.learns(counts=(25, 23)),
        (
            "How many samples has each rank, and how many batches is that?",
            "A rank that has finished sends no gradient, and the others wait for it.",
            "Fill all shares up to the same length, or cut them to it.",
        ),
    ),
    _patient(
        7,
        "The log that stops the run",
        ("missing-rank",),
        "the run ends, and the losses are the means over all ranks",
        cures.learns(losses=True),
        (
            "Which ranks reach each line? Mark the lines where one waits for the others.",
            "`all_reduce` is for all: all must call it, not only the one that wants to know.",
            "All ranks add up; then one of them writes it down.",
        ),
    ),
    _patient(
        8,
        "Home early",
        ("own-decision", "missing-rank"),
        "all ranks stop together, by the mean loss",
        cures.stops_together,
        (
            "Rank 1 is content after two epochs, rank 0 after four. What does rank 0 wait for in the third?",
            "All ranks must decide by the same number.",
            "Average the loss over the ranks before it is compared.",
        ),
    ),
    _patient(
        9,
        "Almost the right accuracy",
        ("mean-of-means",),
        EXACT,
        cures.accuracy,
        (
            "Five papers: three are marked by one teacher, two by another. Whose mean counts more?",
            "Try it with 3 and 2 samples: 2 of 3 are right, and 1 of 2.",
            "Add up what was correct and how many there were, separately.",
        ),
    ),
    _patient(
        10,
        "A few papers too many",
        ("padding",),
        EXACT,
        cures.accuracy,
        (
            "How many samples are counted, and how many are there?",
            "A sampler that makes all shares equally long has to take some samples twice.",
            "Nobody waits in an evaluation: here shares may be of different length.",
        ),
    ),
    _patient(
        11,
        "Promised to one",
        ("wrong-receiver",),
        EXACT,
        cures.accuracy,
        (
            "With two ranks it may even look right. Print what each rank has, on four.",
            "`reduce` brings the result to one rank. What do the others have in their tensor then?",
            "There is a collective that brings it to all.",
        ),
    ),
    _patient(
        12,
        "Address in use",
        ("fixed-address",),
        "two jobs on one machine do not meet",
        cures.two_jobs,
        (
            "Alone it runs. What happens when a second one is started beside it?",
            "Who knows which port is free: this program, or whoever started it?",
            "torchrun sets MASTER_ADDR and MASTER_PORT. Leave them as they are.",
        ),
    ),
    _patient(
        13,
        "Fine on one node",
        ("local-rank",),
        "four ranks on two nodes are one group",
        cures.two_nodes,
        (
            "On each of two nodes there is a local rank 0.",
            "Which of the variables of torchrun counts through all nodes?",
            "LOCAL_RANK is for the GPU; the group is about RANK.",
        ),
    ),
    _patient(
        14,
        "Cut before they meet",
        ("clipped-early",),
        LEARNS + " that clips",
        cures.learns(clip=True),
        (
            "One rank meets a huge gradient, the other a small one. What is left of the difference?",
            "One process would clip the gradient of the whole batch.",
            "First the mean over all ranks, then the clipping.",
        ),
    ),
)
EXERCISE = Exercise("11_clinic", "The clinic", PARTS)

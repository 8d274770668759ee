"""What has to hold of the files that the program of exercise 4 reads and writes, and of what they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch.nn.utils import vector_to_parameters

from course_lib.grading.exercises.program_laws import trained
from course_lib.grading.exercises.program_runs import Run, one_gpu, run, tensors
from course_lib.grading.laws import learning, replay, reporting, starting, writing
from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import Attempt, Broken, answers_of
from course_lib.grading.sandbox import Program


def prepared(seen: Run) -> Iterator[Finding]:
    """The images of a node are unpacked by one process, and read by all when that is done."""
    yield from starting.started(seen.evidence, seen.setting.world_size)
    yield from writing.prepared_once(seen.evidence, "data")
    yield from trained(seen)
    for node in range(seen.setting.nodes):
        if any(f"node{node}/data/{name}.npy" not in seen.evidence.record.files for name in seen.data):
            yield Finding(
                "not-prepared",
                f"The images were not unpacked into the folder data of node {node}.",
                "Each node has a disk of its own. Which of its processes unpacks the data there?",
            )


def speed(seen: Run) -> Iterator[Finding]:
    """The speed that is reported is that of all ranks."""
    yield from trained(seen)
    said = _reported(seen, "images_per_sec")
    if isinstance(said, Finding):
        yield said
    else:
        yield from reporting.speed(seen.evidence, said)


def accuracy(seen: Run) -> Iterator[Finding]:
    """The accuracy that is reported is that over all validation images."""
    yield from trained(seen)
    said = _reported(seen, "val_accuracy")
    if isinstance(said, Finding):
        yield said
        return
    images, labels = tensors(seen, "val")
    first = min(seen.evidence.ranks)
    known = {rank: reporting.weights_after(each, seen.setting.epochs) for rank, each in seen.evidence.ranks.items()}
    yield from learning.same_model([weights for each in known.values() for weights in each], one_gpu().WideResNet())
    outputs = [None if weights is None else _outputs(weights, images) for weights in known[first]]
    for epoch, asked in enumerate(reporting.evaluated_by(seen.evidence, seen.setting.epochs)):
        mine, answers = known[first][epoch], outputs[epoch]
        for rank, weights in ((rank, each[epoch]) for rank, each in known.items()):
            if mine is None or answers is None or weights is None or torch.equal(weights, mine):
                continue
            # Where the weights of ranks differ, the answer to an image is that of the rank which was asked for it.
            own = [image for image, by in asked.items() if by == rank and image < len(labels)]
            answers[own] = _outputs(weights, images)[own]
    yield from reporting.accuracy(said, outputs, labels)


def _outputs(weights: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """What the model says of images, [n, 10], with these weights."""
    model = one_gpu().WideResNet()
    vector_to_parameters(weights.clone(), model.parameters())
    with replay.as_in_the_sandbox(), torch.no_grad():
        answers: torch.Tensor = model(images)
    return answers


def _reported(seen: Run, name: str) -> list[float] | Finding:
    """What result.json says of each epoch; or why it does not."""
    read = reporting.entries(seen.files.get("result.json"), [name], seen.setting.epochs)
    if isinstance(read, Finding):
        return next(starting.ended(seen.evidence), read)
    return [each[name] for each in read]


def one_writer(seen: Run) -> Iterator[Finding]:
    """Each file of results is written by one process."""
    yield from trained(seen)
    for path in ("model.pt", "result.json"):
        for finding in writing.one_writer(seen.evidence, path, seen.files):
            if finding.fault == "not-written":
                yield from starting.ended(seen.evidence)
            yield finding


def saved(attempt: Attempt) -> Iterator[Finding]:
    """What was saved is the model of the last epoch, for a program without DDP; only what is found first is told."""
    yield from islice(_saved(attempt, run(attempt, "2")), 1)


def _saved(attempt: Attempt, seen: Run) -> Iterator[Finding]:
    yield from trained(seen)
    content = seen.files.get("model.pt")
    if content is None:
        yield Finding(
            "not-written", "There is no model.pt.", "Which process saves the model, and does it get that far?"
        )
        return
    program = Program(harness="checkpoint:weights", inputs="model.pt")
    try:
        (given,) = answers_of(attempt.run([program], {"model.pt": content}))
    except Broken as error:
        yield Finding(
            "torn-file",
            f"model.pt cannot be read with weights_only: {error.finding.seen.splitlines()[-1]}",
            "How many processes write this file at once, and what do they put into it?",
        )
        return
    model = one_gpu().WideResNet()
    first = seen.evidence.ranks[min(seen.evidence.ranks)]
    weights = reporting.weights_after(first, seen.setting.epochs)[-1]
    yield from learning.same_model([weights], model)
    if weights is not None:
        vector_to_parameters(weights.clone(), model.parameters())
    expected = {name: each.detach() for name, each in model.named_parameters()}
    yield from reporting.same_weights(given, expected, known=weights is not None)

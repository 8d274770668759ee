"""Exercise 10: save and resume. One writer, a file that is always whole, and a run that goes on as if never stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from course_lib.grading import calling, samples
from course_lib.grading.calling import Group, first
from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.exercises import checkpoints
from course_lib.grading.exercises.checkpoints import near
from course_lib.grading.inside.harnesses.training import model_of
from course_lib.grading.laws import dealing, learning
from course_lib.grading.laws.finding import Finding, counted, ranks
from course_lib.grading.laws.replay import Reference
from course_lib.grading.parts import Attempt, Broken, Check, Exercise, Part

SIZES = (9, 6, 3)
COUNT, BATCH_SIZE, LR = 22, 4, 0.1
STOPPED, EPOCHS = 2, 4


@dataclass(frozen=True)
class Trainings:
    """What came of `train`: never stopped; stopped; resumed from there on 2 and on 3 ranks; and with nothing to do."""

    straight: Evidence
    stopped: Evidence
    resumed: Evidence
    on_three: Evidence
    nothing_left: Evidence
    reference: Reference


def trainings(attempt: Attempt) -> Trainings:
    """The training runs; made when they are first asked for."""
    return attempt.once("trainings", lambda: _trainings(attempt))


def _trainings(attempt: Attempt) -> Trainings:
    images, labels = samples.images(COUNT, 3, attempt.random, size=3)
    dataset = [torch.from_numpy(images).reshape(COUNT, 9) / 255, torch.from_numpy(labels).long()]
    model = samples.model(SIZES, attempt.random, 0.3)

    def group(world_size: int, epochs: int, path: str) -> Group:
        inputs = {"function": "train", "model": model, "dataset": dataset, "arguments": [epochs, path]}
        return Group(world_size, "training:train", lambda rank: inputs, probes={"training": {}, "files": {}})

    straight, stopped = calling.run(attempt, group(2, EPOCHS, "a.pt"), group(2, STOPPED, "b.pt"), collect=("b.pt",))
    for evidence in (straight, stopped):
        for finding in calling.finished(evidence):
            raise Broken(finding)
    saved = stopped.record.files.get("b.pt")
    if saved is None:
        raise Broken(
            Finding("no-file", "A run of 2 epochs ended, and left no file.", "When does `train` save, and where?")
        )
    files = {"c.pt": saved, "d.pt": saved, "e.pt": saved}
    later = (group(2, EPOCHS, "c.pt"), group(3, EPOCHS, "d.pt"), group(1, STOPPED, "e.pt"))
    resumed, on_three, nothing_left = calling.run(attempt, *later, files=files)
    reference = Reference(
        lambda: model_of(model), dataset[0], dataset[1], cross_entropy, lambda each: torch.optim.SGD(each, LR, 0.9)
    )
    return Trainings(straight, stopped, resumed, on_three, nothing_left, reference)


def learns(attempt: Attempt) -> Iterator[Finding]:
    """Without a stop, the ranks learn as one process does, and deal the data in each epoch."""
    seen = trainings(attempt)
    yield from _trained(seen.straight)
    yield from dealing.dealt(seen.straight, EPOCHS, COUNT, 2 * BATCH_SIZE)
    yield from dealing.reshuffled(seen.straight, EPOCHS)
    yield from dealing.batches(seen.straight, BATCH_SIZE)
    yield from learning.same_start(seen.straight)
    yield from learning.in_step(seen.straight)
    yield from learning.as_one_process(seen.straight, seen.reference)


def saves_often(attempt: Attempt) -> Iterator[Finding]:
    """The state is saved after each epoch."""
    seen = trainings(attempt)
    yield from _trained(seen.straight)
    events = [event for rank in seen.straight.ranks.values() for event in rank.process.of("wrote")]
    times = {how: sum(event["path"] == "a.pt" and event["how"] == how for event in events) for how in ("open", "move")}
    if max(times.values()) < EPOCHS:
        yield Finding(
            "saved-rarely",
            f"In {counted(EPOCHS, 'epoch')} the file was written {max(times.values())} times.",
            "What is lost if the power fails in the last epoch?",
        )


def goes_on(attempt: Attempt) -> Iterator[Finding]:
    """Stopped and resumed is the same as never stopped."""
    seen = trainings(attempt)
    yield from _continued(seen, seen.resumed)
    straight, resumed = seen.straight.ranks[0], seen.resumed.ranks[0]
    per_epoch = len(straight.rounds) // EPOCHS
    due = _order(straight)[STOPPED * per_epoch :]
    if _order(resumed) != due:
        again = _order(resumed)[:per_epoch] == _order(straight)[:per_epoch]
        yield Finding(
            "order",
            f"Resumed after epoch {STOPPED - 1}, rank 0 read "
            + ("the samples of epoch 0 again." if again else "other samples than it would have without the stop."),
            "Who shuffles, and how does it know at which epoch the run goes on?",
        )
        return
    one, other = (calling.answers(each)[0]["weights"] for each in (seen.straight, seen.resumed))
    if not near(one, other):
        yield Finding(
            "other-weights",
            "The resumed run read the right samples from the right start, and came to other weights "
            "than the one that never stopped.",
            "What else than the weights does a step depend on?",
        )
        return
    yield from calling.finished(seen.nothing_left)
    if any(rank.rounds for rank in seen.nothing_left.ranks.values()):
        yield Finding(
            "epochs",
            f"{STOPPED} of {counted(STOPPED, 'epoch')} were done, so nothing was left to do, and the run trained.",
            "What does the loop do where it begins at its end?",
        )


def on_other_ranks(attempt: Attempt) -> Iterator[Finding]:
    """A run can go on on another number of ranks."""
    seen = trainings(attempt)
    yield from _continued(seen, seen.on_three)
    yield from dealing.dealt(seen.on_three, EPOCHS - STOPPED, COUNT, 3 * BATCH_SIZE)
    yield from learning.in_step(seen.on_three)


def _continued(seen: Trainings, resumed: Evidence) -> Iterator[Finding]:
    """It takes the epochs that are left, from the weights that were saved, on all ranks."""
    yield from _trained(resumed)
    yield from dealing.batches(resumed, BATCH_SIZE)
    yield from learning.same_start(resumed)
    world_size = len(resumed.ranks)
    at_least, at_most = COUNT // (BATCH_SIZE * world_size), -(-COUNT // (BATCH_SIZE * world_size))
    left = EPOCHS - STOPPED
    taken = len(resumed.ranks[0].rounds)
    if not left * at_least <= taken <= left * at_most:
        yield Finding(
            "epochs",
            f"{STOPPED} of {counted(EPOCHS, 'epoch')} were done; resumed on {counted(world_size, 'rank')}, the run "
            f"took {counted(taken, 'step')}, "
            f"which are not those of {counted(left, 'epoch')}.",
            "At which epoch does the loop begin?",
        )
        return
    saved = calling.answers(seen.stopped)[0]["weights"]
    start = resumed.ranks[0].rounds[0].weights
    if start is None or not near(start, saved):
        yield Finding(
            "other-weights",
            f"Resumed on {counted(world_size, 'rank')}, the run did not begin with the weights that were saved.",
            "What is loaded, into which model, and is anything done to it afterwards?",
        )


def _trained(evidence: Evidence) -> Iterator[Finding]:
    yield from calling.finished(evidence)
    idle = [number for number, rank in evidence.ranks.items() if not rank.rounds]
    if idle:
        yield Finding("idle-rank", f"{ranks(idle).capitalize()} took no step.", "At which epoch does the loop begin?")


def _order(rank: Rank) -> list[list[int | None]]:
    return [samples.ids(each.rows) for each in rank.rounds]


PARTS = (
    Part(
        "10.1",
        "Save",
        ("save",),
        (
            Check("a program without DDP can read the file", 2, first(checkpoints.readable)),
            Check("one process writes it", 1, first(checkpoints.one_writer)),
            Check("no rank goes on before it is whole", 1, first(checkpoints.awaited)),
            Check("killed while it writes, it leaves the checkpoint before", 2, first(checkpoints.always_whole)),
        ),
        (
            "Which rank writes, what do the others do meanwhile, and what if the power fails in between?",
            "`model.module` is the model without the wrapper. After a barrier all ranks know that all came so far.",
            "Write to another name in the same folder; `os.replace` then gives it the right one in one moment.",
        ),
        ("save",),
    ),
    Part(
        "10.2",
        "Load",
        ("save", "load"),
        (
            Check("all ranks have the saved weights", 2, first(checkpoints.same_state)),
            Check("the optimizer goes on as if nothing had been", 1, first(checkpoints.optimizer_goes_on)),
            Check("each rank knows how many epochs are done", 1, first(checkpoints.epochs_known)),
            Check("where there is no file, nothing is loaded", 1, first(checkpoints.from_nothing)),
        ),
        (
            "The wrapper copied the weights of rank 0 once, when it was made. What happens to later changes?",
            "Every rank can read a file. Many may read at a time.",
            "Load into `model.module` and into the optimizer, on each rank. Return the number that is in the file.",
        ),
        ("save", "load"),
    ),
    Part(
        "10.3",
        "A run that goes on",
        ("save", "load", "train"),
        (
            Check("without a stop it learns as one process does", 1, first(learns)),
            Check("it saves after each epoch", 1, first(saves_often)),
            Check("stopped and resumed is the same as never stopped", 3, first(goes_on)),
            Check("it goes on on another number of ranks", 2, first(on_other_ranks)),
        ),
        (
            "What does an epoch depend on? Weights, optimizer, and one more thing.",
            "The sampler shuffles by its seed and by the epoch. `range` can begin at another number than 0.",
            "Load before the loop; loop from the epochs that are done to `epochs`; save at the end of each.",
        ),
        ("save", "load", "train"),
    ),
)
EXERCISE = Exercise("10_save_and_resume", "Save and resume", PARTS)

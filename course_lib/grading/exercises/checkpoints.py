"""Laws of saving and loading: one writer, a file that is always whole, and all of it back on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.grading import calling, samples
from course_lib.grading.calling import Group
from course_lib.grading.evidence import Evidence, Rank
from course_lib.grading.inside.harnesses.checkpoints import BUFFER
from course_lib.grading.inside.harnesses.training import model_of
from course_lib.grading.laws.finding import Finding, counted_were, ranks
from course_lib.grading.parts import Attempt, Broken
from course_lib.grading.sandbox import Program

SAVED, KILLED = "whole/last.pt", "killed/last.pt"
LARGE, SMALL = (9, 900, 3), (9, 6, 3)  # layers; of the large one the file has more than 100 kB
SAME = 1e-5


@dataclass(frozen=True)
class Saves:
    """What came of `save`: in a run that ends well, and in one that is killed; and what is in the files then."""

    whole: Evidence
    killed: Evidence
    inputs: dict[str, Any]
    files: dict[str, bytes]
    read: dict[str, dict[str, Any]]


def saves(attempt: Attempt) -> Saves:
    """The runs that save; made when they are first asked for."""
    return attempt.once("saves", lambda: _saves(attempt))


def _saves(attempt: Attempt) -> Saves:
    common = {"function": "save", **_state(attempt, LARGE), "batches": [_batch(attempt) for _ in range(2)]}
    inputs = {**common, "path": SAVED, "killed": False}
    probes: calling.Probes = {"files": {}}
    whole, killed = calling.run(
        attempt,
        Group(3, "checkpoints:save", lambda rank: inputs, probes=probes),
        Group(2, "checkpoints:save", lambda rank: {**inputs, "path": KILLED, "killed": True}, probes=probes),
        collect=(SAVED, KILLED),
    )
    files = whole.record.files
    reader = Program(harness="checkpoints:read", inputs={"paths": [SAVED, KILLED]})
    read = attempt.run([reader], files).program().of("returned") if files else []
    found = dict(zip((SAVED, KILLED), read[0]["value"], strict=True)) if read else {}
    return Saves(whole, killed, inputs, files, found)


def readable(attempt: Attempt) -> Iterator[Finding]:
    """The file holds the state as the text says it, for a program without DDP."""
    seen = saves(attempt)
    yield from calling.finished(seen.whole)
    if SAVED not in seen.files:
        yield Finding("no-file", "There was no file at the path that `save` got.", "Which rank writes it, and where?")
        return
    content = seen.read.get(SAVED, {})
    checkpoint = content.get("value")
    if not isinstance(checkpoint, dict):
        said = content.get("error") or f"It holds a {type(checkpoint).__name__}."
        yield Finding("unreadable", f"The file cannot be read. {said}", "How many ranks write to it at a time?")
        return
    missing = [name for name in ("model", "optimizer", "epochs_done") if name not in checkpoint]
    if missing:
        yield Finding("missing-entry", f"The file has no {missing[0]!r}.", "What does a run need to go on from here?")
        return
    yield from _right_model(checkpoint["model"], calling.answers(seen.whole)[0][1])
    if checkpoint["epochs_done"] != 2 or type(checkpoint["epochs_done"]) is not int:
        yield Finding(
            "epochs", "'epochs_done' is not the number that was given.", "Which number should a run go on from?"
        )
    state = checkpoint["optimizer"]
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict) or not state["state"]:
        yield Finding(
            "no-optimizer", "'optimizer' has no state of an optimizer.", "What does AdamW remember from step to step?"
        )


def _right_model(state: Any, saved: dict[str, Any]) -> Iterator[Finding]:
    model = model_of({"sizes": LARGE, "weights": torch.zeros_like(saved["weights"])})
    names = [*model.state_dict(), BUFFER]
    if isinstance(state, dict) and set(state) == {*names[:-1]}:
        idea = "What does a model keep besides its weights, and who lists it?"
        yield Finding("keys", f"'model' has no {BUFFER!r}, a buffer of the model.", idea)
        return
    if not isinstance(state, dict) or set(state) != set(names):
        other = next((name for name in state if name not in names), "") if isinstance(state, dict) else state
        yield Finding(
            "keys",
            f"'model' cannot be loaded into a model without DDP: it has the key {str(other)[:60]!r}.",
            "Does the file still wear the wrapper?",
        )
        return
    values = [state[name] for name in names]
    weights = torch.cat([saved["weights"], saved["buffer"]])
    if not all(type(value) is torch.Tensor for value in values) or not near(
        torch.cat([value.reshape(-1).float() for value in values]), weights
    ):
        yield Finding(
            "other-weights", "The saved weights are not those of the model when it was saved.", "When was this copied?"
        )


def one_writer(attempt: Attempt) -> Iterator[Finding]:
    """One process writes to the path."""
    seen = saves(attempt)
    yield from calling.finished(seen.whole)
    folder = SAVED.partition("/")[0]
    writers = [
        number
        for number, rank in seen.whole.ranks.items()
        if any(_below(event, folder) and event["how"] in ("open", "move") for event in rank.process.of("wrote"))
    ]
    if len(writers) > 1:
        yield Finding(
            "several-writers",
            f"{ranks(writers).capitalize()} wrote to the same place.",
            "How many pens may there be on one page?",
        )
    elif not writers:
        yield Finding("no-file", "No rank wrote a file to the folder of the path.", "Which rank writes, and where?")


def awaited(attempt: Attempt) -> Iterator[Finding]:
    """When `save` returns, on any rank, the file is there and whole."""
    seen = saves(attempt)
    yield from calling.finished(seen.whole)
    early = [rank for rank, answer in enumerate(calling.answers(seen.whole)) if not answer[0]["there"]]
    if early:
        yield Finding(
            "not-awaited",
            f"On {ranks(early)} `save` returned, and there was no whole file yet.",
            "One rank writes. How do the others learn that it is done?",
        )


def always_whole(attempt: Attempt) -> Iterator[Finding]:
    """Killed while it writes, it leaves the checkpoint before that."""
    seen = saves(attempt)
    yield from calling.finished(seen.whole)
    content = seen.read.get(KILLED, {}).get("value")
    done = content.get("epochs_done") if isinstance(content, dict) else None
    if done not in (1, 2):
        what = "there was no file" if KILLED not in seen.files else "the file could not be read"
        yield Finding(
            "not-atomic",
            f"A process was killed while it wrote the second checkpoint. Afterwards {what}; the first was lost.",
            "Where can a file grow that nobody reads yet, and how does it get its name in one moment?",
        )
        return
    in_place = [
        number
        for number, rank in seen.whole.ranks.items()
        if _times(rank, "open") > 1 or _times(rank, "remove")  # the first time there is nothing to lose
    ]
    if in_place:
        yield Finding(
            "not-atomic",
            f"{ranks(in_place).capitalize()} wrote the new checkpoint over the old one: for a while there is none.",
            "Where can a file grow that nobody reads yet, and how does it get its name in one moment?",
        )


def loads(attempt: Attempt) -> tuple[Evidence, Evidence, list[dict[str, Any]]]:
    """The runs that load what the student's `save` saved, on 3 ranks and on 2 without a file; and what saved it."""
    return attempt.once("loads", lambda: _loads(attempt))


def _loads(attempt: Attempt) -> tuple[Evidence, Evidence, list[dict[str, Any]]]:
    common = {**_state(attempt, SMALL), "batches": [_batch(attempt) for _ in range(3)]}
    to_save = {**common, "function": "save", "path": SAVED, "killed": False}
    (saved,) = calling.run(attempt, Group(2, "checkpoints:save", lambda rank: to_save), collect=(SAVED,))
    for finding in calling.finished(saved):
        raise Broken(finding)
    if SAVED not in saved.record.files:
        raise Broken(Finding("no-file", "`save` of 10.1 left no file to load.", "Mend 10.1 first."))
    new = _state(attempt, SMALL)
    other = {**common, "function": "load", "model": new["model"], "buffer": new["buffer"], "lr": 0.05}
    there, nothing = calling.run(
        attempt,
        Group(3, "checkpoints:load", lambda rank: {**other, "path": SAVED}),
        Group(2, "checkpoints:load", lambda rank: {**other, "path": "none/last.pt"}),
        files=saved.record.files,
    )
    return there, nothing, calling.answers(saved)[0]


def same_weights(attempt: Attempt) -> Iterator[Finding]:
    """All ranks have the saved weights."""
    there, _, saved = loads(attempt)
    yield from calling.finished(there)
    came = calling.answers(there)
    wrong = [rank for rank, answer in enumerate(came) if not near(answer["weights"], saved[-2]["weights"])]
    if wrong:
        idea = "DDP hands out the weights of one rank when it is made, and never again. Which ranks read the file?"
        if len(wrong) == len(came):
            idea = "Whose weights were saved, and where do they go?"
        yield Finding("other-weights", f"After `load`, {ranks(wrong)} did not have the weights that were saved.", idea)


def same_state(attempt: Attempt) -> Iterator[Finding]:
    """All ranks have the saved weights, and the buffers."""
    yield from same_weights(attempt)
    there, _, saved = loads(attempt)
    came = calling.answers(there)
    if wrong := [rank for rank, answer in enumerate(came) if not near(answer["buffer"], saved[0]["buffer"])]:
        seen = f"After `load`, {ranks(wrong)} did not have the model's buffer {BUFFER!r} that was saved."
        yield Finding("other-buffer", seen, "What is in a state dict besides what is trained?")


def optimizer_goes_on(attempt: Attempt) -> Iterator[Finding]:
    """The next step is the one that would have come without the stop."""
    yield from same_weights(attempt)
    there, _, saved = loads(attempt)
    wrong = [
        rank
        for rank, answer in enumerate(calling.answers(there))
        if not near(answer["after"], saved[-1]["weights"], 1e-4)
    ]
    if wrong:
        yield Finding(
            "other-step",
            f"The first step after `load` was another one than the run would have taken, on {ranks(wrong)}.",
            "What else than the weights does a step depend on? Do all ranks have it?",
        )


def epochs_known(attempt: Attempt) -> Iterator[Finding]:
    """Each rank learns how many epochs are done."""
    there, _, saved = loads(attempt)
    yield from calling.finished(there)
    values = [answer["value"] for answer in calling.answers(there)]
    wrong = [rank for rank, value in enumerate(values) if _whole(value) != len(saved) - 1]
    if wrong:
        idea = "Which ranks know how many epochs were done?"
        if len(wrong) == len(values):
            idea = "Which number is in the file, and is it what `load` returns?"
        yield Finding(
            "epochs",
            f"{counted_were(len(saved) - 1, 'epoch')} done; on {ranks(wrong)} `load` returned "
            f"{_shown(values[wrong[0]])}.",
            idea,
        )


def from_nothing(attempt: Attempt) -> Iterator[Finding]:
    """Where there is no file, nothing was done."""
    _, nothing, _ = loads(attempt)
    yield from calling.finished(nothing)
    for rank, answer in enumerate(calling.answers(nothing)):
        if _whole(answer["value"]) != 0:
            yield Finding(
                "epochs",
                f"There was no file, and on rank {rank} `load` returned {_shown(answer['value'])} instead of 0.",
                "How many epochs are done before the first?",
            )
            return
        if not near(answer["buffer"], answer["buffer_before"]):
            yield Finding("other-buffer", f"There was no file, and {BUFFER!r} changed.", "What is there to load?")
            return
        if not near(answer["weights"], answer["before"]):
            yield Finding("other-weights", "There was no file, and the weights changed.", "What is there to load?")
            return


def _times(rank: Rank, how: str) -> int:
    return sum(event["path"] == SAVED and event["how"] == how for event in rank.process.of("wrote"))


def _below(event: dict[str, Any], folder: str) -> bool:
    return str(event["path"]).startswith(folder + "/")


def near(one: torch.Tensor, other: torch.Tensor, tolerance: float = SAME) -> bool:
    """Whether two tensors are equal but for rounding."""
    return one.shape == other.shape and bool((one - other).abs().max() <= tolerance)


def _whole(value: Any) -> int | None:
    """A whole number, whatever it comes in; None where it is none."""
    if type(value) is torch.Tensor and value.numel() == 1 and not value.is_floating_point():
        return int(value)
    return value if type(value) is int else None


def _shown(value: Any) -> str:
    return repr(value) if type(value) in (int, float, type(None)) else f"a {type(value).__name__}"


def _state(attempt: Attempt, sizes: tuple[int, ...]) -> dict[str, Any]:
    """A model with random weights, a buffer of its, a learning rate, and the batch of the step after the last."""
    buffer = torch.from_numpy(attempt.random.normal(0, 1, 3)).float()
    return {"model": samples.model(sizes, attempt.random, 0.3), "buffer": buffer, "lr": 0.01, "next": _batch(attempt)}


def _batch(attempt: Attempt) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.from_numpy(attempt.random.normal(0, 1, (6, 9))).float()
    return inputs, torch.from_numpy(attempt.random.integers(0, 3, 6))

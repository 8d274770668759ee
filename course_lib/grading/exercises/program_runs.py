"""The runs of exercise 4: the program as a user would start it, on little data, on so many ranks and nodes."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from course_lib.grading import samples
from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.replay import Reference
from course_lib.grading.laws.starting import ended
from course_lib.grading.parts import Attempt, Broken
from course_lib.grading.sandbox import Program, Record

PATH = "train.py"
BATCH_SIZE = 4
VAL = 13  # images
SECONDS = 25.0
RATES = {"sgd": 0.1, "adamw": 0.01}  # so that a few steps change what the model says, and not more
OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
SLOW = {"slow": {"1": 0.1}, "slow_evaluation": {"1": 0.3}}  # seconds: a pass of rank 1; others take a few milliseconds
SLOW_WRITES = 0.25  # seconds
FAILS_IN_PASS = NAN_IN_PASS = 1
Probes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """How the program is started.

    Fields:
        ranks: of each node, or of each copy.
        images: to train on. No number of ranks divides them, and who does not repeat any has a batch less on some.
        copies: programs that know nothing of each other, at the same time.
        mirrored: for a rank, the pass of training in which its images are given backwards (see
            inside/probes/training.py), so that it has images which no other knows of.
        addressed: whether it is told where its processes meet; of copies the first is not told.
        unpacked: whether the images are there as they are after `prepare`; otherwise the program has to unpack them.
    """

    ranks: int
    images: int
    nodes: int = 1
    copies: int = 1
    optimizer: str = "sgd"
    epochs: int = 2
    addressed: bool = True
    unpacked: bool = True
    mirrored: Mapping[int, int] = field(default_factory=dict)
    probes: Probes = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.ranks * self.nodes


SETTINGS = {
    "1": Setting(1, images=9, copies=2, epochs=1),
    "2": Setting(2, images=25, mirrored={1: 1}),
    "3": Setting(3, images=13, optimizer="adamw", probes={"disturbances": SLOW}),
    "2x2": Setting(2, images=17, nodes=2, epochs=1, probes={"disturbances": SLOW}),
    "gpus": Setting(2, images=9, nodes=2, epochs=1, probes={"gpus": {"count": 2}}),
    "cold": Setting(
        2, images=17, nodes=2, epochs=1, unpacked=False, probes={"disturbances": SLOW, "files": {"slow": SLOW_WRITES}}
    ),
    "failing": Setting(2, images=17, addressed=False, probes={"disturbances": {"fails": {"1": FAILS_IN_PASS}}}),
    "nan": Setting(2, images=25, epochs=1, probes={"disturbances": {"not_a_number": {"1": NAN_IN_PASS}}}),
}
WITHIN = {"2x2": "cold"}  # a program that keeps a law in the second run keeps it in the first, which need not be made


@dataclass(frozen=True)
class Run:
    """One run of the student's program.

    Fields:
        evidence: of its ranks; of the first copy, where there are copies.
        copies: of each copy.
        data: the arrays that it was given.
        seed: what it was given as --base-seed.
        host: where its nodes were told to meet.
        files: what it wrote, by path; those of the first node come first.
    """

    evidence: Evidence
    copies: list[Evidence]
    setting: Setting
    data: dict[str, np.ndarray]
    seed: int
    host: str
    files: dict[str, bytes]


def run(attempt: Attempt, name: str) -> Run:
    """The run of this name, made when it is first asked for.

    Raises:
        Broken: a run with no more nodes did not get as far as training, since all of it waited for ever, and not
            because of images that were not there.
    """
    made: list[Run] = attempt.once("runs", list)

    def make() -> Run:
        setting = SETTINGS[name]
        for before in made:
            stuck = before.evidence.record.why == "time" and not before.evidence.trained
            if stuck and before.setting.unpacked and before.setting.nodes <= setting.nodes:
                raise Broken(next(ended(before.evidence)))
        made.append(_run(attempt, setting))
        return made[-1]

    seen: Run = attempt.once(name, make)
    return seen


def _run(attempt: Attempt, setting: Setting) -> Run:
    data = _data(setting.images, attempt.random)
    seed, port = (int(attempt.random.integers(*bounds)) for bounds in ((0, 100_000), (20_000, 29_000)))
    # Linux answers at all of these, and a program that has an address of its own in it is seen to.
    host = f"127.0.0.{attempt.random.integers(2, 255)}" if sys.platform == "linux" else "localhost"
    mirrored = {str(rank): number for rank, number in setting.mirrored.items()}
    programs = [
        Program(
            path=PATH,
            folder=f"node{place}",
            argv=[
                *("--num-gpus", str(setting.ranks), "--num-nodes", str(setting.nodes)),
                *("--node-id", str(place if setting.nodes > 1 else 0), "--batch-size", str(BATCH_SIZE)),
                *("--lr", str(RATES[setting.optimizer]), "--base-seed", str(seed)),
                *("--epochs", str(setting.epochs), "--optimizer", setting.optimizer),
            ],
            environ=_address(setting, place, host, port, attempt.isolated),
            probes={"group": {}, "training": {"mirrored": mirrored}, "files": {}, **setting.probes},
        )
        for place in range(setting.nodes * setting.copies)
    ]
    given = _files(attempt.code, data, setting.unpacked)
    placed = {f"{program.folder}/{path}": content for program in programs for path, content in given.items()}
    unpacked = () if setting.unpacked else [f"data/{name}.npy" for name in data]
    wanted = [f"{program.folder}/{path}" for program in programs for path in ("result.json", "model.pt", *unpacked)]
    record = attempt.run(programs, placed, SECONDS, wanted)
    copies = [_part(record, place) for place in range(setting.copies)] if setting.copies > 1 else [Evidence(record)]
    written = {path.partition("/")[2]: record.files[path] for path in reversed(wanted) if path in record.files}
    return Run(copies[0], copies, setting, data, seed, host, written)


def _address(setting: Setting, place: int, host: str, port: int, isolated: bool) -> dict[str, str]:
    told = setting.addressed and (setting.copies == 1 or place > 0)
    if not told and isolated:  # where it is not, others may have taken the usual port
        return {}
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port + place * (setting.copies > 1))}


def _part(record: Record, program: int) -> Evidence:
    return Evidence(replace(record, processes=[each for each in record.processes if each.program == program]))


def _data(images: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Images of two classes: a model that has learnt which two has some of the validation images right, but not all."""
    classes = random.choice(10, 2, replace=False).astype(np.uint8)
    train_images, train_labels = samples.images(images, 2, random)
    val_images, _ = samples.images(VAL, 2, random)
    val_labels = random.permutation(np.arange(VAL) % 2)
    return {
        "train_images": train_images,
        "train_labels": classes[train_labels],
        "val_images": val_images,
        "val_labels": classes[val_labels],
    }


def _files(code: str, data: dict[str, np.ndarray], unpacked: bool) -> dict[str, bytes]:
    packed = io.BytesIO()
    np.savez(packed, **data)  # type: ignore[arg-type]  # numpy's stubs mistake names for options
    given = {PATH: code.encode(errors="replace"), "fashion_mnist.npz": packed.getvalue()}
    for name, values in data.items() if unpacked else ():
        file = io.BytesIO()
        np.save(file, values)
        given[f"data/{name}.npy"] = file.getvalue()
    return given


# What one process would do.


@cache
def one_gpu() -> ModuleType:
    """The program that students begin with: what one process would do is what it does."""
    module = ModuleType("one_gpu")
    source = files("course_lib.grading.programs").joinpath("one_gpu.py")
    exec(compile(source.read_text(), "one_gpu.py", "exec"), module.__dict__)
    return module


def reference(seen: Run) -> Reference:
    """One process that is given the same data and options."""
    images, labels = tensors(seen, "train")
    kind, lr = OPTIMIZERS[seen.setting.optimizer], RATES[seen.setting.optimizer]
    model, mirrored = one_gpu().WideResNet, seen.setting.mirrored
    return Reference(model, images, labels, cross_entropy, lambda parameters: kind(parameters, lr=lr), mirrored)


def tensors(seen: Run, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The images [n, 1, 8, 8] and labels [n] of a part of the data, as the model gets them."""
    images, labels = (torch.from_numpy(seen.data[f"{part}_{what}"]) for what in ("images", "labels"))
    return images[:, None] / 255, labels.long()

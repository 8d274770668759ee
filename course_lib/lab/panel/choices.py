"""What the controls of the Scaling Lab say: a run, a sweep, what follows from them, and what of it is impossible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from course_lib.config import SIMULATED, RunConfig, untimed_steps
from course_lib.errors import ConfigError, CourseError, DataError, UsageError
from course_lib.lab.explain.accuracy_rules import HIGH_PEAK_LR
from course_lib.runs import devices, estimates
from course_lib.runs.estimates import Estimate, Memory
from course_lib.runs.launch import Prepared, prepare
from course_lib.runs.plan import Sweep
from course_lib.runs.profiles import Profile
from course_lib.scaling.speedup import FEW_STEPS

GIB = 2**30
TITLES = {
    "num_gpus": "GPUs per node",
    "num_nodes": "Nodes",
    "batch_size": "Batch size",
    "lr": "Learning rate",
    "lr_rule": "Learning-rate rule",
    "warmup_epochs": "Warm-up epochs",
    "epochs": "Epochs",
    "model": "Model",
    "data_share": "Share of the data",
    "scaling": "Scaling",
    "device": "Device",
    "hardware": "Simulated hardware",
    "repeats": "Repeats",
    "seed": "Seed",
}
# Fields of RunConfig and Sweep that a control stands for under another name.
CONTROL_OF = {"train_samples": "data_share", "seeds": "seed", "data": "data_share"}
CPU_IMAGES = 6_000  # with SmallCNN and three epochs, ten seconds on a core
# Which controls a fact follows from: where one of them is impossible, the fact is not known.
RANKS = ("num_gpus", "num_nodes")
BATCH = (*RANKS, "batch_size", "scaling", "device", "data_share")
FOLLOWS_FROM = {
    "images": ("data_share",),
    "world_size": RANKS,
    "global_batch_size": BATCH,
    "steps_per_epoch": BATCH,
    "peak_lr": (*BATCH, "lr", "lr_rule"),
    "memory": (*BATCH, "model", "hardware"),
}


@dataclass(frozen=True)
class Choices:
    """What the controls say, possible or not: nothing is checked before a config or a sweep is made of it.

    Fields: as in RunConfig, but for
        batch_size: of each rank; in strong scaling of all ranks together, who share it.
        data_share: which share of the training images is used, above 0 and up to 1.
        scaling: "weak" keeps the batch of each rank as ranks are added, "strong" that of all together, and with it
            the learning rate, whatever the rule.
        hardware: counts only where device is "simulated".
        repeats: how often each run is made.
    """

    num_gpus: Any = 1
    num_nodes: Any = 1
    batch_size: Any = 64
    lr: Any = 0.05
    lr_rule: Any = "linear"
    warmup_epochs: Any = 0.5
    epochs: Any = 3
    model: Any = "small_cnn"
    data_share: Any = 1.0
    scaling: Any = "weak"
    device: Any = "auto"
    hardware: Any = None
    repeats: Any = 1
    seed: Any = 0

    @classmethod
    def suitable(cls) -> Choices:
        """What to begin with on this machine: two devices, if there are, and a run of seconds."""
        gpus = devices.gpu_count()
        if gpus:
            return cls(num_gpus=min(2, gpus))
        try:
            share = min(1.0, round(CPU_IMAGES / estimates.train_size(), 2))
        except DataError:  # told beside the control
            share = 1.0
        return cls(num_gpus=min(2, devices.core_count()), data_share=share)

    def with_(self, **changes: Any) -> Choices:
        """A copy with some controls changed.

        Raises:
            ConfigError: there is no such control.
        """
        return self.from_dict(self.to_dict() | changes)

    def to_dict(self) -> dict[str, Any]:
        """Each control and what it says."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Choices:
        """The choices that `to_dict` wrote; a control that is missing says what it says at first.

        Raises:
            ConfigError: there is no such control.
        """
        unknown = [name for name in values if name not in TITLES]
        if unknown:
            raise ConfigError(f"The Scaling Lab has no control {', '.join(map(repr, unknown))}.")
        return cls(**values)

    def config(self) -> RunConfig:
        """The run that is chosen.

        Raises:
            UsageError: a choice is impossible; `field` says which, as RunConfig and Sweep name it.
            DataError: the data is damaged.
        """
        return self.sweep((self.num_gpus,)).plan("")[0].config

    def sweep(self, num_gpus: Sequence[int] = (1, 2), guesses: Mapping[int, float] | None = None) -> Sweep:
        """The same on these numbers of GPUs per node, each with the speedup that was guessed of it, if it was.

        Raises:
            UsageError, DataError: as `config`.
        """
        base = RunConfig(
            num_gpus=self.num_gpus,
            num_nodes=self.num_nodes,
            batch_size=self.batch_size,
            lr=self.lr,
            lr_rule=self.lr_rule,
            warmup_epochs=self.warmup_epochs,
            epochs=self.epochs,
            model=self.model,
            train_samples=_images(self.data_share),
            device=self.device,
            hardware=self.hardware if self.device == SIMULATED else None,
            seed=self.seed,
        )
        return Sweep(base, tuple(num_gpus), scaling=self.scaling, repeats=self.repeats, guesses=guesses or {})


def _images(share: Any) -> int | None:
    """How many images this share of the training set is; None for all."""
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
        raise ConfigError(f"data_share must be a number above 0 and up to 1, not {share!r}.", "data_share")
    return None if share == 1 else max(1, round(share * estimates.train_size()))


@dataclass(frozen=True)
class Consequences:
    """What follows from choices, as far as it can be known.

    Fields:
        config: the run; None if it is impossible.
        images, world_size, global_batch_size, steps_per_epoch, peak_lr: None where a choice keeps it from being known.
        seconds: how long one run takes here.
        simulated_seconds: how long it takes on the simulated hardware.
        memory: what the device with most ranks needs.
        notes: sentences worth reading before the run.
        warnings: by control, why its choice is hardly wise.
        problems: by control, why its choice is impossible.
    """

    config: RunConfig | None = None
    images: int | None = None
    world_size: int | None = None
    global_batch_size: int | None = None
    steps_per_epoch: int | None = None
    peak_lr: float | None = None
    seconds: Estimate | None = None
    simulated_seconds: float | None = None
    memory: Memory | None = None
    notes: tuple[str, ...] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        """Whether the run can be made."""
        return not self.problems


def consequences(choices: Choices, frame: pd.DataFrame | None = None, profile: Profile | None = None) -> Consequences:
    """What follows from the choices; all that is impossible is told, and nothing is raised.

    Args:
        choices: what the controls say.
        frame: earlier runs (see store.py), and
        profile: what calibrate measured, to tell the time from.
    """
    prepared, problems = _examine(choices)
    if prepared is None:
        return Consequences(problems=problems)
    facts: dict[str, Any] = {
        "images": prepared.images,
        "world_size": prepared.config.world_size,
        "global_batch_size": prepared.config.global_batch_size,
        "steps_per_epoch": estimates.steps_per_epoch(prepared),
        "peak_lr": estimates.peak_lr(prepared.config),
        "memory": estimates.memory(prepared),
    }
    facts = {name: value for name, value in facts.items() if not problems.keys() & {*FOLLOWS_FROM[name]}}
    if problems:
        return Consequences(**facts, problems=problems)
    try:
        simulated = estimates.simulated_seconds(prepared)
    except UsageError as error:  # of a profile whose figures cannot be
        return Consequences(**facts, problems={"hardware": str(error)})
    return Consequences(
        **facts,
        config=prepared.config,
        seconds=estimates.seconds(prepared, frame, profile),
        simulated_seconds=simulated,
        notes=tuple(_notes(choices, prepared)),
        warnings=_warnings(choices, prepared, facts["memory"]),
    )


def _examine(choices: Choices) -> tuple[Prepared | None, dict[str, str]]:
    """What is impossible, by control, and the run with the first choice instead of each of these.

    No run where even that is impossible. What is only wrong because of another wrong choice is not told.
    """
    problems: dict[str, str] = {}
    mended: set[str] = set()
    while True:
        try:
            return prepare(choices.config()), problems
        except CourseError as error:
            name = getattr(error, "field", None) or ("data" if isinstance(error, DataError) else "device")
            control = CONTROL_OF.get(name, name)
            if control not in TITLES:
                control = "device"
            if not any(re.search(rf"\b{other}\b", str(error)) for other in mended - {control}):
                problems.setdefault(control, in_titles(str(error)))
            if control in mended:
                return None, problems
            mended.add(control)
            choices = choices.with_(**{control: getattr(Choices(), control)})


def in_titles(message: str) -> str:
    """An error's sentence with the names of controls as people read them."""
    names = {name: title for name, title in TITLES.items() if "_" in name or name == "lr"}
    names |= {name: TITLES[control] for name, control in CONTROL_OF.items() if "_" in name}
    pattern = rf"\b({'|'.join(names)})\b"
    inside = re.sub(pattern, lambda found: _within_a_sentence(names[found[1]]), message)
    return inside[:1].upper() + inside[1:]


def _within_a_sentence(title: str) -> str:
    return title if title[:2].isupper() else title[0].lower() + title[1:]


def _notes(choices: Choices, prepared: Prepared) -> Iterator[str]:
    config = prepared.config
    if config.simulated:
        yield f"What is learned is real; the times are those of the scaling model for {config.hardware}."
    elif config.device == "auto" and prepared.places[0].device == "cpu":
        yield "There is no GPU here: each rank is a CPU rank, which takes one core."
    if choices.scaling == "strong" and config.world_size > 1:
        yield (
            f"The {config.world_size} ranks share a global batch of {config.global_batch_size} images, "
            f"{config.batch_size} each, so the learning rate stays what it is."
        )
    if rest := prepared.images % config.global_batch_size:
        yield f"The last step of each epoch has {rest} images, the others {config.global_batch_size}."


def _warnings(choices: Choices, prepared: Prepared, memory: Memory) -> dict[str, str]:
    """By control, why a choice is hardly wise; the most important where there are several."""
    config, warnings = prepared.config, {}
    steps = config.epochs * estimates.steps_per_epoch(prepared)
    timed = steps - untimed_steps(steps)
    if timed < FEW_STEPS and not config.simulated:
        warnings["data_share"] = (
            f"Only {timed} of {steps} steps would be timed, too few to say much about speed. Take more of the data, "
            "more epochs or a smaller batch."
        )
    for caveat in devices.speed_caveats(prepared.places):
        control = "num_nodes" if "nodes" in caveat else "num_gpus"
        warnings[control] = f"This is no measurement of speed: {caveat}."
    peak = estimates.peak_lr(config)
    if config.optimizer == "sgd" and peak >= HIGH_PEAK_LR:
        warnings["lr"] = (
            f"The peak learning rate is {peak:.3g}. From {HIGH_PEAK_LR} on, many short runs learn nothing. Take a "
            "lower one, or another rule."
        )
    if not memory.fits:
        warnings["batch_size"] = (
            f"This takes about {memory.bytes / GIB:.1f} GiB of memory, and {memory.device} has "
            f"{memory.capacity / GIB:.1f} GiB. Take a smaller batch or fewer ranks."
        )
    return warnings

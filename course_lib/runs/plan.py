"""What a sweep is made of: a grid over ranks, batch sizes, learning rates and seeds, repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod
from typing import Any

from course_lib.config import RunConfig
from course_lib.errors import ConfigError

SCALINGS = ("weak", "strong")
THIS_MACHINE = "this-machine.json"  # where calibrate writes its profile, and the Scaling Lab looks for it
MAX_RUNS = 10_000  # more would take weeks, and the plan is made as a whole


@dataclass(frozen=True)
class Planned:
    """One run of a sweep: the name of its folder, its config, and the labels recorded with it."""

    name: str
    config: RunConfig
    labels: dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A grid of runs around `base`.

    Fields:
        base: what all runs have in common.
        num_gpus: GPUs per node; `base.num_nodes` holds for all.
        batch_size: per rank in weak scaling; of all ranks together, the global batch, in strong scaling.
        lr, seeds: learning rates and seeds. Where none are given, the base's own is taken, as for the others.
        scaling: "weak" keeps the batch per rank as ranks are added, "strong" the global batch, of which
            each rank takes its share.
        repeats: how often the whole grid is run.
        guesses: the speedup that somebody expects of a number of GPUs, recorded with its runs. The sweep is the same
            whatever was guessed.

    All runs of one repeat come before the next repeat, so that on a noisy machine the configurations
    take turns. No run writes checkpoints. `threads_per_rank` is the base's for every number of ranks. In
    strong scaling `lr_rule` is "none": the global batch stays, so the learning rate must stay too.

    Raises:
        ConfigError: a value is wrong, the runs are too many, or a global batch cannot be shared out evenly; names it.
    """

    base: RunConfig
    num_gpus: tuple[int, ...] = (1, 2)
    batch_size: tuple[int, ...] = ()
    lr: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    scaling: str = "weak"
    repeats: int = 3
    guesses: Mapping[int, float] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        base = self.base
        own = {"num_gpus": base.num_gpus, "batch_size": base.batch_size, "lr": base.lr, "seeds": base.seed}
        for name, value in own.items():
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)) or (value,))
        if self.scaling not in SCALINGS:
            raise ConfigError(f"scaling must be one of {', '.join(SCALINGS)}, not {self.scaling!r}.", "scaling")
        if type(self.repeats) is not int or self.repeats < 1:
            raise ConfigError(f"repeats must be a whole number from 1 on, not {self.repeats!r}.", "repeats")
        for guess in self.guesses.values():
            if not 0 < guess < inf:
                raise ConfigError(f"A guess of a speedup must be a finite number above 0, not {guess!r}.", "guesses")
        grid = (self.num_gpus, self.batch_size, self.lr, self.seeds)
        _refuse_too_many(self.repeats * prod(map(len, grid)))
        self.plan("")

    def plan(self, name: str) -> list[Planned]:
        """The runs in the order in which they are made; `name` is the sweep's."""
        grid = product(range(self.repeats), self.seeds, self.lr, self.batch_size, self.num_gpus)
        return [
            Planned(
                f"g{num_gpus}-b{batch_size}-lr{lr}-s{seed}-r{repeat}",
                self._config(num_gpus, batch_size, lr, seed),
                {"sweep": name, "scaling": self.scaling, "repeat": repeat, **self._guess(num_gpus)},
            )
            for repeat, seed, lr, batch_size, num_gpus in grid
        ]

    def _guess(self, num_gpus: int) -> dict[str, float]:
        return {"guess": self.guesses[num_gpus]} if num_gpus in self.guesses else {}

    def _config(self, num_gpus: int, batch_size: int, lr: float, seed: int) -> RunConfig:
        config = self.base.with_(num_gpus=num_gpus, batch_size=batch_size, lr=lr, seed=seed, checkpoint=False)
        return _share_out(config) if self.scaling == "strong" else config

    def to_dict(self) -> dict[str, Any]:
        """All that makes the plan, as JSON holds it: the fields of the sweep, and of the base those that it keeps."""
        grid = {name: list(getattr(self, name)) for name in ("num_gpus", "batch_size", "lr", "seeds")}
        base = {name: value for name, value in self.base.to_dict().items() if name not in ("seed", "checkpoint")}
        return {**base, **grid, "scaling": self.scaling, "repeats": self.repeats}


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple | range):
        raise ConfigError(
            f"{name} of a sweep must be a list of values, not {values!r}. For one value, write [{values!r}].",
            name,
        )
    _refuse_too_many(len(values))
    numbers = tuple(float(value) if name == "lr" and type(value) is int else value for value in values)
    if len(set(map(repr, numbers))) < len(numbers):  # not all that may stand there by mistake can be hashed
        raise ConfigError(
            f"{name} of a sweep names a value twice: {list(values)}. To run it again, raise repeats.", name
        )
    return numbers


def _refuse_too_many(runs: int) -> None:
    if runs > MAX_RUNS:
        raise ConfigError(
            f"A sweep makes at most {MAX_RUNS:,} runs, and this one has {runs:,}. Name fewer values, or lower repeats.",
            "repeats",
        )


def _share_out(config: RunConfig) -> RunConfig:
    """The config in which all ranks together take `batch_size` images a step."""
    shares = config.world_size * config.accumulation_steps
    if config.batch_size % shares:
        accumulated = f" x accumulation_steps {config.accumulation_steps}" if config.accumulation_steps > 1 else ""
        raise ConfigError(
            f"In strong scaling batch_size is the global batch, and {config.batch_size} cannot be shared out evenly "
            f"among {config.world_size} ranks{accumulated}. Take a multiple of {shares}.",
            "batch_size",
        )
    return config.with_(batch_size=config.batch_size // shares, lr_rule="none")

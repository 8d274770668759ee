"""The clock of a simulated run: how long its steps would take on the hardware that it simulates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from course_lib.config import RunConfig
from course_lib.errors import ConfigError
from course_lib.training.costs import flops_per_sample, gradient_bytes
from course_lib.training.data import passes

# A backward pass takes two matrix products for each one of the forward pass.
FORWARD_SHARE = 1 / 3


class SimulatedClock:
    """Stands still until it is told which step was taken. Times are the scaling model's, without noise.

    Raises:
        ConfigError: `config.hardware` is no profile.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._flops, self._bytes = flops_per_sample(config.model), gradient_bytes(config.model)
        self._now = 0.0
        self._known: dict[int, dict[str, float]] = {}  # an epoch has steps of two sizes

    def now(self) -> float:
        """Seconds since it was made."""
        return self._now

    def step(self, samples: int) -> Iterator[str]:
        """A step over so many images, of all ranks, goes by: gives each phase when it ends."""
        if samples not in self._known:
            self._known[samples] = self._predict(samples)
        for phase, seconds in self._known[samples].items():
            self._now += seconds
            yield phase

    def _predict(self, samples: int) -> dict[str, float]:
        """Seconds in each phase. What of the communication no computation hides, and stragglers, end the backward."""
        config = self._config
        accumulation = passes(samples, config.world_size, config.batch_size)
        local_batch = ceil(samples / config.world_size / accumulation)
        hardware = find(config.hardware)
        compute = hardware.step_overhead_s + accumulation * local_batch * self._flops / hardware.flops_per_s
        bandwidth = hardware.inter if config.num_nodes > 1 else hardware.intra
        n = config.world_size
        waiting = 2 * (n - 1) * (hardware.latency + self._bytes / n / bandwidth)
        forward = FORWARD_SHARE * compute
        return {"data": 0.0, "forward": forward, "backward": compute - forward + waiting, "optimizer": 0.0}


@dataclass(frozen=True)
class Hardware:
    """A stand-in."""

    name: str
    flops_per_s: float
    step_overhead_s: float
    intra: float
    inter: float
    latency: float


PROFILES = {"a100": Hardware("a100", 30e12, 4e-4, 230e9, 20e9, 2e-6)}
DEFAULT = "a100"


def find(name: str | None) -> Hardware:
    """A stand-in."""
    if name not in PROFILES:
        raise ConfigError(f"hardware must be one of {', '.join(PROFILES)}, not {name!r}.")
    return PROFILES[name]

"""The clock of a simulated run: how long its steps would take on the hardware that it simulates."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from course_lib.config import RunConfig
from course_lib.scaling.collectives import all_reduce_seconds
from course_lib.scaling.hardware import DEFAULT, find
from course_lib.training.costs import flops_per_sample, gradient_bytes
from course_lib.training.data import passes

# A backward pass takes two matrix products for each one of the forward pass.
FORWARD_SHARE = 1 / 3


class SimulatedClock:
    """Stands still until it is told which step was taken. Times are the scaling model's, without noise.

    Attributes:
        hardware: what is simulated.

    Raises:
        ConfigError: `config.hardware` is no profile.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.hardware = find(config.hardware or DEFAULT).in_precision(config.precision)
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
        config, cluster = self._config, self.hardware.cluster
        accumulation = passes(samples, config.world_size, config.batch_size)
        local_batch = ceil(samples / config.world_size / accumulation)
        # More GPUs than a node of this hardware holds take several such nodes.
        nodes = config.num_nodes * ceil(config.num_gpus / cluster.gpus_per_node)
        images_s = accumulation * local_batch * self._flops / self.hardware.flops_per_s
        compute_s = self.hardware.step_overhead_s + images_s
        communication_s = float(all_reduce_seconds(self._bytes, config.world_size, cluster, nodes=nodes))
        forward_s = FORWARD_SHARE * compute_s
        return {
            "data": 0.0,
            "forward": forward_s,
            "backward": compute_s - forward_s + communication_s,
            "optimizer": 0.0,
        }

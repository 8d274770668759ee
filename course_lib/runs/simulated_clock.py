"""The clock of a simulated run: how long its steps would take on the hardware that it simulates."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import pandas as pd

from course_lib.config import RunConfig
from course_lib.runs import profiles
from course_lib.scaling.step_time import BACKWARD_SHARE
from course_lib.training.data import passes


class SimulatedClock:
    """Stands still until it is told which step was taken. Times are the scaling model's, without noise.

    A step is timed as training on the rank with most images in it. What a rank does between steps, evaluation and
    checkpoints, takes no time, and neither do the messages of synchronised BatchNorm.

    Attributes:
        hardware: what is simulated.

    Raises:
        ConfigError: `config.hardware` is no profile.
    """

    def __init__(self, config: RunConfig) -> None:
        profile = profiles.find(config.hardware)
        self.hardware = profile.hardware
        self._config = config
        self._model = profile.step_time_model(config.model, config.precision)
        self._now = 0.0
        self._known: dict[int, dict[str, float]] = {}  # an epoch has steps of two sizes

    def now(self) -> float:
        """Seconds since it was made."""
        return self._now

    def step(self, samples: int) -> Iterator[str]:
        """A step over so many images, of all ranks, goes by: gives each phase when it ends."""
        for phase, seconds in self._phases(samples).items():
            self._now += seconds
            yield phase

    def step_seconds(self, samples: int) -> float:
        """How long such a step takes; the clock stands still."""
        return sum(self._phases(samples).values())

    def _phases(self, samples: int) -> dict[str, float]:
        if samples not in self._known:
            self._known[samples] = self._predict(samples)
        return self._known[samples]

    def _predict(self, samples: int) -> dict[str, float]:
        """Seconds in each phase. As in a measurement, backward ends when the gradients of all ranks are there."""
        config = self._config
        accumulation = passes(samples, config.world_size, config.batch_size)
        layout = {
            # More GPUs than a node of this hardware holds take several such nodes.
            "nodes": config.num_nodes * ceil(config.num_gpus / self.hardware.cluster.gpus_per_node),
            "gpus": config.world_size,
            "local_batch": ceil(samples / config.world_size / accumulation),
            "accumulation": accumulation,
        }
        predicted = self._model.predict(pd.DataFrame([layout])).iloc[0]
        # Python's numbers: a checkpoint with one of numpy's cannot be read again.
        step, compute = float(predicted["step_time_s"]), float(predicted["compute_s"])
        forward = (1 - BACKWARD_SHARE) * compute
        return {"data": 0.0, "forward": forward, "backward": step - forward, "optimizer": 0.0}

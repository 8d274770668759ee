"""How throughput grows with the number of GPUs, from tables that say nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from course_lib.scaling.fitting import Fit, Prior, doublings, fit_positive, interval
from course_lib.scaling.stragglers import expected_max
from course_lib.scaling.tables import measurements, positive

EXPECTED_NOISE = 0.02  # relative, of a published throughput
DRIFT_PER_DOUBLING = 0.08  # of the GPUs: more than that of step_time.py, since much less is known
# Of one GPU's step time: sending the gradient once, the spread between GPUs, one message more.
SHARES = {"transfer": Prior(0.018, 7.4), "straggling": Prior(0.05, 4), "message": Prior(0.002, 4)}


@dataclass(frozen=True)
class ThroughputModel:
    """Throughput(N) = N rate / (1 + 2 (N-1)/N transfer + E[Z_(N)] straggling + (N-1) message).

    The terms are those of a step (see step_time.py) as shares of one GPU's: the transfer of a ring, which saturates,
    the wait for the slowest of N, and what each further GPU adds. A table of GPUs and throughput hardly tells them
    apart, so their priors say much, and the interval says how little is known far out.

    Attributes:
        fitted: rate, transfer, straggling, message.
        largest: the most GPUs it was fitted to.
    """

    fitted: Fit
    largest: float

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> ThroughputModel:
        """From a table with the columns `gpus` and `throughput` (samples/s of all GPUs, or any other unit).

        Raises:
            FitError: a column is missing or holds something else.
        """
        table = measurements(frame, "gpus", "throughput")
        gpus, throughput = table["gpus"].to_numpy(), table["throughput"].to_numpy()
        priors = {"rate": Prior(float((throughput / gpus).max()), 2), **SHARES}
        fitted = fit_positive(lambda values: _throughput(values, gpus), throughput, priors, EXPECTED_NOISE)
        return cls(fitted, float(gpus.max()))

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """For `gpus` in each row: `throughput`, `low`, `high` (80 % interval) and `efficiency`; the index is kept."""
        gpus = positive(frame, "gpus")["gpus"]
        drift = DRIFT_PER_DOUBLING * doublings(gpus.to_numpy(), self.largest)
        predicted = interval(lambda values: _throughput(values, gpus.to_numpy()), self.fitted, drift)
        table = pd.DataFrame(dict(zip(("throughput", "low", "high"), predicted, strict=True)), index=gpus.index)
        return table.assign(efficiency=table["throughput"] / gpus / self.fitted.values[0])


def _throughput(values: np.ndarray, gpus: np.ndarray) -> np.ndarray:
    rate, transfer, straggling, message = values
    longer = 1 + 2 * (gpus - 1) / gpus * transfer + expected_max(gpus) * straggling + (gpus - 1) * message
    return np.asarray(gpus * rate / longer)

"""What a step time model says of one training, on more and more GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from course_lib.errors import FitError
from course_lib.scaling.step_time import StepTimeModel

MOST_IMAGES = 2**53  # of a batch; a float counts no further


def predict_scaling(
    model: StepTimeModel, gpus: Sequence[int], gpus_per_node: int, batch_size: int, scaling: str = "weak"
) -> pd.DataFrame:
    """One row for each number of GPUs.

    Args:
        model: how long a step takes.
        gpus: numbers of GPUs, of all nodes together; nodes are filled one after the other.
        gpus_per_node: how many a node has.
        batch_size: of each GPU ("weak"), or of all together ("strong").
        scaling: "weak" or "strong".

    Returns:
        `nodes, gpus, local_batch, global_batch`, what `StepTimeModel.predict` returns, and `speedup` and `efficiency`
        against one GPU with the same batch per GPU, or in strong scaling with the same global batch.

    Raises:
        FitError: a strong scaling's batch is too small for so many GPUs, or a batch is too large to be counted.
    """
    if batch_size * (1 if scaling == "strong" else max(gpus)) > MOST_IMAGES:
        raise FitError(
            f"A batch of so many images is too large to predict for: at most {MOST_IMAGES:.0e} can be counted."
        )
    count = np.asarray(gpus, dtype=float)
    share = batch_size / count if scaling == "strong" else np.full(len(count), float(batch_size))
    if (share < 1).any():
        raise FitError(f"A global batch of {batch_size} is too small for more than {batch_size} GPUs.")
    frame = pd.DataFrame({"nodes": np.ceil(count / gpus_per_node), "gpus": count, "local_batch": share})
    one = pd.DataFrame({"nodes": [1.0], "gpus": 1.0, "local_batch": float(batch_size)})
    alone = float(model.predict(one)["throughput"].iloc[0])
    table = pd.concat([frame.assign(global_batch=count * share), model.predict(frame)], axis=1)
    speedup = table["throughput"] / alone
    return table.astype({"nodes": int, "gpus": int}).assign(speedup=speedup, efficiency=speedup / count)

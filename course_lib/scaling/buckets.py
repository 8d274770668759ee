"""The buckets in which DDP sends a gradient, and how long they are on their way while backward goes on."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from course_lib.errors import FitError

# DDP sends a first bucket of 1 MiB, so that something is on its way early, then buckets of 25 MiB (Li et al. 2020,
# arXiv 2006.15704, section 4.2).
FIRST_BUCKET_BYTES, BUCKET_BYTES = 2**20, 25 * 2**20


def bucket_sizes(gradient_bytes: float, bucket_bytes: float = BUCKET_BYTES) -> np.ndarray:
    """Bytes of each bucket, in the order in which backward fills them; the first is never above 1 MiB.

    As if a parameter could be cut anywhere: DDP's own buckets end where a parameter does.
    """
    first = min(gradient_bytes, bucket_bytes, FIRST_BUCKET_BYTES)
    whole, last = divmod(gradient_bytes - first, bucket_bytes)
    sizes = [first, *[bucket_bytes] * int(whole), last]
    return np.array([size for size in sizes if size])


def bucket_timeline(sizes: ArrayLike, backward_s: float, all_reduce_s: ArrayLike) -> pd.DataFrame:
    """When each bucket is full, and when it is exchanged: one at a time, in their order.

    Gradients are taken to come evenly over the backward pass, so bucket i is ready when as large a part of backward is
    over as the buckets up to i are of the gradient. It starts at max(ready_i, end_(i-1)) (Li et al. 2020, arXiv
    2006.15704, section 3.2.3). What is exchanged is taken not to slow what is computed.

    Args:
        sizes: bytes of each bucket, [n].
        backward_s: seconds of the backward pass, without communication.
        all_reduce_s: seconds of the all-reduce of each bucket, [n], or one number for all.

    Returns:
        One row a bucket: `bytes`, and `ready_s`, `start_s` and `end_s`, in seconds after backward began.

    Raises:
        FitError: there is no bucket, or a number is negative or not finite.
    """
    bytes, took = np.broadcast_arrays(np.asarray(sizes, float), np.asarray(all_reduce_s, float))
    given = np.concatenate([bytes, took, [backward_s]])
    if bytes.ndim != 1 or not bytes.sum() > 0 or not (np.isfinite(given) & (given >= 0)).all():
        raise FitError("A timeline needs buckets with some bytes, and times of 0 or more seconds.")
    ready = backward_s * np.cumsum(bytes) / bytes.sum()
    ends: list[float] = []
    for full, seconds in zip(ready, took, strict=True):
        ends.append(max(full, ends[-1] if ends else 0.0) + seconds)
    end = np.array(ends)
    return pd.DataFrame({"bytes": bytes, "ready_s": ready, "start_s": end - took, "end_s": end})

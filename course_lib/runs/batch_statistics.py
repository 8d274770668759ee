"""What BatchNorm makes of a batch dealt to several ranks: by each rank's own statistics, and by those of all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import batch_norm

ALL = "all"
CLASS_MEANS = (-1.5, -0.5, 0.5, 1.5)  # of one channel; its values spread around them by SPREAD
SPREAD = 0.5
EPSILON = 1e-5  # torch's own


def channel(ranks: int, batch_size: int, seed: int, sort: bool) -> pd.DataFrame:
    """One channel of a made-up batch, with as many images of each of four classes, dealt to the ranks.

    Args:
        ranks: how many.
        batch_size: images per rank.
        seed: another one gives another batch.
        sort: whether each rank gets neighbours of a batch sorted by class; else it is shuffled.

    Returns:
        One row an image: `rank`, `class` and `value`.
    """
    images = ranks * batch_size
    chance = np.random.default_rng(seed)
    classes = np.arange(images) * len(CLASS_MEANS) // images
    values = np.array(CLASS_MEANS)[classes] + SPREAD * chance.standard_normal(images)
    order = np.arange(images) if sort else chance.permutation(images)
    owners = np.repeat(np.arange(ranks), batch_size)
    return pd.DataFrame({"rank": owners, "class": classes[order], "value": values[order]})


def normalised(images: pd.DataFrame) -> pd.DataFrame:
    """The images with `local` and `synchronised`: their values after BatchNorm, without weight and bias.

    `images` has one row an image, of one channel, with `rank` and `value`.
    """
    local = images.groupby("rank")["value"].transform(lambda values: _batch_norm(values.to_numpy()))
    return images.assign(local=local, synchronised=_batch_norm(images["value"].to_numpy()))


def statistics(images: pd.DataFrame) -> pd.DataFrame:
    """What BatchNorm normalises by: one row a rank, and one for `ALL`.

    Returns:
        `mean`, `variance` (the biased one) and `zero`, what a value of 0 is normalised to.
    """
    groups = pd.concat([images, images.assign(rank=ALL)]).groupby("rank")["value"]
    frame = groups.agg(mean="mean", variance=lambda values: values.var(ddof=0))
    return frame.assign(zero=-frame["mean"] / np.sqrt(frame["variance"] + EPSILON))


def _batch_norm(values: np.ndarray) -> np.ndarray:
    # One image of many pixels has the same statistics as many images of one, which torch would hand to threads.
    images = torch.tensor(values)[None, None]
    return batch_norm(images, None, None, training=True, eps=EPSILON).numpy()[0, 0]

"""A config that was made can be run: what no rank could take is refused at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import MAX_SIMULATED_WORLD_SIZE, RunConfig
from course_lib.errors import ConfigError

LARGEST = 2**63 - MAX_SIMULATED_WORLD_SIZE - 1


@given(st.integers(0, 2**66) | st.sampled_from([LARGEST, LARGEST + 1, 2**64]))
def test_a_seed_is_refused_at_once_or_taken_by_every_rank(seed):
    if seed <= LARGEST:
        config = RunConfig(device="simulated", num_gpus=MAX_SIMULATED_WORLD_SIZE, seed=seed)
        torch.Generator().manual_seed(config.seed + config.world_size - 1)
    else:
        with pytest.raises(ConfigError, match=f"seed must be .*{seed}"):
            RunConfig(seed=seed)

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading import samples


@given(
    st.integers(1, 700),
    st.integers(0, 2**32),
    st.floats(1e-3, 1e3),
    st.floats(-10, 10),
    st.booleans(),
)
def test_a_sample_says_which_it_is_however_it_was_scaled(
    count: int, seed: int, factor: float, offset: float, mirrored: bool
) -> None:
    generator = np.random.default_rng(seed)
    images, labels = samples.images(count, 10, generator)
    assert labels.shape == (count,)
    order = generator.permutation(count)
    rows = torch.from_numpy(images.reshape(count, -1)[order]).double()
    scaled = (rows * (-factor if mirrored else factor) + offset * factor)[:, :8].float()
    assert samples.ids(scaled) == order.tolist()


@given(st.integers(1, 50), st.integers(4, 9))
def test_what_is_no_sample_has_no_number(count: int, values: int) -> None:
    assert samples.ids(torch.zeros(count, values)) == [None] * count
    assert samples.ids(torch.full((count, values), float("nan"))) == [None] * count


def test_noise_does_not_pass_for_samples() -> None:
    generator = torch.Generator().manual_seed(1)
    known = [each for each in samples.ids(torch.rand(2000, 8, generator=generator)) if each is not None]
    assert len(known) < 200

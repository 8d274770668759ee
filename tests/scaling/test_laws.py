"""The laws of speedup agree with each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.scaling.laws import amdahl, gustafson, karp_flatt

ranks = st.integers(2, 4096)
fractions = st.floats(0, 1)


@given(ranks, fractions)
def test_karp_flatt_finds_the_serial_fraction_that_amdahl_was_given(ranks, fraction):
    assert karp_flatt(amdahl(ranks, fraction), ranks) == pytest.approx(fraction, abs=1e-9)


@given(ranks, fractions)
def test_a_speedup_lies_between_one_and_the_number_of_ranks(ranks, fraction):
    fixed, growing = amdahl(ranks, fraction), gustafson(ranks, fraction)
    assert 1 - 1e-9 <= fixed <= growing + 1e-9 <= ranks + 2e-9
    assert fixed <= 1 / max(fraction, 1e-300) + 1e-9


@given(ranks, fractions)
def test_gustafson_is_amdahl_with_the_fraction_of_the_time_on_one_rank(ranks, fraction):
    alone = fraction / (fraction + (1 - fraction) * ranks)
    assert gustafson(ranks, fraction) == pytest.approx(amdahl(ranks, alone))


def test_laws_take_arrays():
    counts = np.array([1, 2, 4])
    np.testing.assert_allclose(amdahl(counts, 0.5), [1, 4 / 3, 1.6])
    np.testing.assert_allclose(gustafson(counts, 0.5), [1, 1.5, 2.5])
    np.testing.assert_allclose(karp_flatt(np.array([2.0, 2.0]), np.array([2, 4])), [0, 1 / 3])

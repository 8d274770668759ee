"""Buckets hold the whole gradient, and are exchanged one after the other as soon as they are full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import FitError
from course_lib.scaling.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_sizes, bucket_timeline

MIB = 2**20
BYTES = st.integers(1, 400 * MIB)
SECONDS = st.floats(0, 10)


@given(BYTES, st.integers(MIB // 4, 100 * MIB))
def test_buckets_hold_the_gradient_and_nothing_more(gradient_bytes, bucket_bytes):
    sizes = bucket_sizes(gradient_bytes, bucket_bytes)
    assert sizes.sum() == gradient_bytes
    assert (sizes > 0).all()
    assert (sizes <= bucket_bytes).all()
    assert sizes[0] <= FIRST_BUCKET_BYTES
    assert (sizes[1:-1] == bucket_bytes).all()


def test_buckets_of_ddp():
    assert list(bucket_sizes(60 * MIB)) == [MIB, BUCKET_BYTES, BUCKET_BYTES, 9 * MIB]


@given(BYTES, SECONDS, st.lists(SECONDS, min_size=20, max_size=20))
def test_no_bucket_is_sent_before_it_is_full_or_while_another_one_is(gradient_bytes, backward_s, took):
    sizes = bucket_sizes(gradient_bytes)
    took = np.array(took[: len(sizes)])
    timeline = bucket_timeline(sizes, backward_s, took)
    ready, start, end = (timeline[name].to_numpy() for name in ("ready_s", "start_s", "end_s"))
    assert ready[-1] == pytest.approx(backward_s)
    np.testing.assert_allclose(end - start, took, atol=1e-9)
    assert (start >= ready - 1e-9).all()
    assert (start[1:] >= end[:-1] - 1e-9).all()
    # Nor later than it must be.
    before = np.concatenate([[0.0], end[:-1]])
    np.testing.assert_allclose(start, np.maximum(ready, before), atol=1e-9)


@given(BYTES, SECONDS, SECONDS)
def test_what_is_exposed_is_at_least_the_last_bucket_and_at_most_all(gradient_bytes, backward_s, all_reduce_s):
    sizes = bucket_sizes(gradient_bytes)
    timeline = bucket_timeline(sizes, backward_s, all_reduce_s)
    exposed = timeline["end_s"].iloc[-1] - backward_s
    assert all_reduce_s - 1e-9 <= exposed <= len(sizes) * all_reduce_s + 1e-9


@pytest.mark.parametrize(
    ("sizes", "backward_s", "all_reduce_s"), [([], 1, 1), ([0.0], 1, 1), ([1.0], -1, 1), ([1.0], 1, [np.nan])]
)
def test_a_timeline_of_nothing_is_refused(sizes, backward_s, all_reduce_s):
    with pytest.raises(FitError, match="needs buckets"):
        bucket_timeline(sizes, backward_s, all_reduce_s)

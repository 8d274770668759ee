"""How far a run is follows from what its rank 0 did, and nothing that is reported can upset it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.runs.pace import Pace


def step(number: int, epoch: int, samples: int, rank: int = 0) -> dict:
    return {"kind": "step", "rank": rank, "epoch": epoch, "samples": samples, "start": number - 1.0, "time": number}


@given(
    epochs=st.integers(1, 4),
    steps_each=st.integers(1, 5),
    before=st.integers(0, 3),
    world_size=st.integers(1, 3),
    with_epochs=st.booleans(),
    with_samples=st.booleans(),
)
def test_the_fraction_is_that_of_the_images(epochs, steps_each, before, world_size, with_epochs, with_samples):
    """Resumed or not, on any number of ranks, whether it reports samples, or epochs, or both."""
    total = epochs + before
    pace, now = Pace(total, 100 * steps_each), 100.0
    assert (pace.started, pace.fraction, pace.seconds, pace.seconds_left) == (False, 0, 0, None)
    for epoch in range(before + 1, total + 1):
        for place in range(1, steps_each + 1):
            now += 1
            pace.take([step(now, epoch, 100 if with_samples else None, rank) for rank in range(world_size)])
            done = epoch - 1 + place / steps_each if with_samples else epoch - 1 if with_epochs else before
            assert pace.fraction == pytest.approx(done / total)
            assert pace.seconds == now - 100
        if with_epochs:
            pace.take([{"kind": "epoch", "rank": 0, "epoch": epoch, "time": now}])
        if with_samples or with_epochs:
            assert pace.fraction == pytest.approx(epoch / total)
            assert pace.seconds_left == pytest.approx(steps_each * (total - epoch))


anything = st.sampled_from([None, True, -1, 0, 2, 0.5, 1e300, float("nan"), float("inf"), "2", 10**400, [1], {}])
names = ("epoch", "samples", "start", "images_per_sec")
events = st.tuples(st.sampled_from(["step", "epoch", "end"]), st.sampled_from([0, 3.5, 1e9]), *[anything] * len(names))


@given(st.lists(events))
def test_whatever_is_reported_the_figures_are_figures(reported):
    pace = Pace(3, 100)
    pace.take(
        {"kind": kind, "rank": 0, "time": time, **dict(zip(names, more, strict=True))} for kind, time, *more in reported
    )
    assert 0 <= pace.fraction <= 1
    assert pace.seconds >= 0
    assert pace.seconds_left is None or pace.seconds_left >= 0

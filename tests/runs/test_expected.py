"""What the model expects of a run is told without that run, and from what is like it."""

from __future__ import annotations

import pandas as pd

from course_lib.config import MEASURED_ON_CPU_RANKS, SIMULATED
from course_lib.runs.expected import expected_speedup
from course_lib.runs.store import RUN_COLUMNS

ALIKE = {
    "status": "finished",
    "timing": MEASURED_ON_CPU_RANKS,
    "speed_caveats": "",
    "model": "mlp",
    "precision": "fp32",
    "batch_size": 64,
    "num_nodes": 1,
    "threads_per_rank": 1,
    "accumulation_steps": 1,
    "scaling": "weak",
    "cores": 8,
}


def runs(*seconds_on_ranks: tuple[int, float], **changes: object) -> pd.DataFrame:
    rows = [
        ALIKE
        | {"num_gpus": ranks, "world_size": ranks, "global_batch_size": 64 * ranks, "step_seconds": seconds}
        | changes
        for ranks, seconds in seconds_on_ranks
    ]
    return pd.DataFrame(rows).reindex(columns=[*RUN_COLUMNS])


def test_it_is_told_from_the_other_runs():
    frame = runs((1, 0.010), (2, 0.011))
    expected = expected_speedup(frame.iloc[1], frame)
    assert expected is not None
    assert expected.low < expected.speedup < expected.high
    assert 1.5 < expected.speedup <= 2
    # Whatever it took itself makes no difference.
    slow = runs((1, 0.010), (2, 0.050))
    assert expected_speedup(slow.iloc[1], slow) == expected


def test_without_anything_to_go_by_nothing_is_expected():
    frame = runs((2, 0.011))
    assert expected_speedup(frame.iloc[0], frame) is None
    other = pd.concat([frame, runs((1, 0.01), model="small_cnn")], ignore_index=True)
    assert expected_speedup(other.iloc[0], other) is None
    doubtful = pd.concat([frame, runs((1, 0.01), speed_caveats="another run went on")], ignore_index=True)
    assert expected_speedup(doubtful.iloc[0], doubtful) is None


def test_ranks_that_share_cores_take_turns():
    frame = runs((1, 0.010), (4, 0.020), cores=2)
    expected = expected_speedup(frame.iloc[1], frame)
    assert expected is not None
    assert expected.speedup <= 2


def test_simulated_runs_are_told_from_their_profile():
    frame = runs((8, 0.001), timing=SIMULATED, hardware="a100")
    expected = expected_speedup(frame.iloc[0], frame)
    assert expected is not None
    assert expected.basis == "the profile of a100"
    assert 1 < expected.speedup <= 8


def test_strong_scaling_is_held_against_one_rank_with_the_whole_batch():
    weak = runs((1, 0.040), (4, 0.041))
    strong = weak.assign(scaling="strong", global_batch_size=64, batch_size=[64, 16])
    shared, whole = (expected_speedup(frame.iloc[1], frame) for frame in (strong, weak))
    assert shared is not None
    assert whole is not None
    assert 1 < shared.speedup < whole.speedup <= 4  # what a step takes whatever its batch is not shared

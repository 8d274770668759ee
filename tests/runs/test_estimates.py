"""What a run will take is told from what is nearest to it: like runs, a fit, a profile, a rule of thumb."""

from __future__ import annotations

from math import ceil

import pandas as pd
import pytest

from course_lib.config import MEASURED_ON_CPU_RANKS, RunConfig
from course_lib.runs import devices, estimates, profiles, store
from course_lib.runs.launch import launch, prepare
from course_lib.training import ddp
from course_lib.training.costs import gradient_bytes

CONFIG = RunConfig(model="mlp", data="subset", device="cpu", train_samples=1000, batch_size=50, epochs=2)
TESTED = 2000  # images of the subset


def frame_of(*runs: tuple[RunConfig, dict]) -> pd.DataFrame:
    """Runs as `store.frame` tells them, made on this machine."""
    here = {"timing": MEASURED_ON_CPU_RANKS, "cpu": devices.cpu_name(), "cores": devices.core_count(), "devices": "cpu"}
    rows = []
    for place, (config, figures) in enumerate(runs):
        steps = config.epochs * ceil((config.train_samples or 10_000) / config.global_batch_size)
        derived = {"world_size": config.world_size, "global_batch_size": config.global_batch_size, "steps": steps}
        told = {"status": "finished", "speed_caveats": "", "path": str(place)}
        rows.append({**config.to_dict(), **derived, **here, **told, **figures})
    return pd.DataFrame(rows).reindex(columns=[*store.RUN_COLUMNS])


@pytest.mark.parametrize(("images", "batch", "steps"), [(1000, 50, 10), (1000, 64, 8), (100, 50, 1)])
def test_steps_are_counted_as_the_trainers_do(images, batch, steps):
    assert estimates.steps_per_epoch(prepare(CONFIG.with_(num_gpus=2, train_samples=images, batch_size=batch))) == steps


def test_the_time_is_that_of_a_run_like_it():
    told = estimates.seconds(prepare(CONFIG), frame_of((CONFIG, {"seconds": 8.0})))
    assert told.seconds == pytest.approx(8.0)
    assert told.low < 8.0 < told.high
    assert told.basis == "from a run like it here"


def test_twice_the_epochs_take_twice_as_long_and_more_images_as_many_more_steps():
    frame = frame_of((CONFIG, {"seconds": 8.0}), (CONFIG, {"seconds": 12.0}), (CONFIG, {"seconds": 9.0}))
    assert estimates.seconds(prepare(CONFIG.with_(epochs=4)), frame).seconds == pytest.approx(18.0)
    # Evaluation of 2,000 images is a third of as many in training, whatever is trained on.
    more = estimates.seconds(prepare(CONFIG.with_(train_samples=4000)), frame)
    assert more.seconds == pytest.approx(9.0 * (4000 + TESTED / 3) / (1000 + TESTED / 3))
    assert more.basis == "from 3 runs like it here"


@pytest.mark.parametrize(
    "changes", [{"status": "failed"}, {"cpu": "another"}, {"cores": 4096}, {"timing": "measured on GPUs"}]
)
def test_runs_of_other_machines_and_such_as_failed_tell_nothing(changes):
    told = estimates.seconds(prepare(CONFIG), frame_of((CONFIG, {"seconds": 8.0, **changes})))
    assert told.basis == "by a rule of thumb"


def test_of_other_ranks_and_batches_a_fit_tells():
    runs = [
        (CONFIG.with_(batch_size=batch, train_samples=images), {"seconds": 9.0, "step_seconds": 0.002 + 0.001 * batch})
        for batch, images in ((25, 1000), (50, 2000), (100, 1000))
    ]
    asked = CONFIG.with_(batch_size=200)
    told = estimates.seconds(prepare(asked), frame_of(*runs))
    assert told.basis == "fitted to other runs here"
    assert told.low < 0.202 * (2 * 5 + 2 * TESTED / 200 / 3) < told.high


def test_without_runs_the_profile_tells_and_ranks_that_share_cores_take_turns(monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: 2)
    profile = profiles.find("a100")
    alone, shared = (estimates.seconds(prepare(CONFIG.with_(num_gpus=n)), None, profile) for n in (1, 8))
    assert alone.basis == shared.basis == "from the calibrated profile"
    work = [steps + 2 * TESTED / batch / 3 for steps, batch in ((40, 50), (6, 400))]
    assert shared.seconds / work[1] > 3.9 * alone.seconds / work[0]


def test_without_anything_a_rule_of_thumb_tells_and_larger_models_take_longer():
    told = [estimates.seconds(prepare(CONFIG.with_(model=name))) for name in ("mlp", "small_cnn", "wrn-16-4")]
    assert [each.basis for each in told] == ["by a rule of thumb"] * 3
    assert [each.seconds for each in told] == sorted(each.seconds for each in told)


def test_simulated_times_are_those_of_the_run_itself(tmp_path):
    config = CONFIG.with_(device="simulated", num_gpus=4, hardware="t4", train_samples=450, epochs=1, warmup_epochs=0.0)
    run = launch(ddp.train, config, tmp_path / "run")
    told = run.wait(60)
    prepared = prepare(config)
    assert estimates.simulated_seconds(prepared) == pytest.approx(told["seconds"])
    assert estimates.simulated_seconds(prepare(CONFIG)) is None
    frame = store.frame(tmp_path)
    assert estimates.seconds(prepared, frame).seconds == pytest.approx(frame["real_seconds"][0])
    assert estimates.seconds(prepared).basis == "by a rule of thumb"


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 3), ("adamw", 4)])
def test_memory_is_that_of_parameters_and_of_activations(optimizer, copies):
    small, large = (estimates.memory(prepare(CONFIG.with_(optimizer=optimizer, batch_size=b))) for b in (1, 501))
    activations = (large.bytes - small.bytes) / 500
    assert small.bytes == pytest.approx(copies * gradient_bytes("mlp") + activations)
    assert estimates.memory(prepare(CONFIG.with_(num_gpus=3))).bytes == 3 * estimates.memory(prepare(CONFIG)).bytes
    assert small.fits


def test_memory_of_gpus_that_are_shared_is_that_of_the_fullest(monkeypatch):
    monkeypatch.setattr(devices, "gpu_count", lambda: 2)
    monkeypatch.setattr(devices, "memory_bytes", {"cuda:0": 100, "cuda:1": 100}.__getitem__)
    shared = estimates.memory(prepare(CONFIG.with_(device="auto", num_gpus=3)))
    assert (shared.ranks, shared.device, shared.capacity, shared.fits) == (2, "cuda:0", 100, False)

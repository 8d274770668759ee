"""How long it takes to measure this machine, and how far off a run is that is predicted from that."""

from __future__ import annotations

import time

import pandas as pd

from benchmarks.measuring import Row, figure, run_once, skipped
from course_lib.config import RunConfig
from course_lib.runs import calibrate, devices
from course_lib.training import ddp

SECONDS = 20.0
BATCH_SIZES = (24, 48, 96)  # none of those that are measured
CONFIG = RunConfig(device="cpu", data="subset", epochs=1, checkpoint=False)


def measure(quick: bool) -> list[Row]:
    """Seconds; and the error of the step of ddp.train on all cores, for batches that were not measured."""
    start = time.perf_counter()
    profile = calibrate.calibrate(CONFIG.model, CONFIG.device)
    seconds = time.perf_counter() - start
    rows = [figure("calibrating this machine", "s", [seconds], at_most=None if quick else SECONDS)]
    cores = devices.core_count()
    if cores < 2:
        return [*rows, skipped("prediction for all cores", "there is one core here")]
    model = profile.step_time_model(CONFIG.model)
    errors, inside = [], 0
    for batch in BATCH_SIZES:
        config = CONFIG.with_(num_gpus=cores, batch_size=batch, train_samples=min(10_000, 40 * batch * cores))
        step = run_once(ddp.train, config)[0]["step_seconds"]
        (predicted,) = model.predict(pd.DataFrame([{"nodes": 1, "gpus": cores, "local_batch": batch}])).to_dict(
            "records"
        )
        errors.append(100 * abs(predicted["step_time_s"] / step - 1))
        inside += predicted["low"] < step < predicted["high"]
    note = f"batches of {', '.join(map(str, BATCH_SIZES))}; {inside} of {len(errors)} in their 80 % interval"
    return [*rows, figure(f"step of ddp.train on {cores} cores, error of prediction", "%", errors, note=note)]

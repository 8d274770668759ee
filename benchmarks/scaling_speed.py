"""The speedup of 2 CPU ranks on 2 cores, beside what two processes reach there that have nothing to do with each other.

Two busy cores are slower than twice one: they share memory, cache and clock. That is no fault of data parallelism, so
the line is drawn by two independent trainings at once.
"""

from __future__ import annotations

from benchmarks.measuring import Row, compare
from benchmarks.turns import launched, take_turns_by_epoch
from benchmarks.workload import QUICK, TRAINING, TURNS, WORLD_SIZE
from course_lib.runs.devices import core_count
from course_lib.training import ddp, single

SHARE_OF_INDEPENDENT = 0.95
ALONE, INDEPENDENT, TOGETHER = "1 process", f"{WORLD_SIZE} independent processes", f"ddp.train, {WORLD_SIZE} CPU ranks"


def measure(quick: bool) -> list[Row]:
    """The speedup of DDP against that of independent processes, both over one process alone."""
    config, turns = (QUICK, 1) if quick else (TRAINING, TURNS)
    sides = [
        launched(ALONE, single.train, config.with_(num_gpus=1)),
        # As many ranks that never meet: their images per second are added up.
        launched(INDEPENDENT, single.train, config),
        launched(TOGETHER, ddp.train, config),
    ]
    rates = take_turns_by_epoch(sides, turns)
    speedups = {name: [rate / one for rate, one in zip(rates[name], rates[ALONE], strict=True)] for name in rates}
    return [
        compare(
            f"speedup of {TOGETHER}, on {core_count()} cores",
            "times",
            speedups[TOGETHER],
            speedups[INDEPENDENT],
            INDEPENDENT,
            at_least=SHARE_OF_INDEPENDENT,
        ),
        compare(TOGETHER, "images/s", rates[TOGETHER], rates[ALONE], ALONE),
    ]

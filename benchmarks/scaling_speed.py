"""The speedup of 2 CPU ranks on 2 cores, beside what two processes reach there that have nothing to do with each other.

Two busy cores are slower than twice one: they share memory, cache and clock. That is no fault of data parallelism, so
the line is drawn by two independent trainings at once.
"""

from __future__ import annotations

from benchmarks.measuring import Row, compare
from benchmarks.turns import launched, take_turns_by_epoch
from benchmarks.workload import QUICK, TRAINING, TURNS, WORLD_SIZE
from course_lib.config import RunConfig
from course_lib.runs.devices import core_count
from course_lib.training import ddp, single

SHARE_OF_INDEPENDENT = 0.95
# Ranks wait for the slowest in every step, and a core that is disturbed is late by milliseconds, however
# short the step: so the line is held at a batch whose step is long, and the recipe's own is told beside it.
LONG_STEP = 512
ALONE, INDEPENDENT, TOGETHER = "1 process", f"{WORLD_SIZE} independent processes", f"ddp.train, {WORLD_SIZE} CPU ranks"


def measure(quick: bool) -> list[Row]:
    """The speedup of DDP against that of independent processes, both over one process alone."""
    if quick:
        return _compare(QUICK, 1, SHARE_OF_INDEPENDENT)
    long_step = _compare(TRAINING.with_(batch_size=LONG_STEP), TURNS, SHARE_OF_INDEPENDENT)
    return long_step + _compare(TRAINING, TURNS, None)


def _compare(config: RunConfig, turns: int, at_least: float | None) -> list[Row]:
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
            f"speedup of {TOGETHER}, batch {config.batch_size}, on {core_count()} cores",
            "times",
            speedups[TOGETHER],
            speedups[INDEPENDENT],
            INDEPENDENT,
            at_least=at_least,
        ),
        compare(f"{TOGETHER}, batch {config.batch_size}", "images/s", rates[TOGETHER], rates[ALONE], ALONE),
    ]

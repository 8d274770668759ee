"""Measure everything that the course must reach: `python -m benchmarks [NAME ...] [--quick] [--out FILE]`.

Nothing heavy is imported at the top: `torch.multiprocessing.spawn`, which one benchmark measures, imports this
module again in each of its processes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.measuring import Row

NAMES = (
    "import_speed",
    "launch_speed",
    "loop_speed",
    "scaling_speed",
    "replicas_speed",
    "accuracy",
    "scaling_accuracy",
    "calibration",
    "simulation_speed",
    "store_speed",
    "panel_speed",
    "grading_speed",
    "grading_repeats",
    "peers",
    "gpu_check",
)


def main() -> int:
    """Run the benchmarks one after another.

    Returns:
        1 if a line was not reached (in a quick run, only if a benchmark failed), else 0.
    """
    arguments = _parse()
    from benchmarks import measuring

    machine = measuring.machine()
    rows: list[Row] = []
    for name in arguments.names or NAMES:
        print(name, file=sys.stderr)
        rows += _measure(name, arguments.quick)
    measuring.print_table(rows, "Quick run: the times mean nothing" if arguments.quick else "Benchmarks")
    if measuring.busy(machine):
        print(f"The machine was busy (load {machine['load']:.1f} on {machine['cores']} cores): measure again.")
    print(f"Written to {measuring.write_results(rows, machine, arguments.quick, arguments.out)}")
    missed = [row for row in rows if row.reached is False]
    return int(any(not arguments.quick or row.note.startswith("failed") for row in missed))


def _measure(name: str, quick: bool) -> list[Row]:
    """The rows of one benchmark; one that says why, where it breaks off."""
    from benchmarks import measuring

    module = importlib.import_module(f"benchmarks.{name}")
    try:
        rows: list[Row] = module.measure(quick)
        return rows
    except Exception as error:
        return [measuring.failed(name, error)]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one or more of {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="run everything once and small, to see that it works")
    parser.add_argument("--out", type=Path, help="where to write the JSON (default: a new file in benchmarks/results)")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())

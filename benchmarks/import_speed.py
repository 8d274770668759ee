"""How long a person waits for `import course_lib` and for the command line's help, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import Row, figure, passed, take_turns

TURNS = 9
SECONDS_TO_IMPORT = 0.3
SECONDS_TO_HELP = 0.5
HEAVY = ("torch", "numpy", "pandas", "matplotlib", "scipy")
PYTHON, IMPORT, HELP = "python", "import course_lib", "ddp-course --help"


def measure(quick: bool) -> list[Row]:
    """The whole processes, the start of Python included, which is told beside them."""
    command = Path(sys.executable).with_name("ddp-course")
    seconds = take_turns(
        {
            PYTHON: partial(seconds_of, [sys.executable, "-c", ""]),
            IMPORT: partial(seconds_of, [sys.executable, "-c", "import course_lib"]),
            HELP: partial(seconds_of, [str(command), "--help"]),
        },
        1 if quick else TURNS,
    )
    heavy = heavy_modules("import course_lib")
    return [
        figure(IMPORT, "s", seconds[IMPORT], at_most=SECONDS_TO_IMPORT, note="the start of Python included"),
        passed(f"{IMPORT} loads nothing heavy", not heavy, f"loads {', '.join(heavy)}" if heavy else ""),
        figure(HELP, "s", seconds[HELP], at_most=SECONDS_TO_HELP, note="the start of Python included"),
        figure("Python alone", "s", seconds[PYTHON]),
    ]


def seconds_of(command: list[str]) -> float:
    """How long a process takes from start to end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def heavy_modules(code: str) -> list[str]:
    """Which of the heavy packages are loaded once `code` has run in a fresh process."""
    asking = f"{code}\nimport sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asking], check=True, capture_output=True, text=True)
    return done.stdout.split()

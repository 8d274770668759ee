"""What the benchmarks share: taking turns, figures beside the line they must reach, the table, the JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from course_lib.config import RunConfig
from course_lib.runs import devices

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("ddp-course", "torch", "numpy", "pandas", "accelerate", "lightning")
# Above this share of its cores the machine was at work already, and no time can be trusted.
BUSY = 0.25


@dataclass(frozen=True)
class Row:
    """One figure, the other side's, and the line to reach.

    Fields:
        name: what was measured.
        value: the median of our samples; None where nothing was measured.
        unit: of seconds less is better, of all else more.
        other, other_name: the median of the other side, and who that is.
        ratio: how many times better we are than the other side, above 1 ahead: the median over the turns.
        ratio_at_best: the same of each side's best measurement, which others on the machine disturbed least.
        line: what must be reached, in words; empty where the figure is for information.
        reached: whether it was; None where there is no line, or nothing was measured for it.
        note: what else there is to say.
        samples, other_samples: each measurement, in the order of the turns.
    """

    name: str
    value: float | None
    unit: str = ""
    other: float | None = None
    other_name: str = ""
    ratio: float | None = None
    ratio_at_best: float | None = None
    line: str = ""
    reached: bool | None = None
    note: str = ""
    samples: list[float] = field(default_factory=list)
    other_samples: list[float] = field(default_factory=list)


def figure(
    name: str,
    unit: str,
    samples: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Row:
    """A figure of its own, perhaps with the most or the least that it may be."""
    value = median(samples)
    line, reached = "", None
    if at_most is not None and at_least is not None:
        line, reached = f"{_number(at_least)} to {_number(at_most)} {unit}".rstrip(), at_least <= value <= at_most
    elif at_most is not None:
        line, reached = f"at most {_number(at_most)} {unit}".rstrip(), value <= at_most
    elif at_least is not None:
        line, reached = f"at least {_number(at_least)} {unit}".rstrip(), value >= at_least
    return Row(name, value, unit, line=line, reached=reached, note=note, samples=list(samples))


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    other: Sequence[float],
    other_name: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    note: str = "",
) -> Row:
    """Two sides that took turns; `at_least` or `above` is the line for their ratio."""
    less_is_better = unit == "s"
    ratio = median(b / a if less_is_better else a / b for a, b in zip(ours, other, strict=True))
    at_best = min(other) / min(ours) if less_is_better else max(ours) / max(other)
    line, reached = "", None
    if at_least is not None:
        line, reached = f"ratio at least {_number(at_least)}", ratio >= at_least
    if above is not None:
        line, reached = f"ratio above {_number(above)}", ratio > above
    sides = {"samples": list(ours), "other_samples": list(other)}
    return Row(name, median(ours), unit, median(other), other_name, ratio, at_best, line, reached, note, **sides)


def passed(name: str, good: bool, note: str = "") -> Row:
    """Something that must hold, and whether it does."""
    return Row(name, None, line="must hold", reached=good, note=note)


def failed(name: str, error: BaseException | str) -> Row:
    """Something that could not be measured, and why: its line is not reached."""
    if isinstance(error, BaseException):
        error = f"{type(error).__name__}: {error}"
    return Row(name, None, reached=False, note=f"failed: {error.strip().partition(chr(10))[0]}")


def skipped(name: str, why: str) -> Row:
    """Something that cannot be measured here, which is no failure."""
    return Row(name, None, note=why)


def take_turns(sides: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Measure each side once a turn, A B then B A, so that neither has the better part of a noisy machine."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            samples[name].append(sides[name]())
        said = ", ".join(f"{name} {_number(taken[-1])}" for name, taken in samples.items())
        print(f"  turn {turn + 1} of {turns}: {said}", file=sys.stderr)
    return samples


def run_once(
    train: Callable[..., Any], config: RunConfig, time_limit: float | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """Launch, wait, and forget the folder: what rank 0 returned, and the events of all ranks."""
    # Imported here, so that who only needs the table does not wait for it.
    from course_lib.runs.launch import launch

    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
        run = launch(train, config, Path(scratch) / "run", time_limit=time_limit)
        try:
            return run.wait(), run.events()
        finally:
            run.stop()


def print_table(rows: Sequence[Row], title: str) -> None:
    """The rows as a table, on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_lines=False)
    for heading, justify in (
        ("what", "left"), ("here", "right"), ("other side", "right"), ("ratio", "right"), ("at best", "right"),
        ("line", "left"), ("reached", "left"), ("note", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        other = "" if row.other is None else f"{_number(row.other)} {row.unit}\n{row.other_name}"
        here = "" if row.value is None else f"{_number(row.value)} {row.unit}"
        ratio, at_best = ("" if each is None else f"{each:.3g}" for each in (row.ratio, row.ratio_at_best))
        reached = {True: "[green]yes[/]", False: "[bold red]NO[/]", None: ""}[row.reached]
        table.add_row(escape(row.name), here, escape(other), ratio, at_best, row.line, reached, escape(row.note))
    console = Console()
    # Wide enough to be read in a log, where there is no terminal to ask.
    console = console if console.is_terminal else Console(width=160)
    console.print(table)


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was before."""
    return {
        "cpu": devices.cpu_name(),
        "cores": devices.core_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def busy(machine: dict[str, Any]) -> bool:
    """Whether others were at work on the machine."""
    return machine["load"] > BUSY * machine["cores"]


def write_results(rows: Sequence[Row], machine: dict[str, Any], quick: bool, out: Path | None = None) -> Path:
    """Write all as JSON, to `out` or to a new file in benchmarks/results/."""
    path = out or RESULTS / f"{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "quick": quick,
        "machine": machine,
        "versions": _versions(),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1))
    return path


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"

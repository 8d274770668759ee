"""What the command line says: results on standard output, errors on standard error."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from course_lib.config import SIMULATED
from course_lib.errors import CourseError, HangError, RankError, RunStopped

if TYPE_CHECKING:
    import pandas as pd

    from course_lib.runs.doctor import Finding

PROGRAM = "ddp-course"
LEARNED = 0.2  # accuracy from which on a run has learned more than by chance
WIDTH_OF_A_FILE = 200  # where the output is no terminal, and nobody said how wide it is
SIGNS = {"ok": ("✓ ok", "green"), "without": ("- note", "yellow"), "problem": ("✗ problem", "bold red")}


def prepare_streams() -> None:
    """Let all be written, whatever the shell has made of standard output, standard error and $COLUMNS."""
    for number, name in enumerate(("stdout", "stderr"), 1):
        if getattr(sys, name) is None:  # closed by the shell: what is written there is not wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not each encoding has a tick and an arrow
    columns = os.environ.get("COLUMNS", "")
    if not (columns.isdecimal() and int(columns)):
        os.environ.pop("COLUMNS", None)


class Screen:
    """Where a command writes to.

    Attributes:
        as_json: print the result, or the error, as one JSON object and nothing else on standard output.
        silent: write nothing but how this rank failed or waited in vain, since another one speaks for all.
        facts: what a JSON object about an error holds besides it, e.g. the folder of the run.
    """

    def __init__(self, as_json: bool, silent: bool = False) -> None:
        self.as_json = as_json
        self.silent = silent
        self.facts: dict[str, Any] = {}
        self.out = _console(sys.stdout, silent)
        self.err = _console(sys.stderr, silent)

    def result(self, content: dict[str, Any], *readable: Any) -> None:
        """Print a result: `content` as JSON, or else what is for people."""
        if self.as_json and not self.silent:
            sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
        elif not self.as_json:
            self.out.print(*readable, sep="\n", crop=False)

    def failed(self, error: CourseError) -> None:
        """Print an error: one paragraph, and what is evidence of it below."""
        if self.silent and not isinstance(error, HangError | RankError):
            return
        self.err.quiet = False
        paragraph, _, evidence = str(error).partition("\n")
        lead = "" if isinstance(error, RunStopped) else "Error: "
        # Where there is no terminal, a paragraph is one line.
        self.err.print(Text.assemble((lead, "bold red"), paragraph), soft_wrap=not self.err.is_terminal)
        if evidence.strip():
            self.err.print(Text(f"\n{evidence.strip(chr(10))}\n", "dim"), soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            self.err.print(Text(note), soft_wrap=True)
        if self.as_json and not self.silent:
            self._print_as_json(error)

    def _print_as_json(self, error: CourseError) -> None:
        content: dict[str, Any] = {"type": type(error).__name__, "message": error.args[0]}
        if isinstance(error, RankError):
            content |= {"rank": error.rank, "traceback": error.traceback}
        with suppress(OSError):  # what could not be written may be standard output
            sys.stdout.write(json.dumps({"error": content, **self.facts}) + "\n")
            sys.stdout.flush()


def _console(stream: TextIO, silent: bool) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH_OF_A_FILE
    # Names of folders hold what rich would take for markup or an emoji.
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, quiet=silent)


def run_summary(row: dict[str, Any]) -> Table:
    """The row that `store.frame` has for a finished run, for people."""
    ranks = f"{row['world_size']} ranks" if row["world_size"] > 1 else "1 rank"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Run folder", Text(row["path"], "bold"))
    table.add_row("Model", f"{row['model']} on {ranks}, global batch {row['global_batch_size']:,}")
    scaled = f" ({row['lr_rule']} rule for {ranks})" if row["peak_lr"] != row["lr"] else ""
    table.add_row("Learning rate", f"{_lr(row)}{scaled}")
    table.add_row("Accuracy", f"{percent(row['val_accuracy'])} after {count(row['epochs'], 'epoch')}")
    table.add_row("Speed", f"{row['images_per_sec']:,.0f} images/s, {row['timing']}")
    table.add_row("Time", _seconds(row["seconds"]))
    if row["hardware"]:
        took = f"{_seconds(row['real_seconds'])} to simulate on this machine"
        table.add_row("Hardware", f"{row['hardware']}, {row['timing']}; {took}")
    if row["speed_caveats"]:
        table.add_row("", Text(caveat(row["speed_caveats"]), "yellow"))
    return table


def sweep_table(frame: pd.DataFrame) -> Table:
    """The finished runs of a sweep, one line for those that are repeats of each other."""
    batch = _batch_column(frame)
    table = _WholeTable(box=None, header_style="bold", pad_edge=False)
    for heading in ("ranks", "batch", "lr", "images/s", "speedup", "efficiency", "accuracy", "runs"):
        wide = heading == "speedup"  # its interval may go to a second line
        table.add_column(heading, justify="right", no_wrap=not wide, min_width=11 if wide else None)
    for (world_size, size, _), runs in _finished(frame).groupby(["world_size", batch, "lr"]):
        clean = runs[runs["speed_caveats"] == ""]
        speed = (runs if clean.empty else clean).median(numeric_only=True)
        table.add_row(
            f"{world_size:g}{'*' if clean.empty else ''}",
            f"{size:,.0f}",
            _lr(speed),
            number(speed["images_per_sec"], ",.0f"),
            _speedup(speed),
            percent(speed["efficiency"], digits=0),
            percent(runs["val_accuracy"].median()),
            str(len(runs)),
        )
    return table


class _WholeTable(Table):
    """A table with all its columns in a narrow terminal too, which then breaks the lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            if column.no_wrap:
                column.min_width = max(map(cell_len, map(str, (column.header, *column.cells))))
        needed = self.__rich_measure__(console, options.update(width=WIDTH_OF_A_FILE)).minimum
        return super().__rich_console__(console, options.update(width=max(options.max_width, needed)))


def sweep_remarks(frame: pd.DataFrame) -> list[Text]:
    """What must be known about a sweep's figures, and which runs failed."""
    from course_lib.scaling.speedup import TOO_SHORT, too_short

    finished = _finished(frame)
    batch = "of all ranks" if _batch_column(frame) == "global_batch_size" else "per rank"
    timings = finished["timing"].where(finished["hardware"].isna(), finished["timing"] + " on " + finished["hardware"])
    remarks = [f"Medians over the runs, {timing}; batch {batch}." for timing in sorted(set(timings.dropna()))]
    if (finished["speedup_low"] < finished["speedup_high"]).any():
        remarks.append("In brackets: 90 % interval of the speedup.")
    elif finished.loc[finished["timing"] != SIMULATED, "speedup"].notna().any():
        remarks.append("No interval of the speedup: that takes 3 undisturbed repeats or more.")
    elif len(finished) and finished["speedup"].isna().all():
        remarks.append("No speedup: that takes runs on 1 rank to compare with.")
    if short := int(too_short(finished).sum()):
        remarks.append(f"{count(short, 'run')}: {TOO_SHORT}")
    if lost := int((finished["val_accuracy"] < LEARNED).sum()):
        remarks.append(
            f"{count(lost, 'run')} hardly learned; guessing reaches 10 %. The learning rate may be too high for so "
            "few steps: try a smaller --lr, or --lr-rule sqrt."
        )
    if (finished["peak_lr"] != finished["lr"]).any():
        remarks.append("lr: for one rank → for all of them together.")
    remarks += [f"* {caveat(text)}" for text in sorted(set(finished["speed_caveats"])) if text]
    failures = [
        Text(f"{row['run']} {row['status']}{_first_line(row['error'])}", "red")
        for row in records(frame.drop(finished.index))
    ]
    return [*map(Text, remarks), *failures]


def _first_line(error: str | None) -> str:
    return f": {error.splitlines()[0]}" if error else ""


def _finished(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["status"] == "finished"]


def _batch_column(frame: pd.DataFrame) -> str:
    """The batch size that the sweep was asked for."""
    return "global_batch_size" if (frame["scaling"] == "strong").any() else "batch_size"


def findings_table(findings: Iterable[Finding]) -> Table:
    """What the doctor found, each with what to do about it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        words, style = SIGNS[finding.state]
        told = Text(finding.found)
        if finding.remedy:
            told.append(f"\n{finding.remedy}", "dim")
        table.add_row(Text(words, style), finding.name, told)
    return table


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON can hold them: what is missing is null."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def caveat(text: str) -> str:
    """Why a run is no measurement of speed, as a sentence."""
    return f"Not a speed measurement: {text}."


def number(value: float | None, form: str) -> str:
    """A number in that form, or a dash for none."""
    return "-" if value is None or value != value else format(value, form)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction as a percentage."""
    return "-" if value is None or value != value else f"{100 * value:.{digits}f} %"


def count(number: int, noun: str) -> str:
    """So many of something, in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lr(row: Any) -> str:
    """The learning rate for one rank, and the one in use where the rule makes another of it."""
    return f"{row['lr']:g}" if row["peak_lr"] == row["lr"] else f"{row['lr']:g} → {row['peak_lr']:g}"


def _speedup(row: pd.Series[Any]) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    interval = "" if low != low or low == high else f" ({low:.2f}-{high:.2f})"
    return number(row["speedup"], ".2f") + interval


def _seconds(seconds: float) -> str:
    return clock(seconds) if seconds >= 60 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.3g} s"


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

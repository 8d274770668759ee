"""The table of runs as the report shows it: which columns, in which digits, and what is the same for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from course_lib.config import WARMUP_STEPS, RunConfig
from course_lib.lab.words import in_words, number
from course_lib.runs.folder import FINISHED
from course_lib.scaling.speedup import SPEEDUP_COLUMNS


@dataclass(frozen=True)
class Cell:
    """What stands in one cell; `bad` marks a run that did not finish, `rows` is how many rows it spans."""

    text: str
    interval: str = ""
    bad: bool = False
    rows: int = 1


@dataclass(frozen=True)
class Column:
    """A column, its unit, and how a row of the frame fills it; `of_group` if repeats have their cell together."""

    title: str
    unit: str
    fill: Callable[[pd.Series[Any]], Cell]
    number: bool = True
    of_group: bool = False


@dataclass(frozen=True)
class RunTable:
    """The table; `same` names the settings that no column shows, since all runs share them.

    Repeats have their cells `of_group` together: only the first of them has these.
    """

    caption: str
    columns: list[Column]
    rows: list[list[tuple[Column, Cell]]]
    same: str


def run_table(frame: pd.DataFrame) -> RunTable:
    """The table of a frame as `store.frame` gives it: one row a run, in the order of the frame."""
    settings = list(RunConfig.__dataclass_fields__)
    shown = {"num_gpus", "num_nodes", "batch_size", "lr"}
    varying = [name for name in settings if name not in shown and frame[name].nunique(dropna=False) > 1]
    columns = [*_settings(frame, varying), *_results(frame)]
    rows = list(_rows(frame, columns))
    constant = [name for name in settings if name not in shown and name not in varying]
    same = [f"{in_words(name)} {_value(frame[name].iloc[0])}" for name in constant if pd.notna(frame[name].iloc[0])]
    return RunTable(_caption(frame), columns, rows, ", ".join(same))


def _rows(frame: pd.DataFrame, columns: list[Column]) -> Iterator[list[tuple[Column, Cell]]]:
    """The cells of each run; those of a group stand in its first row, and span the others."""
    keys = ["status", "world_size", "batch_size", "speed_caveats", *SPEEDUP_COLUMNS]
    alike = frame.groupby(keys, dropna=False).ngroup()
    group = alike.ne(alike.shift()).cumsum()  # of rows one below the other
    sizes = group.value_counts()
    for (_, row), number_of_group, begins in zip(frame.iterrows(), group, ~group.duplicated(), strict=True):
        span = int(sizes[number_of_group])
        yield [
            (column, replace(column.fill(row), rows=span) if column.of_group else column.fill(row))
            for column in columns
            if begins or not column.of_group
        ]


def _caption(frame: pd.DataFrame) -> str:
    """What the columns mean: those sentences that these runs need."""
    timings = sorted(set(frame["timing"].dropna()))
    needed = {
        "One row a run.": True,
        f"Times {''.join(timings)}.": len(timings) == 1,
        "Accuracy is measured on the test set, from which no run learns.": frame["val_accuracy"].notna().any(),
        f"Throughput and step are over the whole run without its first {WARMUP_STEPS} steps, which are often slower "
        "(in a short run, without the first half).": frame["step_seconds"].notna().any(),
        "Speedup and efficiency are those of all repeats of a setting together.": frame["speedup"].notna().any(),
        "Small print: 90 % interval over the repeats.": (frame["speedup_low"] < frame["speedup_high"]).any(),
        "* not a speed measurement, for a reason that stands above.": (frame["speed_caveats"] != "").any(),
    }
    return " ".join(sentence for sentence, is_needed in needed.items() if is_needed)


def _settings(frame: pd.DataFrame, varying: list[str]) -> list[Column]:
    return [
        Column("Run", "", lambda row: Cell(str(row["run"])), number=False),
        Column("Status", "", lambda row: Cell(str(row["status"]), bad=row["status"] != FINISHED), number=False),
        Column("Ranks", "", _plain("world_size")),
        Column("Batch", "per rank", _plain("batch_size")),
        Column("Batch", "global", _plain("global_batch_size")),
        *_learning_rates(frame),
        *(Column(in_words(name).capitalize(), "", _plain(name)) for name in varying),
    ]


def _learning_rates(frame: pd.DataFrame) -> list[Column]:
    """The rate that was asked for and, where the rule made another of it, the one in use."""
    asked = Column("Learning rate", "for one rank", _plain("lr"))
    if frame["lr"].equals(frame["peak_lr"]):
        return [replace(asked, unit="")]
    return [asked, Column("Learning rate", "used", _plain("peak_lr"))]


def _results(frame: pd.DataFrame) -> list[Column]:
    run_time = "{:.1f}" if frame["seconds"].max() > 1 else "{:.3g}"
    columns = {
        "val_accuracy": Column("Accuracy", "validation, %", _scaled("val_accuracy", "{:.2f}", 100)),
        "images_per_sec": Column("Throughput", "images/s, mean", _scaled("images_per_sec", "{:,.0f}", mark=True)),
        "step_seconds": Column("Step", "ms, median", _scaled("step_seconds", "{:.3g}", 1000, mark=True)),
        "seconds": Column("Run time", "s", _scaled("seconds", run_time, mark=True)),
        "timing": Column("Times", "", _plain("timing"), number=False),
        "speedup": Column("Speedup", "times", _scaled("speedup", "{:.2f}", mark=True), of_group=True),
        "efficiency": Column("Efficiency", "%", _scaled("efficiency", "{:.0f}", 100, mark=True), of_group=True),
    }
    shown = [name for name in columns if frame[name].notna().any()]
    return [columns[name] for name in shown if name != "timing" or frame["timing"].nunique(dropna=False) > 1]


def _plain(name: str) -> Callable[[pd.Series[Any]], Cell]:
    return lambda row: Cell(_value(row[name]))


def _scaled(name: str, form: str, factor: float = 1, mark: bool = False) -> Callable[[pd.Series[Any]], Cell]:
    """A number and, where the frame has one, its interval; a star where it is no speed measurement."""

    def fill(row: pd.Series[Any]) -> Cell:
        if pd.isna(row[name]):
            return Cell("–")
        star = "*" if mark and row["speed_caveats"] else ""
        low, high = (factor * float(row.get(f"{name}_{end}") or "nan") for end in ("low", "high"))
        interval = f"{form.format(low)} to {form.format(high)}" if low < high else ""
        return Cell(form.format(factor * row[name]) + star, interval)

    return fill


def _value(value: Any) -> str:
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    return number(value) if value is None or isinstance(value, int | float) else str(value)

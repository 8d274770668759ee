"""The report on a run or on many: one HTML file that needs no other and no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from course_lib import __version__
from course_lib.errors import FolderError
from course_lib.lab import plots
from course_lib.lab.display import image_html
from course_lib.lab.pages import REPORT
from course_lib.lab.plots.learning_plots import with_settings
from course_lib.lab.run_table import run_table
from course_lib.lab.style import TIMING_UNKNOWN
from course_lib.lab.words import SETTINGS_OF_A_RUN, differing, in_short
from course_lib.runs import store
from course_lib.runs.folder import FINISHED, RUNNING, RunFolder, write_bytes
from course_lib.scaling.speedup import TOO_SHORT, too_short

MOST_CURVES = 100  # runs: with more, curves of single runs show nothing, and take long to read
MACHINE = {
    "hostname": "Machine",
    "cpu": "Processor",
    "cores": "Cores",
    "devices": "Devices",
    "backend": "Backend",
    "python": "Python",
    "torch": "PyTorch",
    "course": "Course",
    "platform": "System",
}
Section = tuple[str, list[Figure], str]  # heading, figures, remark


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write the report on the run in `folder`, or on all runs below it.

    `out` is the HTML file, or a folder that is there, in which it is called report.html. A report that is there
    is replaced, and so no file of a run can be: `out` must end in .html.

    Returns:
        The file.

    Raises:
        FolderError: there is no run in `folder`, or `out` cannot be written.
    """
    frame = store.frame(folder)
    if frame.empty:
        raise FolderError(
            f"There is no run in {os.fspath(folder)}. Name the folder of a run or one with runs in it, or make "
            "a run there first (ddp-course train --out)."
        )
    target = Path(out) / "report.html" if os.path.isdir(out) else Path(out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise FolderError(f"The report is an HTML file, and {target} is none. Name one that ends in .html (--out).")
    page = _page(frame, Path(folder).resolve().name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, page.encode(errors="backslashreplace"))
    except OSError as error:
        raise FolderError(
            f"Cannot write the report {target}: {error.strerror}. Choose a file that you can write to (--out)."
        ) from error
    return target


def _page(frame: pd.DataFrame, name: str) -> str:
    table = run_table(frame)
    unfinished = frame[~frame["status"].isin([FINISHED, RUNNING])]
    return REPORT.render(
        title=f"Run {name}" if len(frame) == 1 else f"Runs in {name}",
        made=datetime.now().astimezone(),
        version=__version__,
        summary=_summary(frame),
        timing=list(_timing(frame)),
        same=table.same,
        caption=table.caption,
        columns=table.columns,
        rows=table.rows,
        failures=[
            {"run": run, "status": status, "error": error if isinstance(error, str) else "No reason was recorded."}
            for run, status, error in unfinished[["run", "status", "error"]].itertuples(index=False)
        ],
        plots=[
            (heading, [image_html(figure, scale=2) for figure in figures], remark)
            for heading, figures, remark in _plots(frame)
        ],
        machine_head=[*MACHINE.values(), "Runs"],
        machines=_machines(frame),
    )


def _summary(frame: pd.DataFrame) -> str:
    """How many runs ended how, and the best of them."""
    counts = frame["status"].value_counts()
    endings = ", ".join(f"{count} {status}" for status, count in counts.items())
    text = f"{len(frame)} run{'s' * (len(frame) > 1)}: {endings}."
    finished = frame[(frame["status"] == FINISHED) & frame["val_accuracy"].notna()]
    if finished.empty:
        return text
    best = finished[finished["val_accuracy"] == finished["val_accuracy"].max()]
    reached = f"{100 * best['val_accuracy'].iloc[0]:.2f} %"
    if len(frame) == 1:
        return f"{text} Validation accuracy: {reached}."
    others = f"{len(best)} runs alike, among them " if len(best) > 1 else ""
    setting = in_short(best.iloc[0], differing(finished, SETTINGS_OF_A_RUN))
    who = f"{others}{best['run'].iloc[0]}{f' ({setting})' if setting else ''}"
    return f"{text} Best validation accuracy: {reached}, by {who}."


def _timing(frame: pd.DataFrame) -> Iterator[str]:
    """How the times came about, one line each way, and which of them say little about speed."""
    for timing, rows in frame.groupby(frame["timing"].fillna(TIMING_UNKNOWN)):
        yield f"{_of(rows, frame)}: {timing}."
    for caveat, rows in frame[frame["speed_caveats"] != ""].groupby("speed_caveats"):
        yield f"{_of(rows, frame)}: not a speed measurement (marked * and drawn hollow): {caveat}."
    short = too_short(frame)
    if short.any():
        yield f"{_of(frame[short], frame)}: {TOO_SHORT}"


def _of(rows: pd.DataFrame, frame: pd.DataFrame) -> str:
    if len(rows) < len(frame):
        return f"{len(rows)} of {len(frame)} runs"
    return "All runs" if len(frame) > 1 else "The run"


def _machines(frame: pd.DataFrame) -> list[list[str]]:
    """One row for each machine with the same versions on it: the columns of `MACHINE`, and how many runs."""
    counts: dict[tuple[str, ...], int] = {}
    for path in frame["path"]:
        try:
            told = store.environment(RunFolder(path))
        except FolderError:  # the run ended before its first rank was up
            told = {}
        key = tuple("–" if told.get(name) is None else str(told[name]) for name in MACHINE)
        counts[key] = counts.get(key, 0) + 1
    return [[*key, str(count)] for key, count in counts.items()]


def _plots(frame: pd.DataFrame) -> Iterator[Section]:
    """The figures that make sense for these runs."""
    finished = frame[frame["status"] == FINISHED]
    if finished.empty:
        return
    if finished["world_size"].nunique() > 1:
        figures = [plots.speedup(frame), plots.efficiency(frame), plots.throughput(frame)]
        yield "Speed", figures, ""
    yield from _learning(finished, frame)
    yield from _time(finished)


def _learning(finished: pd.DataFrame, frame: pd.DataFrame) -> Iterator[Section]:
    figures = [plots.heat_map(frame)] if frame["lr"].nunique() > 1 else []
    remark = ""
    if len(finished) > MOST_CURVES:
        remark = f"Curves of single runs are left out, since there are more than {MOST_CURVES} of them."
    else:
        epochs = _events(finished, store.epochs)
        if epochs["val_accuracy"].notna().any():
            one_epoch = epochs.groupby("path")["epoch"].nunique().max() == 1
            remark = "Accuracy against epoch is left out, since each run had only one." if one_epoch else ""
            figures += [] if one_epoch else [plots.accuracy_against_epoch(epochs)]
            figures.append(plots.accuracy_against_seconds(epochs))
        steps = with_settings(_events(finished, store.steps), finished)
        if steps["loss"].notna().any():
            figures.append(plots.loss_against_step(steps))
    if figures:
        yield "Accuracy and loss", figures, remark


def _time(finished: pd.DataFrame) -> Iterator[Section]:
    """Where the time goes: over all runs, and in the one with most ranks."""
    figures = [plots.time_split(finished)] if finished["step_seconds"].notna().any() else []
    widest = finished.sort_values("world_size", kind="stable").tail(1)
    steps = _events(widest, store.steps)
    if steps["start"].notna().any():
        figures.append(plots.timeline(steps))
    if figures:
        yield "Where the time goes", figures, ""


def _events(runs: pd.DataFrame, read: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """The events of these runs."""
    return pd.concat([read(path) for path in runs["path"]])

"""Reading recorded runs: tables of runs, of steps and of epochs, from the files in their folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from course_lib.config import RunConfig
from course_lib.errors import FolderError
from course_lib.runs.events import EventReader
from course_lib.runs.folder import FAILED, FINISHED, LOST, STOPPED, RunFolder, printable, read_json
from course_lib.runs.pace import number_of
from course_lib.scaling.speedup import SPEEDUP_COLUMNS, with_speedup
from course_lib.training.schedules import scaled_lr

UNREADABLE = "unreadable"
KINDS = {str: "text", int: "a whole number", list: "a list"}

CONFIG_FIELDS = tuple(each.name for each in fields(RunConfig))
CONFIG_NUMBERS = tuple(each.name for each in fields(RunConfig) if str(each.type).startswith(("int", "float")))
DERIVED = ("world_size", "global_batch_size", "peak_lr")
LABELS = ("sweep", "scaling", "repeat", "guess")
TEXTS = ("timing", "hostname", "cpu", "backend", "torch", "python", "course", "platform")  # of environment.json
MACHINE = ("hostname", "cpu", "cores", "devices", "backend", "torch")
TIME_SPLIT = ("data", "forward", "backward", "optimizer")
SPLIT_COLUMNS = tuple(f"{part}_seconds" for part in TIME_SPLIT)
RESULTS = (
    "images_per_sec",
    "step_seconds",
    *SPLIT_COLUMNS,
    "seconds",
    "real_seconds",
    "val_accuracy",
    "val_loss",
    "train_loss",
    "steps",
    "timed_steps",
)
FACTS = (
    *("run", "path", "status", "error", *CONFIG_FIELDS, *DERIVED),
    *(*LABELS, "timing", "speed_caveats"),
)
RUN_COLUMNS = (*FACTS, *RESULTS, *SPEEDUP_COLUMNS, *MACHINE)
NUMBERS = (*CONFIG_NUMBERS, *DERIVED, "repeat", "guess")
RUN_NUMBERS = (*NUMBERS, *RESULTS, "cores")

STEP_FACTS = ("run", "path", "status", "world_size", "timing", "speed_caveats")
STEP_VALUES = (
    "rank",
    "time",
    "epoch",
    "step",
    "loss",
    "samples",
    "lr",
    "grad_norm",
    "local_grad_norm",
    "local_samples",
    "start",
    *TIME_SPLIT,
    "seconds",
    "images_per_sec",
)
EPOCH_FACTS = tuple(name for name in FACTS if name != "error")
EPOCH_VALUES = ("rank", "time", "epoch", "train_loss", "val_loss", "val_accuracy", "images_per_sec", "seconds")


def frame(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """One row a run, for the run in `folder` or all runs below it; the columns are `RUN_COLUMNS`.

    A run whose files are damaged, or that another version wrote, has status "unreadable" and says
    why in `error`; what could be read of it is there. An attempt that failed has a row of its own,
    next to the one that followed it; only finished runs have results and count in the speedup (see
    scaling/speedup.py). `seconds` is what the training function took, from its call to its return; in a simulated run
    it is simulated too, and `real_seconds` is what the simulation took. `lr` is the rate for one rank, `peak_lr` the
    highest in use: what the rule makes of it for the global batch. `guess` is the speedup that somebody expected.

    Raises:
        FolderError: the folder is not there.
    """
    table = pd.DataFrame([_row(found) for found in _find_runs(folder)], columns=[*FACTS, *RESULTS, *MACHINE])
    return with_speedup(_with_numbers(table, RUN_NUMBERS))[list(RUN_COLUMNS)]


def steps(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """One row a step and rank, of the run in `folder` or of all runs below it.

    The columns are `STEP_FACTS`, `STEP_VALUES` (see events in training/), and what else was reported.

    Raises:
        FolderError: the folder is not there.
    """
    return _events(folder, "step", STEP_FACTS, STEP_VALUES)


def epochs(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """One row an epoch, of the run in `folder` or of all runs below it.

    The columns are `EPOCH_FACTS`, all that tells a run from its repeats among them, `EPOCH_VALUES`, and what else was
    reported. `lr` is the config's; `seconds` is training time since the start of the run.

    Raises:
        FolderError: the folder is not there.
    """
    return _events(folder, "epoch", EPOCH_FACTS, EPOCH_VALUES)


@dataclass
class _Found:
    """A folder that holds a run, and the names of its files."""

    path: str
    names: list[str] = field(default_factory=list)
    problem: str | None = None


def _find_runs(folder: str | os.PathLike[str]) -> Iterator[_Found]:
    """The runs in a folder, at any depth, in order of their names. Links below it are not followed."""
    if not os.path.isdir(folder):
        raise FolderError(f"There is no folder {os.fspath(folder)}. Name the folder of a run, or one with runs in it.")
    pending = [os.path.abspath(folder)]
    while pending:
        path = pending.pop()
        try:
            with os.scandir(path) as entries:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError as error:
            yield _Found(path, problem=f"{path} cannot be listed: {error.strerror}.")
            continue
        if kinds.keys() & {"config.json", "result.json", "failure.json"}:
            yield _Found(path, list(kinds))
        else:
            below = sorted((name for name, is_folder in kinds.items() if is_folder and name[0] != "."), reverse=True)
            pending += [os.path.join(path, name) for name in below]


def _row(found: _Found) -> dict[str, Any]:
    """All that the files of a run say about it. A damaged one takes nothing from the others."""
    run = RunFolder(found.path)
    row: dict[str, Any] = {"run": printable(run.path.name), "path": found.path, "hardware": None, "speed_caveats": ""}
    problems = [found.problem] if found.problem else []
    for read in () if problems else READERS:
        try:
            row.update(read(run, found.names))
        except (FolderError, OSError, OverflowError) as error:  # the last: a damaged file may hold any number
            problems.append(str(error))
    if problems:
        row.update(status=UNREADABLE, error=" ".join(problems))
    return row


def _read_config(run: RunFolder, names: list[str]) -> dict[str, Any]:
    config, labels = run.read_config()
    peak_lr = scaled_lr(config.lr, config.lr_rule, config.global_batch_size, config.batch_size)
    derived = dict(zip(DERIVED, (config.world_size, config.global_batch_size, peak_lr), strict=True))
    part_of = {name: _value(run.config, labels, name, str) for name in ("sweep", "scaling")}
    return {**vars(config), **derived, **part_of, "repeat": labels.get("repeat"), "guess": labels.get("guess")}


def _read_environment(run: RunFolder, names: list[str]) -> dict[str, Any]:
    if run.environment.name not in names:  # the run ended before its first rank was up
        return {}
    told = environment(run)
    return {name: told[name] for name in ("timing", *MACHINE)}


def environment(run: RunFolder) -> dict[str, Any]:
    """The machine of a run, and how its times came about: text but for `cores`; None for what is not told.

    Raises:
        FolderError: environment.json is missing or damaged.
    """
    content = read_json(run.environment)
    texts = {name: _value(run.environment, content, name, str) for name in TEXTS}
    cores = _value(run.environment, content, "cores", int)
    devices = sorted(set(_texts(run.environment, content, "devices")))
    return {**texts, "cores": cores, "devices": ", ".join(devices)}


def _read_caveats(run: RunFolder, names: list[str]) -> dict[str, Any]:
    if run.caveats.name not in names:  # a measurement of speed
        return {}
    return {"speed_caveats": "; ".join(_texts(run.caveats, read_json(run.caveats), "speed_caveats"))}


def _read_outcome(run: RunFolder, names: list[str]) -> dict[str, Any]:
    status = run.status(names)
    if status == FINISHED:
        return {"status": status, **_read_result(run)}
    if status in (FAILED, STOPPED):
        return {"status": status, "error": _read_failure(run, names)}
    if status == LOST:
        return {"status": status, "error": "The program that launched it was killed before the run had ended."}
    return {"status": status}


def _read_result(run: RunFolder) -> dict[str, Any]:
    content = read_json(run.result)
    value = content.get("value")
    value = value if isinstance(value, dict) else {}  # a function may return anything
    split = value.get("time_split")
    split = split if isinstance(split, dict) else {}
    parts = dict(zip(SPLIT_COLUMNS, map(split.get, TIME_SPLIT), strict=True))
    # A simulated run has a clock of its own, and says itself what it took here.
    seconds = value.get("seconds") if "real_seconds" in value else seconds_of(run)
    return {**{name: value.get(name) for name in RESULTS}, **parts, "seconds": seconds}


def seconds_of(run: RunFolder) -> float:
    """How long a finished run took here.

    Raises:
        FolderError: result.json is missing or damaged.
    """
    seconds = number_of(read_json(run.result), "seconds")
    if seconds is None:
        raise _damaged(run.result, "seconds", "a number")
    return seconds


def _read_failure(run: RunFolder, names: list[str]) -> str | None:
    """What went wrong: the verdict, or, where the launcher died before it, what a rank said."""
    if run.failure.name in names:
        return _message(run.failure)
    said = {name: read_json(run.path / name) for name in sorted(names) if name.startswith("error-rank")}
    if not said:
        return None
    # Who failed because of another one is innocent, and among the others the first is the culprit.
    name = min(said, key=lambda name: (bool(said[name].get("from_peer")), number_of(said[name], "time") or 0.0))
    message = _message(run.path / name)
    if not said[name].get("from_peer"):
        return message
    rank = name.removeprefix("error-rank").removesuffix(".json")
    how = "waited for it in vain" if said[name].get("timed_out") else "lost its connection to it"
    return f"Another rank hung, or ended without saying why: rank {rank} {how}. {message}"


def _message(path: Path) -> str | None:
    message: str | None = _value(path, read_json(path), "message", str)
    return message


def _value(path: Path, content: dict[str, Any], name: str, kind: type) -> Any:
    """A value of a file, which must be of this kind where it is there."""
    value = content.get(name)
    if value is not None and not isinstance(value, kind):
        raise _damaged(path, name, KINDS[kind])
    return value


def _texts(path: Path, content: dict[str, Any], name: str) -> list[str]:
    """The same for a list of texts; none where it is not there."""
    values: list[str] = _value(path, content, name, list) or []
    if not all(isinstance(value, str) for value in values):
        raise _damaged(path, name, "a list of texts")
    return values


def _damaged(path: Path, name: str, wanted: str) -> FolderError:
    return FolderError(f"{path} is damaged: {name!r} is not {wanted}. Remove its folder, or restore the file.")


READERS = (_read_config, _read_environment, _read_caveats, _read_outcome)


def _events(folder: str | os.PathLike[str], kind: str, facts: tuple[str, ...], values: tuple[str, ...]) -> pd.DataFrame:
    """The events of one kind, each with the facts of its run. What cannot be read is left out."""
    rows = []
    for found in _find_runs(folder):
        row = _row(found)
        told = {name: row.get(name) for name in facts}
        rows += [{**event, **told} for event in _read_events(found) if event["kind"] == kind]
    known = [*facts, *values]
    table = pd.DataFrame(rows, columns=None if rows else known)
    others = [name for name in table if name not in known and name != "kind"]
    numbers = (*values, *(name for name in facts if name in NUMBERS))
    return _with_numbers(table.reindex(columns=[*known, *others]), numbers)


def _read_events(found: _Found) -> list[dict[str, Any]]:
    try:
        return EventReader(found.path).read_new()
    except FolderError:
        return []


def _with_numbers(table: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """The table with these columns as numbers; what is none, or not finite, becomes NaN."""
    return table.assign(**{name: _numbers(table[name]) for name in names})


def _numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    try:
        numbers = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # an integer of hundreds of digits
        return _numbers(column.map(lambda value: None if isinstance(value, int) and abs(value) >= 2**63 else value))
    return numbers.replace([np.inf, -np.inf], np.nan)

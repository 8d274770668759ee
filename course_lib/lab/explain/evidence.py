"""What an explanation goes by: a run, the runs to hold it against, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from course_lib.config import MEASURED_ON_CPU_RANKS, untimed_steps
from course_lib.errors import FolderError
from course_lib.lab.words import SETTINGS_OF_A_RUN
from course_lib.runs import store
from course_lib.runs.folder import FINISHED
from course_lib.scaling.speedup import RANKS, SAME_FOR_SPEED, alike

SAME_TASK = ("model", "data", "train_samples")  # in which a run may not differ from the one before it
# In these it may, and what it learns depends on them.
LEARNING = tuple(name for name in SETTINGS_OF_A_RUN if name not in (*SAME_TASK, "world_size"))
CHOSEN = ("batch_size", "lr", "lr_rule")  # of which some of these are made


@dataclass(frozen=True)
class Finding:
    """What was found in a run's numbers, what to try next, and its weight: 1 is a whole step, 2 all there is to say."""

    weight: float
    sentence: str
    try_next: str


@dataclass(frozen=True)
class Case:
    """A run and what it is held against: rows of a frame (see store.py).

    Fields:
        run: the run.
        baseline: one on one rank that differs in nothing else that changes its speed; None where there is none.
        before: of the runs on fewer ranks, and of those on as many that were made before, the one most like it in
            how it learns; of several, the one for which most was chosen alike, then that on fewest ranks, then the
            last. None where there is none.
        accuracies: of the runs that are like `run` but for the seed, one a seed, and of those like `before`.
        steps: its timed steps on all ranks, with the seconds of each phase; empty where they are not known.
    """

    run: pd.Series[Any]
    baseline: pd.Series[Any] | None = None
    before: pd.Series[Any] | None = None
    accuracies: tuple[tuple[float, ...], ...] = ((), ())
    steps: pd.DataFrame | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, path: str) -> Case:
        """The case of the run in a folder, among the runs of a frame.

        Raises:
            FolderError: it is none of these.
        """
        own = frame[frame["path"] == path]
        if own.empty:
            raise FolderError(f"The run in {path} is not in this table. Read the folder again.")
        run = own.iloc[0]
        finished = frame[frame["status"] == FINISHED]
        before = _before(run, finished, own.index[0])
        accuracies = tuple(() if row is None else _repeats(row, finished) for row in (run, before))
        return cls(run, _baseline(run, finished), before, accuracies, _timed_steps(path))

    @property
    def ranks(self) -> str:
        """How many ranks the run has, and of which kind: "2 CPU ranks"."""
        kind = "CPU rank" if self.run["timing"] == MEASURED_ON_CPU_RANKS else "GPU"
        return f"{self.run['world_size']:.0f} {kind}{'' if self.run['world_size'] == 1 else 's'}"


Rule = Callable[[Case], Finding | None]


def best(rules: Sequence[Rule], case: Case, most: int = 2) -> list[Finding]:
    """What these rules find, the weightiest first."""
    found = [finding for rule in rules if (finding := rule(case)) is not None]
    return sorted(found, key=lambda finding: -finding.weight)[:most]


def milliseconds(seconds: float) -> str:
    """A time of a step as people read it."""
    return f"{1000 * seconds:.3g} ms"


def differences(run: pd.Series[Any], other: pd.Series[Any], names: Iterable[str]) -> list[str]:
    """Those of these columns in which two rows differ."""
    return [name for name in names if not (run[name] == other[name] or (pd.isna(run[name]) and pd.isna(other[name])))]


def _baseline(run: pd.Series[Any], finished: pd.DataFrame) -> pd.Series[Any] | None:
    if run["world_size"] == 1:
        return None
    strong = run["scaling"] == "strong"
    runs = alike(finished, run, [*SAME_FOR_SPEED, "global_batch_size" if strong else "batch_size"])
    runs = runs[(runs["world_size"] == 1) & (runs["images_per_sec"] > 0)]
    clean = runs[runs["speed_caveats"] == ""]
    runs = (runs if clean.empty else clean).sort_values("images_per_sec", kind="stable")
    return None if runs.empty else runs.iloc[len(runs) // 2]


def _before(run: pd.Series[Any], finished: pd.DataFrame, place: Any) -> pd.Series[Any] | None:
    runs = alike(finished, run, SAME_TASK)
    runs = runs[runs["val_accuracy"].notna()]
    fewer, as_many = runs["world_size"] < run["world_size"], runs["world_size"] == run["world_size"]
    runs = runs[fewer | (as_many & (runs.index < place))]  # the names of folders, and so the rows, begin with a time
    learning, chosen = (
        [len(differences(run, row, names)) for _, row in runs.iterrows()] for names in (LEARNING, CHOSEN)
    )
    runs = runs.assign(_differences=learning, _chosen=chosen, _place=range(len(runs), 0, -1))
    runs = runs[(runs["_differences"] > 0) | (runs["world_size"] < run["world_size"])]
    runs = runs.sort_values(["_differences", "_chosen", "world_size", "_place"], kind="stable")
    return None if runs.empty else runs.iloc[0]


def _repeats(run: pd.Series[Any], finished: pd.DataFrame) -> tuple[float, ...]:
    runs = alike(finished, run, [*SAME_TASK, *LEARNING, *RANKS]).dropna(subset="val_accuracy")
    return tuple(runs.drop_duplicates("seed", keep="last")["val_accuracy"].astype(float))


def _timed_steps(path: str) -> pd.DataFrame | None:
    try:
        steps = store.steps(path)
    except FolderError:
        return None
    return steps[steps["step"] > untimed_steps(int(steps["step"].max()))] if len(steps.dropna(subset="step")) else None

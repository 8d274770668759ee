"""Why a run was not faster, and why its accuracy moved: in sentences made of its own numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from course_lib.lab.explain.accuracy_rules import accuracy_findings
from course_lib.lab.explain.evidence import Case
from course_lib.lab.explain.speed_rules import speed_findings


@dataclass(frozen=True)
class Explanation:
    """A sentence on the "speed" or the "accuracy" of a run, and what to try next."""

    subject: str
    sentence: str
    try_next: str


def explain(frame: pd.DataFrame, run_path: str) -> list[Explanation]:
    """What stands out in a run: at most two explanations of its speed, then at most two of its accuracy.

    Args:
        frame: runs to compare with, the run itself among them (see store.py).
        run_path: the folder of the run, as in the column `path`.

    Returns:
        Nothing for a run without figures, unless it diverged.

    Raises:
        FolderError: the run is not in the frame.
    """
    case = Case.of(frame, run_path)
    found = {"speed": speed_findings(case), "accuracy": accuracy_findings(case)}
    return [
        Explanation(subject, finding.sentence, finding.try_next)
        for subject, findings in found.items()
        for finding in findings
    ]

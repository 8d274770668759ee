"""Guided experiments: a lesson sets the Scaling Lab's controls and presses Sweep as a student would, and waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.errors import FolderError, RunError
from course_lib.lab.panel.choices import Choices
from course_lib.lab.panel.experiments import swept
from course_lib.lab.panel.scaling_lab import ScalingLab
from course_lib.runs import store
from course_lib.runs.folder import FINISHED, RunFolder
from course_lib.runs.launch import prepare


def run_missing(panel: ScalingLab, choices: Choices, over: str, values: Sequence[Any]) -> list[str]:
    """Sweep over those values that have no finished run in the panel's folder yet; choose the runs of all of them.

    Runs that somebody has made by hand count as well, so nothing is made twice. Returns when all runs are over.

    Args:
        panel: where the controls are set, and Sweep is pressed.
        choices: what the runs have in common; each is made once, whatever `choices.repeats`.
        over: what they differ in, one of `experiments.SWEPT`.
        values: those of `over`.

    Returns:
        The folders of the runs, those of the first value first.

    Raises:
        UsageError: a run cannot be made here; nothing was started.
        RunError: a run was stopped, or failed; the panel says why.
    """
    choices = choices.with_(repeats=1)
    panel.wait()  # for what somebody has begun by hand
    panel.controls.choices = choices
    panel.sweep_over.over.value = over
    missing = [value for value in values if not _finished(panel, choices, over, value)]
    if missing:
        panel.sweep_over.values.value = ", ".join(map(str, missing))
        panel.sweep()
        try:
            panel.wait()
        except KeyboardInterrupt:
            panel.stop()
            raise
    panel.sweep_over.values.value = ", ".join(map(str, values))
    found = {value: _finished(panel, choices, over, value) for value in values}
    if still := [str(value) for value, paths in found.items() if not paths]:
        raise RunError(
            f"No run has finished with {over} {', '.join(still)}. The panel says why. Run the cell again to make what "
            "is missing."
        )
    paths = [path for value in values for path in found[value]]
    panel.table.done_choosing()  # the list has all of them then
    panel.table.choose(*paths)
    return paths


def _finished(panel: ScalingLab, choices: Choices, over: str, value: Any) -> list[str]:
    """The folders of the finished runs with this value."""
    (sweep,) = swept(choices, over, [value], None)
    config = prepare(sweep.plan("")[0].config).config
    try:
        runs = store.frame(panel.folder)
    except FolderError:  # it is not there yet
        return []
    runs = runs[(runs["status"] == FINISHED) & (runs["scaling"] == choices.scaling)]
    return [path for path in runs["path"] if RunFolder(path).read_config()[0] == config]

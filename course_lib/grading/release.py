"""Exercises from their solutions: nbgrader's own steps, and what a solution says that students begin with.

`make exercises` runs this. A course that is kept in nbgrader sets in its nbgrader_config.py

    from course_lib.grading.release import STEPS

    c.GenerateAssignment.preprocessors = STEPS
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
    SaveCells,
)

ROOT = Path(__file__).parents[2]
# What stands between the marks, and what students get in its place: each line of it, with its indentation, after "# ".
REGION = re.compile(
    r"^[ \t]*### BEGIN SOLUTION\n(?P<solution>(?:(?!.*### (?:BEGIN|END) SOLUTION).*\n)*?)"
    r"[ \t]*### GIVEN\n(?P<given>(?:(?!.*### (?:BEGIN|END) SOLUTION).*\n)*?)[ \t]*### END SOLUTION(?:\n|$)",
    flags=re.MULTILINE,
)
OF_JUPYTEXT = ("jupytext", "lines_to_next_cell")


class ClearToGiven(ClearSolutions):  # type: ignore[misc]  # nbgrader has no types
    """As nbgrader clears solutions; but where a region has a part `### GIVEN`, that is what students begin with."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], cell_index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        """Clear one cell; in a solution cell all regions say what is given, or none does."""
        source = given_of(cell.source)
        if source == cell.source:
            return super().preprocess_cell(cell, resources, cell_index)
        if "### BEGIN SOLUTION" in source:
            raise ValueError(f"Some regions of this cell have no ### GIVEN:\n{cell.source}")
        cell.source = source
        return cell, resources


# In the order of nbgrader's own generate_assignment.
STEPS = [
    *(LockCells, ClearToGiven, ClearOutput, CheckCellMetadata, ComputeChecksums, SaveCells),
    *(ClearHiddenTests, ClearMarkScheme, ComputeChecksums, CheckCellMetadata),
]


def given_of(source: str) -> str:
    """What students begin with: what is given in the place of each solution that says so, no longer as comments."""
    return REGION.sub(lambda region: re.sub(r"^[ \t]*# ?", "", region["given"], flags=re.MULTILINE), source)


def solution_of(source: str) -> str:
    """The solution, without what is given and without marks."""
    return REGION.sub(lambda region: region["solution"], source)


def exercise_from(solution: Path) -> NotebookNode:
    """The exercise that a solution notebook becomes."""
    notebook = nbformat.read(solution, as_version=4)
    resources: dict[str, Any] = {}
    for step in STEPS:
        if step is not SaveCells:  # which needs the database of a course
            notebook, resources = step().preprocess(notebook, resources)
    for part in (notebook, *notebook.cells):
        for name in OF_JUPYTEXT:
            part.metadata.pop(name, None)
    return notebook


def main() -> None:
    """Write `exercises/` anew from `solutions/`."""
    folder = ROOT / "exercises"
    folder.mkdir(exist_ok=True)
    solutions = sorted((ROOT / "solutions").glob("*.ipynb"))
    for path in {*folder.glob("*.ipynb")} - {folder / solution.name for solution in solutions}:
        path.unlink()
    for solution in solutions:
        nbformat.write(exercise_from(solution), folder / solution.name)


if __name__ == "__main__":
    main()

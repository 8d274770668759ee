"""How a solution becomes an exercise; that the stored ones are up to date stands in test_project.py."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from course_lib.grading.release import exercise_from, given_of, solution_of

MARKS = {"grade": False, "locked": False, "schema_version": 3, "solution": True, "task": False}


def released(tmp_path: Path, source: str) -> str:
    cell = nbformat.v4.new_code_cell(source, metadata={"nbgrader": {**MARKS, "grade_id": "answer"}})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "solution.ipynb")
    return str(exercise_from(tmp_path / "solution.ipynb").cells[0].source)


def test_what_is_given_takes_the_place_of_the_solution_with_its_indentation():
    source = """\
def f(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### GIVEN
    #     if x:
    #         return x
    #
    # # a comment
    ### END SOLUTION

### BEGIN SOLUTION
print(f(1))
### GIVEN
### END SOLUTION
f(1)"""
    assert given_of(source) == "def f(x):\n    if x:\n        return x\n\n# a comment\n\nf(1)"
    assert solution_of(source) == "def f(x):\n    return 2 * x\n\nprint(f(1))\nf(1)"


def test_where_nothing_is_given_students_get_what_nbgrader_gives_them(tmp_path):
    source = "def f(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
    assert given_of(source) == source
    assert released(tmp_path, source) == "def f(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()"


def test_a_cell_gives_something_in_all_of_its_regions_or_in_none(tmp_path):
    given = "### BEGIN SOLUTION\nx = 1\n### GIVEN\n# x = 0\n### END SOLUTION\n"
    plain = "### BEGIN SOLUTION\ny = 1\n### END SOLUTION\n"
    for source in (given + plain, plain + given):
        with pytest.raises(ValueError, match="GIVEN"):
            released(tmp_path, source)

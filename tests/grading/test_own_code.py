"""Which code of a running notebook is judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import parts_for_tests as parts
import pytest

from course_lib.grading.own_code import OwnCode, find
from course_lib.grading.parts import Part


def after(*cells: str, part: Part = parts.DOUBLE) -> OwnCode:
    """What is found after these cells ran, in this order; a cell that fails ends where it fails."""
    names: dict[str, Any] = {}
    for cell in cells:
        try:
            exec(cell, names)
        except Exception:
            pass
    shell: Any = SimpleNamespace(user_ns=names, history_manager=SimpleNamespace(input_hist_raw=["", *cells]))
    return find(part, shell)


def test_the_whole_cell_that_defined_a_function_last_is_taken():
    old, new = "def double(x):\n    return x", "two = 2\ndef double(x):\n    return two * x"
    assert after(old, new, "double(1)").code == new
    assert after(new, old, "two = 3").code == old


@pytest.mark.parametrize("cell", ["double(", "$ double = 2", "%%writefile train.py\ndef double(x): pass"])
def test_a_cell_that_defined_nothing_here_is_passed_over(cell):
    right = "def double(x):\n    return 2 * x"
    assert after(right, cell).code == right


@pytest.mark.parametrize(
    "cell",
    [
        "def double(x): return 2 * x",
        "double = lambda x: 2 * x",
        "from operator import index as double",
        "class double:\n    pass",
        "import functools\n@functools.cache\ndef double(x): return 2 * x",
        "if True:\n    def double(x): return 2 * x",
        "double: object = len",
    ],
)
def test_a_name_may_be_defined_in_any_way(cell):
    assert after(cell) == OwnCode(cell)


def test_a_newer_cell_that_is_no_python_is_told_and_not_the_older_one_judged():
    right, torn = "def double(x):\n    return 2 * x", "two = 2\ndef double(x):\n    return (two * x"
    told = "The cell with `double` is no Python yet. Line 3: '(' was never closed."
    assert after(right, torn) == OwnCode(None, told)
    assert after(torn) == OwnCode(None, told)
    assert after(torn, right).code == right


def test_functions_of_one_cell_come_once_and_those_of_two_in_the_order_in_which_they_ran():
    one = "def half(x): return x / 2\ndef double(x): return 2 * x"
    assert after(one, part=parts.BOTH).code == one
    double, half = "def double(x): return 2 * x", "def half(x): return double(x) / 4"
    assert after(double, half, part=parts.BOTH).code == f"{double}\n\n{half}"
    assert after(half, double, part=parts.BOTH).code == f"{half}\n\n{double}"


def test_what_is_not_defined_is_named():
    found = after("double = len", part=parts.BOTH)
    assert found.code is None
    assert "`half` is not defined" in found.missing
    assert "`double` and `half` are not defined" in after(part=parts.BOTH).missing


def test_names_of_other_cells_are_told_and_own_and_pythons_are_not():
    cell = (
        "import math\ndef double(x):\n    local = len([y for y in x])\n    return local * factor + math.pi + helper(x)"
    )
    assert after("factor = 2\ndef helper(x): pass", cell).elsewhere == ("factor", "helper")
    assert after("factor = 2", "def double(x, factor=2): return factor * x").elsewhere == ()


def test_a_program_is_the_file_in_this_folder():
    found = after(part=parts.PROGRAM)
    assert found.code is None
    assert "%%writefile train.py" in found.missing
    Path("train.py").write_text("print('é')", encoding="utf-8")
    assert after(part=parts.PROGRAM).code == "print('é')"

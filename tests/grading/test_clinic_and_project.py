"""The clinic and the project: notebooks and checks agree, and a name alone cures nobody."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from grading.program2_cells import ROOT, solution, untouched

from course_lib.grading import catalog
from course_lib.grading.exercises import ex11_clinic
from course_lib.grading.judging import judge


def test_the_clinic_says_which_names_there_are() -> None:
    notebook = (ROOT / "solutions" / "11_clinic.py").read_text()
    for name, meaning in ex11_clinic.FAULTS.items():
        assert f"# | `{name}` | {meaning} |" in notebook


def test_the_project_begins_with_the_program_that_judges_it() -> None:
    """Else the reference would be of another model, or of another loss."""
    program = files("course_lib.grading.programs").joinpath("one_device.py").read_text()
    fixed = program[program.index("class NextToken") : program.index("# Up to here the program stays as it is.")]
    assert fixed in untouched("12.1")
    assert fixed in solution("12.1")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 15))
def test_a_patient_that_is_named_only_is_still_ill(number, sandbox) -> None:
    part = catalog.part(f"11.{number}")
    fault = re.search(rf'^fault_{number} = "(.+)"', solution(part.name), flags=re.MULTILINE)
    assert fault
    code = untouched(part.name).replace(f'fault_{number} = ""', fault[0])
    result = judge(part, code, sandbox)
    assert [check.points for check in result.checks] == [1, 0], result

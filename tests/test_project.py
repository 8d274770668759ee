"""Files that say the same thing twice agree, and the lessons are as they should be stored."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, entry_points, version
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import course_lib
from course_lib.grading.release import exercise_from

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What conda-forge calls otherwise than PyPI does, as the head of environment.yml says.
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "playwright": "playwright-python",
    "msgpack": "msgpack-python",
}
NOT_IN_CONDA = ("axe-playwright-python",)
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOLUTION_SCRIPTS = sorted((ROOT / "solutions").glob("*.py"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))


def name_of(path: Path) -> str:
    return path.name


def direct_dependencies() -> dict[str, SpecifierSet]:
    """Name and range of everything that pyproject.toml asks for, the dev extra included."""
    lines = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    return {canonicalize_name(wanted.name): wanted.specifier for wanted in map(Requirement, lines)}


def locked_releases() -> dict[str, str]:
    """The release of each package that requirements.lock pins."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    pins = {canonicalize_name(name): release for name, _, release in (line.partition("==") for line in lines)}
    assert len(pins) == len(lines), "a package is pinned twice"
    assert all(Version(release).local is None for release in pins.values()), "a pin is a public release"
    return pins


def commands(text: str) -> list[str]:
    """The lines of a text that call make, without the comments behind them."""
    return [command.strip() for command in re.findall(r"^\s*(make\b[^#\n]*)", text, flags=re.MULTILINE)]


def test_environment_for_conda_asks_for_the_same_packages_and_ranges() -> None:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {name: SpecifierSet(range_) for name, _, range_ in (line.partition(" ") for line in listed[:-1])}
    wanted = direct_dependencies()
    from_pypi = {name: wanted.pop(name) for name in NOT_IN_CONDA}
    expected = {CONDA_NAMES.get(name, name): range_ for name, range_ in wanted.items()}
    expected |= {"python": SpecifierSet(PROJECT["requires-python"]), "pip": SpecifierSet()}
    assert conda == expected
    *through_pip, course = listed[-1]["pip"]
    assert {each.name: each.specifier for each in map(Requirement, through_pip)} == from_pypi
    assert course == "--editable ."


def test_lock_pins_every_direct_dependency_inside_its_range() -> None:
    pins = locked_releases()
    assert pins["torch"] == "2.13.0"
    outside = {name: pins.get(name) for name, range_ in direct_dependencies().items() if pins.get(name) not in range_}
    assert not outside


def test_lock_can_be_installed_on_the_first_releases_of_python_3_11() -> None:
    """Debian 12 has 3.11.2, and a newer Python makes a lock that pip cannot install there."""
    pins = locked_releases()
    locked = [package for package in distributions() if pins.get(canonicalize_name(package.name)) == package.version]
    refusing = [
        package.name for package in locked if "3.11.2" not in SpecifierSet(package.metadata.get("Requires-Python", ""))
    ]
    assert not refusing, "run `make lock PYTHON=...` with Python 3.11.2 or older"


def test_ci_runs_what_a_person_is_told_to_type() -> None:
    assert commands((ROOT / ".ci" / "run").read_text()) == ["make check", "make test"]
    assert "make test" in commands((ROOT / "README.md").read_text())


def test_version_and_command_are_the_packages_own() -> None:
    assert version("ddp-course") == course_lib.__version__
    (command,) = entry_points(group="console_scripts", name="ddp-course")
    assert command.value == "course_lib.cli:main"


def test_the_ground_floor_needs_no_package_but_the_standard_library() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import course_lib.config, course_lib.errors"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_each_lesson_has_its_script_and_each_script_its_lesson() -> None:
    assert [path.stem for path in SCRIPTS] == [path.stem for path in NOTEBOOKS]


def test_each_solution_has_its_script_and_its_exercise() -> None:
    names = [path.stem for path in SOLUTIONS]
    assert [path.stem for path in SOLUTION_SCRIPTS] == names, "run `make exercises`"
    assert [path.stem for path in EXERCISES] == names, "run `make exercises`"


@pytest.mark.parametrize("script", SCRIPTS + SOLUTION_SCRIPTS, ids=name_of)
def test_notebook_and_script_say_the_same(script: Path) -> None:
    notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    cells = [
        [(cell.cell_type, cell.source, cell.metadata.get("nbgrader")) for cell in book.cells]
        for book in (jupytext.read(script), notebook)
    ]
    assert cells[0] == cells[1], "run `make notebooks` for a lesson, `make exercises` for a solution"


@pytest.mark.parametrize("solution", SOLUTIONS, ids=name_of)
def test_exercise_is_what_its_solution_becomes(solution: Path) -> None:
    """Which also says that its marks are what nbgrader allows, since `exercise_from` checks them as nbgrader does."""
    exercise = nbformat.read(ROOT / "exercises" / solution.name, as_version=4)
    assert exercise == exercise_from(solution), "run `make exercises`"


@pytest.mark.parametrize("path", SOLUTIONS + EXERCISES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_solution_and_exercise_are_stored_without_outputs(path: Path) -> None:
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not [cell.source for cell in code if cell.outputs or cell.execution_count], "run `make exercises`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_lesson_is_stored_executed_and_without_errors(path: Path) -> None:
    code = [
        cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code" and cell.source.strip()
    ]
    assert all(cell.execution_count for cell in code), "run `make notebooks`"
    assert not [output.evalue for cell in code for output in cell.outputs if output.output_type == "error"]


def test_each_test_module_has_a_name_of_its_own() -> None:
    """Else pytest, which imports them by their bare names, collects only one of two."""
    names = [path.name for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(names) == sorted(set(names))

"""What holds for every lesson as it is stored, and when its cells are run in another order than written.

That a lesson and its script agree, and that it is stored executed and without errors, stands in test_project.py;
`make test` runs each lesson from top to bottom with nbval.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PATHS_OF_A_MACHINE = re.compile(r"/(home|root|tmp|Users|work|private|mnt|opt|var)/|[A-Z]:\\\\|/site-packages/")
KERNELSPEC = {"name": "python3", "language": "python", "display_name": "Python 3 (ipykernel)"}
OF_A_CELL = {"jupyter", "tags", "lines_to_next_cell"}  # the last is jupytext's
OF_A_LESSON = {"jupytext", "kernelspec", "language_info", "widgets"}
LARGEST = 1_500_000  # bytes; GitHub shows no larger notebook reliably

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def read(lesson: Path) -> nbformat.NotebookNode:
    return nbformat.read(lesson, as_version=4)


def code_cells(lesson: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(lesson).cells if cell.cell_type == "code"]


def outputs(lesson: Path) -> list[nbformat.NotebookNode]:
    return [output for cell in code_cells(lesson) for output in cell.outputs]


def markdown(lesson: Path) -> str:
    return "\n\n".join(cell.source for cell in read(lesson).cells if cell.cell_type == "markdown")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


@each_lesson
def test_nothing_that_is_stored_tells_of_the_machine(lesson):
    stored = json.dumps([outputs(lesson), read(lesson).metadata])
    stored = re.sub(r"base64,[A-Za-z0-9+/=]+|\"image/png\": \"[^\"]*\"", "", stored)  # pictures
    assert not PATHS_OF_A_MACHINE.findall(stored)
    assert socket.gethostname() not in stored
    assert f"/{getpass.getuser()}/" not in stored


@each_lesson
def test_metadata_says_what_is_needed_and_no_more(lesson):
    book = read(lesson)
    assert book.metadata.keys() <= OF_A_LESSON
    assert book.metadata.kernelspec == KERNELSPEC
    for cell in book.cells:
        assert cell.metadata.keys() <= OF_A_CELL, "an execution time, a scroll position or the like"


@each_lesson
def test_a_lesson_is_small_enough_to_be_read_on_the_web(lesson):
    assert lesson.stat().st_size < LARGEST


@each_lesson
def test_every_picture_says_in_words_what_it_shows(lesson):
    pictures = [output for output in outputs(lesson) if "image/png" in output.get("data", {})]
    assert pictures
    for picture in pictures:
        assert re.match(r"\w.{40,}\.$", picture.data["text/plain"], flags=re.DOTALL)


@each_lesson
def test_nothing_was_printed_as_a_warning(lesson):
    assert [output.text for output in outputs(lesson) if output.get("name") == "stderr"] == []


@each_lesson
def test_headings_go_down_step_by_step(lesson):
    levels = [len(marks) for marks in re.findall(r"^(#+) ", without_code(markdown(lesson)), flags=re.MULTILINE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@each_lesson
def test_answers_can_be_folded_and_links_lead_somewhere(lesson):
    text = markdown(lesson)
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") > 0
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith("https://") or (lesson.parent / target).exists(), target


@each_lesson
def test_a_lesson_asks_before_it_answers(lesson):
    text = markdown(lesson)
    assert text.index("**Predict") < text.index("<details>")


@each_lesson
@pytest.mark.slow
def test_cells_can_be_run_before_any_run_again_and_backwards(lesson, tmp_path, monkeypatch):
    """All but those that launch something: what has not been run yet must be said, not raised."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    book = read(lesson)
    first, *others = [cell for cell in code_cells(lesson) if not re.search(r"\blaunch\(", cell.source)]
    assert len(others) > 5
    book.cells = [first, *others, *reversed(others), first, *others]
    client = NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    problems = [output for cell in book.cells for output in cell.outputs if output.output_type == "error"]
    assert [f"{problem.ename}: {problem.evalue}" for problem in problems] == []


def test_the_difference_between_the_trainers_is_the_six_steps():
    """What the first lesson shows: nothing but the marked steps, all of them, and not a line taken away."""
    cell = next(cell for cell in code_cells(LESSONS[0]) if "difflib" in cell.source)
    (shown,) = cell.outputs
    lines = shown.data["text/plain"].splitlines()
    steps = [int(step) for line in lines for step in re.findall(r"^\+ +# DDP step (\d): ", line)]
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    assert all(line.startswith(("+ ", "  ")) for line in lines)
    for before, line in zip(["  ", *lines], lines, strict=False):
        assert not line.startswith("+ ") or before.startswith("+ ") or "# DDP step" in line
    assert shown.data["text/html"].count("background-color:#dafbe1") > 20

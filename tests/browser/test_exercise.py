"""A student does an exercise in a real JupyterLab: checks, reads what was seen, takes a hint, mends, passes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from jupyter_lab import Notebook, errors, find_browser, left, opened
from playwright.sync_api import ConsoleMessage, Locator, expect
from processes import eventually

EXERCISE = Path(__file__).parents[2] / "exercises" / "04_one_gpu_to_many.ipynb"
SOLVED = (Path(__file__).parents[2] / "course_lib" / "grading" / "programs" / "many_gpus.py").read_text()
SECONDS = 120  # that a check may take, with a sandbox that has just been started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


def cell_with(notebook: Notebook, text: str) -> Locator:
    """The code cell that has this text in it now; later by its place, since an editor shows not all lines of a cell."""
    place = next(place for place, cell in enumerate(notebook.cells()) if text in cell["source"])
    return notebook.page.locator(".jp-CodeCell").nth(place)


def run(cell: Locator) -> None:
    """Click into a cell and press Ctrl+Enter."""
    cell.locator(".cm-content").click()
    cell.page.keyboard.press("Control+Enter")


def replace(cell: Locator, text: str) -> None:
    """Select all that is in a cell, and put other text in its place."""
    cell.locator(".cm-content").click()
    cell.page.keyboard.press("Control+a")
    cell.page.keyboard.insert_text(text)


def test_a_student_checks_reads_mends_and_passes(lab, picture):
    shutil.copy(EXERCISE, lab.root)
    with opened(lab, EXERCISE.name, picture) as notebook:
        page = notebook.page
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text) if is_trouble(message) else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        program, check = cell_with(notebook, "%%writefile train.py"), cell_with(notebook, 'check("4.2").points')

        run(cell_with(notebook, "import check, hint"))
        run(check)
        result = check.locator(".jp-OutputArea")
        expect(result.get_by_role("status")).to_contain_text("One group: 0 of 4 points", timeout=1000 * SECONDS)
        expect(result).to_contain_text("There is no train.py here.")

        run(program)
        expect(program.locator(".jp-OutputArea")).to_contain_text("Writing train.py")
        run(check)
        expect(result.get_by_role("progressbar", name=re.compile("Checking 4.2"))).to_be_visible()
        expect(result).to_contain_text("ranks were asked for, and one process did everything.", timeout=1000 * SECONDS)
        expect(result.get_by_role("progressbar")).to_have_count(0)

        page.keyboard.press("Escape")
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.insert_text('hint("4.2")')
        hint = cell_with(notebook, 'hint("4.2")')
        run(hint)
        expect(hint.get_by_role("status")).to_have_text("4.2 One group: hint 1 of 3")

        replace(program, f"%%writefile train.py\n{SOLVED}")
        run(program)
        expect(program.locator(".jp-OutputArea")).to_contain_text("Overwriting train.py")
        run(check)
        expect(result.get_by_role("status")).to_contain_text("One group: passed, 4 of 4", timeout=1000 * SECONDS)
        assert eventually(lambda: check.locator(".jp-OutputArea-executeResult").inner_text().strip().endswith("4"))

        assert errors(notebook.cells()) == []
        assert page.locator("[data-mime-type*=stderr]").count() == 0
        assert said == []
        before = lab.descendants()
        assert [process for process in before if "course_lib.grading.inside.server" in " ".join(process.cmdline())]
        notebook.restart()
        assert eventually(lambda: not left(before), 30), left(before)


def is_trouble(message: ConsoleMessage) -> bool:
    """Whether the page complains about something; JupyterLab itself warns of this and that."""
    return message.type == "error"

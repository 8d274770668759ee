"""The lesson around the Scaling Lab, in a real JupyterLab and a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from jupyter_lab import errors, find_browser, left, opened, ranks_of
from playwright.sync_api import expect
from processes import eventually

LESSON = Path(__file__).parents[2] / "notebooks" / "05_scaling_lab.ipynb"
LAST = "BucketTimeline()"  # the cell after three experiments
RUNS = 2 + 3 + 6  # of these
QUICK = "\nstart = start.with_(model='mlp')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


def write_first_half(path: Path) -> None:
    """The first experiments of the lesson, without their outputs, with shorter runs."""
    book = nbformat.read(LESSON, as_version=4)
    book.cells = book.cells[: 1 + [cell.source for cell in book.cells].index(LAST)]
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
        cell.source = re.sub(r"epochs=\d+", "epochs=1", cell.source)
    code[0].source += QUICK
    nbformat.write(book, path)


def test_experiments_are_made_in_the_panel_and_kept_in_the_notebook(lab, picture):
    write_first_half(lab.root / LESSON.name)
    with opened(lab, LESSON.name, picture) as notebook:
        problems: list[str] = []
        notebook.page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        notebook.run_all()
        panel = notebook.page.locator(".scaling-lab")
        expect(panel.get_by_role("progressbar", name="Rank 0")).to_be_visible()
        assert eventually(notebook.is_done, 200)
        assert errors(notebook.cells()) == []

        expect(panel.get_by_role("status").filter(has_text="3 runs finished.")).to_be_visible()
        expect(panel.get_by_label("Runs to compare").locator("option")).to_have_count(RUNS)
        expect(panel.get_by_label("Values", exact=True)).to_have_value("16, 64, 256")
        expect(panel.get_by_role("img", name=re.compile("^Where the time of a step goes"))).to_be_visible()
        kept = [output["data"] for cell in notebook.cells() for output in cell["outputs"] if "data" in output]
        assert sum("image/png" in data for data in kept) == 7
        assert problems == []

        assert ranks_of(lab) == []
        started = lab.descendants()
        lab.shut_down()
        assert eventually(lambda: not left(started)), left(started)

"""What a student does, in a real JupyterLab and a real browser: run the lesson, stop, restart, close."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from jupyter_lab import Notebook, errors, find_browser, left, opened, ranks_of, write_notebook
from playwright.sync_api import expect
from processes import eventually

FIRST_LESSON = Path(__file__).parents[2] / "notebooks" / "01_one_gpu_to_many.ipynb"
# A run that goes on until somebody ends it.
IMPORTS = """
from IPython.display import display
from course_lib.config import RunConfig
from course_lib.lab.watch import watch
from course_lib.runs.launch import launch
from course_lib.training import ddp
"""
LONG_RUN = (
    "run = launch(ddp.train, RunConfig(model='mlp', data='subset', num_gpus=2, epochs=10_000))\ndisplay(watch(run))"
)
RANKS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


def start(notebook: Notebook) -> None:
    """Run all cells of a notebook with `LONG_RUN`, and wait until an epoch has ended."""
    notebook.run_all()
    expect(notebook.page.get_by_role("cell", name=re.compile(r"^\d+\.\d\d$")).first).to_be_visible()


def test_the_first_lesson_runs_without_a_gpu_and_shows_its_runs_live(lab, picture, documentation):
    shutil.copy(FIRST_LESSON, lab.root)
    with opened(lab, FIRST_LESSON.name, picture) as notebook:
        page = notebook.page
        notebook.clear()
        notebook.run_all()
        expect(page.get_by_role("progressbar").first).to_be_visible()
        assert eventually(notebook.is_done, 200)
        assert errors(notebook.cells()) == []
        assert page.locator("[data-mime-type*=stderr]").count() == 0

        # One view of the first run, then one of both.
        runs = page.get_by_role("status").filter(has_text="finished")
        expect(runs).to_have_count(3)
        for status in runs.all():
            expect(status).to_contain_text("accuracy")
        epochs = page.get_by_role("table").filter(has_text="Epochs")
        expect(epochs).to_have_count(3)
        for table in epochs.all():
            expect(table.get_by_role("row")).to_have_count(1 + 3)
        expect(page.get_by_role("progressbar").first).to_have_attribute("aria-valuenow", "100")
        for figure in ("Speedup", "Where the time of a step goes", "Validation accuracy"):
            expect(page.get_by_role("img", name=re.compile(f"^{figure}.*2")).first).to_be_visible()
        both = page.locator(".jp-CodeCell").filter(has=page.get_by_role("button", name="Stop run 2"))
        notebook.take_picture(documentation / "lesson.png", both.first, 1200, 760)


def test_the_stop_button_ends_a_run_while_its_cell_waits(lab, picture):
    write_notebook(lab.root / "long.ipynb", IMPORTS, LONG_RUN + "\nrun.wait()")
    with opened(lab, "long.ipynb", picture) as notebook:
        start(notebook)
        assert len(ranks_of(lab)) == RANKS
        notebook.page.get_by_role("button", name="Stop", exact=True).click()
        expect(notebook.page.get_by_role("status").filter(has_text="stopped after")).to_be_visible()
        assert eventually(notebook.is_done)
        (error,) = errors(notebook.cells())
        assert error.startswith("RunStopped: The run was stopped after")
        assert ranks_of(lab) == []


def test_restarting_the_kernel_during_a_run_leaves_no_rank(lab, picture):
    write_notebook(lab.root / "long.ipynb", IMPORTS, LONG_RUN)
    with opened(lab, "long.ipynb", picture) as notebook:
        start(notebook)
        before = lab.descendants()
        assert len(ranks_of(lab)) == RANKS
        notebook.restart()
        assert eventually(lambda: not left(before)), left(before)
        start(notebook)
        assert len(ranks_of(lab)) == RANKS


def test_closing_lab_during_a_run_leaves_no_process(lab, picture):
    write_notebook(lab.root / "long.ipynb", IMPORTS, LONG_RUN)
    with opened(lab, "long.ipynb", picture) as notebook:
        start(notebook)
        before = lab.descendants()
        assert len(ranks_of(lab)) == RANKS
        lab.shut_down()
        assert eventually(lambda: not left(before)), left(before)

"""What a student does in the Scaling Lab, with the keyboard alone, in a real JupyterLab and a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from accessibility import THEMES, ZOOMED, change_theme, sticks_out, violations
from jupyter_lab import UNNAMED, Lab, Notebook, find_browser, left, opened, ranks_of, write_notebook
from playwright.sync_api import Locator, Page, expect
from processes import eventually

RANKS = 2
MOST_BYTES = 2**20  # of the saved notebook
PANEL = "from course_lib.lab.panel import ScalingLab\npanel = ScalingLab()\npanel"
RESULTS = "panel.results()"
# How many parts of a panel the keyboard can be in.
STOPS = """panel => Array.from(panel.querySelectorAll("button, input, select, a[href], [tabindex='0']"))
    .filter(each => !each.disabled && each.checkVisibility()).length"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


class Student:
    """Somebody at the panel who has no mouse."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook, self.page = notebook, notebook.page

    @property
    def panel(self) -> Locator:
        return self.page.locator(".scaling-lab").first

    def open(self) -> None:
        self.notebook.run_all()
        expect(self.panel.get_by_text("Steps per epoch")).to_be_visible()

    def enter(self, label: str, text: str) -> None:
        self.panel.get_by_label(label, exact=True).focus()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Tab")

    def pick(self, label: str, key: str) -> None:
        """Go on in a list: by an arrow, or to what begins with a letter."""
        field = self.panel.get_by_label(label, exact=True)
        before = field.input_value()
        field.focus()
        self.page.keyboard.press(key)
        assert field.input_value() != before

    def press(self, name: str) -> None:
        button = self.panel.get_by_role("button", name=name, exact=True)
        expect(button).to_be_enabled()
        button.focus()
        self.page.keyboard.press("Enter")

    def sees(self, status: str) -> None:
        expect(self.panel.get_by_role("status").filter(has_text=status)).to_be_visible()


def plotted(page: Page, name: str) -> str:
    """What a chart says that it shows."""
    return page.get_by_role("img", name=re.compile(f"^{name}")).first.get_attribute("aria-label") or ""


def begin_a_long_run(student: Student, lab: Lab) -> None:
    student.enter("Epochs", "10000")
    student.press("Run")
    expect(student.panel.get_by_text(re.compile("of 10000")).first).to_be_visible()
    assert eventually(lambda: len(ranks_of(lab)) == RANKS)


def test_a_student_at_the_keyboard_predicts_runs_stops_breaks_sweeps_and_compares(lab, picture, documentation):
    write_notebook(lab.root / "lab.ipynb", PANEL, RESULTS)
    with opened(lab, "lab.ipynb", picture) as notebook:
        student = Student(notebook)
        student.open()
        predict_and_run(student)
        take_pictures(student, documentation)
        stop_and_break(student, lab)
        sweep_and_compare(student)
        look_closely(student)
        restart(student, lab)
        assert UNNAMED.findall(student.panel.aria_snapshot()) == []
        assert notebook.console_errors == []


def predict_and_run(student: Student) -> None:
    student.pick("Model", "m")  # mlp
    student.pick("Device", "C")
    student.enter("GPUs per node", "3000")
    expect(student.panel.get_by_text("Not possible:")).to_be_visible()
    expect(student.panel.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    student.enter("GPUs per node", str(RANKS))
    student.enter("Share of data (%)", "30")
    student.enter("Predict first: your speedup", "1.5")
    status = student.panel.get_by_role("status").first
    status.evaluate("element => { element.dataset.known = 'yes' }")
    student.press("Run")
    expect(student.panel.get_by_role("progressbar", name="Rank 0")).to_be_visible()
    first = plotted(student.page, "Training loss")
    assert eventually(lambda: plotted(student.page, "Training loss") != first)
    student.sees("2 runs finished.")
    expect(status).to_have_attribute("data-known", "yes")  # a new element need not be read out
    table = student.panel.get_by_role("table").filter(has_text="Your guess")
    expect(table.get_by_role("cell", name="1.50")).to_be_visible()
    expect(student.panel.get_by_role("progressbar", name="Rank 1")).to_have_attribute("aria-valuenow", "100")
    expect(student.panel.get_by_role("img", name=re.compile(r"^Speedup.* on 2"))).to_be_visible()


def stop_and_break(student: Student, lab: Lab) -> None:
    begin_a_long_run(student, lab)
    student.press("Stop")
    student.sees("1 run stopped.")
    assert ranks_of(lab) == []
    begin_a_long_run(student, lab)
    ranks_of(lab)[1].kill()
    student.sees("1 run failed.")
    expect(student.panel.get_by_role("alert")).to_contain_text(re.compile("Rank [01] of 2 died"))


def sweep_and_compare(student: Student) -> None:
    student.enter("Epochs", "1")
    student.pick("Sweep over", "ArrowDown")  # batch size
    expect(student.panel.get_by_label("Values", exact=True)).to_have_value("32, 64, 128")
    student.enter("Values", "64, 128")
    student.press("Sweep")
    student.sees("2 runs finished.")
    student.panel.get_by_label("Runs to compare").focus()
    for key in ("Home", "Shift+ArrowDown"):
        student.page.keyboard.press(key)
    student.press("Compare")
    student.sees("2 runs are compared")
    expect(student.panel.get_by_role("heading", name="Compared with Run")).to_be_visible()


def take_pictures(student: Student, folder: Path) -> None:
    """For the documentation: the panel after its first runs, from its head on."""
    expect(student.panel.get_by_role("heading", name="Why?")).to_be_visible()
    for theme, name in zip(THEMES, ("scaling-lab.png", "scaling-lab-dark.png"), strict=True):
        change_theme(student.page, theme)
        head = student.panel.get_by_role("heading", name="Scaling Lab")
        student.notebook.take_picture(folder / name, head, 1100, 1160)


def look_closely(student: Student) -> None:
    """All that is shown can be seen and told by others: in both themes, and at 200 %."""
    size = student.page.viewport_size
    for theme in THEMES:
        change_theme(student.page, theme)
        assert violations(student.page, ".scaling-lab") == []
    tab_through(student)
    student.page.set_viewport_size(ZOOMED)
    assert violations(student.page, ".scaling-lab") == []
    assert not sticks_out(student.panel)
    student.page.set_viewport_size(size)


def tab_through(student: Student) -> None:
    """Tab visits all that can be used, from the first to the last, and then leaves the panel."""
    student.panel.get_by_label("Device", exact=True).focus()
    for _ in range(student.panel.evaluate(STOPS)):
        assert student.panel.evaluate("panel => panel.contains(document.activeElement)")
        student.page.keyboard.press("Tab")
    assert not student.panel.evaluate("panel => panel.contains(document.activeElement)")


def restart(student: Student, lab: Lab) -> None:
    begin_a_long_run(student, lab)
    before = [process for process in lab.descendants() if process.pid != lab.process.pid]
    student.notebook.restart()
    assert eventually(lambda: not left(before)), left(before)
    student.open()
    student.sees("Ready. 7 earlier runs found.")
    expect(student.panel.get_by_role("table").filter(has_text="No.").get_by_role("row")).to_have_count(1 + 7)
    assert eventually(student.notebook.is_done)
    kept = student.notebook.cells()[1]["outputs"]
    assert "image/png" in kept[0]["data"]
    assert "<table>" in "".join(kept[1]["data"]["text/html"])
    assert len(json.dumps(student.notebook.cells())) < MOST_BYTES

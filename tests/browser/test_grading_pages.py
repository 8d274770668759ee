"""What a student and an instructor read of a judgement is legible to all: in Lab, and on the pages of a grading."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from accessibility import THEMES, change_theme, sticks_out, violations
from jupyter_lab import FLAGS, find_browser, opened
from playwright.sync_api import expect, sync_playwright
from submissions_at_work import graded, not_judged

from course_lib.grading.class_report import feedback, overview
from course_lib.grading.gradebook import Gradebook

EXERCISE = Path(__file__).parents[2] / "exercises" / "01_deal_the_data.ipynb"
SECONDS = 120  # that a check may take, with a sandbox that has just been started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 600])
def test_the_pages_of_a_grading_break_no_rule_and_fit(scheme, width):
    long = "deal(…) failed at line 4: `" + "x" * 200 + "`"
    book = Gradebook([graded("ada"), graded("bob " * 20, ("4.2", "4.4"), seen=long), not_judged("eve")])
    pages = [overview(book, [Path("bob/other.ipynb")]), *(feedback(book, student) for student in book.students)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        with closing(browser):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for content in pages:
                page.set_content(content)
                assert violations(page, "html") == []
                assert not sticks_out(page.locator("html"))


def test_what_check_and_hint_show_breaks_no_rule_in_both_themes(lab, picture):
    shutil.copy(EXERCISE, lab.root)
    with opened(lab, EXERCISE.name, picture) as notebook:
        page = notebook.page
        page.evaluate("window.jupyterapp.shell.collapseLeft()")
        sources = [cell["source"] for cell in notebook.cells()]
        start, deal, check, hint = (
            page.locator(".jp-CodeCell").nth(next(place for place, source in enumerate(sources) if text in source))
            for text in ("import check, hint", "def deal(", 'check("1.1")', "def deal_epoch(")
        )
        hint.locator(".cm-content").click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text('hint("1.1")')
        for cell in (start, deal, check, hint):
            cell.locator(".cm-content").click()
            page.keyboard.press("Control+Enter")
        expect(check.get_by_role("status")).to_contain_text("0 of 4 points", timeout=1000 * SECONDS)
        expect(hint.get_by_role("status")).to_contain_text("hint 1 of 3", timeout=1000 * SECONDS)
        for theme in THEMES:
            change_theme(page, theme)
            for width in (1200, 640):
                page.set_viewport_size({"width": width, "height": 800})
                assert violations(page, ".jp-CodeCell .jp-OutputArea-output") == []
                for output in page.locator(".jp-CodeCell .jp-OutputArea-output").all():
                    assert not sticks_out(output)

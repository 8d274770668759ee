"""What a student does with the widgets of the lessons, with the keyboard alone, in a real JupyterLab and browser."""

from __future__ import annotations

import re

import nbformat
import pytest
from jupyter_lab import UNNAMED, Notebook, errors, find_browser, opened, write_notebook
from playwright.sync_api import Locator, expect
from processes import eventually

# A control of each, which the arrow down changes.
CONTROLS = {
    "ShardViewer": "Dealt",
    "GradientAveraging": "Replicas",
    "RingAllReduce": "Ranks",
    "BucketTimeline": "Ranks",
    "ScheduleViewer": "Rule",
    "BatchNormViewer": "Dealt",
}
CELL = "from course_lib.lab import widgets\n{name} = widgets.{name}()\n{name}"
# Is over only when the choice arrives while it runs.
WAITING = "import time\nwhile ScheduleViewer.rule.value == 'linear':\n    time.sleep(0.05)"
HIDDEN_PIXELS = "region => region.scrollWidth - region.clientWidth"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here: apt-get install chromium"),
]


class Lesson:
    """A widget on the page, and what a student sees of it."""

    def __init__(self, notebook: Notebook, place: int) -> None:
        self.page = notebook.page
        self.box = self.page.locator(".course-panel").nth(place)

    def words(self) -> str:
        return self.box.get_by_role("status").inner_text()

    def picture(self) -> str:
        return "".join(region.inner_html() for region in self.pictures().all())

    def pictures(self) -> Locator:
        return self.box.get_by_role("region")

    def changes(self, label: str, key: str) -> None:
        """Press a key in a control: words and picture follow."""
        before = self.words(), self.picture()
        self.box.get_by_label(label, exact=True).focus()
        self.page.keyboard.press(key)
        assert eventually(lambda: self.words() != before[0] and self.picture() != before[1]), label

    def press(self, name: str) -> None:
        button = self.box.get_by_role("button", name=name, exact=True)
        expect(button).to_be_enabled()
        button.focus()
        self.page.keyboard.press("Enter")

    def sees(self, words: str) -> None:
        expect(self.box.get_by_role("status")).to_contain_text(words)


def test_a_student_at_the_keyboard_goes_through_the_widgets_of_the_lessons(lab, picture):
    cells = [CELL.format(name=name) for name in CONTROLS]
    write_notebook(lab.root / "lessons.ipynb", *cells, WAITING)
    with opened(lab, "lessons.ipynb", picture) as notebook:
        notebook.run_all()
        expect(notebook.page.locator(".course-panel")).to_have_count(len(CONTROLS))
        lessons = {name: Lesson(notebook, place) for place, name in enumerate(CONTROLS)}
        for lesson in lessons.values():
            expect(lesson.pictures().first).to_be_visible()
        lessons["ScheduleViewer"].changes("Rule", "ArrowDown")
        assert eventually(notebook.is_done)
        for name, label in CONTROLS.items():
            assert UNNAMED.findall(lessons[name].box.aria_snapshot()) == []
            says_what_it_shows(lessons[name])
            if name != "ScheduleViewer":
                lessons[name].changes(label, "ArrowDown")
        call_set_epoch(lessons["ShardViewer"])
        step_and_play(lessons["RingAllReduce"], "Round {} of 4")
        step_and_play(lessons["GradientAveraging"], "Step {} of 5")
        assert [cell["source"] for cell in notebook.cells()] == [*cells, WAITING]
        assert errors(notebook.cells()) == []
        assert notebook.console_errors == []
        keeps_its_words(notebook)
        zoom_in([*lessons.values()])


def says_what_it_shows(lesson: Lesson) -> None:
    """Each picture has a text with figures, or is a table with a name."""
    for shown in lesson.pictures().all():
        image = shown.get_by_role("img")
        if image.count():
            assert re.search(r"\d", image.get_attribute("aria-label") or "")
        else:
            expect(shown.get_by_role("table", name=re.compile(r"\w{5}"))).to_be_visible()


def call_set_epoch(shards: Lesson) -> None:
    shards.changes("set_epoch is called before each epoch", "Space")
    shards.sees("Without set_epoch all epochs are alike")
    shards.changes("set_epoch is called before each epoch", "Space")
    shards.sees("Each epoch has an order of its own")


def step_and_play(lesson: Lesson, words: str) -> None:
    lesson.press("Next")
    lesson.sees(words.format(1))
    lesson.press("Next")
    lesson.sees(words.format(2))
    lesson.press("Back")
    lesson.sees(words.format(1))
    lesson.press("Play")
    lesson.sees(words.format(2))
    lesson.press("Stop")
    expect(lesson.box.get_by_role("button", name="Play", exact=True)).to_be_visible()


def keeps_its_words(notebook: Notebook) -> None:
    """The file says what was seen when the cells ran, and has the pictures as images."""
    path = notebook.save()
    outputs = [cell.outputs[0].data for cell in nbformat.read(path, as_version=4).cells[: len(CONTROLS)]]
    for name, data in zip(CONTROLS, outputs, strict=True):
        html, text = data["text/html"], data["text/plain"]
        assert re.search(r"\d", text), name
        assert text.split(". ", 1)[1][:30] in re.sub("<[^>]*>|\n", " ", html).replace("&#39;", "'"), name
        assert "<svg" not in html
        assert "<img alt=" in html or "<table" in html


def zoom_in(lessons: list[Lesson]) -> None:
    """At 200 % what is too wide is scrolled by itself, by the arrow keys, and no words are cut off."""
    page = lessons[0].page
    page.set_viewport_size({"width": 640, "height": 400})
    for lesson in lessons:
        assert eventually(lambda box=lesson.box: box.evaluate("box => box.scrollWidth <= box.clientWidth"))
    wide = [region for region in page.get_by_role("region").all() if region.evaluate(HIDDEN_PIXELS) > 0]
    assert wide
    for region in wide:
        region.focus()
        page.keyboard.press("ArrowRight")
        assert eventually(lambda region=region: region.evaluate("region => region.scrollLeft") > 0)

"""The pages of a grading: what they say, what they do not say, and that nothing in them can do harm."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions_at_work import EXERCISE, NAME, TOTAL, all_but, graded, not_judged

from course_lib.grading import class_pages
from course_lib.grading.class_report import feedback, in_words, overview, page_name
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.results import ISOLATED, NOT_ISOLATED, graded_from_dict, visible

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' &amp; {{ 7*7 }} \u202e"
PAIRS = [("text", "back"), ("soft", "back"), ("soft", "band"), ("text", "bad-back"), ("text", "some-back")]
PAIRS += [(name, f"{name}-back") for name in ("good", "bad", "some")] + [(name, "back") for name in ("good", "bad")]


class Seen(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


def test_a_page_says_what_was_seen_and_which_parts_passed():
    book = Gradebook([graded("ada", ("4.2", "4.4"), seen="Ranks 0 and 1 are one.")])
    text = " ".join(Seen(feedback(book, "ada")).text.split())
    reached, parts = all_but("4.2", "4.4"), len(EXERCISE.parts)
    assert f"{reached} of {TOTAL} points. {parts - 2} of {parts} parts passed. Not passed: 4.2, 4.4." in text
    assert text.count("Ranks 0 and 1 are one.") == 1  # then it says where it was told
    assert "For the same reason as in 4.2." in text
    assert ISOLATED in text


def test_all_passed_is_said_only_where_all_passed():
    whole, half = graded("ada"), graded("ada", ("4.2",))
    assert in_words(whole.parts) == f"All checks of all {len(EXERCISE.parts)} parts passed."
    assert "All" not in in_words(half.parts)
    assert "All" not in in_words(not_judged("ada").parts)
    assert not not_judged("ada").passed


def test_a_page_does_not_tell_why_the_grader_failed_but_that_it_did():
    failed = not_judged("ada")
    text = Seen(feedback(Gradebook([failed]), "ada")).text
    assert "Could not be judged, which is not your fault" in text
    assert "✗" not in text
    assert "✓" not in text


@pytest.mark.parametrize("make", [lambda book: feedback(book, HOSTILE), lambda book: overview(book, [])])
def test_nothing_that_a_student_wrote_is_more_than_text(make):
    book = Gradebook([graded(HOSTILE, ("4.4",), seen=HOSTILE, remarks=(HOSTILE,), unreadable=HOSTILE)])
    seen = Seen(make(book))
    assert not {"script", "img", "iframe", "link", "object"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in seen.text
    assert "{{ 7*7 }}" in seen.text


def test_the_pages_need_nothing_from_elsewhere():
    book = Gradebook([graded("ada", ("4.4",)), not_judged("bob")])
    for page in (feedback(book, "ada"), overview(book, [])):
        assert not re.search(r"https?:|url\(|@import|src=", page)
        assert page.startswith("<!doctype html>")


def test_the_overview_has_all_students_and_leads_to_their_pages():
    strange = "a b%#?é"
    book = Gradebook([graded("ada"), graded(strange, ("4.4",)), not_judged("bob")])
    seen = Seen(overview(book, []))
    links = [value for name, value in seen.attributes if name == "href" and value.startswith("feedback")]
    assert links == ["feedback/a%20b%25%23%3F%C3%A9.html", "feedback/ada.html", "feedback/bob.html"]
    assert "3 students, 3 submissions; 1 of them passed all checks." in seen.text
    assert "1 submission could not be judged" in seen.text
    assert sum(book.histogram()) == 2


def test_the_faults_are_counted_by_students_and_the_most_frequent_comes_first():
    one = graded("ada", ("4.2", "4.4"))
    book = Gradebook([one, graded("bob", ("4.4",)), graded("eve")])
    (fault,) = book.faults()
    assert (fault.students, fault.parts) == (("ada", "bob"), ("4.2", "4.4"))
    assert sum(book.histogram()) == 3
    assert book.histogram()[-1] == 1


def test_no_page_shows_what_a_fault_is_called_in_the_code():
    book = Gradebook([graded("ada", ("4.2",))])
    (called,) = {
        found.fault for part in book.all["ada", NAME].parts for check in part.checks for found in check.findings
    }
    for page in (overview(book, []), feedback(book, "ada")):
        assert f">{called}<" not in page
        assert "It was 2, not 3." in page


def test_code_that_was_not_isolated_is_told_on_each_page():
    parts = [{**part, "isolated": False} for part in graded("ada").to_dict()["parts"]]
    book = Gradebook([graded_from_dict({**graded("ada").to_dict(), "parts": parts})])
    assert NOT_ISOLATED in Seen(feedback(book, "ada")).text
    assert NOT_ISOLATED in Seen(overview(book, [])).text
    assert NOT_ISOLATED.encode() in book.json()


@given(st.text(min_size=1).filter(lambda name: "/" not in name))
def test_a_page_has_a_name_that_a_file_can_have(name):
    assert len(page_name(name).encode()) < 255
    assert page_name(name).endswith(".html")


def test_long_names_stay_different():
    assert page_name("a" * 250) != page_name("a" * 251)


def test_no_text_moves_the_cursor_of_a_terminal():
    assert visible("a\x1b[2J\x07b\r\u202e\nc") == "a\ufffd[2J\ufffdb\ufffd\ufffd\nc"


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_what_is_written_can_be_read(theme, front, back):
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", class_pages._BASE.split("@media (prefers")[theme]))
    lighter, darker = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # WCAG 2.2, AA


def luminance(colour):
    """Of WCAG 2.2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_part_of_the_exercise_is_on_the_page():
    text = Seen(feedback(Gradebook([graded("ada")]), "ada")).text
    assert all(check.title in text for part in EXERCISE.parts for check in part.checks)

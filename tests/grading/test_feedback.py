"""What a student reads."""

from __future__ import annotations

import re
from html import unescape

import pytest

from course_lib.grading.feedback import as_html, as_text
from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import CheckResult, PartResult

BAD = Finding("wrong", "Ranks 0 and 1 read <script>alert(1)</script>", "Who decides? `set_epoch(<b>)`")


def words(html: str) -> str:
    html = re.sub(r"</?(?:strong|code|em)>", "", html)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def result(*checks: CheckResult, **others: object) -> PartResult:
    return PartResult("4.2", "One <group>", checks, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [lambda *args: words(as_html(*args)), as_text])
def test_each_check_says_whether_it_passed_what_was_seen_and_what_to_think_about(write):
    said = write(result(CheckResult("joined", 2, 2), CheckResult("dealt", 0, 1.5, (BAD,))), ["1 of 3 hints taken."])
    assert "4.2 One <group>: 2 of 3.5 points" in said
    assert re.search(r"Passed: joined\s+\(2 of 2\)", said)
    assert re.search(r"Not yet: dealt\s+\(0 of 1.5\)", said)
    assert re.search(r"Seen: .*<script>alert\(1\)</script>\s+Think: Who decides\?", said)
    assert said.endswith("1 of 3 hints taken.")


def test_text_of_a_program_is_never_markup():
    html = as_html(result(CheckResult("<i>", 0, 1, (BAD,))), ["<u>"])
    assert "<script" not in html
    assert "<code>set_epoch(&lt;b&gt;)</code>" in html
    assert not {"<b>", "<i>", "<u>", "<group>"} & set(re.findall(r"<[^>]*>", html))


@pytest.mark.parametrize("write", [as_html, as_text])
def test_what_stands_above_is_not_said_again(write):
    said = write(result(CheckResult("joined", 0, 2, (BAD,)), CheckResult("dealt", 0, 1, (BAD,))))
    assert said.count("Ranks 0 and 1") == 1
    assert said.count("For the same reason.") == 1


@pytest.mark.parametrize("write", [as_html, as_text])
def test_passed_is_said_only_of_all_and_a_missing_sandbox_always(write):
    assert "passed, 2 of 2" in write(result(CheckResult("joined", 2, 2)))
    assert "Bubblewrap" not in write(result(CheckResult("joined", 2, 2)))
    assert "Bubblewrap" in write(result(CheckResult("joined", 2, 2), isolated=False))


@pytest.mark.parametrize("write", [as_html, as_text])
def test_what_could_not_be_judged_is_not_called_wrong(write):
    said = write(result(CheckResult("joined", 0, 2), trouble="No memory was left."))
    assert "not judged. No memory was left." in said
    assert "Not yet" not in said
    assert "0 of 2" not in said

"""The hint ladder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import parts_for_tests as parts
import pytest

from course_lib.errors import FolderError
from course_lib.grading import hints


def test_each_request_reveals_one_more_until_all_are_there(tmp_path):
    shown = [hints.take(parts.DOUBLE, tmp_path) for _ in range(5)]
    assert [len(each) for each in shown] == [1, 2, 3, 3, 3]
    assert shown[-1] == list(parts.HINTS)


def test_parts_are_counted_each_for_itself_and_looking_takes_none(tmp_path):
    hints.take(parts.DOUBLE, tmp_path)
    assert hints.taken(parts.BOTH, tmp_path) == 0
    assert hints.in_words(parts.BOTH, tmp_path).startswith("0 of 3 hints")
    assert hints.in_words(parts.DOUBLE, tmp_path).startswith("1 of 3 hints")
    assert hints.taken(parts.DOUBLE, tmp_path) == 1


def test_requests_at_the_same_time_spoil_nothing(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: hints.take(part, tmp_path), [parts.DOUBLE, parts.BOTH] * 20))
    assert len((tmp_path / hints.RECORD).read_text().splitlines()) == 40
    assert hints.taken(parts.DOUBLE, tmp_path) == hints.taken(parts.BOTH, tmp_path) == 3


@pytest.mark.parametrize(
    "damage", [b"\xff\n", b"[]\n", b'{"part": "0.1"}\n', b'{"part": "0.1", "hint": "x"}\n', b"{\n"]
)
def test_a_damaged_line_takes_nothing_else_away(tmp_path, damage):
    hints.take(parts.DOUBLE, tmp_path)
    with (tmp_path / hints.RECORD).open("ab") as file:
        file.write(damage)
    assert len(hints.take(parts.DOUBLE, tmp_path)) == 2


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(FolderError, match="hints are recorded"):
        hints.take(parts.DOUBLE, tmp_path / "none")

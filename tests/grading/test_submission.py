"""What is taken from a notebook, whatever was done to it."""

import json
import os
from contextlib import suppress

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from submissions_at_work import NAME, cell, hand_in, make_folders_without_end, marks, notebook

from course_lib.errors import FolderError
from course_lib.grading import catalog, judging, submission
from course_lib.grading.handed_in import exercise_of, find
from course_lib.grading.inside.emptying import empty
from course_lib.grading.parts import Check, Finding, Part
from course_lib.grading.plain_python import plain


@pytest.fixture
def read(tmp_path):
    def read_cells(*cells, **metadata):
        path = tmp_path / "04_one_gpu_to_many.ipynb"
        nbformat.write(notebook(*cells, **metadata), path)
        return submission.read(path)

    return read_cells


def test_only_marked_cells_count_in_any_order(read):
    given = read(cell("x"), cell("b", "second"), cell("y"), cell("a", "first"), cell("t", "test", solution=False))
    assert given.code(("first", "second")) == "a\n\nb"
    assert given.code(("third",)) is None
    assert given.remarks == ()


def test_an_identical_copy_counts_once(read):
    given = read(cell("a = 1", "x"), cell("a = 1\n", "x"))
    assert given.cells["x"].strip() == "a = 1"
    assert "identical copies count once" in given.remarks[0]


def test_halves_are_joined_in_their_order(read):
    given = read(cell("import os\n\ndef f():\n    return 1", "x"), cell("def g():\n    return f()", "x"))
    assert given.cells["x"] == "import os\n\ndef f():\n    return 1\n\ndef g():\n    return f()"
    assert "2 pieces" in given.remarks[0]


def test_of_versions_of_a_cell_the_last_one_counts(read):
    lines = [f"line_{number} = {number}" for number in range(9)]
    given = read(cell("\n".join(lines), "x"), cell("\n".join([*lines, "more = 1"]), "x"))
    assert given.cells["x"].count("line_3") == 1
    assert "more" in given.cells["x"]
    assert "the last one counts" in given.remarks[0]


def test_a_file_that_is_written_twice_is_the_second_one(read):
    given = read(cell("%%writefile train.py\na = 1", "x"), cell("%%writefile train.py\nb = 2", "x"))
    assert "a = 1" not in given.cells["x"]
    assert "b = 2" in given.cells["x"]
    appended = read(cell("%%writefile train.py\na = 1", "x"), cell("%%writefile -a train.py\nb = 2", "x"))
    assert "a = 1" in appended.cells["x"]
    assert "b = 2" in appended.cells["x"]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("%matplotlib inline\nx = 1\n", "pass  # %matplotlib inline\nx = 1\n"),
        ("if True:\n    !pip install x\n", "if True:\n    pass  # !pip install x\n"),
        ("files = !ls\n", "files = None  # !ls\n"),
        ("%time f(1)\n", "f(1)\n"),
        ("f?\n", "pass  # f?\n"),
        ("%%time\nx = 1\n%who\n", "# %%time\nx = 1\npass  # %who\n"),
        ("%%bash\nrm -r x", "# %%bash\n# rm -r x"),
        ("%%writefile train.py\nx = '''\n%who\n'''\n", "# %%writefile train.py\nx = '''\n%who\n'''\n"),
        ("'''\n!ls\n'''\n", "'''\n!ls\n'''\n"),
        ("x = (7\n% 2)\n", "x = (7\n% 2)\n"),
        ("!ls \\\n  -l\nx = 1\n", "pass  # !ls \\\n#   -l\nx = 1\n"),
        ("def f(:\n", "def f(:\n"),
        ("", ""),
    ],
)
def test_what_only_jupyter_understands_becomes_a_comment(written, code):
    assert plain(written)[0] == code


def test_nothing_of_a_cell_is_run_to_read_it(read, tmp_path):
    mark = tmp_path / "mark"
    given = read(cell(f"!touch {mark}\n%run {mark}\nx = %sx touch {mark}\n", "x"))
    assert "!touch" in given.remarks[0]
    assert not mark.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="%!?,;/=x (\n\t'\"\\", max_size=60))
def test_any_text_can_be_read_and_keeps_its_lines(text):
    code, taken = plain(text)
    assert len(code.splitlines()) == len(text.splitlines()) or not taken


def test_old_formats_and_bogus_kernels(tmp_path, read):
    assert read(cell("a", "x"), kernelspec={"name": "no-such", "display_name": "x"}).cells == {"x": "a"}
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}}
    cells = [{"cell_type": "code", "input": ["a = 1\n", "b = 2"], "language": "python", "metadata": marks("x")}]
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps({**old, "worksheets": [{"cells": cells}]}))
    assert submission.read(path).cells == {"x": "a = 1\nb = 2"}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"7", b'{"cells": 3}', b'{"cells": [1, null, "x"]}', b"\xff\xfe", b"[" * 100_000),
        b'{"cells": [{"cell_type": "code", "metadata": {"nbgrader": {"grade_id": ["x"], "solution": true}}}]}',
        b'{"cells": [{"cell_type": "code", "source": {"a": 1}, "metadata": {"nbgrader": {"grade_id": "x"}}}]}',
        b'{"cells": [{"cell_type": "code", "source": ["\\ud800", 1], "metadata": {"nbgrader": {"grade_id": "x"}}}]}',
    ],
)
def test_no_content_breaks_more_than_its_notebook(tmp_path, content):
    path = tmp_path / "notebook.ipynb"
    path.write_bytes(content)
    with suppress(FolderError):  # which costs this notebook alone
        assert all(code.encode() is not None for code in submission.read(path).cells.values())


def test_links_and_pipes_are_not_followed(tmp_path):
    hand_in(tmp_path, "other", "x = 1")
    link, pipe = tmp_path / "link.ipynb", tmp_path / "pipe.ipynb"
    link.symlink_to(tmp_path / "other" / "04_one_gpu_to_many.ipynb")
    os.mkfifo(pipe)
    with pytest.raises(FolderError, match="links are not followed"):
        submission.read(link)
    with pytest.raises(FolderError, match="not a file"):
        submission.read(pipe)


def test_a_cell_that_is_far_too_long_is_left_out(read):
    given = read(cell("#" * 200_000, "x"))
    assert given.cells == {}
    assert "200,000 characters" in given.remarks[0]


def test_many_long_cells_are_no_more_than_one_that_is_far_too_long(read):
    given = read(*[cell(f"# {number}\n" + "#" * 60_000, f"x{number}") for number in range(5)])
    assert [*given.cells] == ["x0"]
    assert len(given.remarks) == 4


def test_folders_without_end_hold_nothing_up(tmp_path):
    hand_in(tmp_path, "anna", "x = 1")
    make_folders_without_end(tmp_path)
    assert [each.student for each in find(tmp_path, tmp_path / "out").notebooks] == ["anna"]
    assert empty([tmp_path])  # which pytest could not


def test_a_half_without_its_mark_is_taken_where_it_helps(read, sandbox):
    def judge(attempt):
        answer = attempt.call("f", [2])[0]
        if answer.get("value") != 4:
            yield Finding("wrong", "f(2) is not 4.", "Twice?")

    part = Part("0.1", "Double", ("x",), (Check("doubles", 1, judge),), ("", "", ""), ("f",))
    split = read(cell("def twice(n):\n    return 2 * n", "x"), cell("def f(n):\n    return twice(n)"))
    (result,), remarks = judging.judge_all([part], split, sandbox)
    assert result.passed
    assert "unmarked cell" in remarks[0]
    beside = read(cell("def f(n):\n    return 2 * n", "x"), cell("f = None"))
    (result,), remarks = judging.judge_all([part], beside, sandbox)
    assert result.passed
    assert remarks == []


def test_a_check_of_ours_that_fails_is_trouble_and_no_verdict(sandbox):
    def judge(attempt):
        raise TypeError("our mistake")
        yield

    part = Part("0.1", "A part", ("x",), (Check("a check", 1, judge),), ("", "", ""), ("f",))
    (result,), _ = judging.judge_all([part], submission.Submission({"x": "f = 1"}), sandbox)
    assert "our mistake" in result.trouble
    assert not result.passed
    assert result.points == 0


def test_a_folder_of_submissions_whatever_its_shape(tmp_path):
    hand_in(tmp_path / "plain", "ada", "x")
    hand_in(tmp_path / "nbgrader" / "submitted", "ada/04_one_gpu_to_many", "x")
    hand_in(tmp_path / "nbgrader" / "source", "04_one_gpu_to_many", "x")
    hand_in(tmp_path / "canvas", "", "x", name="adaada_4242_998_04_one_gpu_to_many-1")
    hand_in(tmp_path / "renamed", "ada", "x", name="mine")
    found = {name: find(tmp_path / name, tmp_path / "out").notebooks for name in os.listdir(tmp_path)}
    assert {name: [each.student for each in notebooks] for name, notebooks in found.items()} == {
        **{"plain": ["ada"], "nbgrader": ["ada"], "canvas": ["adaada_4242"], "renamed": ["ada"]}
    }
    assert found["canvas"][0].number == "4242"


def test_of_several_notebooks_of_a_student_the_rightly_named_one_counts_and_the_others_are_told(tmp_path):
    right = hand_in(tmp_path, "ada", "x")
    copy = hand_in(tmp_path, "ada", "y", name="04_one_gpu_to_many (1)")
    other = hand_in(tmp_path, "ada", cell("1"), name="lesson")
    hand_in(tmp_path / "out", "ada", "z")
    hand_in(tmp_path, "ada/.ipynb_checkpoints", "z")
    os.utime(right, (1, 1))
    found = find(tmp_path, tmp_path / "out")
    assert [each.path for each in found.notebooks] == [right]
    assert sorted(found.ignored) == sorted([copy, other])
    assert exercise_of(other) is None


def test_a_link_to_a_students_folder_is_not_followed_and_told(tmp_path):
    right = hand_in(tmp_path, "ada", "x")
    hand_in(tmp_path / "elsewhere", "bob", "x")
    link = tmp_path / "class" / "bob"
    (tmp_path / "class").mkdir()
    right = right.parent.rename(tmp_path / "class" / "ada") / right.name
    link.symlink_to(tmp_path / "elsewhere" / "bob")
    found = find(tmp_path / "class", tmp_path / "out")
    assert [each.path for each in found.notebooks] == [right]
    assert found.ignored == [link]


def test_a_notebook_with_the_name_of_another_exercise_is_told(tmp_path, sandbox):
    other = catalog.exercise("03_ring_all_reduce")
    path = hand_in(tmp_path, "ada", *(cell("x = 1", name) for part in other.parts for name in part.cells))
    _, remarks = judging.judge_all(catalog.exercise(NAME).parts, submission.read(path), sandbox)
    assert remarks == ["Its cells are those of 03_ring_all_reduce. Rename the notebook so, and it is judged as that."]


def test_a_folder_without_submissions_says_what_it_should_be(tmp_path):
    with pytest.raises(FolderError, match=r"STUDENT/NAME\.ipynb"):
        find(tmp_path, tmp_path / "out")
    with pytest.raises(FolderError, match="Cannot read"):
        find(tmp_path / "nowhere", tmp_path / "out")

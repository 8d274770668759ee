"""`ddp-course check` and `ddp-course grade`, on real submissions of exercise 4."""

from __future__ import annotations

import csv
import json
import signal
import time

import psutil
import pytest
from processes import eventually
from submissions_at_work import EXERCISE, FAILS, NAME, TOTAL, cell, hand_in, program

from course_lib.errors import GradingError
from course_lib.grading import batch, parts
from course_lib.grading.journal import Journal, only_one
from course_lib.grading.sandbox import Sandbox

EVER = "while True: pass"
SPAM = "for _ in range(50): print('x' * 2**20)"
KILL = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, signal.SIGKILL)"
DETACHED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
"""
WITHOUT_SET_EPOCH = program("many_gpus").replace("sampler.set_epoch(epoch)", "pass")


def lines(out):
    return [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]


def points(out):
    with (out / "grades.csv").open(newline="") as file:
        return {row["student"]: row["points"] for row in csv.DictReader(file)}


@pytest.fixture
def small_budget(monkeypatch):
    """What hangs costs little time in a test."""
    monkeypatch.setattr(parts, "BUDGET", 6.0)


@pytest.mark.slow
def test_a_class_is_graded_whatever_some_hand_in(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "BUDGET", 25.0)
    folder, out = tmp_path / "class", tmp_path / "out"
    hand_in(folder, "ada", f"%%writefile train.py\n{program('many_gpus')}")
    hand_in(folder, "bob", WITHOUT_SET_EPOCH)
    hand_in(folder, "=1+1", FAILS)
    hand_in(folder, "spam", SPAM)
    hand_in(folder, "kill", KILL)
    hand_in(folder, "daemon", DETACHED)
    hand_in(folder, "empty", cell("1"))
    (folder / "broken").mkdir()
    (folder / "broken" / f"{NAME}.ipynb").write_text("{")
    ended = cli("grade", folder, "--out", out, "--format", "gradescope", "--json")
    assert ended.code == 0
    content = ended.json()
    assert (content["submissions"], content["passed"], content["not_judged"]) == (8, 1, 0)
    found = points(out)
    assert found["ada"] == TOTAL
    assert 0 < float(found["bob"]) < float(TOTAL)
    assert all(found[name] == "0" for name in ("spam", "kill", "daemon", "empty", "broken"))
    assert "'=1+1" in found
    assert content["isolated"] == Sandbox().isolated
    assert "Ranks 0 and 1" in (out / "feedback" / "bob.html").read_text()
    assert (out / "gradescope" / "ada" / NAME / "results.json").exists()
    assert "graded" in ended.err
    assert not below()


def below():
    """The sandboxes of this process."""
    return [each for each in psutil.Process().children(recursive=True) if "bwrap" in each.name()]


@pytest.mark.slow
def test_a_second_grading_goes_on_and_grades_only_what_changed(cli, tmp_path, monkeypatch):
    folder, out = tmp_path / "class", tmp_path / "out"
    hand_in(folder, "ada", FAILS)
    hand_in(folder, "bob", FAILS)
    assert cli("grade", folder, "--out", out).code == 0
    hand_in(folder, "bob", f"{FAILS}  # again")
    hand_in(folder, "eve", FAILS)
    ended = cli("grade", folder, "--out", out)
    assert ended.code == 0
    assert "1 graded before" in ended.err
    assert sorted(line["student"] for line in lines(out)[2:]) == ["bob", "eve"]
    monkeypatch.setattr(batch, "__version__", "99")
    assert cli("grade", folder, "--out", out).code == 0
    assert len(lines(out)) == 7
    assert set(points(out)) == {"ada", "bob", "eve"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_grading_that_is_ended_leaves_nothing_behind_and_goes_on_later(cli, program, tmp_path, small_budget, number):
    folder, out = tmp_path / "class", tmp_path / "out"
    hand_in(folder, "ada", FAILS)
    for student in ("bob", "eve", "zoe"):
        hand_in(folder, student, EVER)
    grading = program("grade", folder, "--out", out)
    journal = Journal(out)
    assert eventually(lambda: ("ada", NAME) in journal.read(), 90)
    started = psutil.Process(grading.process.pid).children(recursive=True)
    assert started
    began = time.monotonic()
    grading.send(number)
    ended = grading.end()
    assert ended.code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert time.monotonic() - began < 20
    assert eventually(lambda: not any(each.is_running() and each.status() != "zombie" for each in started))
    if number != signal.SIGKILL:
        assert "goes on from there" in ended.err
    before = lines(out)[0]
    assert cli("grade", folder, "--out", out).code == 0
    assert lines(out)[0] == before
    assert [line["student"] for line in lines(out)].count("ada") == 1
    assert set(points(out)) == {"ada", "bob", "eve", "zoe"}


def test_a_grader_in_trouble_blames_nobody_and_tries_again(cli, tmp_path, monkeypatch):
    def fails(self):
        raise GradingError("no sandbox today")

    folder, out = tmp_path / "class", tmp_path / "out"
    hand_in(folder, "ada", FAILS)
    with monkeypatch.context() as patched:
        patched.setattr(Sandbox, "start", fails)
        ended = cli("grade", folder, "--out", out)
    assert ended.code == 1
    assert "could not be judged" in ended.out
    assert "no sandbox today" in (out / "index.html").read_text()
    assert "no sandbox today" not in (out / "feedback" / "ada.html").read_text()
    ended = cli("grade", folder, "--out", out, "--json")
    assert ended.code == 0
    assert ended.json()["not_judged"] == 0


def test_two_gradings_in_one_folder(cli, tmp_path):
    hand_in(tmp_path / "class", "ada", FAILS)
    with only_one(tmp_path / "out"):
        ended = cli("grade", tmp_path / "class", "--out", tmp_path / "out")
    assert ended.code == 2
    assert "Another grading is at work" in ended.paragraph()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["class", "--format", "excel"], "nbgrader"),
        (["class", "--format", "canvas"], "--roster"),
        (["class", "--roster", "x.csv"], "--format"),
        (["class", "--format", "moodle", "--roster", "x.csv"], "x.csv"),
        (["class", "--out", "file/out"], "--out"),
        (["nowhere"], "nowhere"),
        (["bare"], "STUDENT/NAME.ipynb"),
    ],
)
def test_what_cannot_be_graded_is_said_at_once(cli, tmp_path, arguments, message):
    hand_in(tmp_path / "class", "ada", FAILS)
    (tmp_path / "bare").mkdir()
    (tmp_path / "file").write_text("")
    ended = cli("grade", *arguments)
    assert ended.code == 2
    assert message in ended.paragraph()


@pytest.mark.slow
def test_a_student_checks_the_own_notebook(cli, tmp_path):
    right = cli("check", hand_in(tmp_path, "right", program("many_gpus")))
    assert right.code == 0
    assert f"{TOTAL} of {TOTAL} points. All checks of all {len(EXERCISE.parts)} parts passed." in right.out
    wrong = cli("check", hand_in(tmp_path, "wrong", WITHOUT_SET_EPOCH, name="mine"))
    assert wrong.code == 1
    assert "Not passed: 4." in wrong.out
    assert "Ranks 0 and 1 read the same samples in the same order" in wrong.out
    assert "bubblewrap" in wrong.out


def test_the_result_of_a_check_as_json_and_without_a_sandbox_of_its_own(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.grading.bubblewrap.works", lambda: False)
    ended = cli("check", hand_in(tmp_path, "ada", FAILS), "--json")
    assert ended.code == 1
    content = ended.json()
    assert (content["exercise"], content["passed"], content["isolated"]) == (NAME, False, False)
    assert "without bubblewrap" in content["isolation"]
    assert {part["name"] for part in content["parts"]} == {part.name for part in EXERCISE.parts}


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_what_is_no_exercise_cannot_be_checked(cli, tmp_path, content):
    path = tmp_path / "mine.ipynb"
    if content is None:
        path = hand_in(tmp_path, "ada", cell("1"), name="mine")
    else:
        path.write_text(content)
    ended = cli("check", path)
    assert ended.code == 2
    assert "mine.ipynb" in ended.paragraph()

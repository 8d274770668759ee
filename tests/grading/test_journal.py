"""The journal of a grading: what was graded is never lost, and never read where it is not whole."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from submissions_at_work import graded, not_judged

from course_lib.errors import DiskFullError, FolderError, WriteError
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.journal import Journal, only_one
from course_lib.grading.written import write_all


def test_the_last_line_of_a_submission_counts(tmp_path):
    journal = Journal(tmp_path)
    assert journal.read() == {}
    first, second, other = graded("ada", ("4.4",)), graded("ada"), not_judged("bob")
    for each in (first, other, second):
        journal.add(each)
    assert journal.read() == {("ada", second.exercise): second, ("bob", other.exercise): other}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_journal_that_was_cut_or_damaged_keeps_its_other_lines(tmp_path, data):
    journal = Journal(tmp_path)
    journal.path.unlink(missing_ok=True)
    journal.add(graded("ada"))
    whole = journal.path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    junk = data.draw(st.sampled_from([b"", b"\n", b"\x00\xff", b"\n[1]\n", b'\n{"format": 1}\n']))
    journal.path.write_bytes(whole + whole[:cut] + junk)
    journal.add(graded("bob"))
    assert [student for student, _ in journal.read()] == ["ada", "bob"]


def test_a_full_disk_leaves_what_was_graded(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        journal, names = Journal(disk), []

        def add_many():
            for number in range(1000):
                journal.add(graded(f"student{number}"))
                names.append(f"student{number}")

        with pytest.raises(DiskFullError, match=r"journal\.jsonl"):
            add_many()
        assert [student for student, _ in journal.read()] == names
        with pytest.raises(DiskFullError, match=str(disk)):
            write_all(Gradebook(journal.read().values()), [], disk, None, None)
        assert [student for student, _ in journal.read()] == names
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="--out"), only_one(tmp_path / "file" / "out"):
        pass
    (tmp_path / "index.html").mkdir()
    with pytest.raises(WriteError, match=r"index\.html"):
        write_all(Gradebook([graded("ada")]), [], tmp_path, None, None)


def test_two_gradings_do_not_meet_in_one_folder_and_a_dead_one_is_in_nobodys_way(tmp_path):
    holds = f"""
import os
from pathlib import Path
from course_lib.grading.journal import only_one
with only_one(Path({str(tmp_path)!r})):
    print("held", flush=True)
    input()
"""
    other = subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FolderError, match="Another grading"), only_one(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()
    with only_one(tmp_path):
        pass

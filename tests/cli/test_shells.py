"""What a shell may do to a command: its streams, its encoding, its folder. The command still says what it should."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"{sys.executable} -m course_lib.cli"
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def in_shell(line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", line], capture_output=True, env={**os.environ, **variables}, timeout=90)


def make_run() -> None:
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps({"format": 1, "config": {}}))


@pytest.mark.parametrize("encoding", [{"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}, PLAIN])
def test_an_encoding_without_our_signs(encoding):
    print_signs = "from course_lib.console import *; prepare_streams(); Screen(False).result({}, '0.05', chr(0x2192))"
    ended = in_shell(f'{sys.executable} -c "{print_signs}"', **encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == b"0.05\n?\n"


@pytest.mark.parametrize(
    ("closed", "code", "out", "err"),
    [(">&-", 0, b"", b""), ("2>&-", 0, b"run/report.html\n", b""), (">&- 2>&-", 0, b"", b""), ("<&-", 0, None, b"")],
)
def test_a_stream_that_is_closed(closed, code, out, err):
    make_run()
    ended = in_shell(f"{COMMAND} report run {closed}")
    assert (ended.returncode, ended.stderr) == (code, err)
    assert ended.stdout == (b"run/report.html\n" if out is None else out)
    assert Path("run/report.html").read_text().startswith("<!")


def test_an_error_is_told_where_standard_output_is_closed():
    ended = in_shell(f"{COMMAND} report nowhere >&-")
    assert ended.returncode == 2
    assert b"There is no folder nowhere" in ended.stderr


@pytest.mark.parametrize("command", ["train", "sweep", "report run", "doctor"])
def test_a_working_folder_that_was_removed(cli, command, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    ended = cli(*command.split())
    assert ended.code == 2
    assert "The current folder was removed" in ended.paragraph()


@pytest.mark.parametrize("command", ["train --out", "train --resume-from", "sweep --out", "report"])
def test_an_empty_name_is_no_folder(cli, command):
    ended = cli(*command.split(), "")
    assert ended.code == 2
    assert "It is empty" in ended.paragraph()
    assert list(Path().iterdir()) == []

"""`check` and `hint` in a kernel: what a student sees, and that nothing is left when the kernel ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from processes import eventually, is_alive

from course_lib.grading import bubblewrap
from course_lib.grading.hints import RECORD

IMPORT = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from course_lib.grading.check import check, hint, snapshot
from parts_for_tests import add_to_the_catalog
add_to_the_catalog()"""
RIGHT, WRONG = "def double(x):\n    return 2 * x", "def double(x):\n    return 3 * x"
ENDLESS = "def double(x):\n    while True:\n        pass"
SECONDS = 120

pytestmark = pytest.mark.slow


class Kernel:
    """A kernel that runs cells one after the other."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.temporary = Path(environ["TMPDIR"])
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **environ})
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(SECONDS)
        self.pid = self.manager.provisioner.pid

    def run(self, code: str) -> SimpleNamespace:
        """What a cell shows in the end: text, html, its value, and its error."""
        shown: list[dict[str, Any]] = []
        result = SimpleNamespace(text="", html="", first="", value="", error="", stderr="")

        def hear(message: dict[str, Any]) -> None:
            content, kind = message["content"], message["msg_type"]
            if kind in ("display_data", "update_display_data"):
                shown.append(content["data"])
            elif kind == "execute_result":
                result.value = content["data"]["text/plain"]
            elif kind == "error":
                result.error = "\n".join(content["traceback"])
            elif kind == "stream" and content["name"] == "stderr":
                result.stderr += content["text"]

        self.client.execute_interactive(code, timeout=SECONDS, output_hook=hear)
        if shown:
            result.first, result.text, result.html = (shown[place].get(kind, "") for place, kind in AREAS)
        return result

    def started(self) -> list[psutil.Process]:
        """All processes that it has started."""
        return psutil.Process(self.pid).children(recursive=True)

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


AREAS = ((0, "text/plain"), (-1, "text/plain"), (-1, "text/html"))


@pytest.fixture
def isolated() -> bool:
    return bubblewrap.works()


with_and_without = pytest.mark.parametrize("isolated", [True, False], ids=["isolated", "not isolated"])


@pytest.fixture
def kernel(isolated, tmp_path_factory) -> Iterator[Kernel]:
    """A kernel in which `check` was imported, with a folder of its own for temporary files."""
    if isolated and not bubblewrap.works():
        pytest.skip("bubblewrap does not work here")
    environ = {"TMPDIR": str(tmp_path_factory.mktemp("tmp"))}
    if not isolated:
        environ["PATH"] = str(tmp_path_factory.mktemp("bin"))
    kernel = Kernel(Path.cwd(), environ)
    try:
        assert kernel.run(IMPORT).error == ""
        yield kernel
    finally:
        started = kernel.started() if is_alive(kernel.pid) else []
        kernel.end()
        assert eventually(lambda: not [each for each in started if is_alive(each.pid)], SECONDS), started


def gone(processes: list[psutil.Process]) -> bool:
    return eventually(lambda: not [each for each in processes if is_alive(each.pid)], SECONDS)


def test_a_student_writes_checks_takes_a_hint_mends_and_passes(kernel):
    missing = kernel.run('check("0.1").points')
    assert missing.first == "Checking 0.1 Twice as much…"
    assert "`double` is not defined" in missing.text
    assert float(missing.value) == 0

    kernel.run(WRONG)
    wrong = kernel.run('check("0.1").points')
    assert "Seen:" in wrong.text
    assert "0 of 3 hints" in wrong.text
    assert float(wrong.value) == 0
    assert "1. It is about twice as much." in kernel.run('hint("0.1")').text
    assert "1 of 3 hints" in kernel.run('check("0.1")').text
    assert Path(RECORD).exists()

    kernel.run("factor = 2")
    kernel.run("def double(x):\n    return factor * x")
    assert "`factor` from another cell" in kernel.run('check("0.1")').text

    kernel.run(RIGHT)
    right = kernel.run('check("0.1").points')
    assert "passed, 2 of 2 points" in right.text
    assert "passed, 2 of 2 points" in right.html
    assert float(right.value) == 2
    whole = kernel.run('check("0.1")')
    assert (whole.value, whole.error, whole.stderr) == ("", "", "")


def test_a_snapshot_is_the_program_after_a_part_and_what_is_not_there_is_said_in_one_line(kernel):
    assert "mp.spawn(train" in kernel.run('snapshot("4.1")').text
    for call, message in (
        ('check("7.7")', "UsageError: No part of an exercise is called '7.7'."),
        ('hint("7.7")', "UsageError: No part of an exercise is called '7.7'."),
        ('snapshot("0.1")', "UsageError: There is no snapshot after part 0.1."),
    ):
        error = kernel.run(call).error
        assert error.startswith(message)
        assert "\n" not in error


def test_what_cannot_be_judged_is_an_error_and_no_wrong_answer(kernel):
    """As nbgrader needs it: a cell without an error and without a value would earn all points there."""
    kernel.run(RIGHT)
    kernel.run("import parts_for_tests\nparts_for_tests.HOW_MUCH = None")
    shown = kernel.run('check("0.1").points')
    assert shown.error.startswith("GradingError: Part 0.1 could not be judged, which is no fault of yours")
    assert "\n" not in shown.error
    assert "not judged" in shown.text
    assert shown.value == ""


def test_the_stop_button_ends_a_check_and_the_next_one_works(kernel):
    kernel.run(RIGHT)
    kernel.run('check("0.1")')
    kernel.run(ENDLESS)
    kernel.run("import os, signal, threading\nthreading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()")
    assert kernel.run('check("0.1")').error.startswith("RunStopped: The check was stopped.")
    kernel.run(RIGHT)
    assert "passed" in kernel.run('check("0.1")').text


@with_and_without
def test_ending_the_kernel_leaves_no_process_and_no_file(kernel, isolated):
    kernel.run(RIGHT)
    shown = kernel.run('check("0.1")').text
    assert "passed" in shown
    assert ("Bubblewrap does not work" in shown) != isolated
    started = kernel.started()
    assert started
    kernel.manager.shutdown_kernel()
    assert gone(started)
    assert list(kernel.temporary.glob("ddp-course*")) == []


@with_and_without
def test_killing_the_kernel_during_a_check_leaves_no_process(kernel):
    kernel.run(ENDLESS)
    kernel.client.execute('check("0.1")')
    assert eventually(lambda: bool(kernel.started()))
    started = kernel.started()
    os.kill(kernel.pid, signal.SIGKILL)
    assert gone(started)

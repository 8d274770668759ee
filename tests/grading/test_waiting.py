from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from course_lib.grading import catalog, snapshots
from course_lib.grading.judging import judge_all
from course_lib.grading.laws.waiting import where_each_waits
from course_lib.grading.sandbox import Process, Program, Sandbox
from course_lib.grading.submission import Submission

EXERCISE = catalog.exercise("04_one_gpu_to_many")
SECONDS_BUSY = 8
LAST_IN_LINE = b"""import contextlib, os, time
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
with contextlib.suppress(OSError):
    open("/proc/self/autogroup", "w").write("19")  # where each session has its own share of the processors
while time.process_time() < 0.3: sum(range(100_000))
"""
NESTED = """
import multiprocessing

def inner(number):
    pass

def outer(number):
    each = multiprocessing.get_context("spawn").Process(target=inner, args=(number,))
    each.start()
    each.join()
    raise SystemExit(each.exitcode)

if __name__ == "__main__":
    workers = [multiprocessing.get_context("spawn").Process(target=outer, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    open("codes.txt", "w").write(str([worker.exitcode for worker in workers]))
"""


def test_that_all_wait_for_ever_is_seen_long_before_the_time_is_over(sandbox: Sandbox) -> None:
    record = sandbox.run([Program(path="wait.py")], {"wait.py": b"import time\ntime.sleep(10_000)"}, seconds=300.0)
    assert record.why == "time"
    assert record.seconds < 60.0
    assert "wait.py" in record.program().stack


def test_one_that_works_in_silence_does_not_wait(sandbox: Sandbox) -> None:
    work = b"import time\nbegan = time.process_time()\nwhile time.process_time() < began + 5: sum(range(100_000))"
    assert sandbox.run([Program(path="work.py")], {"work.py": work}, seconds=200.0).why == "ended"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has processes that others keep from running")
def test_one_that_waits_for_a_processor_does_not_wait_for_ever(sandbox: Sandbox) -> None:
    sandbox.ready()
    loop = f"import time\nend = time.time() + {SECONDS_BUSY}\nwhile time.time() < end: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", loop], start_new_session=True) for _ in range(4 * (os.cpu_count() or 1))
    ]
    record = sandbox.run([Program(path="last.py")], {"last.py": LAST_IN_LINE}, seconds=200.0)
    assert (record.why, record.seconds > SECONDS_BUSY / 2) == ("ended", True)
    for other in others:
        other.wait()


def test_all_programs_are_in_the_record_of_a_sandbox_that_is_gone(sandbox: Sandbox, monkeypatch) -> None:
    sandbox.ready()
    monkeypatch.setattr(sandbox, "_ask", lambda request: sandbox._process.kill())  # before it could say what it starts
    record = sandbox.run([Program(path="wait.py")] * 2, {}, seconds=60.0)
    assert record.why == "broken"
    assert [record.program(place).events for place in range(2)] == [[], []]


def test_programs_with_folders_of_their_own_do_not_see_each_others_files(sandbox: Sandbox) -> None:
    code = b"import os, sys\nopen(sys.argv[1], 'w').write(str(os.listdir()))"
    programs = [Program(path="a.py", folder=f"node{node}", argv=[f"{node}.txt"]) for node in range(2)]
    given = {f"node{node}/a.py": code for node in range(2)}
    record = sandbox.run(programs, given, 60.0, [f"node{node}/{node}.txt" for node in range(2)])
    assert {name: b"a.py" in content and b"node" not in content for name, content in record.files.items()} == {
        "node0/0.txt": True,
        "node1/1.txt": True,
    }


def test_a_process_that_was_spawned_can_spawn(sandbox: Sandbox) -> None:
    record = sandbox.run([Program(path="nested.py")], {"nested.py": NESTED.encode()}, 120.0, ["codes.txt"])
    assert record.files["codes.txt"] == b"[0, 0]"


@pytest.mark.slow
def test_a_program_that_hangs_before_it_trains_is_run_once_and_not_for_each_check(sandbox: Sandbox) -> None:
    code = snapshots.program("many_gpus").replace(
        "args.num_nodes * args.num_gpus\n", "1 + args.num_nodes * args.num_gpus\n"
    )
    results, _ = judge_all(EXERCISE.parts, Submission({"program": code}), sandbox)
    assert [result.name for result in results if result.passed] == ["4.1"]
    assert sum(result.seconds for result in results) < 60.0


@pytest.mark.parametrize(
    ("stacks", "who", "idea"),
    [
        ((4, 4), "ranks 0 and 1 are", "All wait"),
        ((4, 3), "rank 0 is", "The ranks wait"),
        ((4, 0), "rank 0 is", "Not all ranks"),
    ],
)
def test_where_ranks_wait_is_told_with_their_lines(stacks: tuple[int, ...], who: str, idea: str) -> None:
    source = "import torch.distributed as dist\ndef meet(rank):\n    dist.barrier()\n    dist.barrier(rank)"
    processes = [
        Process(rank, rank, stack=f'  File "<your code>", line {line} in meet' if line else "", source=source)
        for rank, line in enumerate(stacks)
    ]
    record = SimpleNamespace(processes=processes, seconds=4.0)
    evidence: Any = SimpleNamespace(record=record, ranks={0: None, 1: None}, rank_of=lambda process: process.place)
    seen, think = where_each_waits(evidence)
    assert f"{who} at line 4, `dist.barrier(rank)`" in seen
    assert think.startswith(idea)

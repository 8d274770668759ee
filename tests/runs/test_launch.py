"""Launching: any function, from anywhere, on any number of ranks."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import student
import torch

from course_lib.config import MEASURED_ON_CPU_RANKS
from course_lib.errors import FolderError
from course_lib.runs import devices, store
from course_lib.runs.events import EventReader
from course_lib.runs.folder import read_json
from course_lib.runs.launch import launch
from course_lib.training import ddp, sources

pytestmark = pytest.mark.usefixtures("no_process_left")

LAUNCH_IN_A_CELL = """
from course_lib.config import RunConfig
from course_lib.runs.launch import launch
import torch
import torch.distributed as dist

torch.ones(400, 400) @ torch.ones(400, 400)  # starts torch's threads, which do not survive a fork
factor = 10

def helper(number):
    return factor * number

def train(config, worker):
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
    )
    total = torch.tensor([float(helper(worker.rank + 1))])
    dist.all_reduce(total)
    return total.item()

print("result", launch(train, RunConfig(num_gpus=3)).wait(60))
"""


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_meet_and_reduce(quick, world_size):
    run = launch(student.sum_of_ranks, quick.with_(num_gpus=world_size))
    assert run.wait(60) == sum(range(1, world_size + 1))
    assert run.status == "finished"


def test_nodes_are_played_on_one_machine(quick):
    run = launch(student.where_am_i, quick.with_(num_gpus=2, num_nodes=2))
    places = run.wait(60)
    assert [place[:4] for place in places] == [[0, 0, 0, 2], [1, 0, 1, 2], [2, 1, 0, 2], [3, 1, 1, 2]]
    assert "2 nodes are played on one machine" in store.frame(run.path).speed_caveats[0]


def test_threads_of_a_rank_do_not_depend_on_the_world_size(quick):
    for world_size in (1, 2):
        places = launch(student.where_am_i, quick.with_(num_gpus=world_size, threads_per_rank=2)).wait(60)
        assert [place[4] for place in places] == [2] * world_size


def test_more_ranks_than_cores_is_no_measurement_of_speed(quick):
    ranks = devices.core_count() + 1
    frame = store.frame(launch(student.sum_of_ranks, quick.with_(num_gpus=ranks)).wait(60) and "runs")
    assert f"{ranks} ranks with {ranks} threads share" in frame.speed_caveats[0]
    assert frame.timing[0] == MEASURED_ON_CPU_RANKS


def test_a_function_of_a_cell_runs_after_torch_was_used(tmp_path):
    """A cell's function lives in __main__; no guard is needed, since __main__ is not imported again."""
    script = tmp_path / "cell.py"
    script.write_text(LAUNCH_IN_A_CELL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert "result 60.0" in done.stdout, done.stderr


def test_a_closure_and_a_lambda_run(quick):
    offset = torch.tensor(5)

    def train(config, worker):
        return (offset + worker.rank).item()

    assert launch(train, quick).wait(60) == 5
    assert launch(lambda config, worker: config.batch_size, quick).wait(60) == quick.batch_size


def test_the_usual_port_may_be_taken(quick):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 29500))
        taken.listen()
        assert launch(student.sum_of_ranks, quick.with_(num_gpus=2)).wait(60) == 3


def test_two_runs_at_once_both_finish_and_say_so(quick):
    runs = [launch(student.rank_one_leaves_early, quick.with_(num_gpus=2)) for _ in range(2)]
    assert [run.wait(60) for run in runs] == [1_000_000.0] * 2
    assert runs[0].path != runs[1].path
    for run in runs:
        assert "another run went on at the same time" in store.frame(run.path).speed_caveats[0]


def test_launch_returns_at_once_and_events_come_while_it_runs(quick):
    run = launch(ddp.train, quick.with_(num_gpus=2, epochs=2))
    seen = []
    while run.status == "running":
        seen += run.events()
        time.sleep(0.02)
    seen += run.events()
    run.wait()
    assert [event["epoch"] for event in seen if event["kind"] == "epoch"] == [1, 2]
    assert len(seen) == len(EventReader(run.path).read_new())


def test_a_rank_may_leave_before_the_others(quick):
    assert launch(student.rank_one_leaves_early, quick.with_(num_gpus=2)).wait(60) == 1_000_000.0


def test_what_a_rank_prints_is_in_its_log(quick):
    run = launch(student.prints, quick.with_(num_gpus=2))
    run.wait(60)
    for rank in range(2):
        assert set(run.log(rank).splitlines()) >= {f"hello from {rank}", "and to stderr", "from a child"}


def test_a_run_is_never_written_over(quick, tmp_path):
    out = tmp_path / "a folder with #odd? characters"
    first = launch(student.sum_of_ranks, quick.with_(num_gpus=2), out)
    assert first.wait(60) == 3
    before = first.folder.result.read_bytes()
    with pytest.raises(FolderError, match="already there"):
        launch(student.sum_of_ranks, quick, out)
    assert first.folder.result.read_bytes() == before


def test_the_data_that_auto_comes_to_is_recorded(quick):
    run = launch(student.sum_of_ranks, quick.with_(data="auto"))
    run.wait(60)
    assert run.folder.read_config()[0].data == sources.locate("auto").kind


def test_the_machine_is_recorded(quick):
    run = launch(student.sum_of_ranks, quick)
    run.wait(60)
    machine = read_json(run.folder.environment)
    assert machine["torch"] == torch.__version__
    assert machine["cores"] == devices.core_count()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_decides_how_many_ranks_there_are(tmp_path, nodes):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(Path(student.__file__).parent)!r})
        import student
        from course_lib.config import RunConfig
        from course_lib.runs.launch import launch
        for name in ("first", "second"):
            run = launch(student.where_am_i, RunConfig(), name)
            os.write(1, f"places {{run.wait()}}\\n".encode())  # in one piece: two ranks print at once
        """)
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--nnodes", str(nodes)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    agents = [
        subprocess.Popen([*command, "--node-rank", str(node), script], stdout=subprocess.PIPE, text=True)
        for node in range(nodes)
    ]
    printed = "".join(agent.communicate(timeout=120)[0] for agent in agents)
    assert [agent.returncode for agent in agents] == [0] * nodes
    places = [[rank, rank // 2, rank % 2, 2, 1] for rank in range(2 * nodes)]
    assert printed.count(f"places {places}") == 2 * 2 * nodes
    assert list(store.frame(tmp_path).status) == ["finished"] * 2

"""Training functions as students write them, right and wrong; the ranks import this module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from course_lib.errors import ReportError


def join(config, worker) -> None:
    """Without a timeout, as most write it: the run's own must hold."""
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
    )


def where_am_i(config, worker):
    join(config, worker)
    mine = [worker.rank, worker.node_rank, worker.local_rank, worker.local_world_size, torch.get_num_threads()]
    places = [None] * worker.world_size
    dist.all_gather_object(places, mine)
    return places


def sum_of_ranks(config, worker):
    join(config, worker)
    total = torch.tensor([float(worker.rank + 1)])
    dist.all_reduce(total)
    return total.item()


def rank_one_leaves_early(config, worker):
    """Rank 1's part of the broadcast is done long before rank 0's is."""
    join(config, worker)
    big = torch.full((1_000_000,), float(worker.rank))
    dist.broadcast(big, src=1)
    if worker.rank == 0:
        time.sleep(0.5)
    return big.sum().item()


def prints(config, worker):
    print("hello from", worker.rank)
    print("and to stderr", file=sys.stderr)
    os.system("echo from a child")
    return 0


def rank_one_raises(config, worker):
    join(config, worker)
    worker.report("step", step=1, loss=0.5)
    if worker.rank == 1:
        raise ValueError("the student's own mistake")
    dist.barrier()


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no")


def raises_something_unreadable(config, worker):
    raise Unreadable


def raises_something_huge(config, worker):
    raise ValueError("x" * 5_000_000)


def raises_without_a_message(config, worker):
    raise ValueError


def rank_one_is_killed(config, worker):
    join(config, worker)
    worker.report("step", step=1, loss=0.5)
    if worker.rank == 1:
        print("rank 1 was here")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def rank_one_exits(config, worker):
    if worker.rank == 1:
        sys.exit(0)
    time.sleep(60)


def rank_one_exits_hard(config, worker):
    if worker.rank == 1:
        os._exit(0)
    time.sleep(60)


def rank_one_stays_away(config, worker):
    join(config, worker)
    if worker.rank == 1:
        wait_for_nothing()
    dist.all_reduce(torch.ones(1))


def wait_for_nothing():
    while True:
        time.sleep(0.01)


def rank_zero_aborts_as_nccl_does(config, worker):
    if worker.rank == 0:
        time.sleep(0.3)
        os.abort()
    wait_for_nothing()


def rank_one_returns_early(config, worker):
    join(config, worker)
    if worker.rank == 0:
        dist.all_reduce(torch.ones(1))


def all_wait_for_another(config, worker):
    join(config, worker)
    other = 1 - worker.rank
    dist.recv(torch.ones(1), src=other)


def never_returns(config, worker):
    worker.report("pid", pid=os.getpid(), meeting=worker.init_method)
    wait_for_nothing()


def never_returns_with_a_child(config, worker):
    child = subprocess.Popen(["sleep", "300"])
    worker.report("pid", pid=os.getpid(), child=child.pid)
    wait_for_nothing()


def stuck_outside_python(config, worker):
    worker.report("pid", pid=os.getpid())
    os.read(os.pipe()[0], 1)


def prints_without_end(config, worker):
    worker.report("step", step=1, loss=0.5)
    while True:
        sys.stdout.write("x" * 1000 + "\n")


def reports_without_end(config, worker):
    number = 0
    while True:
        number += 1
        worker.report("step", step=number, loss=0.5, padding="x" * 1000)


def returns_something_odd(config, worker):
    return {"model": torch.nn.Linear(2, 2)}


def returns_itself(config, worker):
    result = {}
    result["again"] = result
    return result


def returns_depths(config, worker):
    result = []
    for _ in range(100_000):
        result = [result]
    return result


def cannot_record_its_error(config, worker):
    worker.report("before")
    folder = worker._folder
    folder.error(worker.rank).mkdir()  # what stands there cannot be replaced by a file
    raise ValueError("nobody will read this")


def reports_after_refusals(config, worker):
    """How many reports were refused; a lost one would be refused again with each later one."""
    refused = 0
    worker.report("good", value=1)
    for values in ({"value": object()}, {"time": "now"}, {"rank": 7}, {"value": [object()]}):
        try:
            worker.report("bad", **values)
        except ReportError:
            refused += 1
    worker.report("good", value=2)
    return refused


def reports_something_odd(config, worker):
    worker.report("step", step=1, loss=torch.ones(3, 3).cuda if torch.cuda.is_available() else object())

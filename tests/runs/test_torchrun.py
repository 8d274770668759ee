"""Under torchrun nobody watches all ranks, and still the innocent are not blamed."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.config import RunConfig
from course_lib.errors import CourseError, HangError, RankError
from course_lib.runs import store, torchrun
from course_lib.runs.devices import Place
from course_lib.runs.exit_codes import EXIT_FAILED
from course_lib.runs.folder import RunFolder, create_run_folder, write_json
from course_lib.runs.torchrun import JoinedRun

BY_ITSELF, LOST, WAITED = "by itself", "lost its connection", "waited"
# How each rank ended, in the order in which they did; None said nothing.
endings = st.lists(st.sampled_from([BY_ITSELF, LOST, WAITED, None]), min_size=2, max_size=4).filter(any)


def end(folder: RunFolder, rank: int, how: str, when: float) -> None:
    content = {"type": "ValueError", "message": f"said by {rank}", "traceback": f"the traceback of {rank}"}
    blamed = {"from_peer": how != BY_ITSELF, "timed_out": how == WAITED}
    write_json(folder.error(rank), {**content, "time": when, **blamed})


def verdict_of(folder: RunFolder, rank: int, world_size: int) -> CourseError:
    place = Place(rank, world_size, rank, world_size, 0, "cpu", "gloo", 1)
    run = JoinedRun(RunConfig(num_gpus=world_size), folder, 100, place, EXIT_FAILED)
    with pytest.raises(CourseError) as caught:
        run.wait()
    return caught.value


@settings(max_examples=60)
@given(endings, st.randoms(use_true_random=False))
def test_the_first_that_failed_by_itself_is_the_culprit_and_nobody_else(ended, random):
    order = random.sample(range(len(ended)), len(ended))
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torchrun, "GRACE_SECONDS", 0)
        folder = create_run_folder(Path(place, "run"))
        folder.write_config(RunConfig(num_gpus=len(ended)), {})
        for when, rank in enumerate(order):
            if ended[rank]:
                end(folder, rank, ended[rank], float(when))
        unjudged = store.frame(place)["error"][0]
        spoke = [rank for rank in order if ended[rank]]
        error = verdict_of(folder, random.choice(spoke), len(ended))
        recorded = json.loads(folder.failure.read_text())
        assert store.frame(place)["error"][0] == recorded["message"] == error.args[0]
    silent = [rank for rank in order if not ended[rank]]
    culprits = [rank for rank in order if ended[rank] == BY_ITSELF]
    if culprits:
        assert isinstance(error, RankError)
        assert error.rank == recorded["rank"] == culprits[0]
        assert unjudged == f"said by {culprits[0]}"
    elif silent:
        assert isinstance(error, HangError if WAITED in ended else RankError)
        assert all(str(rank) in str(error) for rank in silent)
        assert getattr(error, "rank", silent[0]) in silent
    if not culprits:
        assert unjudged.startswith("Another rank hung, or ended without saying why: rank ")


@pytest.mark.slow
def test_a_rank_that_raises_is_named_in_the_record(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from course_lib.config import RunConfig
        from course_lib.runs.launch import launch

        def train(config, worker):
            import torch, torch.distributed as dist
            dist.init_process_group("gloo", init_method=worker.init_method, rank=worker.rank, world_size=2)
            if worker.rank == 1:
                raise ValueError("boom")
            dist.all_reduce(torch.zeros(1))

        launch(train, RunConfig(device="cpu"), "run").wait()
        """)
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode != 0
    row = store.frame("run").iloc[0]
    assert row["status"] == "failed"
    assert row["error"].startswith("Rank 1 of 2 failed")
    assert "ValueError: boom" in row["error"]

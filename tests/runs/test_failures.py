"""Every way in which a run can fail: it ends within seconds, names the culprit, and leaves no process."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import student
import torch
from processes import eventually, is_alive

from course_lib.config import RunConfig
from course_lib.errors import (
    ConfigError,
    CourseError,
    DeviceError,
    DiskFullError,
    FolderError,
    FunctionError,
    HangError,
    NonFiniteLossError,
    RankError,
    ReportError,
    RunStopped,
    WriteError,
)
from course_lib.runs import store
from course_lib.runs.events import EventReader
from course_lib.runs.folder import RunFolder, cannot_write
from course_lib.runs.launch import launch
from course_lib.runs.launcher import fork_server
from course_lib.training import ddp, single

pytestmark = pytest.mark.usefixtures("no_process_left")

SECONDS = 10  # within which a failed run must be over


def fails(kind, train, config, **options):
    """The error with which a run fails, in time, and the run."""
    fork_server().ready.wait(60)
    run = launch(train, config, **options)
    with pytest.raises(kind) as caught:
        run.wait(SECONDS)
    return caught.value, run


@pytest.mark.parametrize("world_size", [2, 4])
def test_a_rank_that_raises_is_named_with_its_traceback(quick, world_size):
    error, run = fails(RankError, student.rank_one_raises, quick.with_(num_gpus=world_size))
    assert error.rank == 1
    assert f"Rank 1 of {world_size} failed after step 1" in str(error)
    assert 'raise ValueError("the student\'s own mistake")' in error.traceback
    assert run.status == "failed"
    assert len(EventReader(run.path).read_new()) >= 1
    assert "student's own mistake" in store.frame(run.path).error[0]


def test_the_traceback_shows_the_lines_of_a_cell(quick, tmp_path):
    script = tmp_path / "cell.py"
    script.write_text(
        textwrap.dedent("""
        import linecache
        from course_lib.config import RunConfig
        from course_lib.runs.launch import launch
        cell = "def inner():\\n    raise ValueError('in a cell')\\n\\ndef train(config, worker):\\n    inner()\\n"
        linecache.cache["<cell 7>"] = (len(cell), None, cell.splitlines(True), "<cell 7>")
        exec(compile(cell, "<cell 7>", "exec"))
        launch(train, RunConfig()).wait(60)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert "File \"<cell 7>\", line 2, in inner\n    raise ValueError('in a cell')" in done.stderr


def test_a_killed_rank_is_named_and_not_its_louder_peer(quick):
    error, _ = fails(RankError, student.rank_one_is_killed, quick.with_(num_gpus=3))
    assert error.rank == 1
    assert "SIGKILL" in str(error)
    assert "rank 1 was here" in str(error)


@pytest.mark.parametrize("train", [student.rank_one_exits, student.rank_one_exits_hard])
def test_leaving_without_returning_is_a_failure_whatever_the_code(quick, train):
    error, run = fails(RankError, train, quick.with_(num_gpus=2))
    assert error.rank == 1
    assert "exit" in str(error)
    assert run.status == "failed"


def test_a_rank_that_stays_away_from_a_collective_is_named_with_where_it_is(quick):
    error, _ = fails(HangError, student.rank_one_stays_away, quick.with_(num_gpus=2, collective_timeout=2))
    assert "Rank 1 did not join the collective in which rank 0 waited" in str(error)
    assert "wait_for_nothing" in str(error)
    assert "dist.all_reduce(torch.ones(1))" in str(error)


def test_a_rank_that_returned_too_early_is_named(quick):
    error, _ = fails(HangError, student.rank_one_returns_early, quick.with_(num_gpus=2, collective_timeout=2))
    assert "Rank 1 had returned" in str(error)


def test_ranks_that_wait_for_each_other(quick):
    error, _ = fails(HangError, student.all_wait_for_another, quick.with_(num_gpus=2, collective_timeout=2))
    assert "rank 0" in str(error)
    assert "rank 1" in str(error)


@pytest.mark.parametrize("train", [student.never_returns, student.stuck_outside_python])
def test_a_time_limit_ends_a_function_that_never_returns(quick, train):
    error, _ = fails(HangError, train, quick.with_(num_gpus=2), time_limit=1)
    assert "time limit of 1 s" in str(error)
    assert "student.py" in str(error)


def test_stop_ends_a_run_and_what_its_ranks_started(quick):
    run = launch(student.never_returns_with_a_child, quick.with_(num_gpus=2))
    seen = []
    assert eventually(lambda: seen.extend(run.events()) or len(seen) == 2, 60)
    run.stop()
    assert run.status == "stopped"
    with pytest.raises(RunStopped):
        run.wait()
    assert not any(is_alive(event["pid"]) or is_alive(event["child"]) for event in seen)
    assert len(EventReader(run.path).read_new()) == 2


def test_a_rank_that_aborts_while_others_are_absent_is_not_blamed(quick):
    """NCCL's watchdog ends a rank that waited too long like this: no exception, no error file."""
    error, _ = fails(HangError, student.rank_zero_aborts_as_nccl_does, quick.with_(num_gpus=2))
    assert "Rank 1 did not join" in str(error)
    assert "wait_for_nothing" in str(error)


def test_a_rank_that_aborts_by_itself_is_blamed(quick):
    error, _ = fails(RankError, student.rank_zero_aborts_as_nccl_does, quick)
    assert error.rank == 0
    assert "Aborted" in str(error)


def test_a_time_limit_must_be_a_time(quick):
    for limit in (-1, 0, float("nan")):
        with pytest.raises(ConfigError, match="time_limit"):
            launch(student.never_returns, quick, time_limit=limit)


@pytest.mark.parametrize("train", [student.raises_something_unreadable, student.raises_something_huge])
def test_an_exception_that_cannot_be_shown_is_still_told(quick, train):
    error, run = fails(RankError, train, quick)
    assert "student.py" in error.traceback
    assert len(str(error)) < 100_000
    assert run.folder.error(0).exists()


def test_an_exception_without_a_message_is_told_by_its_kind(quick):
    error, _ = fails(RankError, student.raises_without_a_message, quick)
    assert "Rank 0 of 1 failed: ValueError. Its traceback follows." in str(error)


def test_a_run_whose_folder_is_removed_ends(quick):
    run = launch(student.never_returns, quick.with_(num_gpus=2))
    seen = []
    assert eventually(lambda: seen.extend(run.events()) or len(seen) == 2, 60)
    shutil.rmtree(run.path)
    with pytest.raises(WriteError, match="was removed while its run went on"):
        run.wait(SECONDS)
    assert run.status == "failed"
    assert run.events() == []


@pytest.mark.parametrize("number", [number for number in errno.errorcode if number])
def test_only_a_full_disk_asks_for_space(number):
    error = cannot_write(Path("a/run/checkpoint.pt"), OSError(number, os.strerror(number)))
    full = number in (errno.ENOSPC, errno.EDQUOT)
    assert isinstance(error, DiskFullError) == full
    assert ("Free some space" in str(error)) == full
    assert "a/run/checkpoint.pt" in str(error)
    assert full or os.strerror(number) in str(error)
    assert "runs" not in str(error)  # a grading says it too


def test_a_rank_that_cannot_even_record_its_error_is_told(quick):
    error, run = fails(WriteError, student.cannot_record_its_error, quick)
    assert "Nothing can be written" in str(error)
    assert [event["kind"] for event in EventReader(run.path).read_new()] == ["before"]


def test_a_value_that_cannot_be_reported_spoils_no_other(quick):
    run = launch(student.reports_after_refusals, quick)
    assert run.wait(60) == 4
    told = [(event["kind"], event.get("value")) for event in EventReader(run.path).read_new()]
    assert told == [("good", 1), ("good", 2), ("end", None)]


@pytest.mark.parametrize("train", [student.returns_itself, student.returns_depths])
def test_a_result_without_end_is_refused(quick, train):
    error, _ = fails(ReportError, train, quick)
    assert "'result'" in str(error)


def test_stop_before_the_first_step_and_twice(quick):
    run = launch(ddp.train, quick.with_(num_gpus=2))
    run.stop()
    run.stop()
    assert run.status == "stopped"


def test_printing_without_end_is_stopped(quick):
    error, run = fails(RankError, student.prints_without_end, quick)
    assert "printed more than 20 MiB" in str(error)
    assert len(EventReader(run.path).read_new()) == 1


def test_a_result_that_json_cannot_hold_is_refused(quick):
    error, _ = fails(ReportError, student.returns_something_odd, quick)
    assert "result" in str(error)


def test_a_report_that_json_cannot_hold_is_refused(quick):
    error, _ = fails(ReportError, student.reports_something_odd, quick)
    assert "'loss'" in str(error)


@pytest.mark.parametrize(("train", "world_size"), [(single.train, 1), (ddp.train, 2)])
def test_a_loss_that_is_not_finite_stops_all_ranks(quick, train, world_size):
    config = quick.with_(num_gpus=world_size, lr=1e20, warmup_epochs=0.0, epochs=3)
    error, _ = fails(NonFiniteLossError, train, config)
    assert "learning rate" in str(error)


def test_an_error_of_ours_in_a_rank_keeps_its_kind(quick):
    error, _ = fails(CourseError, student_config_error, quick.with_(num_gpus=2))
    assert type(error) is ConfigError
    assert error.exit_code == 2


def student_config_error(config, worker):
    raise ConfigError("this cannot be")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_told_and_what_was_recorded_stays(quick, small_disk):
    error, run = fails(DiskFullError, student.reports_without_end, quick, out=small_disk / "run")
    assert str(run.path) in str(error)
    events = EventReader(run.path).read_new()
    assert [event["step"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) > 100


def test_a_checkpoint_that_does_not_fit_is_told(quick, small_disk):
    config = quick.with_(model="mlp", checkpoint=True)
    error, run = fails(DiskFullError, single.train, config, out=small_disk / "run")
    assert "checkpoint" in str(error)
    assert store.epochs(run.path).epoch.tolist() == [1]


KERNEL = """
import sys
sys.path.insert(0, {folder!r})
import student
from course_lib.config import RunConfig
from course_lib.runs.launch import launch
run = launch(student.never_returns_with_a_child, RunConfig(num_gpus=2), {out!r})
run.wait()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_whatever_ends_the_kernel_ends_its_run(tmp_path, how):
    out = tmp_path / "run"
    code = KERNEL.format(folder=str(Path(student.__file__).parent), out=str(out))
    kernel = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert eventually(out.exists, 60)
    reader, seen = EventReader(out), []
    assert eventually(lambda: seen.extend(reader.read_new()) or len(seen) == 2, 60)
    os.killpg(kernel.pid, how)
    kernel.communicate(timeout=SECONDS)
    assert eventually(lambda: not any(is_alive(event["pid"]) or is_alive(event["child"]) for event in seen))
    status = RunFolder(out).status()
    assert status == ("stopped" if how == signal.SIGINT else "lost")
    assert len(EventReader(out).read_new()) == 2


class Odd:
    def __reduce__(self):
        raise TypeError("cannot be taken apart")


def test_a_function_that_cannot_be_sent_names_what_it_captured(quick):
    odd_thing, huge_thing = Odd(), b"x" * (100 * 2**20)
    with pytest.raises(FunctionError, match="odd_thing"):
        launch(lambda config, worker: odd_thing, quick)
    with pytest.raises(FunctionError, match="huge_thing"):
        launch(lambda config, worker: len(huge_thing), quick)
    with pytest.raises(FunctionError, match=r"\(config, worker\)"):
        launch(lambda config: 0, quick)
    with pytest.raises(FunctionError, match="needs a function"):
        launch("train", quick)
    assert not Path("runs").exists()


def test_what_cannot_be_done_is_refused_before_anything_starts(quick, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    with contextlib.chdir(gone):
        gone.rmdir()
        with pytest.raises(FolderError, match="current folder was removed"):
            launch(student.sum_of_ranks, quick, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="no GPU here"):
            launch(single.train, quick.with_(device="cuda"))
    with pytest.raises(ConfigError, match=r"Use ddp\.train"):
        launch(single.train, quick.with_(num_gpus=2))
    with pytest.raises(ConfigError, match="batch"):
        launch(single.train, quick.with_(batch_size=301))
    with pytest.raises(ConfigError, match="train_samples"):
        launch(single.train, quick.with_(train_samples=10_001))
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="--out"):
        launch(single.train, quick, tmp_path / "file" / "run")
    assert not Path("runs").exists()


def test_a_run_without_an_end_is_lost_and_readable(quick):
    run = launch(student.sum_of_ranks, quick)
    run.wait(60)
    run.folder.result.unlink()
    assert run.folder.status() == "lost"
    assert store.frame(run.path).status[0] == "lost"


def test_configs_that_cannot_be():
    for name, value in [
        *[("batch_size", 0), ("num_gpus", 0), ("num_nodes", -1), ("lr", -0.1), ("lr", float("nan")), ("lr", "0.1")],
        *[("model", "resnet"), ("epochs", 0), ("seed", -1), ("train_samples", 0), ("clip_norm", 0.0)],
        *[("batch_size", 1.5), ("device", "tpu"), ("warmup_epochs", 9.0), ("compile", 1), ("num_gpus", 2000)],
    ]:
        with pytest.raises(ConfigError, match=name):
            RunConfig(**{name: value})
    with pytest.raises(ConfigError, match="batchsize"):
        RunConfig().with_(batchsize=3)


def test_the_run_is_over_in_time_after_a_rank_fails(quick):
    """No deadline of a timer stands between a failure and its error."""
    fork_server().ready.wait(60)
    began = time.monotonic()
    fails(RankError, student.rank_one_raises, quick.with_(num_gpus=4, collective_timeout=300))
    assert time.monotonic() - began < SECONDS

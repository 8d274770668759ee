"""One experiment at a time, in the background; none is made twice, and none is lost."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from processes import eventually

from course_lib.config import RunConfig
from course_lib.errors import CourseError, FolderError, UsageError
from course_lib.lab.panel import experiments
from course_lib.lab.panel.choices import Choices
from course_lib.lab.panel.experiments import LOCK, Experiment, at_work, begin, needs_baseline, single, swept
from course_lib.lab.panel.runs_folder import RunsFolder
from course_lib.runs import store
from course_lib.runs.found import FoundRun
from course_lib.training import ddp

QUICK = Choices(model="mlp", epochs=1, data_share=0.01, device="cpu")
pytestmark = pytest.mark.usefixtures("no_process_left")


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """A folder in which no experiment goes on when the test is over."""
    folder = tmp_path / "runs"
    yield folder
    experiment = at_work(folder)
    if experiment is not None:
        experiment.stop()
        experiment.join(30)


def wait_for_ever(config: RunConfig, worker: Any) -> None:
    import time

    worker.report("step", epoch=1, step=1, loss=2.0, samples=50)
    while True:
        time.sleep(0.1)


def rank_one_fails(config: RunConfig, worker: Any) -> None:
    import time

    worker.report("step", epoch=1, step=1, loss=2.0, samples=50)
    if worker.rank == 1:
        raise ValueError("the gradient is wrong")
    time.sleep(60)


def finished(experiment: Experiment) -> Experiment:
    experiment.join(60)
    assert not experiment.is_alive()
    return experiment


def test_a_run_is_made_after_its_baseline_and_keeps_the_guess(folder):
    experiment = finished(begin(ddp.train, single(QUICK.with_(num_gpus=2), 1.7, store_of(folder)), folder, "run"))
    frame = store.frame(folder)
    assert experiment.error == ""
    assert list(frame["status"]) == ["finished", "finished"]
    assert sorted(frame["world_size"]) == [1, 2]
    assert frame.set_index("world_size")["guess"].to_dict() == {1: pytest.approx(float("nan"), nan_ok=True), 2: 1.7}
    assert frame["path"].map(experiment.holds).all()
    assert (experiment.progress.done, experiment.progress.total, experiment.progress.failed) == (2, 2, 0)
    # Now there is a baseline, and the next run needs none; one with another batch does.
    assert not needs_baseline(QUICK.with_(num_gpus=2), frame)
    assert needs_baseline(QUICK.with_(num_gpus=2, batch_size=32), frame)
    assert needs_baseline(QUICK.with_(num_gpus=2, scaling="strong"), frame)
    assert len(single(QUICK.with_(num_gpus=2), None, frame)[0].num_gpus) == 1


def store_of(folder: Path) -> Any:
    runs = RunsFolder(folder)
    runs.look(now=True)
    return runs.frame


def test_the_baseline_of_several_nodes_is_one_rank_of_one(folder):
    sweeps = single(QUICK.with_(num_gpus=1, num_nodes=2), None, store_of(folder))
    experiment = finished(begin(ddp.train, sweeps, folder, "run"))
    frame = store.frame(folder)
    assert sorted(frame["world_size"]) == [1, 2]
    assert frame["path"].map(experiment.holds).all()
    assert frame.set_index("world_size")["speedup"].notna().all()
    assert experiment.progress.done == 2


def test_one_rank_needs_no_baseline(folder):
    assert not needs_baseline(QUICK, store_of(folder))


def test_a_second_click_starts_nothing(folder):
    experiment = begin(wait_for_ever, single(QUICK, None, store_of(folder)), folder, "run")
    with pytest.raises(UsageError, match="goes on in this folder already"):
        begin(wait_for_ever, single(QUICK, None, store_of(folder)), folder, "run")
    assert at_work(folder) is experiment
    experiment.stop()
    finished(experiment)
    assert len(store.frame(folder)) <= 1
    assert at_work(folder) is None


def test_clicks_at_the_same_time_start_one(folder):
    outcomes: list[Any] = []

    def click() -> None:
        try:
            outcomes.append(begin(wait_for_ever, single(QUICK, None, store_of(folder)), folder, "run"))
        except CourseError as error:
            outcomes.append(error)

    clicks = [threading.Thread(target=click) for _ in range(4)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join()
    (started,) = (outcome for outcome in outcomes if isinstance(outcome, Experiment))
    assert eventually(lambda: started.run_path is not None)
    started.stop()
    finished(started)
    assert len(store.frame(folder)) == 1


def test_another_program_that_is_at_work_there_is_respected(folder):
    folder.mkdir()
    with FileLock(folder / LOCK), pytest.raises(UsageError, match="goes on in this folder already"):
        begin(ddp.train, single(QUICK, None, store_of(folder)), folder, "run")


def test_after_the_end_the_next_one_can_begin(folder):
    for _ in range(2):
        finished(begin(ddp.train, single(QUICK, None, store_of(folder)), folder, "run"))
    frame = store.frame(folder)
    assert list(frame["status"]) == ["finished"] * 2
    assert frame["sweep"].nunique() == 2


def test_stopping_ends_the_run_and_makes_no_more(folder):
    experiment = begin(wait_for_ever, single(QUICK.with_(repeats=3), None, store_of(folder)), folder, "run")
    assert eventually(lambda: experiment.run_path is not None)
    experiment.stop()
    finished(experiment)
    assert list(store.frame(folder)["status"]) == ["stopped"]
    assert experiment.error == ""


def test_what_is_stopped_before_the_first_step_ends_too(folder):
    experiment = begin(ddp.train, single(QUICK.with_(num_gpus=2, epochs=500), None, store_of(folder)), folder, "run")
    experiment.stop()
    finished(experiment)
    assert "finished" not in set(store.frame(folder)["status"])


def test_a_run_that_fails_does_not_stop_the_others(folder):
    experiment = begin(rank_one_fails, swept(QUICK.with_(num_gpus=2), "lr", [0.1, 0.2], None), folder, "sweep")
    finished(experiment)
    frame = store.frame(folder)
    assert list(frame["status"]) == ["failed", "failed"]
    assert frame["error"].str.contains("Rank 1 of 2 failed after step 1.*the gradient is wrong").all()
    assert experiment.progress.failed == 2


def test_a_sweep_goes_over_what_was_named(folder):
    (sweep,) = swept(QUICK, "batch_size", [32, 64], None)
    assert [planned.config.batch_size for planned in sweep.plan("")] == [32, 64]
    (sweep,) = swept(QUICK.with_(num_gpus=2), "num_gpus", [1, 2], 1.5)
    assert [planned.labels.get("guess") for planned in sweep.plan("")] == [None, 1.5]


def test_a_folder_that_cannot_be_written_is_told_of(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="Cannot write to"):
        begin(ddp.train, single(QUICK, None, store_of(tmp_path)), tmp_path / "file" / "runs", "run")


def test_what_goes_wrong_in_the_thread_is_kept(folder, monkeypatch):
    monkeypatch.setattr(experiments, "run_sweep", lambda *_: 1 / 0)
    experiment = finished(begin(ddp.train, single(QUICK, None, store_of(folder)), folder, "run"))
    assert experiment.error == "ZeroDivisionError: division by zero"
    assert at_work(folder) is None


def test_a_found_run_ends_as_its_launcher_says(folder):
    finished(begin(rank_one_fails, swept(QUICK.with_(num_gpus=2), "lr", [0.1], None), folder, "sweep"))
    run = FoundRun(store.frame(folder)["path"].iloc[0])
    assert run.status == "failed"
    with pytest.raises(CourseError, match="Rank 1 of 2 failed") as caught:
        run.wait()
    assert "Traceback" in str(caught.value)
    shutil.rmtree(run.path)
    assert run.status == "lost"


def test_the_runs_of_a_folder_are_read_again_where_files_came(folder, make_run):
    runs = RunsFolder(folder)
    assert not runs.look(now=True)
    assert runs.frame.empty
    first = make_run("a")
    assert runs.look(now=True)
    assert not runs.look(now=True)
    make_run("0")
    assert runs.look(now=True)
    # Numbers stay, whatever comes before in the order of names.
    assert runs.number(str(first)) == 1
    assert runs.number(str(folder / "0")) == 2
    shutil.rmtree(first)
    assert runs.look(now=True)
    assert list(runs.frame["run"]) == ["0"]


def test_only_runs_of_the_folder_that_are_over_are_deleted(folder, make_run, tmp_path):
    runs = RunsFolder(folder)
    path = make_run("a")
    runs.look(now=True)
    outside = tmp_path / "precious"
    outside.mkdir()
    with pytest.raises(FolderError, match="none of the runs"):
        runs.delete([str(outside)])
    assert outside.exists()
    runs.delete([str(path)])
    assert not path.exists()
    assert runs.frame.empty
    experiment = begin(wait_for_ever, single(QUICK, None, runs.frame), folder, "run")
    assert eventually(lambda: runs.look(now=True) and len(runs.frame) > 0)
    with pytest.raises(FolderError, match="still goes on"):
        runs.delete(runs.frame["path"])
    experiment.stop()
    finished(experiment)
    time.sleep(0)

"""A lesson presses what a student would press, and only as often as it must."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from course_lib.errors import ConfigError, RunError
from course_lib.lab.panel import ScalingLab
from course_lib.lab.panel.choices import Choices
from course_lib.lab.panel.guided import run_missing
from course_lib.runs import store

QUICK = Choices(model="mlp", epochs=1, data_share=0.01, device="cpu", num_gpus=2)


@pytest.fixture
def panel(tmp_path) -> Iterator[ScalingLab]:
    """A panel at work, of which nothing goes on when the test is over."""
    panel = ScalingLab(tmp_path / "runs")
    yield panel
    panel.stop()
    panel.wait()
    panel.retire()
    panel.close()


def test_only_what_nobody_has_run_is_run(panel):
    panel.controls.choices = QUICK
    panel.run()  # by hand: one rank, then two
    paths = run_missing(panel, QUICK.with_(repeats=3), "num_gpus", [1, 2])
    frame = store.frame(panel.folder)
    assert list(frame["world_size"]) == [1, 2]
    assert list(frame.set_index("path").loc[paths, "world_size"]) == [1, 2]
    more = run_missing(panel, QUICK, "batch_size", [64, 32])
    assert more[0] == paths[1]
    assert len(store.frame(panel.folder)) == 3
    assert set(panel.table.chosen) == {*more}
    assert set(panel.results().runs["path"]) == {*more}


def test_strong_scaling_is_another_experiment(panel):
    one = QUICK.with_(num_gpus=1)
    weak = run_missing(panel, one, "num_gpus", [1])
    strong = run_missing(panel, one.with_(scaling="strong"), "num_gpus", [1])
    assert weak != strong


def test_what_is_impossible_starts_nothing(panel):
    with pytest.raises(ConfigError):
        run_missing(panel, QUICK.with_(batch_size=0), "num_gpus", [1, 2])
    assert not panel.folder.exists()


def test_runs_that_did_not_finish_are_told(panel):
    """One whose loss is no number has failed, whatever else it did."""
    with pytest.raises(RunError, match="No run has finished with lr 1e\\+30"):
        run_missing(panel, QUICK.with_(num_gpus=1, warmup_epochs=0.0), "lr", [0.01, 1e30])
    assert sorted(store.frame(panel.folder)["status"]) == ["failed", "finished"]

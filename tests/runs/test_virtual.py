"""Simulated ranks train as real ones do, on any number of them, and say that they are simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
import student
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib.config import MAX_SIMULATED_WORLD_SIZE, SIMULATED, RunConfig
from course_lib.errors import ConfigError
from course_lib.lab.report import write_report
from course_lib.runs import store, torchrun, virtual
from course_lib.runs.folder import read_json
from course_lib.runs.launch import launch
from course_lib.runs.simulated_clock import SimulatedClock
from course_lib.runs.sweep import Sweep, run_sweep
from course_lib.training import data, ddp, models, single

pytestmark = pytest.mark.usefixtures("no_process_left")

# 20 steps, of which each tenth is uneven: 229 images make 9 steps of 24 and one of 13.
STEPS = RunConfig(model="mlp", data="subset", train_samples=229, batch_size=24, epochs=2, lr=0.02, lr_rule="none")
ADAMW = {"optimizer": "adamw", "lr": 1e-4}
VARIANTS = {
    1: {"clip_norm": 0.3},
    2: {"batch_size": 12, **ADAMW},
    3: {"batch_size": 4, "accumulation_steps": 2, "model": "small_cnn"},
    4: {"batch_size": 3, "accumulation_steps": 2, "clip_norm": 0.3, **ADAMW},
}


@pytest.fixture(autouse=True)
def one_thread():
    """A second thread would wait for what other tests do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class Recorder:
    """A worker in this process, which keeps what is reported."""

    checkpoint: dict[str, Any] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    rank, device = 0, torch.device("cpu")

    def report(self, kind: str, **values: Any) -> None:
        self.events.append({"kind": kind, **values})

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self.saved.append(copy_of(state))

    def load_checkpoint(self) -> dict[str, Any] | None:
        return self.checkpoint

    def steps(self, name: str) -> list[float]:
        return [float(event[name]) for event in self.events if event["kind"] == "step"]


def copy_of(state: dict[str, Any]) -> dict[str, Any]:
    """What is read of a state that is written now, as worker.py does both."""
    torch.save(state, file := BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=True)


def simulate(config: RunConfig, train=virtual.train) -> tuple[Recorder, dict[str, Any]]:
    worker = Recorder()
    return worker, train(config.with_(device=SIMULATED), worker)


def assert_same(weights, expected, within=1e-5):
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=within, msg=name)


def assert_like_gloo(config: RunConfig, train=ddp.train) -> None:
    """Simulated ranks have the weights, the steps and the scores of as many real ones."""
    real = launch(train, config.with_(device="cpu"))
    expected = real.wait(240)
    worker, result = simulate(config)
    assert_same(worker.saved[-1]["network"], torch.load(real.folder.checkpoint)["network"])
    assert result["steps"] == expected["steps"] == 20
    assert result["val_accuracy"] == pytest.approx(expected["val_accuracy"], abs=5.1e-4)  # one image of 2,000
    assert result["train_loss"] == pytest.approx(expected["train_loss"], abs=1e-5)
    steps = store.steps(real.path).query("rank == 0")
    for name in ("epoch", "step", "samples", "lr", "local_samples"):
        assert worker.steps(name) == steps[name].tolist()
    for name in ("loss", "grad_norm", "local_grad_norm"):
        assert worker.steps(name) == pytest.approx(steps[name].tolist(), rel=1e-3)
    told = {"kind", *steps.dropna(axis=1).columns} - {*store.STEP_FACTS, "rank", "time"}
    assert set(worker.events[0]) == told


@pytest.mark.parametrize("world_size", VARIANTS)
def test_simulated_ranks_equal_gloo_ranks(world_size):
    assert_like_gloo(STEPS.with_(num_gpus=world_size, **VARIANTS[world_size]))


class Small(nn.Sequential):
    """A network with BatchNorm and Dropout that is quick on CPU ranks."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__(
            *(nn.Conv2d(1, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Flatten(), nn.Linear(144, 10)),
        )


def train_small(config, worker):
    models.build = lambda name: Small()
    return ddp.train(config, worker)


def score_few(load):
    """Loads the data with 100 test images, since a wide network takes long to score them all."""

    def load_few(*arguments):
        train_set, test_set = load(*arguments)
        return train_set, data.ImageSet(test_set.images[:100], test_set.labels[:100])

    return load_few


def train_and_score_few(config, worker):
    data.load = score_few(data.load)
    return ddp.train(config, worker)


def test_batch_norm_has_the_statistics_of_each_rank(monkeypatch):
    monkeypatch.setattr(models, "build", lambda name: Small())
    assert_like_gloo(STEPS.with_(num_gpus=2, num_nodes=2, batch_size=6, lr=1e-3), train_small)


@pytest.mark.slow
def test_a_wide_residual_network_equals_gloo_ranks(monkeypatch):
    """Both train, and the gloo ranks, whose statistics differ, stay in sync.

    Rounding errors grow from step to step where BatchNorm has so few images, so the steps are small.
    """
    monkeypatch.setattr(data, "load", score_few(data.load))
    config = STEPS.with_(model="wrn-16-4", num_gpus=2, batch_size=2, train_samples=79, epochs=1, lr=1e-4)
    assert_like_gloo(config, train_and_score_few)


def test_synchronised_batch_norm_is_one_process_on_the_whole_batch(monkeypatch):
    monkeypatch.setattr(models, "build", lambda name: Small(dropout=0))
    config = STEPS.with_(epochs=1, lr=1e-3)
    whole = Recorder()
    single.train(config, whole)
    synchronised, _ = simulate(config.with_(device=SIMULATED, num_gpus=4, batch_size=6, sync_batchnorm=True))
    assert_same(synchronised.saved[-1]["network"], whole.saved[-1]["network"], within=1e-6)
    local, _ = simulate(config.with_(num_gpus=4, batch_size=6))
    assert not torch.allclose(*(each.saved[-1]["network"]["1.running_var"] for each in (local, whole)), rtol=0.01)


@pytest.mark.parametrize("model", ["mlp", "small"])
def test_how_many_ranks_are_taken_together_changes_nothing(monkeypatch, model):
    if model == "small":
        monkeypatch.setattr(models, "build", lambda name: Small())
    config = STEPS.with_(num_gpus=11, batch_size=2, epochs=1, lr=1e-3)
    whole, _ = simulate(config)
    for images in (1, 7, 10_000):
        monkeypatch.setattr(virtual, "IMAGES_AT_A_TIME", images)
        worker, _ = simulate(config)
        assert_same(worker.saved[-1]["network"], whole.saved[-1]["network"], within=1e-6)


@settings(max_examples=100)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 9), st.integers(1, 3))
def test_groups_of_ranks_are_dealt_what_each_rank_is(n, world_size, batch_size, accumulation_steps):
    sampler = data.Sampler(n, seed=5)
    dealt = [list(sampler.shard(rank, world_size).steps(batch_size, accumulation_steps)) for rank in range(world_size)]
    for number, whole in enumerate(sampler.global_batches(batch_size * accumulation_steps * world_size)):
        groups = list(virtual.alike(len(whole), world_size, batch_size))
        assert [rank for ranks in groups for rank in ranks] == list(range(world_size))
        assert groups[0] == range(1)
        for ranks in groups:
            together = data.deal(whole, ranks, world_size, batch_size)
            each = [dealt[rank][number] for rank in ranks]
            assert {step.weight for step in each} == {together.weight}
            assert together.share == sum(step.share for step in each)
            assert together.samples == each[0].samples
            for place, images in enumerate(together.micro_batches):
                assert images.tolist() == torch.cat([step.micro_batches[place] for step in each]).tolist()


def test_4096_ranks_in_the_memory_of_a_few_hundred_images(monkeypatch):
    taken = []
    batch = data.ImageSet.batch

    def counted(images, indices):
        taken.append(len(indices))
        return batch(images, indices)

    monkeypatch.setattr(data.ImageSet, "batch", counted)
    config = STEPS.with_(
        device=SIMULATED, train_samples=5000, num_gpus=8, num_nodes=512, batch_size=1, epochs=5, lr=0.1
    )
    worker, result = simulate(config)
    assert worker.steps("samples") == 5 * [4096, 904]
    trained = [images for images in taken if images != virtual.EVALUATION_BATCH]
    assert max(trained) <= virtual.IMAGES_AT_A_TIME
    assert sum(trained) == 5 * 2 * 4096  # in the last step, most ranks take one along that does not count
    assert result["val_accuracy"] > 0.5


def test_the_clock_follows_the_profile():
    def step_seconds(**changes):
        config = STEPS.with_(device=SIMULATED, **changes)
        clock = SimulatedClock(config)
        assert list(clock.step(config.global_batch_size)) == ["data", "forward", "backward", "optimizer"]
        return clock.now()

    assert step_seconds(hardware="a100") == step_seconds() == step_seconds(hardware="a100")
    assert step_seconds(num_gpus=8) > step_seconds()
    assert step_seconds(num_gpus=8, num_nodes=64) > step_seconds(num_gpus=8)
    assert step_seconds(batch_size=48) > step_seconds()
    assert step_seconds(hardware="v100", batch_size=4096) > step_seconds(hardware="h100", batch_size=4096)
    slow, fast = (step_seconds(num_gpus=8, num_nodes=4, hardware=f"v100{network}") for network in ("-10gbe", ""))
    assert slow > fast


def test_the_times_are_the_clocks():
    config = STEPS.with_(device=SIMULATED, num_gpus=4, batch_size=6, hardware="h100")
    worker, result = simulate(config)
    seconds = sum(worker.steps("seconds"))
    assert result["hardware"] == "h100"
    assert result["seconds"] == pytest.approx(seconds)
    assert [event["seconds"] for event in worker.events if event["kind"] == "epoch"][-1] == pytest.approx(seconds)
    assert result["time_split"]["backward"] > result["time_split"]["forward"] > 0
    assert result["images_per_sec"] == pytest.approx(24 / result["step_seconds"], rel=0.2)
    starts = worker.steps("start")
    assert starts == sorted(starts)
    assert simulate(config)[1]["seconds"] == result["seconds"]


def test_resuming_equals_not_stopping_bit_for_bit():
    config = STEPS.with_(device=SIMULATED, num_gpus=5, batch_size=5, optimizer="adamw", lr=1e-3, epochs=3)
    whole, expected = simulate(config)
    resumed = Recorder(checkpoint=whole.saved[0])
    result = virtual.train(config, resumed)
    assert result["fingerprint"] == expected["fingerprint"]
    assert result["seconds"] == pytest.approx(expected["seconds"])
    assert resumed.steps("loss") == whole.steps("loss")[10:]
    other = Recorder(checkpoint=whole.saved[0])
    with pytest.raises(ConfigError, match="not of this run"):
        virtual.train(config.with_(num_gpus=4), other)


@pytest.fixture(scope="module")
def simulated_run(tmp_path_factory):
    """A run of 512 ranks on 64 nodes, launched."""
    config = STEPS.with_(device=SIMULATED, num_gpus=8, num_nodes=64, batch_size=1, train_samples=700, epochs=1)
    run = launch(ddp.train, config, tmp_path_factory.mktemp("simulated") / "run")
    return run, run.wait(120)


def test_a_simulated_run_is_one_process_and_marked(simulated_run):
    run, result = simulated_run
    assert read_json(run.folder.environment)["timing"] == SIMULATED
    assert read_json(run.folder.environment)["hardware"] == "a100"
    assert read_json(run.folder.environment)["devices"] == ["a100 (simulated)"]
    assert [path.name for path in run.path.glob("events-*")] == ["events-rank0.jsonl"]
    row = store.frame(run.path).iloc[0]
    assert (row["timing"], row["hardware"], row["world_size"], row["speed_caveats"]) == (SIMULATED, "a100", 512, "")
    assert (row["seconds"], row["real_seconds"]) == (result["seconds"], result["real_seconds"])
    assert row["images_per_sec"] == result["images_per_sec"]
    assert (store.steps(run.path)["timing"] == SIMULATED).all()
    assert (store.epochs(run.path)["timing"] == SIMULATED).all()
    page = write_report(run.path, run.path.parent / "report.html").read_text()
    assert "The run: simulated." in page
    assert "hardware a100" in page


def test_a_sweep_over_simulated_ranks_has_speedups(simulated_run):
    base = STEPS.with_(device=SIMULATED, batch_size=2, epochs=1)
    sweep = Sweep(base, num_gpus=(1, 8, 32), repeats=1)
    frame = run_sweep(ddp.train, sweep, "sweep")
    assert frame["status"].tolist() == ["finished"] * 3
    assert set(frame["hardware"]) == {"a100"}
    speedup = frame.sort_values("world_size")["speedup"].tolist()
    assert speedup[0] == 1
    assert 1 < speedup[1] < 8
    seen = []
    again = run_sweep(ddp.train, sweep, "sweep", seen.append)
    assert seen[0].done == 3
    assert again["path"].tolist() == frame["path"].tolist()
    with pytest.raises(ConfigError, match=r"Only ddp\.train can be simulated"):
        run_sweep(single.train, Sweep(base), "other")


@pytest.mark.parametrize("train", [single.train, student.sum_of_ranks, lambda config, worker: 1])
def test_nothing_else_is_simulated(train):
    with pytest.raises(ConfigError, match=r"Only ddp\.train can be simulated"):
        launch(train, STEPS.with_(device=SIMULATED))


def test_what_cannot_be_simulated_is_refused_at_once(monkeypatch):
    with pytest.raises(ConfigError, match="profile 'abacus'"):
        launch(ddp.train, STEPS.with_(device=SIMULATED, hardware="abacus"))
    with pytest.raises(ConfigError, match="hardware"):
        RunConfig(hardware="a100")
    with pytest.raises(ConfigError, match="compile"):
        RunConfig(device=SIMULATED, compile=True)
    assert RunConfig(device=SIMULATED, num_gpus=8, num_nodes=512).world_size == MAX_SIMULATED_WORLD_SIZE
    with pytest.raises(ConfigError, match="at most 4096 ranks can be simulated"):
        RunConfig(device=SIMULATED, num_gpus=8, num_nodes=513)
    with pytest.raises(ConfigError, match="at most 1024 ranks can start, and 4096 be simulated"):
        RunConfig(num_gpus=1025)
    for name, value in zip(torchrun.VARIABLES, ("0", "0", "2", "2", "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="Simulated ranks take one process"):
        launch(ddp.train, STEPS.with_(device=SIMULATED, num_gpus=2))


def test_a_simulated_run_goes_on_as_one_with_the_same_hardware(simulated_run):
    run, _ = simulated_run
    (run.path / "result.json").rename(run.path / "kept.json")  # as if it had been stopped
    try:
        with pytest.raises(ConfigError, match=r"hardware \('a100' then, 'h100' now\)"):
            launch(ddp.train, run.config.with_(hardware="h100"), resume_from=run.path)
        with pytest.raises(ConfigError, match=r"hardware \('a100' then, None now\)"):
            launch(ddp.train, run.config.with_(device="cpu", hardware=None), resume_from=run.path)
    finally:
        (run.path / "kept.json").rename(run.path / "result.json")

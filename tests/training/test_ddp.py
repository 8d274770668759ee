"""DDP on 1 to 4 ranks is one process on the same global batch; and single.py is ddp.py without its marked steps."""

from __future__ import annotations

import ast
import inspect
import re

import pytest
import torch
import torch.distributed as dist

from course_lib.config import RunConfig
from course_lib.errors import OutOfSyncError
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.training import data, ddp, models, single
from course_lib.training.checks import check_in_sync, fingerprint
from course_lib.training.evaluate import evaluate

pytestmark = pytest.mark.usefixtures("no_process_left")

# 20 steps on a set whose last global batch is uneven: 10 steps an epoch, of 24 images but the last of 13.
STEPS = RunConfig(model="small_cnn", data="subset", train_samples=229, batch_size=24, epochs=2, lr=0.02, lr_rule="none")
# Adam divides by the size of the gradient, so where that is near zero, rounding errors become steps of size lr.
VARIANTS = {
    "sgd": {},
    "adamw": {"optimizer": "adamw", "lr": 1e-4},
    "clipped": {"clip_norm": 0.3},
    "accumulated": {"accumulation_steps": 2},
    "accumulated adamw, clipped": {"accumulation_steps": 2, "optimizer": "adamw", "lr": 1e-4, "clip_norm": 0.3},
}


def weights_of(run) -> dict[str, torch.Tensor]:
    run.wait(120)
    return torch.load(run.folder.checkpoint)["network"]


def split(config: RunConfig, world_size: int) -> RunConfig:
    """The same global batch on so many ranks."""
    return config.with_(num_gpus=world_size, batch_size=config.batch_size // world_size)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ddp_equals_single_on_the_same_global_batch(variant):
    config = STEPS.with_(**VARIANTS[variant])
    if config.accumulation_steps > 1:
        config = config.with_(batch_size=12)
    alone = launch(single.train, config)
    expected = weights_of(alone)
    assert alone.wait()["steps"] == 20
    for world_size in (1, 2, 3, 4):
        run = launch(ddp.train, split(config, world_size))
        for name, weight in weights_of(run).items():
            torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5, msg=f"{name} on {world_size} ranks")
        assert run.wait()["steps"] == 20
        assert run.wait()["val_accuracy"] == pytest.approx(alone.wait()["val_accuracy"], abs=1e-3)
        assert run.wait()["train_loss"] == pytest.approx(alone.wait()["train_loss"], abs=1e-5)


def test_batches_smaller_than_the_world_and_learning_rates_follow_the_shards():
    """9 images on 4 ranks with 2 each: the last step has one image for four ranks."""
    config = STEPS.with_(train_samples=9, batch_size=8, lr_rule="none", schedule="one_cycle", warmup_epochs=1.0)
    expected = launch(single.train, config)
    run = launch(ddp.train, split(config, 4))
    for name, weight in weights_of(run).items():
        torch.testing.assert_close(weight, weights_of(expected)[name], rtol=0, atol=1e-5)
    assert store.steps(run.path).query("rank == 0").lr.tolist() == store.steps(expected.path).lr.tolist()
    assert store.steps(run.path).query("rank == 0").samples.tolist() == [8, 1, 8, 1]
    losses = store.steps(run.path).set_index(["rank", "step"]).loss
    assert losses[0].notna().all()
    for rank in (1, 2, 3):  # without an image it has no loss, and certainly not 0
        assert losses[rank].notna().tolist() == [True, False, True, False]


def test_the_linear_rule_follows_the_global_batch():
    config = STEPS.with_(schedule="constant", warmup_epochs=0.0, lr=0.01, epochs=1)
    for rule, factor in {"none": 1, "linear": 4, "sqrt": 2}.items():
        run = launch(ddp.train, config.with_(num_gpus=2, accumulation_steps=2, batch_size=6, lr_rule=rule))
        run.wait(60)
        assert store.steps(run.path).lr.tolist() == pytest.approx([0.01 * factor] * 20)


def score(config, worker):
    """Every rank's share of an evaluation, summed; 1,999 images divide by none of 2, 3 and 4."""
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
    )
    torch.manual_seed(3)
    network = models.build(config.model)
    _, test_set = data.load("subset", "cpu")
    sums = evaluate(network, test_set, torch.arange(1999)[worker.rank :: worker.world_size], 100)
    dist.all_reduce(sums)
    return sums.tolist()


@pytest.mark.parametrize("model", ["mlp", "small_cnn"])
def test_a_score_does_not_depend_on_the_number_of_ranks(quick, model):
    scores = [launch(score, quick.with_(model=model, num_gpus=ranks)).wait(60) for ranks in (1, 2, 3, 4)]
    for correct, loss_sum, count in scores:
        assert (correct, count) == (scores[0][0], 1999)
        assert loss_sum == pytest.approx(scores[0][1], rel=1e-9)


def drift(config, worker):
    dist.init_process_group(
        worker.backend, init_method=worker.init_method, rank=worker.rank, world_size=worker.world_size
    )
    torch.manual_seed(0)
    network = models.build("mlp")
    check_in_sync(network)
    if worker.rank == 2:
        with torch.no_grad():
            list(network.parameters())[3][5] += 1e-7
    check_in_sync(network)


def test_weights_that_differ_are_an_error_that_names_the_parameter(quick):
    run = launch(drift, quick.with_(num_gpus=3))
    name = [name for name, _ in models.build("mlp").named_parameters()][3]
    with pytest.raises(OutOfSyncError, match=f"'{name}' of rank 2"):
        run.wait(60)


def test_a_fingerprint_sees_an_exchange_of_elements():
    layer = torch.nn.Linear(3, 3, bias=False)
    before = fingerprint(layer).clone()
    with torch.no_grad():
        layer.weight.copy_(layer.weight.flip(0))
    assert not torch.equal(fingerprint(layer), before)


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"precision": "fp16"}, {"channels_last": False}])
def test_other_precisions_and_layouts_learn_the_same(change):
    config = STEPS.with_(epochs=1, batch_size=12)
    plain = launch(ddp.train, config.with_(num_gpus=2)).wait(60)
    other = launch(ddp.train, config.with_(num_gpus=2, **change)).wait(120)
    assert other["train_loss"] == pytest.approx(plain["train_loss"], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("train", "world_size"), [(single.train, 1), (ddp.train, 2)])
def test_a_compiled_model_learns_the_same(train, world_size):
    config = STEPS.with_(epochs=1, num_gpus=world_size, batch_size=12)
    plain = launch(train, config).wait(60)
    compiled = launch(train, config.with_(compile=True, collective_timeout=300.0)).wait(300)
    assert compiled["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-3)


def body(module) -> list[str]:
    """The lines of `train`, without their indentation, blank lines and docstring."""
    lines = [line.strip() for line in inspect.getsource(module.train).splitlines()]
    docstring = ast.get_docstring(ast.parse(inspect.getsource(module.train)).body[0]).splitlines()
    return [line for line in lines if line and line.strip('"') not in docstring]


def test_ddp_is_single_plus_marked_steps():
    """Each line of single.train stands in ddp.train in the same order; what is added begins with its step."""
    remaining = body(single)
    added, marks = [], []
    for line in body(ddp):
        if remaining and line == remaining[0] and not (added and added[-1].startswith("# DDP step")):
            remaining.pop(0)
            added = []
            continue
        if line.startswith("# DDP step"):
            marks.append(int(re.match(r"# DDP step (\d): ", line).group(1)))
            added = []
        assert added or line.startswith("# DDP step"), f"not marked as a step: {line}"
        added.append(line)
    assert remaining == []
    assert list(dict.fromkeys(marks)) == [1, 2, 3, 4, 5, 6]


def imported(module) -> set[str]:
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    return {alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}


def test_ddp_imports_what_single_does_and_what_its_steps_need():
    torchs = {"nullcontext", "timedelta", "torch.distributed", "DistributedDataParallel"}
    needed = torchs | {"check_in_sync", "LocalGradientNorm"}
    assert imported(ddp) == imported(single) | needed

"""What the widgets of the lessons show is what the trainers do."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from course_lib.config import RunConfig
from course_lib.errors import BatchError, ConfigError
from course_lib.runs.averaging import PLAIN, WEIGHTED, WHOLE, averaged_step
from course_lib.runs.batch_statistics import ALL, channel, normalised, statistics
from course_lib.runs.dealing import dealt
from course_lib.runs.ring import ring_rounds
from course_lib.runs.schedule import lr_curve
from course_lib.training.collectives import Traffic, all_reduce
from course_lib.training.data import Sampler
from course_lib.training.optimization import make_optimizer, make_schedule
from course_lib.training.replicas import DeviceManager, data_parallel_step, prepare_replicas

LAW = settings(max_examples=25, deadline=None)
NUMBERS = st.floats(-3, 3)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=4, max_size=12)
BATCHES = st.builds(channel, st.integers(2, 8), st.integers(2, 64), st.integers(0, 99), st.booleans())


@LAW
@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 16), st.booleans())
def test_cards_are_dealt_as_the_trainers_deal_them(samples, world_size, batch_size, set_epoch):
    frame = dealt(samples, world_size, batch_size, 3, set_epoch)
    counted = frame[frame["counts"]]
    for epoch, rows in counted.groupby("epoch"):
        assert sorted(rows["sample"]) == list(range(samples))
        whole = Sampler(samples, seed=0)
        whole.set_epoch(epoch if set_epoch else 0)
        for step, batch in enumerate(whole.global_batches(world_size * batch_size), start=1):
            assert set(rows[rows["step"] == step]["sample"]) == set(batch.tolist())
    assert not frame["repeated"].any()
    steps = frame.groupby(["epoch", "step"])["rank"].nunique()
    assert (steps == world_size).all(), "every rank takes part in every step"


@LAW
@given(st.integers(8, 60), st.integers(1, 8), st.integers(1, 16), st.booleans())
def test_padded_and_dropped_are_what_torch_deals(samples, world_size, batch_size, drop_last):
    frame = dealt(samples, world_size, batch_size, 2, dealing="dropped" if drop_last else "padded")
    for (epoch, rank), rows in frame.groupby(["epoch", "rank"]):
        sampler = DistributedSampler(range(samples), world_size, rank, seed=0, drop_last=drop_last)
        sampler.set_epoch(epoch)
        assert list(rows["sample"]) == list(sampler)
        assert rows.groupby("step").size().max() <= batch_size
    for _, rows in frame.groupby("epoch"):
        times = Counter(rows["sample"])
        assert set(rows[rows["repeated"]]["sample"]) == {sample for sample, count in times.items() if count > 1}


def test_without_set_epoch_all_epochs_are_alike():
    orders = [
        rows.drop(columns="epoch").reset_index(drop=True)
        for _, rows in dealt(30, 4, 3, 3, set_epoch=False).groupby("epoch")
    ]
    pd.testing.assert_frame_equal(orders[0], orders[2])
    first, *others = [list(rows["sample"]) for _, rows in dealt(30, 4, 3, 3).groupby("epoch")]
    assert all(first != other for other in others)


def test_there_is_no_other_dealing():
    with pytest.raises(ConfigError, match="like cards, padded, dropped, not 'fair'"):
        dealt(30, 4, 3, 1, dealing="fair")


@pytest.mark.parametrize("world_size", range(2, 7))
def test_the_ring_is_the_one_that_trains(world_size):
    values = np.random.default_rng(world_size).integers(1, 100, (world_size, world_size))
    start, *rounds = ring_rounds(values)
    np.testing.assert_array_equal(start.held.sum(axis=2), values)
    tensors = [torch.tensor(own, dtype=torch.float64) for own in values]
    all_reduce(tensors, traffic=(traffic := Traffic()))
    for rank, tensor in enumerate(tensors):
        np.testing.assert_array_equal(rounds[-1].held[rank].sum(axis=1), tensor)
    sent = [(number, each.source, each.target) for number, one in enumerate(rounds) for each in one.transfers]
    assert sent == [(message.round, message.source, message.target) for message in traffic.messages]


@pytest.mark.parametrize("world_size", range(2, 7))
def test_only_what_was_sent_changes_what_a_rank_holds(world_size):
    rounds = ring_rounds(np.arange(1, world_size**2 + 1).reshape(world_size, world_size))
    assert len(rounds) == 1 + 2 * (world_size - 1)
    for before, after in pairwise(rounds):
        changed = (before.held != after.held).any(axis=2)
        assert {(rank, chunk) for rank, chunk in np.argwhere(changed)} == {(t.target, t.chunk) for t in after.transfers}
        assert {each.source for each in after.transfers} == set(range(world_size)), "all send at the same time"
        for source, target, chunk in after.transfers:
            shares = np.count_nonzero(before.held[source, chunk])
            assert np.count_nonzero(after.held[target, chunk]) == min(shares + 1, world_size)


@LAW
@given(POINTS, st.lists(st.integers(1, 5), min_size=0, max_size=3), st.tuples(NUMBERS, NUMBERS))
def test_only_the_weighted_mean_is_the_gradient_of_the_whole_batch(points, first, line):
    sizes = [size for place, size in enumerate(first) if sum(first[: place + 1]) < len(points)]
    sizes.append(len(points) - sum(sizes))
    frame = averaged_step(points, sizes, line, lr=0.1).astype(float)
    gradients = ["weight_gradient", "bias_gradient"]
    inputs, targets = np.array(points).T
    residual = line[0] * inputs + line[1] - targets
    whole = [2 * (residual * inputs).mean(), 2 * residual.mean()]
    np.testing.assert_allclose(frame.loc[WHOLE, gradients], whole, atol=1e-9)
    np.testing.assert_allclose(frame.loc[WEIGHTED], frame.loc[WHOLE], atol=1e-9)
    means = frame.loc[[str(replica) for replica in range(len(sizes))], gradients].mean()
    np.testing.assert_allclose(frame.loc[PLAIN, gradients], means, atol=1e-9)
    for parameter, before in zip(("weight", "bias"), line, strict=True):
        np.testing.assert_allclose(frame[parameter], before - 0.1 * frame[f"{parameter}_gradient"], atol=1e-12)


def test_replicas_of_the_course_take_the_step_that_is_shown():
    points = torch.tensor([(0.2, 1.3), (1.5, 4.1), (0.9, 2.7), (1.1, 3.3), (0.4, 1.9)], dtype=torch.float64)
    model = torch.nn.Linear(1, 1).double()
    line = (model.weight.item(), model.bias.item())
    replicas = prepare_replicas(model, DeviceManager(2).get_queues())
    optimizers = [torch.optim.SGD(replica.parameters(), lr=0.1) for replica in replicas]

    def forward(replica, inputs, targets):
        return torch.nn.functional.mse_loss(replica(inputs), targets)

    data_parallel_step(forward, replicas, optimizers, (points[:, :1], points[:, 1:]))
    frame = averaged_step(points.tolist(), [3, 2], line, lr=0.1)
    stepped = [parameter.item() for parameter in replicas[1].parameters()]
    assert stepped == pytest.approx(frame.loc[WEIGHTED, ["weight", "bias"]].tolist())


@pytest.mark.parametrize("sizes", [[3, 3], [4, 0], [5, -1]])
def test_shards_that_do_not_fit_are_refused(sizes):
    with pytest.raises(BatchError, match="no way to deal 4 samples"):
        averaged_step([(0, 1)] * 4, sizes, (0, 0), lr=0.1)


@pytest.mark.parametrize("schedule", ["constant", "one_cycle"])
@pytest.mark.parametrize(("rule", "peak"), [("none", 0.05), ("linear", 0.2), ("sqrt", 0.1)])
def test_the_curve_is_what_the_optimizer_gets(rule, peak, schedule):
    config = RunConfig(num_gpus=4, batch_size=50, lr_rule=rule, schedule=schedule, warmup_epochs=0.5, epochs=2)
    curve = lr_curve(config, train_samples=1990)  # the tenth step of an epoch is smaller
    optimizer = make_optimizer(torch.nn.Linear(1, 1), config)
    scheduler = make_schedule(optimizer, config, steps_per_epoch=10)
    rates = []
    for _ in range(20):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert curve["lr"].tolist() == pytest.approx(rates)
    assert curve["epoch"].tolist() == pytest.approx([step / 10 for step in range(20)])
    assert curve["lr"].max() == pytest.approx(peak)
    few = lr_curve(config, train_samples=1990, most=7)  # of them the same, with the first, the highest and the last
    assert few["lr"].tolist() == curve["lr"][few["step"]].tolist()
    assert few["step"].iloc[[0, -1]].tolist() == [0, 19]
    assert few["lr"].max() == curve["lr"].max()
    assert 7 <= len(few) <= 9


@LAW
@given(BATCHES)
def test_batchnorm_frees_each_rank_or_all_of_mean_and_variance(images):
    after = normalised(images)
    layer = torch.nn.BatchNorm1d(1, affine=False).double()
    whole = layer(torch.tensor(images["value"].to_numpy())[:, None])[:, 0]
    np.testing.assert_allclose(after["synchronised"], whole)
    for _, rows in after.groupby("rank"):
        own = layer(torch.tensor(rows["value"].to_numpy())[:, None])[:, 0]
        np.testing.assert_allclose(rows["local"], own)
    by_rank = statistics(images)
    normal = (images["value"] - by_rank.loc[ALL, "mean"]) / np.sqrt(by_rank.loc[ALL, "variance"] + 1e-5)
    np.testing.assert_allclose(after["synchronised"], normal, atol=1e-9)
    scaled = images["value"] / np.sqrt(images["rank"].map(by_rank["variance"]) + 1e-5)
    np.testing.assert_allclose(after["local"], images["rank"].map(by_rank["zero"]) + scaled, atol=1e-9)


@LAW
@given(st.integers(2, 8), st.integers(2, 64), st.integers(0, 99))
def test_sorting_only_changes_who_gets_which_image(ranks, batch_size, seed):
    apart, mixed = (channel(ranks, batch_size, seed, sort) for sort in (True, False))
    assert apart["class"].is_monotonic_increasing
    assert sorted(apart["value"]) == sorted(mixed["value"])
    for images in (apart, mixed):
        assert (images.groupby("rank").size() == batch_size).all()
        assert images["class"].value_counts().max() - images["class"].value_counts().min() <= 1

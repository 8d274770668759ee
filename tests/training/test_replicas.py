"""Data parallelism by hand equals one model on the whole batch, whatever the split."""

import copy
import itertools
import threading
from collections import namedtuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replicas_at_work import QUEUES, batch_of, forward, gradients, keep_gradients, network, prepared
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.errors import DeviceError, OutOfSyncError
from course_lib.training import gradient_sync
from course_lib.training.gradient_sync import make_buckets
from course_lib.training.replicas import (
    DeviceManager,
    broadcast_optimizer,
    broadcast_params,
    check_in_sync,
    data_parallel_step,
    prepare_replicas,
    shard_batch,
    sync_grads,
    write_back,
)

CLASSES = 3

MODEL = network()


@settings(max_examples=100)
@given(st.integers(1, 130), st.integers(1, 8), st.booleans(), st.integers(1, 3))
def test_the_gradient_is_that_of_the_whole_batch_for_any_split(samples, world_size, overlap, accumulation_steps):
    loss, expected = gradients(MODEL, batch_of(samples))
    replicas, optimizers = prepared(MODEL, world_size, lr=0.1)
    kept = []
    result = data_parallel_step(
        forward,
        replicas,
        optimizers,
        batch_of(samples),
        post_sync_hook=keep_gradients(kept),
        overlap=overlap,
        accumulation_steps=accumulation_steps,
        bucket_bytes=100,
    )
    assert result.loss == pytest.approx(loss, rel=1e-12)
    for gradient, right in zip(kept, expected, strict=True):
        assert (gradient - right).norm() <= 1e-6 * right.norm()
    check_in_sync(replicas)


@pytest.mark.slow
def test_the_gradient_is_that_of_the_whole_batch_for_every_split():
    """Not sampled: all of the 1,040."""
    made = {world_size: prepared(MODEL, world_size, lr=0.0) for world_size in range(1, 9)}
    for samples in range(1, 131):
        _, expected = gradients(MODEL, batch_of(samples))
        for replicas, optimizers in made.values():
            kept = []
            data_parallel_step(forward, replicas, optimizers, batch_of(samples), post_sync_hook=keep_gradients(kept))
            for gradient, right in zip(kept, expected, strict=True):
                assert (gradient - right).norm() <= 1e-6 * right.norm()


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"accumulation_steps": 4}])
def test_twenty_steps_equal_plain_training(world_size, optimizer, options):
    model, plain = network(), network()
    replicas, optimizers = prepared(model, world_size, optimizer, lr=0.01)
    own = optimizer(plain.parameters(), lr=0.01)
    for step in range(20):
        batch = batch_of(13 - step % 5, seed=step)
        loss = forward(plain, *batch)
        loss.backward()
        own.step()
        own.zero_grad()
        assert data_parallel_step(forward, replicas, optimizers, batch, **options).loss == pytest.approx(loss.item())
    check_in_sync(replicas)
    write_back(replicas, model)
    for parameter, right in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter, right, rtol=0, atol=1e-6)


def test_everything_together_equals_plain_training():
    """Clipping, a schedule, averaged weights, accumulation and autocast, as a program of one device does them."""
    model, plain = network(torch.float32), network(torch.float32)
    replicas, optimizers = prepared(model, 3, torch.optim.SGD, lr=0.1, momentum=0.9)
    own = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in (own, *optimizers)]
    averages = [torch.optim.swa_utils.AveragedModel(each) for each in (plain, replicas[2].module)]

    def in_bf16(model, inputs, labels):
        with torch.autocast("cpu", torch.bfloat16):
            return forward(model, inputs, labels)

    def clip(replicas):
        for replica in replicas:
            nn.utils.clip_grad_norm_(replica.parameters(), 0.1)

    def advance(replicas):
        for schedule in schedules[1:]:
            schedule.step()
        averages[1].update_parameters(replicas[2].module)

    for step in range(5):
        batch = batch_of(12, torch.float32, seed=step)
        in_bf16(plain, *batch).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        own.step()
        own.zero_grad()
        schedules[0].step()
        averages[0].update_parameters(plain)
        hooks = {"post_sync_hook": clip, "post_step_hook": advance}
        data_parallel_step(in_bf16, replicas, optimizers, batch, accumulation_steps=2, **hooks)
    assert optimizers[1].param_groups[0]["lr"] == own.param_groups[0]["lr"]
    for one, other in ((plain, replicas[0].module), (averages[0], averages[1])):
        for right, parameter in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(parameter, right, rtol=0, atol=2e-3)


def test_a_scaler_lets_all_replicas_skip_a_step_together():
    replicas, optimizers = prepared(network(torch.float32), 2, lr=0.1)
    plain = network(torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    own = torch.optim.SGD(plain.parameters(), lr=0.1)
    before = copy.deepcopy(plain.state_dict())
    bad = batch_of(6, torch.float32)
    bad[0][5] = float("inf")
    data_parallel_step(forward, replicas, optimizers, bad, scaler=scaler)
    assert scaler.get_scale() == 2.0**7
    for name, parameter in replicas[1].named_parameters():
        assert torch.equal(parameter.detach(), before[name])
    good = batch_of(7, torch.float32)
    seen = []
    data_parallel_step(forward, replicas, optimizers, good, scaler=scaler, post_sync_hook=keep_gradients(seen))
    _, right = gradients(plain, good)
    for gradient, each in zip(seen, right, strict=True):
        torch.testing.assert_close(gradient, each, rtol=1e-5, atol=1e-6)  # the hook sees them unscaled
    forward(plain, *good).backward()
    own.step()
    for parameter, each in zip(replicas[0].parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter, each, rtol=1e-5, atol=1e-6)


class Choosy(nn.Module):
    """A model whose second half is used only for inputs that begin with a positive number, and whose third never."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, inputs):
        return self.first(inputs) + self.second(inputs) if inputs[0, 0] > 0 else self.first(inputs)


@pytest.mark.parametrize("overlap", [False, True])
def test_parameters_that_some_or_all_replicas_do_not_use(overlap):
    torch.manual_seed(0)
    model = Choosy().double()
    inputs, labels = batch_of(6)
    inputs[:3, 0], inputs[3:, 0] = 1, -1  # the second half is used by replica 0 alone
    expected = gradients(model, (inputs[:3], labels[:3]))[1]
    kept = {}
    replicas, optimizers = prepared(model, 2, torch.optim.AdamW, lr=0.1)

    def keep(replicas):
        kept.update((name, parameter.grad) for name, parameter in replicas[1].named_parameters())

    data_parallel_step(forward, replicas, optimizers, (inputs, labels), post_sync_hook=keep, overlap=overlap)
    torch.testing.assert_close(kept["second.weight"], expected[2] / 2)
    assert kept["third.weight"] is None  # so an optimizer with weight decay leaves it alone, as in plain training
    assert torch.equal(replicas[1].module.third.weight, model.third.weight)
    check_in_sync(replicas)


def test_frozen_parameters_stay(capfd):
    model = network()
    model[0].weight.requires_grad_(False)
    replicas, optimizers = prepared(model, 3, lr=0.1)
    data_parallel_step(forward, replicas, optimizers, batch_of(7), overlap=True)
    assert torch.equal(replicas[2].module[0].weight, model[0].weight)
    assert not torch.equal(replicas[2].module[0].bias, model[0].bias)
    assert capfd.readouterr() == ("", "")


def test_replicas_are_true_copies_bit_for_bit():
    model = network()
    replicas = prepare_replicas(model, QUEUES[:4])
    check_in_sync(replicas)
    memory = {parameter.data_ptr() for each in (model, *replicas) for parameter in each.parameters()}
    assert len(memory) == 5 * len(list(model.parameters()))
    with torch.no_grad():
        next(replicas[1].parameters()).add_(1)
    assert torch.equal(next(replicas[2].parameters()), next(model.parameters()))


def test_a_list_of_parameters_is_trained_too():
    torch.manual_seed(0)
    params = [
        torch.randn(5, CLASSES, dtype=torch.float64, requires_grad=True),
        torch.zeros(CLASSES, dtype=torch.float64),
    ]
    params[1].requires_grad_(True)

    def by_hand(replica, inputs, labels):
        weight, bias = replica.parameters()
        return cross_entropy(inputs @ weight + bias, labels)

    replicas, optimizers = prepared(params, 2, lr=0.5)
    losses = [data_parallel_step(by_hand, replicas, optimizers, batch_of(30)).loss for _ in range(20)]
    assert losses[-1] < losses[0]
    write_back(replicas, params)
    assert params[1].abs().min() > 0  # biases train


@given(st.integers(1, 40), st.integers(1, 12))
def test_shards_are_near_even_and_lose_nothing(samples, num_shards):
    pair = namedtuple("pair", "inputs labels")
    shards, _ = shard_batch(pair(torch.arange(samples), torch.arange(samples)), num_shards)
    assert torch.equal(torch.cat([shard.labels for shard in shards]), torch.arange(samples))
    batch = {"x": torch.arange(samples), "more": (torch.arange(samples) * 2, [torch.ones(samples, 2)])}
    shards, sizes = shard_batch(batch, num_shards)
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == samples
    assert [len(shard["more"][1][0]) for shard in shards] == sizes
    assert torch.equal(torch.cat([shard["x"] for shard in shards]), batch["x"])
    assert torch.equal(torch.cat([shard["more"][0] for shard in shards]), batch["more"][0])


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any))
def test_sync_grads_is_the_mean_weighted_by_shard_size(weights):
    replicas = prepare_replicas([torch.zeros(3)], QUEUES[: len(weights)])
    for number, replica in enumerate(replicas):
        next(replica.parameters()).grad = torch.full((3,), float(number + 1))
    sync_grads(replicas, weights)
    mean = sum((number + 1) * weight for number, weight in enumerate(weights)) / sum(weights)
    for replica in replicas:
        torch.testing.assert_close(next(replica.parameters()).grad, torch.full((3,), mean))


@pytest.mark.parametrize("drifted", [1, 2, 3])
def test_drift_of_any_replica_is_found(drifted):
    replicas = prepare_replicas(network(), QUEUES[:4])
    with torch.no_grad():
        replicas[drifted].module[0].weight[2, 1] -= 0.5
    with pytest.raises(
        OutOfSyncError, match=rf"'0\.weight' of replica {drifted} differs from replica 0's by up to 0\.5"
    ):
        check_in_sync(replicas)


def test_drift_is_found_and_mended():
    replicas = prepare_replicas(network(), QUEUES[:3])
    with torch.no_grad():
        replicas[2].module[2].bias[1] += 0.25
        replicas[1].module[2].bias[1] -= 1e-9
    with pytest.raises(OutOfSyncError, match=r"'2\.bias' of replica 1 differs from replica 0's by up to 1e-09"):
        check_in_sync(replicas)
    broadcast_params(replicas, root=2)
    check_in_sync(replicas)


def test_devices():
    assert DeviceManager(["cpu"] * 3).num_devices() == 3
    assert [queue.name for queue in DeviceManager(["cpu"] * 2).get_queues()] == ["cpu 0", "cpu 1"]
    assert DeviceManager().num_devices() == (torch.cuda.device_count() or 2)
    assert DeviceManager("cpu").num_devices() == 1
    for wrong in (0, -1, [], ["cuda:99"], ["meta"], ["gpu"], "tpu", [None]):
        with pytest.raises(DeviceError):
            DeviceManager(wrong)


def test_replicas_compute_side_by_side():
    """Each waits for the other in its forward pass: one after the other, they would wait for ever."""
    together = threading.Barrier(2)
    replicas, optimizers = prepared(network(), 2, lr=0.1)

    def meets(replica, inputs, labels):
        together.wait(30)
        return forward(replica, inputs, labels)

    result = data_parallel_step(meets, replicas, optimizers, batch_of(4))
    phases = {(each.replica, each.phase) for each in result.times}
    assert phases == {
        *((number, phase) for number in (0, 1) for phase in ("data", "forward", "backward", "optimizer"))
    } | {(None, "sync")}
    assert all(each.seconds >= 0 for each in result.times)


def test_an_overlapped_exchange_is_timed_bucket_by_bucket():
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    result = data_parallel_step(forward, replicas, optimizers, batch_of(4), overlap=True, bucket_bytes=1)
    syncs = [each for each in result.times if each.phase == "sync"]
    assert len(syncs) == len(list(replicas[0].parameters()))  # each parameter is larger than a bucket
    backward, update = (
        [each.start for each in result.times if each.phase == phase] for phase in ("backward", "optimizer")
    )
    assert max(backward) < syncs[0].start
    assert max(each.start + each.seconds for each in syncs) <= min(update)


def test_overlap_exchanges_gradients_while_backward_goes_on(monkeypatch):
    """The first layer's backward waits until the last layer's gradients are exchanged: without overlap, in vain."""
    exchanged, in_time = threading.Event(), []
    reduce_bucket = gradient_sync.reduce_bucket

    def noted(*arguments):
        reduce_bucket(*arguments)
        exchanged.set()

    def meets(replica, inputs, labels):
        hidden = replica.module[0](inputs)
        hidden.register_hook(lambda gradient: in_time.append(exchanged.wait(20)))
        return cross_entropy(replica.module[2](replica.module[1](hidden)), labels)

    monkeypatch.setattr(gradient_sync, "reduce_bucket", noted)
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    data_parallel_step(meets, replicas, optimizers, batch_of(6), overlap=True, bucket_bytes=200)
    assert in_time == [True, True]


@given(st.integers(1, 2000))
def test_buckets_hold_as_many_gradients_as_fit_the_last_first(bucket_bytes):
    (replica,) = prepare_replicas(network(torch.float32, nn.Linear(7, 7).double()), QUEUES[:1])
    parameters = list(replica.parameters())

    def size_of(bucket):
        return sum(parameters[place].numel() * parameters[place].element_size() for place in bucket)

    buckets = make_buckets(replica, bucket_bytes)
    assert list(itertools.chain(*buckets)) == list(reversed(range(len(parameters))))
    sizes = map(size_of, buckets)
    assert all(size <= bucket_bytes or len(bucket) == 1 for size, bucket in zip(sizes, buckets, strict=True))
    for one, following in itertools.pairwise(buckets):
        together = size_of([*one, following[0]])
        assert together > bucket_bytes or parameters[following[0]].dtype != parameters[one[0]].dtype


def test_accumulation_cuts_each_shard_into_as_many_passes():
    seen = []

    def noted(replica, inputs, labels):
        seen.append((replica.number, len(labels)))
        return forward(replica, inputs, labels)

    replicas, optimizers = prepared(network(), 2, lr=0.1)
    data_parallel_step(noted, replicas, optimizers, batch_of(11), accumulation_steps=3)
    assert sorted(seen) == [(0, 2), (0, 2), (0, 2), (1, 1), (1, 2), (1, 2)]


def test_half_precision_gradients_are_added_up_wide():
    replicas = prepare_replicas([torch.zeros(4, dtype=torch.float16)], QUEUES[:8])
    for replica in replicas:
        value = 1.0 if replica.number == 0 else 2.0**-10
        next(replica.parameters()).grad = torch.full((4,), value, dtype=torch.float16)
    sync_grads(replicas, [1] * 8)
    right = torch.tensor((1 + 7 * 2.0**-10) / 8).half()
    assert next(replicas[3].parameters()).grad[0] == right


def test_the_gradient_of_an_idle_replica_does_not_count():
    replicas, optimizers = prepared(network(), 4, lr=0.1)
    for parameter in replicas[3].parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    kept = []
    data_parallel_step(forward, replicas, optimizers, batch_of(2), post_sync_hook=keep_gradients(kept))
    for gradient, right in zip(kept, gradients(network(), batch_of(2))[1], strict=True):
        torch.testing.assert_close(gradient, right)


def test_the_callers_autocast_holds_in_the_replicas():
    dtypes = []

    def noted(replica, inputs, labels):
        dtypes.append(replica(inputs).dtype)
        return forward(replica, inputs, labels)

    replicas, optimizers = prepared(network(torch.float32), 2, lr=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        data_parallel_step(noted, replicas, optimizers, batch_of(4, torch.float32))
    data_parallel_step(noted, replicas, optimizers, batch_of(4, torch.float32))
    assert dtypes == [torch.bfloat16] * 2 + [torch.float32] * 2


def test_resuming_from_one_optimizers_state_equals_not_stopping():
    model, options = network(), {"lr": 0.05}
    replicas, optimizers = prepared(model, 3, torch.optim.AdamW, **options)
    for step in range(3):
        data_parallel_step(forward, replicas, optimizers, batch_of(9, seed=step))
    kept = copy.deepcopy((replicas[0].module.state_dict(), optimizers[0].state_dict()))
    for step in range(3, 6):
        data_parallel_step(forward, replicas, optimizers, batch_of(9, seed=step))
    model.load_state_dict(kept[0])
    resumed, again = prepared(model, 3, torch.optim.AdamW, **options)
    again[0].load_state_dict(kept[1])
    broadcast_optimizer(again)
    for step in range(3, 6):
        data_parallel_step(forward, resumed, again, batch_of(9, seed=step))
    check_in_sync(resumed)
    for parameter, right in zip(resumed[2].parameters(), replicas[2].parameters(), strict=True):
        assert torch.equal(parameter, right)


def test_the_queues_share_the_threads_that_torch_has():
    counts = [queue.submit(torch.get_num_threads).result() for queue in DeviceManager(["cpu"] * 2).get_queues()]
    assert counts == [max(1, torch.get_num_threads() // 2)] * 2


def test_hooks_are_called_in_order_and_may_change_the_batch():
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    called = []

    def halve(batch):
        called.append("shard")
        return batch[0][:5], batch[1][:5]

    result = data_parallel_step(
        forward,
        replicas,
        optimizers,
        batch_of(10),
        pre_shard_hook=halve,
        post_sync_hook=lambda replicas: called.append("sync"),
        post_step_hook=lambda replicas: called.append("step"),
    )
    assert called == ["shard", "sync", "step"]
    assert result.loss == pytest.approx(gradients(MODEL, batch_of(10) and tuple(each[:5] for each in batch_of(10)))[0])

"""Data parallelism by hand equals one model on the whole batch, whatever the split; and what goes wrong is told."""

import copy
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.errors import BatchError, DeviceError, OutOfSyncError, ReplicaError
from course_lib.training.replicas import (
    DeviceManager,
    broadcast_params,
    check_in_sync,
    data_parallel_step,
    prepare_replicas,
    shard_batch,
    sync_grads,
    write_back,
)

QUEUES = DeviceManager(8).get_queues() if not torch.cuda.is_available() else DeviceManager(["cpu"] * 8).get_queues()
CLASSES = 3


def network(dtype=torch.float64, *layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), *layers, nn.Linear(7, CLASSES)).to(dtype)


def batch_of(samples, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 5, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, torch.randint(0, CLASSES, (samples,), generator=generator)


def forward(replica, inputs, labels):
    return cross_entropy(replica(inputs), labels)


def prepared(model, world_size, optimizer=torch.optim.SGD, batch_norm="local", **options):
    replicas = prepare_replicas(model, QUEUES[:world_size], batch_norm)
    return replicas, [optimizer(replica.parameters(), **options) for replica in replicas]


def gradients(model, batch, loss_of=forward):
    """The mean loss of one model on the whole batch, and its gradient."""
    model = copy.deepcopy(model)
    loss = loss_of(model, *batch)
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def keep_gradients(kept):
    """A hook that keeps the gradients of the last replica."""
    return lambda replicas: kept.extend(parameter.grad.clone() for parameter in replicas[-1].parameters())


MODEL = network()


@settings(max_examples=100, deadline=None)
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
    replicas, optimizers = prepared(model, 3, torch.optim.AdamW, lr=0.01)
    own = torch.optim.AdamW(plain.parameters(), lr=0.01)
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

    for step in range(10):
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
    batch = {"x": torch.arange(samples), "more": (torch.arange(samples) * 2, [torch.ones(samples, 2)])}
    shards, sizes = shard_batch(batch, num_shards)
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == samples
    assert [len(shard["more"][1][0]) for shard in shards] == sizes
    assert torch.equal(torch.cat([shard["x"] for shard in shards]), batch["x"])
    assert torch.equal(torch.cat([shard["more"][0] for shard in shards]), batch["more"][0])


REFUSED = {
    "batch\\[1\\] has 4": (torch.ones(5, 2), torch.ones(4)),
    "batch\\['y'\\] has 4": {"x": torch.ones(5, 2), "y": torch.ones(4)},
    "The batch is empty": (torch.ones(0, 2), torch.ones(0)),
    "batch\\[0\\] is a ndarray": (torch.ones(3).numpy(), torch.ones(3)),
    "without dimensions": torch.tensor(1.0),
    "holds no tensor": (),
}


@pytest.mark.parametrize("told", REFUSED)
def test_a_batch_that_cannot_be_dealt_is_refused(told):
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    with pytest.raises(BatchError, match=told):
        data_parallel_step(forward, replicas, optimizers, REFUSED[told])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_if_one_replica_fails_none_steps_and_a_retry_is_right(guilty, overlap):
    replicas, optimizers = prepared(network(), 3, torch.optim.AdamW, lr=0.1)
    plain, own = prepared(network(), 1, torch.optim.AdamW, lr=0.1)

    def fails(replica, inputs, labels):
        loss = forward(replica, inputs, labels)
        if replica.number == guilty:
            loss.backward(retain_graph=True)  # leaves a gradient
            raise ValueError("the student's own mistake")
        return loss

    with pytest.raises(ReplicaError, match=f"Replica {guilty} of 3.*ValueError: the student's own mistake"):
        data_parallel_step(fails, replicas, optimizers, batch_of(10), overlap=overlap)
    assert all(parameter.grad is None for replica in replicas for parameter in replica.parameters())
    assert torch.equal(next(replicas[0].parameters()), next(MODEL.parameters()))
    data_parallel_step(forward, replicas, optimizers, batch_of(10), overlap=overlap)
    data_parallel_step(forward, plain, own, batch_of(10))
    for parameter, right in zip(replicas[2].parameters(), plain[0].parameters(), strict=True):
        torch.testing.assert_close(parameter, right, rtol=0, atol=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_by_replica_and_parameter(value, overlap):
    replicas, optimizers = prepared(network(), 3, lr=0.1)
    inputs, labels = batch_of(9)
    inputs[4] = value  # replica 1 has samples 3 to 5
    with pytest.raises(ReplicaError, match=r"parameter '0\.weight' of replica 1 is not finite"):
        data_parallel_step(forward, replicas, optimizers, (inputs, labels), overlap=overlap)
    assert all(parameter.grad is None for replica in replicas for parameter in replica.parameters())
    for replica in replicas:
        assert torch.equal(next(replica.parameters()), next(MODEL.parameters()))


def test_what_forward_must_return():
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    for wrong in (
        lambda replica, x, y: None,
        lambda replica, x, y: replica(x),
        lambda replica, x, y: torch.tensor(1.0),
    ):
        with pytest.raises(ReplicaError, match="forward must return the mean loss"):
            data_parallel_step(wrong, replicas, optimizers, batch_of(4))


def test_replicas_of_different_models_are_refused():
    one, other = prepare_replicas(network(), QUEUES[:1])[0], prepare_replicas(nn.Linear(5, 3), QUEUES[1:2])[0]
    with pytest.raises(ReplicaError, match="shape"):
        sync_grads([one, other], [1, 1])
    with pytest.raises(ReplicaError, match="weights"):
        sync_grads([one, one], [1])
    with pytest.raises(ReplicaError, match="numbers of samples"):
        sync_grads([one], [0])
    with pytest.raises(ReplicaError, match="optimizers"):
        data_parallel_step(forward, [one], [], batch_of(3))
    with pytest.raises(ReplicaError, match="another model"):
        write_back([one], nn.Linear(5, 3))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any))
def test_sync_grads_is_the_mean_weighted_by_shard_size(weights):
    replicas = prepare_replicas([torch.zeros(3)], QUEUES[: len(weights)])
    for number, replica in enumerate(replicas):
        next(replica.parameters()).grad = torch.full((3,), float(number + 1))
    sync_grads(replicas, weights)
    mean = sum((number + 1) * weight for number, weight in enumerate(weights)) / sum(weights)
    for replica in replicas:
        torch.testing.assert_close(next(replica.parameters()).grad, torch.full((3,), mean))


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
    for wrong in (0, -1, [], ["cuda:99"], ["meta"]):
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


def dropped(world_size, seed):
    torch.manual_seed(seed)
    replicas = prepare_replicas(nn.Sequential(nn.Linear(1, 400), nn.Dropout(0.5)), QUEUES[:world_size])
    for replica in replicas:
        nn.init.ones_(replica.module[0].weight)
    return [(replica(torch.ones(1, 1)) != 0).flatten().tolist() for replica in replicas for _ in range(2)]


def test_dropout_has_a_random_stream_for_each_replica_and_is_repeatable():
    masks = dropped(3, seed=1)
    assert len({tuple(mask) for mask in masks}) == 6
    assert all(0.3 < sum(mask) / 400 < 0.7 for mask in masks)
    assert masks == dropped(3, seed=1)
    assert masks[:4] == dropped(2, seed=1)  # a replica's stream does not depend on how many there are
    assert masks != dropped(3, seed=2)


@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_dropout_of_whole_channels(layer):
    dimensions = int(layer.__name__[-2])
    (replica,) = prepare_replicas(nn.Sequential(nn.Conv1d(1, 1, 1), layer(0.5)), QUEUES[:1])
    kept = replica.module[1](torch.ones(40, 10, *[3] * dimensions)).flatten(2)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(kept.amin(2), kept.amax(2))
    replica.module.eval()
    assert torch.equal(replica.module[1](kept), kept)


def normalised(batch_norm, samples, world_size, steps=3):
    model = network(torch.float64, nn.BatchNorm1d(7))
    replicas, optimizers = prepared(model, world_size, torch.optim.SGD, batch_norm, lr=0.5)
    for step in range(steps):
        data_parallel_step(forward, replicas, optimizers, batch_of(samples, seed=step))
    check_in_sync(replicas)
    write_back(replicas, model)
    return model


@pytest.mark.parametrize(("samples", "world_size"), [(12, 2), (13, 4), (9, 3), (3, 5)])
def test_synchronised_batch_norm_equals_one_model_on_the_whole_batch(samples, world_size):
    plain = network(torch.float64, nn.BatchNorm1d(7))
    own = torch.optim.SGD(plain.parameters(), lr=0.5)
    for step in range(3):
        own.zero_grad()
        forward(plain, *batch_of(samples, seed=step)).backward()
        own.step()
    model = normalised("synchronised", samples, world_size)
    for name, right in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], right, rtol=0, atol=1e-9)
    model.eval()
    plain.eval()
    torch.testing.assert_close(model(batch_of(5)[0]), plain(batch_of(5)[0]), rtol=0, atol=1e-9)


def test_local_batch_norm_is_that_of_the_shards():
    assert not torch.allclose(normalised("local", 12, 2)[0].weight, normalised("synchronised", 12, 2)[0].weight)


def test_a_replica_that_fails_keeps_no_other_waiting_for_its_statistics():
    replicas, optimizers = prepared(
        network(torch.float64, nn.BatchNorm1d(7)), 3, torch.optim.SGD, "synchronised", lr=0.1
    )

    def fails(replica, inputs, labels):
        if replica.number == 1:
            raise ValueError("before it came to the layer")
        return forward(replica, inputs, labels)

    with pytest.raises(ReplicaError, match=r"Replica 1 of 3.*before it came to the layer"):
        data_parallel_step(fails, replicas, optimizers, batch_of(9))
    data_parallel_step(forward, replicas, optimizers, batch_of(9))


def test_a_model_with_synchronised_batch_norm_can_be_called_by_itself():
    (replica, _) = prepare_replicas(network(torch.float64, nn.BatchNorm1d(7)), QUEUES[:2], "synchronised")
    plain = network(torch.float64, nn.BatchNorm1d(7))
    torch.testing.assert_close(replica(batch_of(6)[0]), plain(batch_of(6)[0]))


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

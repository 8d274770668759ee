"""Dropout with a random stream of each replica, and BatchNorm over the whole batch."""

import copy

import pytest
import torch
from replicas_at_work import QUEUES, batch_of, forward, keep_gradients, network, prepared
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.errors import ReplicaError
from course_lib.training.replicas import check_in_sync, data_parallel_step, prepare_replicas, shard_batch, write_back


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


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("samples", "world_size", "passes"), [(7, 2, 2), (10, 3, 3), (13, 4, 2), (8, 2, 2)])
def test_synchronised_batch_norm_with_accumulation(samples, world_size, passes, overlap):
    """The statistics are those of a pass, over all replicas: so one model that makes the same passes is right."""
    model = network(torch.float64, nn.BatchNorm1d(7))
    replicas, optimizers = prepared(model, world_size, torch.optim.SGD, "synchronised", lr=0.1)
    parts = [shard_batch(shard, passes)[0] for shard in shard_batch(batch_of(samples), world_size)[0]]
    plain = copy.deepcopy(model)
    for number in range(passes):
        inputs, labels = (torch.cat(each) for each in zip(*(part[number] for part in parts), strict=True))
        (cross_entropy(plain(inputs), labels, reduction="sum") / samples).backward()
    kept = []
    hooks = {"post_sync_hook": keep_gradients(kept), "overlap": overlap, "bucket_bytes": 100}
    data_parallel_step(forward, replicas, optimizers, batch_of(samples), accumulation_steps=passes, **hooks)
    for gradient, parameter in zip(kept, plain.parameters(), strict=True):
        # A bias before BatchNorm has no gradient but rounding.
        assert (gradient - parameter.grad).norm() <= 1e-9 * max(1e-3, parameter.grad.norm())


def test_a_layer_that_stands_in_two_places_stays_one():
    drop, norm = nn.Dropout(0.5), nn.BatchNorm1d(5)
    model = nn.Sequential(nn.Linear(5, 5), drop, norm, nn.Linear(5, 5), drop, norm, nn.Linear(5, 3))
    (replica, _) = prepare_replicas(model, QUEUES[:2], "synchronised")
    layers = list(replica.module)
    assert layers[1] is layers[4]
    assert layers[2] is layers[5]
    assert {type(layers[1]).__name__, type(layers[2]).__name__} == {"OwnDropout", "SynchronisedBatchNorm"}


def test_hooks_and_the_mode_of_a_layer_stay():
    model = network(torch.float64, nn.Dropout(0.5), nn.BatchNorm1d(7))
    called = []
    for layer in model:
        layer.register_forward_hook(lambda layer, *_: called.append(type(layer).__name__))
    model.eval()
    (replica, _) = prepare_replicas(model, QUEUES[:2], "synchronised")
    inputs, _ = batch_of(4)
    assert torch.equal(replica(inputs), model(inputs))
    assert called[:5] == ["Linear", "ReLU", "OwnDropout", "SynchronisedBatchNorm", "Linear"]


def test_an_average_of_the_weights_can_be_kept_of_a_replica():
    model = network(torch.float64, nn.Dropout(0.5), nn.BatchNorm1d(7))
    replicas, optimizers = prepared(model, 2, torch.optim.SGD, "synchronised", lr=0.1)
    average = torch.optim.swa_utils.AveragedModel(replicas[0].module)
    for _ in range(2):
        data_parallel_step(forward, replicas, optimizers, batch_of(6))
        average.update_parameters(replicas[0].module)
    copy.deepcopy(average)


def test_batch_norm_without_momentum_averages_all_batches():
    plain = network(torch.float64, nn.BatchNorm1d(7, momentum=None))
    replicas, optimizers = prepared(plain, 2, torch.optim.SGD, "synchronised", lr=0.0)
    for step in range(3):
        plain(batch_of(8, seed=step)[0])
        data_parallel_step(forward, replicas, optimizers, batch_of(8, seed=step))
    torch.testing.assert_close(replicas[1].module[2].running_var, plain[2].running_var)


def test_an_idle_replica_has_the_statistics_of_the_others():
    replicas, optimizers = prepared(
        network(torch.float64, nn.BatchNorm1d(7)), 4, torch.optim.SGD, "synchronised", lr=0.1
    )
    data_parallel_step(forward, replicas, optimizers, batch_of(2))
    for replica in replicas[1:]:
        assert torch.equal(replica.module[2].running_mean, replicas[0].module[2].running_mean)
        assert replica.module[2].num_batches_tracked == 1


def test_one_value_of_a_channel_is_too_few():
    replicas, optimizers = prepared(
        network(torch.float64, nn.BatchNorm1d(7)), 2, torch.optim.SGD, "synchronised", lr=0.1
    )
    with pytest.raises(ReplicaError, match="more than one value of each channel"):
        data_parallel_step(forward, replicas, optimizers, batch_of(1))


def test_streams_of_neighbouring_seeds_are_not_shifted_by_a_replica():
    assert not {tuple(mask) for mask in dropped(3, seed=1)} & {tuple(mask) for mask in dropped(3, seed=2)}

"""What goes wrong with replicas is told by name, leaves nothing behind, and lets nobody wait for ever."""

import signal
import threading

import pytest
import torch
from replicas_at_work import QUEUES, batch_of, forward, keep_gradients, network, prepared
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.errors import BatchError, ReplicaError
from course_lib.training.replicas import data_parallel_step, prepare_replicas, sync_grads, write_back

MODEL = network()


def untouched(replicas):
    """Whether no replica has a gradient, or has moved."""
    return all(
        parameter.grad is None and torch.equal(parameter, right)
        for replica in replicas
        for parameter, right in zip(replica.parameters(), MODEL.parameters(), strict=True)
    )


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


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_an_optimizer_that_fails_stops_those_after_it_and_says_who_stepped(guilty):
    replicas, optimizers = prepared(network(), 3, lr=0.1)

    def fails():
        raise ValueError("no room for the moments")

    optimizers[guilty].step = fails
    with pytest.raises(ReplicaError, match=f"Replica {guilty} of 3.*no room") as caught:
        data_parallel_step(forward, replicas, optimizers, batch_of(9))
    moved = [not torch.equal(next(replica.parameters()), next(MODEL.parameters())) for replica in replicas]
    assert moved == [number < guilty for number in range(3)]
    assert (f"{guilty} of 3 replicas had taken the step" in str(caught.value)) == (guilty > 0)


def test_a_hook_that_fails_leaves_no_gradient_and_a_scaler_that_works():
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def fails(replicas):
        raise ValueError("the student's own mistake")

    with pytest.raises(ValueError, match="own mistake"):
        data_parallel_step(forward, replicas, optimizers, batch_of(5), scaler=scaler, post_sync_hook=fails)
    assert untouched(replicas)
    kept = []
    data_parallel_step(forward, replicas, optimizers, batch_of(5), scaler=scaler, post_sync_hook=keep_gradients(kept))
    assert scaler.get_scale() == 8.0
    assert all(gradient.isfinite().all() for gradient in kept)


def test_a_scaler_that_is_switched_off_switches_no_check_off():
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    inputs, labels = batch_of(4)
    inputs[3] = float("nan")
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with pytest.raises(ReplicaError, match="replica 1 is not finite"):
        data_parallel_step(forward, replicas, optimizers, (inputs, labels), scaler=scaler)
    assert untouched(replicas)


def test_many_large_gradients_are_finite_all_the_same():
    replicas = prepare_replicas([torch.zeros(2000)], QUEUES[:2])
    for replica in replicas:
        next(replica.parameters()).grad = torch.full((2000,), 1e36)
    sync_grads(replicas, [1, 1])
    torch.testing.assert_close(next(replicas[1].parameters()).grad, torch.full((2000,), 1e36))


@pytest.mark.parametrize("overlap", [False, True])
def test_replicas_that_are_not_alike_are_refused(overlap):
    one, other = prepare_replicas(network(), QUEUES[:2])
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (one, other)]
    other.module[0].weight.requires_grad_(False)
    with pytest.raises(ReplicaError, match=r"'0.weight' of replica 1 has shape .* and requires_grad False"):
        data_parallel_step(forward, [one, other], optimizers, batch_of(4), overlap=overlap)
    (other,) = prepare_replicas(nn.Sequential(*network()[:2], nn.Linear(7, 3, bias=False).double()), QUEUES[1:2])
    optimizers[1] = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(ReplicaError, match="3 parameters, and replica 0 has 4"):
        data_parallel_step(forward, [one, other], optimizers, batch_of(4), overlap=overlap)


@pytest.mark.parametrize("overlap", [False, True])
def test_sparse_gradients_are_refused_by_name(overlap):
    model = nn.EmbeddingBag(10, 3, sparse=True, mode="sum")
    replicas, optimizers = prepared(model, 2, lr=0.1)
    batch = torch.randint(0, 10, (6, 2)), torch.randint(0, 3, (6,))
    with pytest.raises(ReplicaError, match="'weight' of replica 0 is sparse"):
        data_parallel_step(forward, replicas, optimizers, batch, overlap=overlap)


def test_a_gradient_that_comes_twice_in_a_pass_is_no_case_for_overlap():
    def twice(replica, inputs, labels):
        replica(inputs).square().mean().backward()
        return forward(replica, inputs, labels)

    replicas, optimizers = prepared(network(), 2, lr=0.1)
    with pytest.raises(ReplicaError, match="Use overlap=False"):
        data_parallel_step(twice, replicas, optimizers, batch_of(6), overlap=True, bucket_bytes=100)
    assert untouched(replicas)


@pytest.mark.parametrize("steps", [0, -1])
def test_a_step_takes_one_pass_at_least(steps):
    replicas, optimizers = prepared(network(), 2, lr=0.1)
    with pytest.raises(ReplicaError, match="accumulation_steps must be at least 1"):
        data_parallel_step(forward, replicas, optimizers, batch_of(4), accumulation_steps=steps)


def test_optimizers_of_other_parameters_are_refused():
    model = network()
    replicas, optimizers = prepared(model, 2, lr=0.1)
    for wrong in ([torch.optim.SGD(model.parameters(), lr=0.1)] * 2, [optimizers[0]] * 2):
        with pytest.raises(ReplicaError, match="has none of the parameters"):
            data_parallel_step(forward, replicas, wrong, batch_of(4))


def test_models_that_cannot_be_copied_alike_are_refused():
    for told, model in {"lazy": nn.LazyLinear(4), "no parameters": nn.ReLU()}.items():
        with pytest.raises(ReplicaError, match=told):
            prepare_replicas(model, QUEUES[:2])
    with pytest.raises(ReplicaError, match="no queue"):
        prepare_replicas(network(), [])
    with pytest.raises(ReplicaError, match="batch_norm must be"):
        prepare_replicas(network(), QUEUES[:1], "global")


@pytest.mark.parametrize("batch_norm", ["local", "synchronised"])
def test_an_interrupt_ends_the_step_and_a_retry_is_right(batch_norm):
    model = network(torch.float64, nn.BatchNorm1d(7))
    replicas, optimizers = prepared(model, 2, torch.optim.SGD, batch_norm, lr=0.1)
    go_on = threading.Event()

    def waits(replica, inputs, labels):
        if replica.number == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            go_on.wait(1)
        return forward(replica, inputs, labels)

    with pytest.raises(KeyboardInterrupt):
        data_parallel_step(waits, replicas, optimizers, batch_of(8))
    assert all(parameter.grad is None for replica in replicas for parameter in replica.parameters())
    data_parallel_step(forward, replicas, optimizers, batch_of(8))
    plain, own = prepared(model, 1, torch.optim.SGD, lr=0.1)
    if batch_norm == "synchronised":
        data_parallel_step(forward, plain, own, batch_of(8))
        for parameter, right in zip(replicas[1].parameters(), plain[0].parameters(), strict=True):
            torch.testing.assert_close(parameter, right)


def test_a_layer_that_one_replica_leaves_out_keeps_no_other_waiting():
    model = network(torch.float64, nn.BatchNorm1d(7))
    replicas, optimizers = prepared(model, 3, torch.optim.SGD, "synchronised", lr=0.1)

    def leaves_out(replica, inputs, labels):
        hidden = replica.module[1](replica.module[0](inputs))
        if replica.number != 1:
            hidden = replica.module[2](hidden)
        return cross_entropy(replica.module[3](hidden), labels)

    with pytest.raises(ReplicaError, match="another replica did not come to a layer that all must go through"):
        data_parallel_step(leaves_out, replicas, optimizers, batch_of(9))

"""Collectives over tensors in one process: what they give, and the messages that it takes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import CollectiveError
from course_lib.training.collectives import (
    Traffic,
    all_gather,
    all_reduce,
    broadcast,
    gather,
    reduce_scatter,
    scatter,
)

ALGORITHMS = ("naive", "tree", "ring")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OPS = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}
world_sizes = st.integers(1, 9)
shapes = st.lists(st.integers(0, 6), max_size=3)


def tensors_of(world_size, shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return [(4 * torch.randn(shape, generator=generator)).to(dtype) for _ in range(world_size)]
    return [torch.randint(0, 9, shape, generator=generator).to(dtype) for _ in range(world_size)]


def expected(tensors, op):
    """What is right: computed at once, wide, and rounded once."""
    wide = torch.stack([tensor.double() if tensor.is_floating_point() else tensor.long() for tensor in tensors])
    return OPS[op](wide, 0).to(tensors[0].dtype)


@settings(deadline=None)
@given(world_sizes, shapes, st.sampled_from(FLOATS + INTEGERS), st.sampled_from([*OPS]), st.sampled_from(ALGORITHMS))
def test_all_reduce_gives_all_ranks_the_same_right_bits(world_size, shape, dtype, op, algorithm):
    if op == "mean" and not dtype.is_floating_point:
        return
    tensors = tensors_of(world_size, shape, dtype)
    right = expected(tensors, op)
    all_reduce(tensors, op, algorithm)
    for tensor in tensors:
        assert torch.equal(tensor, tensors[0])
    torch.testing.assert_close(tensors[0], right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(algorithm, dtype):
    tensors = [torch.full((3,), 1.0, dtype=dtype), *[torch.full((3,), 2.0**-11, dtype=dtype) for _ in range(8)]]
    right = torch.stack([tensor.double() for tensor in tensors]).sum(0).to(dtype)
    all_reduce(tensors, "sum", algorithm)  # each of the eight alone is lost beside 1
    assert torch.equal(tensors[3], right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_mean_in_float16_does_not_overflow_on_the_way(algorithm):
    tensors = [torch.full((5,), 3e4, dtype=torch.float16) for _ in range(7)]
    all_reduce(tensors, "mean", algorithm)
    assert torch.equal(tensors[0], torch.full((5,), 3e4, dtype=torch.float16))


@given(world_sizes, st.integers(1, 5))
def test_the_traffic_of_an_all_reduce_is_that_of_the_formulae(world_size, rows):
    n, size = world_size, 4 * world_size * rows
    rounds = math.ceil(math.log2(n))
    formulae = {
        "naive": (2 * (n - 1), 2 * (n - 1), (n - 1) * size),
        "tree": (2 * rounds, 2 * (n - 1), rounds * size),
        "ring": (2 * (n - 1), 2 * (n - 1) * n, 2 * (n - 1) * size // n),
    }
    for algorithm, (in_rounds, messages, busiest) in formulae.items():
        traffic = Traffic()
        all_reduce(tensors_of(n, [n * rows], torch.float32), "sum", algorithm, traffic)
        assert (traffic.rounds, len(traffic.messages), traffic.busiest_bytes) == (in_rounds, messages, busiest)
        assert traffic.bytes == 2 * (n - 1) * size


@given(world_sizes, st.sampled_from(ALGORITHMS))
def test_in_one_round_nobody_sends_two_messages(world_size, algorithm):
    traffic = Traffic()
    all_reduce(tensors_of(world_size, [5], torch.float32), "sum", algorithm, traffic)
    sent = [(message.round, message.source) for message in traffic.messages]
    assert len(set(sent)) == len(sent)
    assert {message.round for message in traffic.messages} == set(range(traffic.rounds))


def test_traffic_adds_up_over_collectives():
    traffic = Traffic()
    tensors = tensors_of(4, [8], torch.float32)
    pieces = reduce_scatter(tensors, traffic=traffic)
    all_gather(pieces, traffic)
    alone = Traffic()
    all_reduce(tensors_of(4, [8], torch.float32), "sum", "ring", alone)
    assert traffic.messages == alone.messages


@given(world_sizes, st.integers(0, 12), st.sampled_from(FLOATS + INTEGERS), st.sampled_from([*OPS]))
def test_reduce_scatter_and_all_gather_are_an_all_reduce(world_size, rows, dtype, op):
    if op == "mean" and not dtype.is_floating_point:
        return
    tensors = tensors_of(world_size, [rows, 3], dtype)
    before = [tensor.clone() for tensor in tensors]
    pieces = reduce_scatter(tensors, op)
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(tensors, before, strict=True))
    assert [len(piece) for piece in pieces] == [len(part) for part in tensors[0].tensor_split(world_size)]
    for whole in all_gather(pieces):
        torch.testing.assert_close(whole, expected(tensors, op))


@given(world_sizes, st.integers(0, 12), st.data())
def test_what_is_scattered_is_gathered(world_size, rows, data):
    root = data.draw(st.integers(0, world_size - 1))
    (tensor,) = tensors_of(1, [rows, 2], torch.float32)
    traffic = Traffic()
    pieces = scatter(tensor, ["cpu"] * world_size, root, traffic)
    lengths = [len(piece) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1
    assert torch.equal(gather(pieces, root), tensor)
    assert len(traffic.messages) == world_size - 1
    if rows:
        pieces[0].add_(1)
        assert not torch.equal(gather(pieces, root), tensor)
        assert torch.equal(tensor, tensors_of(1, [rows, 2], torch.float32)[0])  # the pieces have memory of their own


@given(world_sizes, st.data())
def test_broadcast_gives_all_what_the_root_has(world_size, data):
    root = data.draw(st.integers(0, world_size - 1))
    tensors = tensors_of(world_size, [3, 2], torch.float32)
    right, traffic = tensors[root].clone(), Traffic()
    broadcast(tensors, root, traffic)
    assert all(torch.equal(tensor, right) for tensor in tensors)
    assert len(traffic.messages) == world_size - 1
    assert traffic.rounds == math.ceil(math.log2(world_size))
    assert not traffic.messages or traffic.messages[0].source == root


def test_tensors_in_any_layout_and_parameters_are_taken():
    parameters = [torch.nn.Parameter(torch.full((4, 3), float(rank)).t()) for rank in range(3)]
    all_reduce(parameters, "sum")
    assert all(torch.equal(parameter.detach(), torch.full((3, 4), 3.0)) for parameter in parameters)


REFUSED = {
    "rank 2.*shape": lambda: all_reduce([torch.ones(3), torch.ones(3), torch.ones(4)]),
    "Rank 1.*float64": lambda: all_reduce([torch.ones(3), torch.ones(3).double()]),
    "one and the same": lambda: all_reduce([torch.ones(3)] * 2),
    "There is no tensor": lambda: all_reduce([]),
    "op must be one of": lambda: all_reduce([torch.ones(3)], "product"),
    "algorithm must be one of": lambda: all_reduce([torch.ones(3)], "sum", "star"),
    "mean of int64": lambda: all_reduce([torch.ones(3).long()], "mean"),
    "mean of uint8": lambda: reduce_scatter([torch.ones(3).byte()], "mean"),
    "bool numbers have no sum": lambda: all_reduce([torch.ones(3).bool()], "sum"),
    "root is 3": lambda: broadcast([torch.ones(3), torch.ones(3)], 3),
    "root is -1": lambda: gather([torch.ones(3)], -1),
    "cannot be cut": lambda: scatter(torch.tensor(1.0), ["cpu"]),
    "same kind of rows": lambda: all_gather([torch.ones(3, 2), torch.ones(3, 4)]),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_cannot_be_done_is_refused_and_says_why(told):
    with pytest.raises(CollectiveError, match=f"(?i){told}"):
        REFUSED[told]()


def test_nothing_is_printed(capfd):
    all_reduce(tensors_of(4, [5], torch.float32))
    assert capfd.readouterr() == ("", "")

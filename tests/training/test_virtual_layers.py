"""One model on the images of several ranks computes what each rank's own model does on its own."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib.training.virtual_layers import VirtualRanks

LAW = settings(max_examples=40)


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Dropout(0.3)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(48, 5), nn.BatchNorm1d(5)).double()


@LAW
@given(st.integers(0, 3), st.integers(1, 4), st.integers(2, 4), st.integers(0, 2**40), st.booleans())
def test_a_rank_has_its_own_statistics_and_random_stream(first, count, share, seed, channels_last):
    """Two passes of `count` ranks from `first` on, and the gradients of both."""
    ranks = range(first, first + count if first else 1)
    one = network()
    virtual = VirtualRanks(one, seed, ranks.stop, "cpu")
    own = {rank: network() for rank in ranks}
    streams = {rank: torch.Generator().manual_seed(seed + rank).get_state() for rank in ranks}
    before = copy.deepcopy(dict(one.named_buffers()))
    for _ in range(2):
        batch = torch.randn(len(ranks) * share, 1, 4, 4, dtype=torch.float64)
        if channels_last:
            batch = batch.to(memory_format=torch.channels_last)
        expected = []
        for rank, part in zip(ranks, batch.split(share), strict=True):
            torch.set_rng_state(streams[rank])  # as if this were the rank's process
            expected.append(own[rank](part))
            streams[rank] = torch.get_rng_state()
        virtual.now = ranks
        together = one(batch)
        torch.testing.assert_close(together, torch.cat(expected), rtol=0, atol=1e-12)
        together.square().sum().backward()
        torch.cat(expected).square().sum().backward()
    for name, parameter in one.named_parameters():
        gradients = sum(own[rank].get_parameter(name).grad for rank in ranks)
        torch.testing.assert_close(parameter.grad, gradients, rtol=1e-9, atol=1e-9)
    for name, buffer in one.named_buffers():  # rank 0 keeps the running statistics, and no other
        torch.testing.assert_close(buffer, before[name] if first else own[0].get_buffer(name), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_every_dropout_draws_what_torch_draws(layer):
    shape = (3, 4, 5, 6, 7)[: {"t": 5, "1": 3, "2": 4, "3": 5}[layer.__name__.removesuffix("d")[-1]]]
    one = nn.Sequential(layer(0.4))
    virtual = VirtualRanks(one, 9, 3, "cpu")
    virtual.now = range(1, 3)
    together = one(torch.ones(2 * shape[0], *shape[1:]))
    for rank, part in zip(virtual.now, together.chunk(2), strict=True):
        torch.manual_seed(9 + rank)
        assert torch.equal(part, layer(0.4)(torch.ones(shape)))


def test_evaluation_is_that_of_the_model_itself():
    one, plain = network(), network()
    virtual = VirtualRanks(one, 0, 4, "cpu")
    virtual.now = range(1, 3)
    images = torch.randn(7, 1, 4, 4, dtype=torch.float64)
    assert torch.equal(one.eval()(images), plain.eval()(images))
    assert one.state_dict().keys() == plain.state_dict().keys()


def test_random_streams_go_on_where_they_were():
    def draw(virtual, layer):
        virtual.now = range(1, 4)
        return layer(torch.ones(6, 50))

    layer = nn.Dropout(0.5)
    virtual = VirtualRanks(layer, 3, 4, "cpu")
    draw(virtual, layer)
    state = virtual.state_dict()
    expected = draw(virtual, layer)
    fresh = nn.Dropout(0.5)
    resumed = VirtualRanks(fresh, 8, 4, "cpu")
    resumed.load_state_dict(state)
    assert torch.equal(draw(resumed, fresh), expected)
    with pytest.raises(ValueError, match="zip"):
        VirtualRanks(nn.Dropout(0.5), 3, 5, "cpu").load_state_dict(state)

"""The models have the parameters that their docstrings state, and train."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.config import MODELS
from course_lib.errors import ConfigError
from course_lib.training.models import MLP, SmallCNN, WideResNet, build

PARAMETERS = {"mlp": 235_146, "small_cnn": 220_426, "wrn-16-4": 2_748_602, "wrn-40-4": 8_948_922}
SMALL = [MLP, SmallCNN, lambda: WideResNet(10, 1)]


@pytest.mark.parametrize("name", MODELS)
def test_parameter_counts_are_those_of_the_docstring(name: str) -> None:
    model = build(name)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == PARAMETERS[name]
    assert f"{count:,}" in (type(model).__doc__ or "")


@pytest.mark.parametrize("make", SMALL)
def test_logits_and_every_parameter_has_a_gradient(make: type[nn.Module]) -> None:
    model = make()
    logits = model(torch.randn(4, 1, 28, 28))
    assert logits.shape == (4, 10)
    cross_entropy(logits, torch.tensor([0, 3, 6, 9])).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize("make", SMALL)
def test_channels_last_gives_the_same(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, images = make().eval(), torch.randn(4, 1, 28, 28)
    with torch.no_grad():
        wanted = model(images)
        got = model.to(memory_format=torch.channels_last)(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_small_cnn_treats_each_image_alone() -> None:
    """Without BatchNorm, DDP computes what one process computes on the global batch."""
    torch.manual_seed(0)
    model, images = SmallCNN().eval(), torch.randn(6, 1, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(model(images)[1::2], model(images[1::2]), rtol=1e-5, atol=1e-5)
    assert not list(model.buffers())


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_the_same_seed_gives_the_same_weights(name: str) -> None:
    torch.manual_seed(3)
    first = build(name).state_dict()
    torch.manual_seed(3)
    second = build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_wide_resnet_halves_the_image_twice_and_widens() -> None:
    model = WideResNet(16, 2)
    shapes = []
    for group in model.groups:
        group.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    model(torch.randn(2, 1, 28, 28))
    assert shapes == [(2, 32, 28, 28), (2, 64, 14, 14), (2, 128, 7, 7)]


@pytest.mark.parametrize(("depth", "width"), [(15, 4), (4, 4), (17, 1), (16, 0)])
def test_a_wide_resnet_of_another_depth_or_width_is_refused(depth: int, width: int) -> None:
    with pytest.raises(ConfigError, match=rf"6n \+ 4.*depth {depth} and width {width}"):
        WideResNet(depth, width)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ConfigError, match="resnet50"):
        build("resnet50")

"""Evaluation gives the same on any number of ranks, and leaves the model as it was."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.training import data, models
from course_lib.training.data import ImageSet
from course_lib.training.evaluate import evaluate


@pytest.fixture(scope="module")
def images() -> ImageSet:
    test = data.load("subset", "cpu")[1]
    return ImageSet(test.images[:503], test.labels[:503])


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return models.build("mlp")


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [7, 64, 1000])
def test_the_sums_of_the_ranks_are_those_of_the_whole(
    images: ImageSet, model: nn.Module, world_size: int, batch_size: int
) -> None:
    everything = torch.arange(len(images))
    sums = sum(evaluate(model, images, everything[rank::world_size], batch_size) for rank in range(world_size))
    model.eval()
    with torch.no_grad():
        pixels, labels = images.batch(everything)
        logits = model(pixels)
    assert isinstance(sums, torch.Tensor)
    assert sums.dtype == torch.float64
    assert sums[0].item() == (logits.argmax(1) == labels).sum().item()
    assert sums[1].item() == pytest.approx(cross_entropy(logits, labels, reduction="sum").item(), rel=1e-5)
    assert sums[2].item() == 503


def test_a_rank_without_images_adds_nothing(images: ImageSet, model: nn.Module) -> None:
    assert evaluate(model, images, torch.arange(0), 64).tolist() == [0, 0, 0]


def test_modes_and_statistics_are_as_before(images: ImageSet) -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Dropout(0.5), nn.Linear(784, 10))
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (evaluate(model, images, torch.arange(100), 50) for _ in range(2))
    assert torch.equal(first, second), "dropout was on"
    assert [module.training for module in model] == [True, False, True, True]
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_mode_comes_back_after_an_error(images: ImageSet) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 10)).train()
    with pytest.raises(RuntimeError):
        evaluate(model, images, torch.arange(10), 5)
    assert model.training


def test_the_sums_can_take_part_in_a_later_gradient(images: ImageSet, model: nn.Module) -> None:
    sums = evaluate(model, images, torch.arange(10), 5)
    assert not sums.is_inference()
    assert not sums.requires_grad

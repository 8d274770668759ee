"""Every image once an epoch on any number of ranks, and the data set as two tensors."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import ConfigError
from course_lib.training import data
from course_lib.training.data import ImageSet, Sampler, Step


@pytest.fixture(scope="module")
def subset() -> tuple[ImageSet, ImageSet]:
    return data.load("subset", "cpu")


SIZES = st.integers(1, 200)
WORLDS = st.integers(1, 6)
BATCHES = st.integers(1, 20)
ACCUMULATION = st.integers(1, 4)
LAW = settings(max_examples=80)


def deal(n: int, world_size: int, batch_size: int, accumulation_steps: int, epoch: int = 1) -> list[tuple[Step, ...]]:
    """For each step of an epoch, what every rank does in it."""
    sampler = Sampler(n, seed=5)
    sampler.set_epoch(epoch)
    ranks = [list(sampler.shard(r, world_size).steps(batch_size, accumulation_steps)) for r in range(world_size)]
    return list(zip(*ranks, strict=True))  # strict: every rank has the same number of steps


def images_of(step: Step) -> list[int]:
    return torch.cat(step.micro_batches).tolist() if step.weight else []


@LAW
@given(SIZES, WORLDS, BATCHES, ACCUMULATION)
def test_every_image_is_seen_once_an_epoch(n: int, world_size: int, batch_size: int, accumulation_steps: int) -> None:
    dealt = deal(n, world_size, batch_size, accumulation_steps)
    assert sorted(index for ranks in dealt for step in ranks for index in images_of(step)) == list(range(n))
    steps = Sampler(n, 5).shard(world_size - 1, world_size).steps_per_epoch(batch_size, accumulation_steps)
    assert len(dealt) == steps


@LAW
@given(SIZES, WORLDS, BATCHES, ACCUMULATION)
def test_a_step_sees_what_it_sees_in_one_process(
    n: int, world_size: int, batch_size: int, accumulation_steps: int
) -> None:
    alone = deal(n, 1, batch_size * world_size, accumulation_steps)
    together = deal(n, world_size, batch_size, accumulation_steps)
    assert len(alone) == len(together)
    for (one,), ranks in zip(alone, together, strict=True):
        assert sorted(images_of(one)) == sorted(index for step in ranks for index in images_of(step))


@LAW
@given(SIZES, WORLDS, BATCHES, ACCUMULATION)
def test_the_ranks_keep_step(n: int, world_size: int, batch_size: int, accumulation_steps: int) -> None:
    for ranks in deal(n, world_size, batch_size, accumulation_steps):
        shares = [len(images_of(step)) for step in ranks]
        assert max(shares) - min(shares) <= 1
        assert {step.samples for step in ranks} == {sum(shares)}
        assert len({len(step.micro_batches) for step in ranks}) == 1
        assert len(ranks[0].micro_batches) <= accumulation_steps
        for step in ranks:
            assert step.weight == (1.0 if images_of(step) else 0.0)
            sizes = [len(indices) for indices in step.micro_batches]
            assert min(sizes) >= 1
            assert max(sizes) <= max(batch_size, 2)
            assert step.weight or sizes == [1]


@LAW
@given(st.integers(20, 200), st.integers(0, 2**40), st.integers(0, 10_000))
def test_the_order_depends_on_seed_and_epoch_alone(n: int, seed: int, epoch: int) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = Sampler(n, seed)
        sampler.set_epoch(epoch)
        return sampler.order().tolist()

    state = torch.random.get_rng_state()
    assert order(seed, epoch) == order(seed, epoch)
    assert order(seed, epoch) != order(seed, epoch + 1)
    assert order(seed, epoch + 1) != order(seed + 1, epoch)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_shard_follows_its_own_epoch() -> None:
    sampler = Sampler(50, 0)
    sampler.set_epoch(3)
    shard = sampler.shard(1, 2)
    assert shard.order().tolist() == sampler.order().tolist()
    shard.set_epoch(4)
    assert shard.order().tolist() != sampler.order().tolist()


def test_a_rank_without_an_image_takes_one_along() -> None:
    steps = [list(Sampler(9, 0).shard(rank, 4).steps(2, 1))[-1] for rank in range(4)]
    assert [step.weight for step in steps] == [1, 0, 0, 0]
    assert {step.samples for step in steps} == {1}
    assert all(torch.equal(step.micro_batches[0], steps[0].micro_batches[0]) for step in steps)


def test_a_batch_is_normalised(subset: tuple[ImageSet, ImageSet]) -> None:
    train, _ = subset
    indices = torch.tensor([3, 9_999, 0])
    images, labels = train.batch(indices)
    assert images.shape == (3, 1, 28, 28)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    wanted = (train.images[indices].double() - data.MEAN) / data.STD
    torch.testing.assert_close(images.squeeze(1).double(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(labels, train.labels[indices])
    everything, _ = train.batch(torch.arange(len(train)))
    assert abs(everything.mean().item()) < 0.02
    assert abs(everything.std().item() - 1) < 0.02


def test_the_subset_has_as_many_of_each_class(subset: tuple[ImageSet, ImageSet]) -> None:
    assert [image_set.labels.bincount().tolist() for image_set in subset] == [[1000] * 10, [200] * 10]
    assert all(image_set.images.dtype == torch.uint8 for image_set in subset)


def test_train_samples_are_the_same_number_of_each_class() -> None:
    train, test = data.load("subset", "cpu", train_samples=123)
    assert train.labels.bincount().tolist() == [13] * 3 + [12] * 7
    again, _ = data.load("subset", "cpu", train_samples=123)
    assert torch.equal(train.images, again.images)
    assert len(test) == 2000
    everything, _ = data.load("subset", "cpu", train_samples=10_000)
    assert torch.equal(everything.images, data.load("subset", "cpu")[0].images)


def test_more_train_samples_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train_samples is 10001, but there are 10000"):
        data.load("subset", "cpu", train_samples=10_001)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_usual_loader_gives_the_same_images(subset: tuple[ImageSet, ImageSet], num_workers: int) -> None:
    small = ImageSet(subset[1].images[:40], subset[1].labels[:40])
    seen = []
    for rank in range(2):
        loader, sampler = data.as_dataloader(small, 8, rank, 2, seed=0, num_workers=num_workers)
        sampler.set_epoch(1)
        seen += [(images, labels) for images, labels in loader]
    images, labels = (torch.cat(parts) for parts in zip(*seen, strict=True))
    wanted, wanted_labels = small.batch(torch.arange(40))
    order = images.flatten(1).double().sum(1).argsort()
    wanted_order = wanted.flatten(1).double().sum(1).argsort()
    assert torch.equal(images[order], wanted[wanted_order])
    assert torch.equal(labels[order], wanted_labels[wanted_order])


def test_sources_do_without_torch() -> None:
    code = "import sys, course_lib.training.sources; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

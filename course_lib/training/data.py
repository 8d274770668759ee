"""Fashion-MNIST as two tensors on the device, and how its images are dealt to the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from course_lib.training import sources

# Of the pixels of the 60,000 training images, from 0 to 255.
MEAN, STD = 72.9404, 90.0212


class ImageSet:
    """Images and labels that live on one device.

    `images` is uint8 [N, 28, 28] and `labels` int64 [N]. Pixels are normalised by MEAN and STD only when a batch is
    taken, since as uint8 the whole set is 47 MB and never has to leave the device.
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels
        self._zero = torch.tensor(-MEAN / STD, device=images.device)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised images, float32 [n, 1, 28, 28], and labels, int64 [n], at `indices`, int64 [n]."""
        indices = indices.to(self.images.device, non_blocking=True)
        pixels = self.images.index_select(0, indices).unsqueeze(1)
        return torch.add(self._zero, pixels, alpha=1 / STD), self.labels.index_select(0, indices)


def load(config_data: str, device: torch.device | str, train_samples: int | None = None) -> tuple[ImageSet, ImageSet]:
    """The training and the test set, on `device`.

    `config_data` is "auto", "full" or "subset" (see `sources.locate`). With `train_samples`, the training set is that
    many images, the same number of each class (or one more of the first classes), always the same ones.

    Raises:
        ConfigError: `train_samples` is more than there is.
        DataError: the data is missing, truncated or not what it should be.
    """
    train_images, train_labels, test_images, test_labels = sources.read(sources.locate(config_data))
    sources.check_train_samples(train_samples, len(train_labels))
    if train_samples is not None:
        chosen = _first_of_each_class(train_labels, train_samples)
        train_images, train_labels = train_images[chosen], train_labels[chosen]
    return _image_set(train_images, train_labels, device), _image_set(test_images, test_labels, device)


@dataclass(frozen=True)
class Step:
    """What one rank does in one step of the optimizer; or several do that have as many images each.

    Fields:
        micro_batches: indices of the images of each forward and backward pass, one rank's after the other's. Every
            rank has the same number of passes in a step.
        samples: images in this step over all ranks.
        weight: 1.0; or 0.0 if no image was left for this rank, which then takes one along that does not count,
            only to keep step with the others.
    """

    micro_batches: list[Tensor]
    samples: int
    weight: float

    @property
    def share(self) -> int:
        """Images of this step that count for this rank, or for these."""
        return sum(map(len, self.micro_batches)) if self.weight else 0


class Sampler:
    """The order of the images in each epoch, and this rank's share of it.

    The order depends on seed and epoch alone, so it is the same on every rank and device, and the images are dealt
    like cards: step s on W ranks with batch size B sees just the images that step s in one process with batch size
    B * W sees. Every image is seen once an epoch.
    """

    def __init__(self, num_samples: int, seed: int, device: torch.device | str = "cpu") -> None:
        """`device` is where the indices are wanted: those of an epoch go there at once, not batch by batch."""
        self.num_samples = num_samples
        self.seed = seed
        self.device = device
        self.epoch = 0
        self.rank, self.world_size = 0, 1

    def shard(self, rank: int, world_size: int) -> Sampler:
        """A sampler for the share of one rank."""
        sampler = Sampler(self.num_samples, self.seed, self.device)
        sampler.epoch, sampler.rank, sampler.world_size = self.epoch, rank, world_size
        return sampler

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order is used from now on."""
        self.epoch = epoch

    def order(self) -> Tensor:
        """The whole epoch's order: a permutation of all images, over all ranks. Touches no global random state."""
        # The generator takes 32 bits, and seed + epoch would give one seed's epochs to the next seed.
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**32)
        return torch.randperm(self.num_samples, generator=generator)

    def steps_per_epoch(self, batch_size: int, accumulation_steps: int) -> int:
        """Steps of the optimizer in an epoch, the same on every rank; the last one may be smaller."""
        return ceil(self.num_samples / (batch_size * accumulation_steps * self.world_size))

    def steps(self, batch_size: int, accumulation_steps: int) -> Iterator[Step]:
        """This rank's steps of one epoch, with at most `batch_size` images in a pass (but see `passes`)."""
        for whole in self.global_batches(batch_size * accumulation_steps * self.world_size):
            yield deal(whole, range(self.rank, self.rank + 1), self.world_size, batch_size)

    def global_batches(self, global_batch_size: int) -> tuple[Tensor, ...]:
        """The images of each step of one epoch, over all ranks."""
        return self.order().to(self.device).split(global_batch_size)


def deal(whole: Tensor, ranks: range, world_size: int, batch_size: int) -> Step:
    """What `ranks` do in a step over the images `whole`, which is dealt to `world_size` ranks like cards.

    Where `ranks` are several, each must get as many images as the others.
    """
    if ranks.start < len(whole):
        # Row r is every world_size-th image from rank r on.
        shares = whole[ranks.start :].unfold(0, len(ranks), world_size).T
    else:
        shares = whole[:1].expand(len(ranks), 1)
    micro_batches = shares.tensor_split(passes(len(whole), world_size, batch_size), dim=1)
    weight = 1.0 if ranks.start < len(whole) else 0.0
    return Step([images.reshape(-1) for images in micro_batches], len(whole), weight)


def passes(samples: int, world_size: int, batch_size: int) -> int:
    """Forward and backward passes of every rank in a step over so many images.

    In an epoch's last step the ranks' shares may differ by one image, so with `batch_size` 1 and accumulation a rank
    may take 2 in a pass there, rather than one pass more than another rank, which would wait for it forever.
    """
    smallest, largest = samples // world_size, ceil(samples / world_size)
    return max(1, min(smallest, ceil(largest / batch_size)))


def as_dataloader(
    image_set: ImageSet, batch_size: int, rank: int, world_size: int, seed: int, num_workers: int = 0
) -> tuple[DataLoader[tuple[Tensor, ...]], DistributedSampler[tuple[Tensor, ...]]]:
    """The usual way to feed DDP, to compare with: a `DataLoader` over a `DistributedSampler`, in pinned memory.

    Call `sampler.set_epoch(epoch)` before each epoch. The trainers do not use it: it takes images of 28x28 one by one,
    collates them in Python and sends them to the device batch by batch, which costs about ten times what an index into
    a tensor does, and a GPU waits for it; worker processes only add the cost of handing batches over. And
    `DistributedSampler` repeats images until every rank has the same number, so an epoch is not every image once.
    """
    images, labels = image_set.batch(torch.arange(len(image_set)))
    dataset = TensorDataset(images.cpu(), labels.cpu())
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(dataset, world_size, rank, seed=seed)
    pin_memory = torch.cuda.is_available()
    loader = DataLoader(dataset, batch_size, sampler=sampler, num_workers=num_workers, pin_memory=pin_memory)
    return loader, sampler


def _first_of_each_class(labels: sources.Bytes, samples: int) -> np.ndarray:
    """Ascending indices of `samples` images, as many of each class as of any other, give or take one."""
    each, rest = divmod(samples, sources.CLASSES)
    counts = (each + (label < rest) for label in range(sources.CLASSES))
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:n] for label, n in enumerate(counts)]))


def _image_set(images: sources.Bytes, labels: sources.Bytes, device: torch.device | str) -> ImageSet:
    return ImageSet(torch.from_numpy(images).to(device), torch.from_numpy(labels).long().to(device))

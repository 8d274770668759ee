"""Make the subset that the course ships, from the whole of Fashion-MNIST: python tools/make_subset.py."""

from __future__ import annotations

import numpy as np

from course_lib.training import sources

SEED = 0
TRAIN_PER_CLASS, TEST_PER_CLASS = (size // sources.CLASSES for size in sources.SUBSET_SIZES)


def choose(labels: sources.Bytes, per_class: int, generator: np.random.Generator) -> np.ndarray:
    """Indices of `per_class` images of each class, ascending, drawn without replacement."""
    each = [
        generator.choice(np.flatnonzero(labels == label), per_class, replace=False) for label in range(sources.CLASSES)
    ]
    return np.sort(np.concatenate(each)).astype(np.int32)


def make_subset() -> dict[str, np.ndarray]:
    """The arrays of the subset, and which images of the whole set they are."""
    train_images, train_labels, test_images, test_labels = sources.read(sources.locate("full"))
    generator = np.random.default_rng(SEED)
    train = choose(train_labels, TRAIN_PER_CLASS, generator)
    test = choose(test_labels, TEST_PER_CLASS, generator)
    return {
        "train_images": train_images[train],
        "train_labels": train_labels[train],
        "test_images": test_images[test],
        "test_labels": test_labels[test],
        "train_indices": train,
        "test_indices": test,
    }


if __name__ == "__main__":
    np.savez_compressed(sources.SUBSET, allow_pickle=False, **make_subset())

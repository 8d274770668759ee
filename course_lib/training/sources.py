"""Where Fashion-MNIST comes from: finding it, reading it and fetching it, without torch.

Fashion-MNIST is 60,000 training and 10,000 test images of clothes, 28x28, in ten classes of equal size
(Xiao, Rasul and Vollgraf 2017, arXiv 1708.07747; https://github.com/zalandoresearch/fashion-mnist).
It is Copyright (c) 2017 Zalando SE and under the MIT licence, and so is the subset that is shipped here:
10,000 training and 2,000 test images, the same number of each class, drawn with seed 0 by tools/make_subset.py.

The launcher checks a config against the size of the data before torch is loaded, hence no torch here.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, DataError

Bytes = NDArray[np.uint8]
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]

VARIABLE = "DDP_COURSE_DATA"
HOME = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
SUBSET = Path(__file__).with_name("fashion_mnist_subset.npz")
SUBSET_SIZES = (10_000, 2_000)
FULL_SIZES = (60_000, 10_000)
CLASSES = 10
# SHA-256 of each file when unpacked: Debian packs the same content anew, so the packed files differ.
DIGESTS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
WAYS = (
    "To get the whole set: on Debian and Ubuntu `apt-get install dataset-fashion-mnist`; anywhere with a network "
    "`python -m course_lib.training.sources`, which downloads 31 MB; or point $DDP_COURSE_DATA to a folder with its "
    'four files. data="subset" needs nothing.'
)
UNREADABLE = (OSError, EOFError, ValueError, KeyError, zlib.error, BadZipFile)


@dataclass(frozen=True)
class Source:
    """A place that Fashion-MNIST can be read from.

    Fields:
        kind: "full" or "subset".
        path: the folder with the four files, or the file of the subset.
        origin: how it was found, in words.
        train_size, test_size: number of images.
    """

    kind: str
    path: Path
    origin: str
    train_size: int
    test_size: int

    def __str__(self) -> str:
        return f"{self.origin} ({self.train_size:,} training and {self.test_size:,} test images, {self.path})"


def train_size_of(data: str) -> int:
    """Training images of "full" or "subset", which need not be here."""
    return (SUBSET_SIZES if data == "subset" else FULL_SIZES)[0]


def locate(data: str = "auto") -> Source:
    """Find the data set; only the sizes are read.

    `data` is "full" (the whole set or an error), "subset" (the one shipped), or "auto" (the whole set if it is
    somewhere, else the subset). The whole set is looked for in $DDP_COURSE_DATA, in torchvision's folder below
    data/ or datasets/ (here, one folder up, or at home), where Debian's package puts it, and where `fetch` puts it.

    Raises:
        DataError: "full" was asked for and is nowhere; $DDP_COURSE_DATA does not hold it; a file is damaged.
    """
    if data != "subset":
        for origin, folder in _places():
            if not _missing(folder):
                train, test = (_read_shape(_find(folder, name))[0] for name in DIGESTS if "images" in name)
                return Source("full", folder.absolute(), origin, train, test)
    if data == "full":
        raise DataError(f"The whole Fashion-MNIST is not on this machine. {WAYS}")
    return Source("subset", SUBSET, "the subset shipped with the course", *SUBSET_SIZES)


def check(config: RunConfig) -> Source:
    """Find the data of a run and hold the run's batch against its size.

    Raises:
        ConfigError: `train_samples` or the global batch is more than there is.
        DataError: as `locate`.
    """
    source = locate(config.data)
    check_train_samples(config.train_samples, source.train_size)
    train_size = config.train_samples or source.train_size
    if config.global_batch_size > train_size:
        passes = f"accumulation_steps {config.accumulation_steps} x " if config.accumulation_steps > 1 else ""
        raise ConfigError(
            f"The global batch of {config.global_batch_size} images (batch_size {config.batch_size} x "
            f"{passes}{config.world_size} ranks) is above the {train_size} "
            "training images. Take a smaller batch_size, fewer ranks or a larger train_samples.",
            "batch_size",
        )
    return source


def check_train_samples(train_samples: int | None, size: int) -> None:
    """Refuse more training images than there are.

    Raises:
        ConfigError: names both numbers.
    """
    if train_samples is not None and train_samples > size:
        raise ConfigError(
            f"train_samples is {train_samples}, but there are {size} training images. Take at most {size}, or leave "
            f"it out to train on all of them. {WAYS if size == SUBSET_SIZES[0] else ''}".rstrip(),
            "train_samples",
        )


def read(source: Source) -> Arrays:
    """Read train images, train labels, test images and test labels: uint8 [N, 28, 28] and uint8 [N].

    Raises:
        DataError: a file is truncated, damaged or another one; names it and says what to do.
    """
    arrays = _read_subset(source.path) if source.kind == "subset" else _read_whole(source.path)
    for images, labels in (arrays[:2], arrays[2:]):
        if images.shape != (len(labels), 28, 28) or labels.ndim != 1 or labels.max() >= CLASSES:
            raise DataError(
                f"{source.path} holds images of shape {images.shape} and labels of shape {labels.shape} up to "
                f"{labels.max()}; wanted were [N, 28, 28], [N] and 9. {WAYS}"
            )
    return arrays


def fetch(folder: Path | None = None, home: str = HOME, progress: bool = True) -> Source:
    """Download the four files from the data set's home, with a progress bar, and unpack them into `folder`.

    A file is written aside, checked by its SHA-256 and moved into place; one that is already there is kept if it
    is whole. Without `folder` they go to the user's cache, where `locate` finds them.

    Raises:
        DataError: no network, a truncated or wrong file, no space. Nothing half-written stays.
    """
    folder = folder or cache_folder()
    for name, digest in DIGESTS.items():
        url = f"{home}/{name}.gz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not _is_whole(folder / name, digest):
                _download(url, folder / name, digest, progress)
        except (OSError, HTTPException) as error:
            raise DataError(f"Could not download {url} to {folder}: {error}. {WAYS}") from error
    train, test = (_read_shape(folder / name)[0] for name in DIGESTS if "images" in name)
    return Source("full", folder.absolute(), "the whole set, fetched", train, test)


def cache_folder() -> Path:
    """The folder that `fetch` fills: below $XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "ddp-course" / "fashion-mnist"


def _places() -> Iterator[tuple[str, Path]]:
    named = os.environ.get(VARIABLE)
    if named:
        yield f"the whole set, from ${VARIABLE}", _named_folder(Path(named).expanduser())
    for base in (Path(), Path(".."), Path("~").expanduser()):
        for name in ("data", "datasets"):
            yield "the whole set, from torchvision's folder", base / name / "FashionMNIST" / "raw"
    yield "the whole set, from Debian's dataset-fashion-mnist", DEBIAN
    yield "the whole set, fetched", cache_folder()


def _named_folder(root: Path) -> Path:
    """The folder with the four files at or below `root`; an error, not the next place, if there is none."""
    folders = [root, root / "raw", root / "FashionMNIST" / "raw"]
    folder = min(folders, key=lambda folder: len(_missing(folder)))
    missing = _missing(folder)
    if missing:
        what = f"lacks {', '.join(missing)} (packed as .gz or not)" if root.is_dir() else "is not a folder"
        raise DataError(f"${VARIABLE} is {root}, which {what}. Correct or unset ${VARIABLE}. {WAYS}")
    return folder


def _find(folder: Path, name: str) -> Path:
    """The file unpacked if it is there, since that reads faster; else packed."""
    unpacked = folder / name
    return unpacked if os.path.isfile(unpacked) else folder / f"{name}.gz"


def _missing(folder: Path) -> list[str]:
    return [name for name in DIGESTS if not os.path.isfile(_find(folder, name))]


def _damaged(path: Path, why: object) -> DataError:
    return DataError(f"{path} cannot be used: {why}. Delete it and get it again. {WAYS}")


def _read_shape(path: Path) -> tuple[int, ...]:
    """Shape of the array in an idx file, from its first bytes (http://yann.lecun.com/exdb/mnist gives the format)."""
    dimensions = 3 if "idx3" in path.name else 1
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            header = file.read(4 + 4 * dimensions)
    except UNREADABLE as error:
        raise _damaged(path, error) from error
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
        raise _damaged(path, "it does not begin as an idx file does")
    return tuple(int.from_bytes(header[i : i + 4], "big") for i in range(4, len(header), 4))


def _read_whole(folder: Path) -> Arrays:
    train_images, train_labels, test_images, test_labels = (_read_idx(_find(folder, name)) for name in DIGESTS)
    return train_images, train_labels, test_images, test_labels


def _read_idx(path: Path) -> Bytes:
    shape = _read_shape(path)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except UNREADABLE as error:
        raise _damaged(path, error) from error
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape))
    if values.size != np.prod(shape):
        raise _damaged(path, f"it holds {values.size:,} values where its head promises {np.prod(shape):,}")
    if hashlib.sha256(content).hexdigest() != DIGESTS[path.name.removesuffix(".gz")]:
        raise _damaged(path, "its content is not Fashion-MNIST's (MNIST's files bear the same names)")
    return values.reshape(shape).copy()


def _read_subset(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["train_images"], file["train_labels"], file["test_images"], file["test_labels"]
    except UNREADABLE as error:
        raise DataError(
            f"{path}, the subset shipped with the course, is damaged: {error}. Install the course again."
        ) from error


def _is_whole(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _download(url: str, path: Path, digest: str, progress: bool) -> None:
    from tqdm.auto import tqdm

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as aside:
        part = Path(aside) / path.name
        with urllib.request.urlopen(url, timeout=30) as response, part.open("wb") as file:
            size = int(response.headers.get("Content-Length") or 0) or None
            with tqdm(total=size, desc=path.name, unit="B", unit_scale=True, disable=not progress) as bar:
                got = _unpack(response, file, bar.update, url)
        if got != digest:
            raise DataError(f"{url} gave another file than Fashion-MNIST's (SHA-256 {got}, wanted {digest}). {WAYS}")
        os.replace(part, path)


def _unpack(packed: BinaryIO, unpacked: BinaryIO, advance: Callable[[int], object], url: str) -> str:
    """Copy a gzip stream unpacked; the SHA-256 of what was written."""
    stream, sha256 = zlib.decompressobj(wbits=31), hashlib.sha256()
    while chunk := packed.read(1 << 16):
        try:
            content = stream.decompress(chunk)
        except zlib.error as error:
            raise DataError(f"{url} gave something that is not a gzip file ({error}). {WAYS}") from error
        sha256.update(content)
        unpacked.write(content)
        advance(len(chunk))
    if not stream.eof:
        raise DataError(f"The download of {url} broke off before its end. Try again. {WAYS}")
    return sha256.hexdigest()


if __name__ == "__main__":
    fetch()

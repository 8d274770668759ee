"""Where the data comes from: the order, the errors, and fetching from a real server."""

import gzip
import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, DataError
from course_lib.training import sources

NAMES = list(sources.DIGESTS)
INSTALLED = sources.DEBIAN
needs_whole_set = pytest.mark.skipif(
    not INSTALLED.is_dir(), reason="the whole set is not here: apt-get install dataset-fashion-mnist"
)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: no variable, no usual folder, no package, no cache."""
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "DEBIAN", tmp_path / "no-package")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_set(folder: Path, packed: bool = True) -> Path:
    """Four well-formed files of a few images each, which are not Fashion-MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        n = 30 if name.startswith("train") else 20
        content = idx(np.zeros((n, 28, 28)) if "images" in name else np.arange(n) % 10)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content)) if packed else (folder / name).write_bytes(content)
    return folder


def error(source: sources.Source) -> str:
    with pytest.raises(DataError) as caught:
        sources.read(source)
    return str(caught.value)


def test_without_the_whole_set_auto_is_the_subset() -> None:
    source = sources.locate("auto")
    assert source == sources.locate("subset")
    arrays = sources.read(source)
    assert [array.shape for array in arrays] == [(10_000, 28, 28), (10_000,), (2_000, 28, 28), (2_000,)]
    assert all(array.dtype == np.uint8 for array in arrays)
    assert (source.kind, source.train_size, source.test_size) == ("subset", 10_000, 2_000)


def test_full_without_the_whole_set_says_how_to_get_it() -> None:
    with pytest.raises(DataError, match=r"apt-get install dataset-fashion-mnist.*\$DDP_COURSE_DATA"):
        sources.locate("full")


def test_the_order_of_places(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [write_set(sources.cache_folder()), write_set(nowhere / "no-package")]
    wanted += [write_set(nowhere / "home" / "data" / "FashionMNIST" / "raw")]
    wanted += [write_set(nowhere / "work" / "data" / "FashionMNIST" / "raw", packed=False)]
    wanted += [write_set(nowhere / "named")]
    monkeypatch.setenv(sources.VARIABLE, str(wanted[-1]))
    while wanted:
        source = sources.locate("auto")
        assert source.path == wanted[-1]
        assert (source.kind, source.train_size, source.test_size) == ("full", 30, 20)
        shutil.rmtree(wanted.pop())
        monkeypatch.delenv(sources.VARIABLE, raising=False)
    assert sources.locate("auto").kind == "subset"


@pytest.mark.parametrize("below", ["", "raw", "FashionMNIST/raw"])
def test_the_variable_may_name_torchvisions_root(nowhere: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    folder = write_set(nowhere / "mine" / below)
    monkeypatch.setenv(sources.VARIABLE, str(nowhere / "mine"))
    assert sources.locate("full").path == folder


def test_a_variable_that_points_to_nothing_is_an_error(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(sources.cache_folder())
    monkeypatch.setenv(sources.VARIABLE, str(nowhere / "gone"))
    with pytest.raises(DataError, match=r"\$DDP_COURSE_DATA is .*gone, which is not a folder"):
        sources.locate("auto")
    (write_set(nowhere / "gone") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"\$DDP_COURSE_DATA is .*gone, which lacks t10k-labels-idx1-ubyte "):
        sources.locate("auto")
    assert sources.locate("subset").kind == "subset"


def test_an_unfinished_folder_in_a_usual_place_is_passed_over(nowhere: Path) -> None:
    folder = write_set(nowhere / "work" / "data" / "FashionMNIST" / "raw")
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    assert sources.locate("auto").kind == "subset"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False])
def test_a_truncated_file_is_named(nowhere: Path, name: str, packed: bool) -> None:
    folder = write_set(sources.cache_folder(), packed)
    source = sources.locate("full")
    path = folder / (f"{name}.gz" if packed else name)
    path.write_bytes(path.read_bytes()[:-9])
    # The files before it are whole but not Fashion-MNIST, so this one is read by itself.
    with pytest.raises(DataError, match=rf"{path} cannot be used: .*Delete it and get it again") as caught:
        sources._read_idx(path)
    assert "dataset-fashion-mnist" in str(caught.value)
    assert "cannot be used" in error(source)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin as an idx file"),
        (b"<html>Not found</html>", "does not begin as an idx file"),
        (b"\0\0\x08\x01\0\0\0\5abcdefgh", "does not begin as an idx file"),
        (idx(np.zeros((30, 28, 28)))[:-1], "23,519 values where its head promises 23,520"),
        (idx(np.zeros((30, 28, 28))) + b"\0", "23,521 values where its head promises 23,520"),
        (idx(np.zeros((30, 28, 28))), "not Fashion-MNIST's"),
    ],
)
def test_a_wrong_file_is_named(nowhere: Path, content: bytes, why: str) -> None:
    folder = write_set(sources.cache_folder(), packed=False)
    source = sources.locate("full")
    (folder / NAMES[0]).write_bytes(content)
    assert why in error(source)
    assert str(folder / NAMES[0]) in error(source)


def test_a_file_that_is_not_gzip_is_named(nowhere: Path) -> None:
    folder = write_set(sources.cache_folder())
    (folder / f"{NAMES[0]}.gz").write_bytes(b"<html>Not found</html>")
    with pytest.raises(DataError, match=rf"{NAMES[0]}.gz cannot be used: Not a gzipped file"):
        sources.locate("auto")


def test_a_damaged_subset_says_so(nowhere: Path) -> None:
    content = bytearray(sources.SUBSET.read_bytes())
    content[len(content) // 2] ^= 0xFF
    for name, spoilt in {"truncated": content[:100_000], "flipped": content, "empty": b""}.items():
        path = nowhere / f"{name}.npz"
        path.write_bytes(spoilt)
        assert f"{path}, the subset shipped with the course, is damaged" in error(
            sources.Source("subset", path, "here", *sources.SUBSET_SIZES)
        )


@pytest.mark.parametrize("spoil", ["labels above 9", "labels missing", "images of another size"])
def test_arrays_that_do_not_fit_are_refused(nowhere: Path, spoil: str) -> None:
    images, labels, test_images, test_labels = sources.read(sources.locate("subset"))
    images = images[:, :27] if spoil == "images of another size" else images
    labels = labels[:-1] if spoil == "labels missing" else labels + 1 if spoil == "labels above 9" else labels
    path = nowhere / "other.npz"
    np.savez(path, train_images=images, train_labels=labels, test_images=test_images, test_labels=test_labels)
    assert str(path) in error(sources.Source("subset", path, "here", *sources.SUBSET_SIZES))


def test_check_refuses_more_than_there_is() -> None:
    assert sources.check(RunConfig(data="subset")).kind == "subset"
    assert sources.check(RunConfig(train_samples=100, batch_size=25, num_gpus=2, num_nodes=2)).kind == "subset"
    with pytest.raises(ConfigError, match=r"train_samples is 20000, but there are 10000"):
        sources.check(RunConfig(train_samples=20_000))
    with pytest.raises(
        ConfigError, match=r"global batch of 120 images \(batch_size 30 x accumulation_steps 2 x 2 ranks.*100 training"
    ):
        sources.check(RunConfig(train_samples=100, batch_size=30, accumulation_steps=2, num_gpus=2))
    with pytest.raises(DataError):
        sources.check(RunConfig(data="full"))


class Server:
    """A web server on this machine that serves `folder`; `cut` bytes are missing at the end of each answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut = 0
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def copyfile(self, source, outputfile) -> None:  # type: ignore[no-untyped-def]
                content = source.read()
                outputfile.write(content[: len(content) - outer.cut])

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server(nowhere: Path) -> Iterator[Server]:
    served = Server(write_set(nowhere / "served"))
    yield served
    served.close()


def left_in_cache() -> list[str]:
    folder = sources.cache_folder()
    return sorted(os.listdir(folder)) if folder.is_dir() else []


@needs_whole_set
def test_fetch_gets_the_whole_set(nowhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    served = Server(INSTALLED)
    try:
        source = sources.fetch(home=served.url)
    finally:
        served.close()
    assert source == sources.locate("full")
    assert (source.train_size, source.test_size) == (60_000, 10_000)
    assert left_in_cache() == sorted(NAMES)
    assert "train-images-idx3-ubyte: 100%" in capfd.readouterr().err
    labels = sources.read(source)[1]
    assert np.bincount(labels).tolist() == [6000] * 10
    # Everything is there, so nothing is asked of a server that is gone.
    assert sources.fetch(home=served.url) == source


@needs_whole_set
def test_fetch_replaces_only_what_is_damaged(nowhere: Path) -> None:
    folder = sources.cache_folder()
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(gzip.decompress((INSTALLED / f"{name}.gz").read_bytes()))
    (folder / NAMES[3]).write_bytes(b"spoilt")
    kept = (folder / NAMES[0]).stat().st_mtime_ns
    served = Server(INSTALLED)
    try:
        sources.fetch(home=served.url, progress=False)
    finally:
        served.close()
    assert (folder / NAMES[0]).stat().st_mtime_ns == kept
    sources.read(sources.locate("full"))


def test_a_download_that_breaks_off_leaves_nothing(server: Server) -> None:
    server.cut = 7
    with pytest.raises(DataError, match=rf"{server.url}/{NAMES[0]}.gz broke off"):
        sources.fetch(home=server.url, progress=False)
    assert left_in_cache() == []


def test_wrong_content_leaves_nothing(server: Server) -> None:
    with pytest.raises(DataError, match=r"gave another file than Fashion-MNIST's \(SHA-256 [0-9a-f]{64}, wanted c59f"):
        sources.fetch(home=server.url, progress=False)
    (server.folder / f"{NAMES[0]}.gz").write_bytes(b"<html>Sign in to the network</html>")
    with pytest.raises(DataError, match="not a gzip file"):
        sources.fetch(home=server.url, progress=False)
    assert left_in_cache() == []


def test_no_server_or_no_file_says_the_other_ways(server: Server, nowhere: Path) -> None:
    with pytest.raises(DataError, match=r"Could not download .*/elsewhere/.*404.*dataset-fashion-mnist"):
        sources.fetch(home=f"{server.url}/elsewhere", progress=False)
    server.close()
    with pytest.raises(DataError, match=rf"Could not download {server.url}.*dataset-fashion-mnist"):
        sources.fetch(home=server.url, progress=False)
    (nowhere / "file").write_text("in the way")
    with pytest.raises(DataError, match="Could not download"):
        sources.fetch(nowhere / "file", home=server.url, progress=False)


def make_subset_module() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "make_subset.py"
    spec = importlib.util.spec_from_file_location("make_subset", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_whole_set
def test_the_subset_is_part_of_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DEBIAN", INSTALLED)
    whole = dict(
        zip(
            ("train_images", "train_labels", "test_images", "test_labels"),
            sources.read(sources.locate("full")),
            strict=True,
        )
    )
    with np.load(sources.SUBSET) as subset:
        for part in ("train", "test"):
            indices = subset[f"{part}_indices"]
            assert len(set(indices.tolist())) == len(indices)
            for kind in ("images", "labels"):
                assert np.array_equal(whole[f"{part}_{kind}"][indices], subset[f"{part}_{kind}"])
        made = make_subset_module().make_subset()
        assert sorted(made) == sorted(subset.files)
        assert all(np.array_equal(made[name], subset[name]) for name in made)

"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from processes import eventually, ranks_left

from course_lib.config import RunConfig

# No test says how long something takes: machines are busy.
settings.register_profile("course", deadline=None)
settings.load_profile("course")


def pytest_configure() -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and all that it starts inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def quick() -> RunConfig:
    """The config of a run that takes well under a second."""
    return RunConfig(model="mlp", data="subset", train_samples=300, batch_size=50, epochs=1, checkpoint=False)


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path, monkeypatch) -> None:
    """Runs go to `runs/` in the current folder where nothing else is said."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_process_left() -> Iterator[None]:
    """Fails a test after which a rank, or something that a rank started, is still there."""
    yield
    assert eventually(lambda: not ranks_left()), ranks_left()

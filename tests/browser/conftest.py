"""What the tests in a browser share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_lab import Lab, left
from processes import eventually


@pytest.fixture
def lab(tmp_path) -> Iterator[Lab]:
    """A JupyterLab of which nothing is left when the test is over."""
    lab = Lab(tmp_path)
    try:
        lab.wait_until_up()
        yield lab
    finally:
        started = lab.descendants()
        lab.shut_down()
        gone = eventually(lambda: not left(started))
        for process in left(started):
            process.kill()
        assert gone, started


@pytest.fixture
def picture(tmp_path) -> Path:
    """Where to look when a test has failed."""
    return tmp_path / "page.png"


@pytest.fixture
def documentation(tmp_path) -> Path:
    """Where the pictures of the documentation go: `make screenshots` names a folder, other tests throw them away."""
    return Path(os.environ.get("SCREENSHOTS", tmp_path))

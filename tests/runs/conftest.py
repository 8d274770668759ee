from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the locks of this test's runs are, and no others: tests may go on beside it. Not there yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"ddp-course-runs-{os.getuid()}"

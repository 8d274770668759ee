"""What the tests of the grader share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from course_lib.grading.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One sandbox for all: it takes seconds to start."""
    with Sandbox() as sandbox:
        yield sandbox

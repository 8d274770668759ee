"""What the server in a sandbox tells, to its standard output (see server.py)."""

from __future__ import annotations

import json
import os
from typing import Any

_notices = 1


def have_the_output() -> None:
    """Keep the standard output for notices: what else is printed, by an import for example, goes to standard error."""
    global _notices
    _notices = os.dup(1)
    os.dup2(2, 1)


def tell(notice: dict[str, Any], following: bytes = b"") -> None:
    """Tell something, in a line, and what belongs to it after that line."""
    content = memoryview(json.dumps(notice).encode() + b"\n" + following)
    while content:
        content = content[os.write(_notices, content) :]

"""What a file with a model's weights holds; it is read in the sandbox, since a file of a student's may be anything."""

from __future__ import annotations

from typing import Any

import torch


def weights(names: dict[str, Any], path: str) -> dict[str, Any]:
    """The tensors of a state dict, by their names.

    Raises:
        ValueError: the file holds something else.
    """
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict):
        raise ValueError(f"The file holds a {type(content).__name__}, and no state dict.")
    return dict(content)

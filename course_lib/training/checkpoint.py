"""All that a run needs to go on as if it had not stopped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course_lib.errors import ConfigError


def capture(epochs_done: int, step: int, seconds: float, parts: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The state of a run after an epoch.

    Args:
        epochs_done: whole epochs so far.
        step: steps of the optimizer so far.
        seconds: spent on them.
        parts: by name, all that has a `state_dict`: model, optimizer, schedule, scaler.
        device: where it trains; its random stream is captured with the CPU's.

    Returns:
        The state; "random" holds one entry a rank, here this one's alone.
    """
    states = {name: part.state_dict() for name, part in parts.items()}
    return {"epochs_done": epochs_done, "step": step, "seconds": seconds, "random": [_random_state(device)], **states}


def restore(
    state: dict[str, Any], parts: dict[str, Any], rank: int, device: torch.device, epochs: int
) -> tuple[int, int, float]:
    """Put a captured state back into its parts, and this rank's random streams with it.

    Returns:
        Whole epochs, steps and seconds so far.

    Raises:
        ConfigError: all of the `epochs` are done, or the state is of another kind of run.
    """
    try:
        if state["epochs_done"] >= epochs:
            raise ConfigError(f"The checkpoint was written after the last of {epochs} epochs: no epoch is left.")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        streams = state["random"][rank]
        torch.set_rng_state(streams["cpu"].cpu())
        if "cuda" in streams and device.type == "cuda":
            torch.cuda.set_rng_state(streams["cuda"].cpu(), device)
        return state["epochs_done"], state["step"], state["seconds"]
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ConfigError(
            f"The checkpoint is not of this run, or it is damaged ({type(error).__name__}: {error}). "
            "Go on from another run, or train anew."
        ) from error


def _random_state(device: torch.device) -> dict[str, Tensor]:
    streams = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        streams["cuda"] = torch.cuda.get_rng_state(device)
    return streams

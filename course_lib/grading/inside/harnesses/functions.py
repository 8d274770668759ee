"""Calls of functions that a student wrote, and what each did besides returning a value."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from course_lib.grading.inside.harnesses.meeting import join
from course_lib.grading.inside.probes import answers
from course_lib.grading.inside.student import describe

SECONDS = 4.0  # that ranks wait for each other
_torch_state, _numpy_state = torch.get_rng_state, np.random.get_state  # a program may change what torch and numpy have
GENERATORS: dict[str, Callable[[], Any]] = {
    "torch": lambda: _torch_state().numpy().tobytes(),
    "numpy": lambda: repr(_numpy_state(legacy=False)),
    "random": random.getstate,
}


def call(names: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Call functions; `inputs` are {"calls": [[function, [argument, …]], …], "seed": of the global generators}.

    Tells of each call {"value": …} or {"error": …} (see `describe`), "after": the arguments, as they are then, and
    "disturbed": the global generators that were used or seeded.
    """
    prepare(inputs["seed"])
    for function, arguments in inputs["calls"]:
        answers.tell(_call(names, function, arguments))


def call_in_group(names: dict[str, Any], inputs: dict[str, Any]) -> None:
    """As `call`, on a rank of a gloo group; RANK, WORLD_SIZE and `inputs["meeting"]` say which. Ends at a failure."""
    prepare(inputs["seed"])
    join(inputs["meeting"], SECONDS)
    for function, arguments in inputs["calls"]:
        answer = _call(names, function, arguments)
        answers.tell(answer)
        if "error" in answer or not together():
            return
    leave(inputs["meeting"])


def prepare(seed: int) -> None:
    """Seed the global generators, as real processes have them: each in another state, and not at its beginning."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    random.random(), np.random.random(), torch.rand(1)  # so to seed again does not put back what there was


def together() -> bool:
    """Wait for all ranks between two calls, so that it is seen which message belongs to which; whether all came."""
    try:
        dist.barrier()
    except Exception:  # another rank failed, or waits for this one in a call that it has left
        return False
    return True


def leave(meeting: str) -> None:
    """Wait until all ranks are done: one that leaves early breaks the connections of those that are not."""
    Path(f"{meeting}.{os.environ['RANK']}").touch()
    deadline = time.monotonic() + SECONDS
    paths = [Path(f"{meeting}.{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))]
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.005)


def _call(names: dict[str, Any], name: str, arguments: list[Any]) -> dict[str, Any]:
    function = names.get(name)
    if not callable(function):
        raise NameError(f"There is no function {name!r}.")
    before = {name: state() for name, state in GENERATORS.items()}
    try:
        answer = {"value": function(*arguments)}
    except Exception as error:
        answer = {"error": describe(error)}
    disturbed = [name for name, state in GENERATORS.items() if state() != before[name]]
    return {**answer, "after": arguments, "disturbed": disturbed}

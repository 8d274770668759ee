"""Things that happen to one rank: it is slow, it fails, or what it learns from is no number.

    disturbed: how, when it fails or is given what is no number

A rank is known by the group that it joined, so these begin after that.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course_lib.grading.inside.channel import Channel
from course_lib.grading.inside.probes.training import WRAPPERS


def install(channel: Channel, **what: dict[str, float]) -> None:
    """Disturb some ranks.

    `slow` and `slow_evaluation` say how many seconds a pass of training, or of evaluation, takes longer, by rank;
    `fails` and `not_a_number` say in which pass of training, from 0, a rank fails or meets NaN.
    """
    root: list[nn.Module] = []
    passes = 0

    def disturb(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal passes
        if not inputs or isinstance(module, WRAPPERS) or not any(True for _ in module.parameters()):
            return
        if not root:
            root.append(module)
        if module is not root[0]:
            return
        rank = str(dist.get_rank() if dist.is_initialized() else os.environ.get("RANK", 0))
        if not module.training:
            time.sleep(what.get("slow_evaluation", {}).get(rank, 0.0))
            return
        time.sleep(what.get("slow", {}).get(rank, 0.0))
        if passes == what.get("fails", {}).get(rank):
            channel.tell("disturbed", how="fails")
            raise RuntimeError("A disturbance of the check: this rank fails here.")
        if passes == what.get("not_a_number", {}).get(rank):
            channel.tell("disturbed", how="not_a_number")
            with torch.no_grad():
                inputs[0].fill_(float("nan"))
        passes += 1

    register_module_forward_pre_hook(disturb)

"""What a training program did, as its ranks told it: who joined, what was read, with which weights, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch.nn.functional import pad

from course_lib.grading.sandbox import Process, Record


@dataclass
class Round:
    """The forward passes between two changes of a rank's weights: one step, with accumulation or without.

    Fields:
        mark: of the weights, equal where they are.
        weights: all values after each other; None where the model is too large to be told.
        batches: the first values of the samples of each pass, [n, values] each.
        passes_before: of this rank, in training.
        gradient: what the optimizer had when it stepped; None where it did not.
        lr: its learning rates, one for each group.
        begin, end: when its first pass was seen, and when what follows its last one.
    """

    mark: str
    weights: torch.Tensor | None
    batches: list[torch.Tensor] = field(default_factory=list)
    passes_before: int = 0
    gradient: torch.Tensor | None = None
    lr: list[float] = field(default_factory=list)
    begin: float = 0.0
    end: float = 0.0

    @property
    def rows(self) -> torch.Tensor:
        """The samples of all passes; NaN where some have fewer values than others."""
        width = max(each.shape[1] for each in self.batches)
        return torch.cat([pad(each, (0, width - each.shape[1]), value=float("nan")) for each in self.batches])


class Rank:
    """One rank of a program: a process that trained, or joined a group."""

    def __init__(self, rank: int, process: Process) -> None:
        self.rank, self.process = rank, process

    @cached_property
    def rounds(self) -> list[Round]:
        """Its steps of training, in order; each pass is one where it never changes its weights itself."""
        rounds: list[Round] = []
        idle = not self.process.of("step") and len({event["mark"] for event in self.passes}) == 1
        stepped = ended = False
        passes = 0
        for event in self.process.events:
            if event["kind"] not in ("forward", "step"):
                continue
            if rounds and not ended:
                rounds[-1].end, ended = event["at"], True
            if event["kind"] == "step" and rounds:
                rounds[-1].gradient, rounds[-1].lr = event["gradient"], event["lr"]
                stepped = True  # even where the gradient was zero, and the weights are the same
            elif event["kind"] == "forward" and event["training"]:
                if idle or stepped or not rounds or rounds[-1].mark != event["mark"]:
                    weights = self.weights(event)
                    rounds.append(
                        Round(event["mark"], weights, passes_before=passes, begin=event["at"], end=event["at"])
                    )
                rounds[-1].batches.append(event["rows"])
                passes += 1
                stepped = ended = False
        return rounds

    @cached_property
    def passes(self) -> list[dict[str, Any]]:
        """Its passes of training, in order."""
        return [event for event in self.process.of("forward") if event["training"]]

    @cached_property
    def evaluations(self) -> list[list[dict[str, Any]]]:
        """Its passes without training, those that follow each other together."""
        forwards = self.process.of("forward")
        return [list(each) for training, each in groupby(forwards, lambda event: event["training"]) if not training]

    def weights(self, forward: dict[str, Any]) -> torch.Tensor | None:
        """All values of the model in a forward pass after each other; None where it is too large to be told."""
        return self._weights.get(forward["mark"])

    @cached_property
    def _weights(self) -> dict[str, torch.Tensor | None]:
        """By their marks: they are told where they change."""
        return {event["mark"]: event["weights"] for event in self.process.of("forward") if "weights" in event}

    @property
    def last_weights(self) -> torch.Tensor | None:
        """Those that it evaluated after its last step; None where it evaluated none, or some from before that step."""
        forwards = self.process.of("forward")
        if not forwards or forwards[-1]["training"]:
            return None
        stale = {event["mark"] for event in self.passes} - {event["mark"] for event in self.passes[-1:]}
        return None if forwards[-1]["mark"] in stale else self.weights(forwards[-1])

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """What it asked of others by itself, in order."""
        return self.process.of("collective")

    @property
    def group(self) -> dict[str, Any] | None:
        """The group that it joined; None where it joined none."""
        groups = self.process.of("group")
        return groups[0] if groups else None


class Evidence:
    """All ranks of a program.

    Attributes:
        record: what the sandbox recorded.
        ranks: by their number; where several processes have the same, the first that told.
        twins: the numbers that more than one process has.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.ranks: dict[int, Rank] = {}
        self.twins: set[int] = set()
        for rank in self._found():
            if rank.rank in self.ranks:
                self.twins.add(rank.rank)
            else:
                self.ranks[rank.rank] = rank
        self.ranks = dict(sorted(self.ranks.items()))

    def _found(self) -> Iterator[Rank]:
        alone = 0
        for process in self.record.processes:
            groups = process.of("group")
            if groups:
                yield Rank(groups[0]["rank"], process)
            elif process.of("joining"):
                continue  # it waited for others in vain
            elif process.of("forward"):
                yield Rank(alone, process)  # it never asked who it is
                alone += 1

    @property
    def errors(self) -> list[tuple[Process, dict[str, Any]]]:
        """The processes that failed, in the order in which they told it, and how."""
        return [(process, process.error) for process in self.record.processes if process.error is not None]

    @property
    def trained(self) -> list[Rank]:
        """The ranks that trained."""
        return [rank for rank in self.ranks.values() if rank.rounds]

    def rank_of(self, process: Process) -> int | None:
        """The number of the rank that a process is, or wanted to be."""
        for event in process.events:
            if event["kind"] == "group":
                return int(event["rank"])
            if event["kind"] == "joining":
                said = event["given"].get("rank") or event["environ"].get("RANK")
                if said is not None and said.lstrip("-").isdigit():
                    return int(said)
        return None

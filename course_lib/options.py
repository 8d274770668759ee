"""The options of the command line: how they take numbers, lists, names and folders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.config import CHOICES
from course_lib.runs.plan import SCALINGS


def one(kind: type, words: str, **more: Any) -> Any:
    """An option that takes one number."""
    return typer.Option(help=words, metavar="N", parser=partial(_number, kind), **more)


def several(kind: type, words: str) -> Any:
    """An option that takes one number or more, with commas between them."""
    return typer.Option(help=words, metavar="N,N,…", parser=partial(_numbers, kind))


def choice(words: str, choices: Sequence[str]) -> Any:
    """An option that takes one of these names."""
    *others, last = choices
    return typer.Option(help=f"{words}: {', '.join(others)} or {last}.", metavar="NAME")


def path(words: str, metavar: str = "FOLDER", **more: Any) -> Any:
    """An option that takes a folder or a file."""
    return typer.Option(help=words, metavar=metavar, parser=named, **more)


def named(text: Any) -> Path:
    """The path that was named; an empty name would be the current folder, which nobody means by it."""
    if text == "":
        raise typer.BadParameter("It is empty. Name a folder or a file, or leave it out.")
    return Path(text)


def _number(kind: type, text: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {'a whole number' if kind is int else 'a number'}.") from None


def _numbers(kind: type, text: Any) -> tuple[Any, ...]:
    return tuple(_number(kind, part) for part in str(text).split(","))


Model = Annotated[str, choice("What to train", CHOICES["model"])]
NumNodes = Annotated[int, one(int, "Nodes, all played on this machine.")]
LrRule = Annotated[str, choice("How the rate grows with the batch of all ranks", CHOICES["lr_rule"])]
Epochs = Annotated[int, one(int, "Passes over the training set.")]
Optimizer = Annotated[str, choice("What takes the steps", CHOICES["optimizer"])]
TrainSamples = Annotated[int | None, one(int, "Train on so many images only.", show_default="all")]
Device = Annotated[str, choice("Where to train; auto prefers GPUs", CHOICES["device"])]
PROFILE = "a100, t4-10gbe and so on, or the file that calibrate wrote."
Hardware = Annotated[str | None, typer.Option(help=f"Which GPUs device simulated plays: {PROFILE}", metavar="NAME")]
Scaling = Annotated[str, choice("Which batch stays the same, each rank's or that of all", SCALINGS)]
SweepFolder = Annotated[
    Path | None, path("A new folder, or that of a sweep to go on with.", show_default="one in runs/")
]
RunsFolder = Annotated[
    Path, typer.Argument(help="The folder of a run, or one with runs in it.", metavar="FOLDER", parser=named)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

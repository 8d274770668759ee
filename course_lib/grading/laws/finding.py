"""What a check finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Fields:
        fault: its short name, the same for all programs with this fault.
        seen: what was observed, with the ranks and the figures.
        idea: a question or a sentence that points to the cause, without giving the answer.
    """

    fault: str
    seen: str
    idea: str


def listed(items: Iterable[object], most: int = 6) -> str:
    """A few things in words: "0, 1 and 2"."""
    words = [str(item) for item in items]
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(number: int, noun: str) -> str:
    """So many of something in words: "1 rank", "3 ranks"."""
    ending = ("es" if noun.endswith(("s", "tch")) else "s") * (number != 1)
    return f"{number:,} {noun}{ending}"


def counted_were(number: int, noun: str) -> str:
    """As `counted`, with what was done to them to follow: "1 rank was", "3 ranks were"."""
    return f"{counted(number, noun)} {'was' if number == 1 else 'were'}"


def quoted(code: str) -> str:
    """A line of code, to be read as code where its own backticks do not forbid it; empty where there is none."""
    return code if not code or "`" in code else f"`{code}`"


def ranks(numbers: Sequence[int]) -> str:
    """Ranks in words: "rank 0", "ranks 0 and 1"."""
    return f"rank{'s' * (len(numbers) != 1)} {listed(numbers)}"

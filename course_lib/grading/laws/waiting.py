"""Where each rank waits when a program does not end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import quoted, ranks

# As faulthandler writes it: `  File "/box/train.py", line 12 in train`.
FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)


def where_each_waits(evidence: Evidence) -> tuple[str, str]:
    """What is seen, rank by rank, and the idea behind it."""
    places = dict(_places(evidence))
    if not places:
        return (
            f"After {evidence.record.seconds:.0f} seconds the program had not ended.",
            "Which loop does not end, or which call waits for somebody who never comes?",
        )
    at: dict[str, list[int]] = {}
    for number, (_, place) in places.items():
        at.setdefault(place, []).append(number)
    words = [f"{ranks(who)} {'is' if len(who) == 1 else 'are'} at {place}" for place, who in at.items()]
    seen = f"After {evidence.record.seconds:.0f} seconds the program had not ended: {'; '.join(words)}."
    if len({line for line, _ in places.values()}) > 1:
        return seen, "The ranks wait at different lines. Which of them must all ranks reach, and which ranks do?"
    if len(places) < len(evidence.ranks):
        return seen, "Not all ranks wait there. Which calls must all ranks make, and does each make them?"
    return seen, "All wait at the same line. For whom, and how many processes did you announce?"


def _places(evidence: Evidence) -> Iterator[tuple[int, tuple[int, str]]]:
    for process in evidence.record.processes:
        number = evidence.rank_of(process)
        if number is not None and (place := own_line(process.stack)) is not None:
            line, function = place
            text = line_of(process.source, line)
            yield number, (line, f"line {line}, {text}" if text else f"line {line} ({function})")


def line_of(source: str, line: int) -> str:
    """A line of somebody's code, to be read as code; empty where there is none."""
    lines = source.splitlines()
    return quoted(lines[line - 1].strip() if 0 < line <= len(lines) else "")


def own_line(stack: str) -> tuple[int, str] | None:
    """The innermost line of a stack that is the student's own, and its function."""
    for frame in FRAME.finditer(stack):
        if frame["file"] == "<your code>" or frame["file"].endswith("/train.py"):
            return int(frame["line"]), frame["function"]
    return None

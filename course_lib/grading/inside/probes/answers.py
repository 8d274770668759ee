"""What came of each call, told at once: who hangs in the third call has answered the first two.

answer: what harnesses/functions.py and models.py say of a call
"""

from __future__ import annotations

from typing import Any

from course_lib.grading.inside.channel import Channel

_channels: list[Channel] = []


def install(channel: Channel) -> None:
    """Let harnesses tell answers."""
    _channels.append(channel)


def tell(answer: dict[str, Any]) -> None:
    """Tell what came of the next call."""
    for channel in _channels:
        channel.tell("answer", **answer)

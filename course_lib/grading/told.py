"""What a process told, if it is an event as the probes make them: what a student's code sends may be anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from course_lib.grading.inside.encoding import Room, Unknown, decode

MOST_LAYERS = 10_000  # learning rates of a step
MOST_VALUES = 64  # of each sample
_Is = Callable[[Any], bool]


def event_of(content: bytes, room: Room | None = None) -> dict[str, Any] | None:
    """What a process told; None where it was too much to be sent, or for the room there is.

    Raises:
        ValueError: it is no event of the probes.
    """
    event = decode(content, room)
    if isinstance(event, Unknown):
        return None
    if type(event) is not dict or any(type(event.get(name)) is not kind for name, kind in _OF_ALL.items()):
        raise ValueError("no event")
    fields = _KINDS.get(event["kind"])
    if fields is None:
        raise ValueError(f"no kind of event: {event['kind']!r}")
    for name, is_right in fields.items():
        if name not in event and name in _OPTIONAL:
            continue
        if name not in event or not is_right(event[name]):
            raise ValueError(f"{name!r} of {event['kind']!r} is nothing that a probe tells")
    return event


def _of(*kinds: type) -> _Is:
    return lambda value: type(value) in kinds


def _texts(value: Any) -> bool:
    """A dict of texts, some of which may be missing."""
    return type(value) is dict and all(type(each) in (str, type(None)) for pair in value.items() for each in pair)


def _rows(value: Any) -> bool:
    is_table = type(value) is torch.Tensor and value.dtype == torch.float64 and value.ndim == 2
    return is_table and 0 < value.shape[1] <= MOST_VALUES


def _flat(value: Any) -> bool:
    return value is None or (type(value) is torch.Tensor and value.dtype == torch.float32 and value.ndim == 1)


def _rates(value: Any) -> bool:
    return type(value) is list and len(value) <= MOST_LAYERS and all(type(each) is float for each in value)


def _where(value: Any) -> bool:
    """The line of an error; None where it is not in the student's code."""
    if value is None:
        return True
    if type(value) is not dict:
        return False
    line, text, function = (value.get(name) for name in ("line", "text", "function"))
    return type(line) in (int, type(None)) and type(text) in (str, type(None)) and type(function) is str


def _list_of_texts(value: Any) -> bool:
    return type(value) is list and all(type(each) is str for each in value)


def _shapes(value: Any) -> bool:
    return type(value) is list and all(
        type(shape) is list and all(type(size) is int and size >= 0 for size in shape) for shape in value
    )


def _rank(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


_text, _int, _bool = _of(str), _of(int), _of(bool)
_int_or_none, _text_or_none = _of(int, type(None)), _of(str, type(None))
_anything: _Is = lambda value: True  # noqa: E731
_OF_ALL = {"kind": str, "program": int, "at": float}
_OPTIONAL = {"weights"}
_KINDS: Mapping[str, Mapping[str, _Is]] = {
    "began": {},
    "returned": {"value": _anything},
    "answer": {},
    "raised": {"type": _text, "kinds": _list_of_texts, "message": _text, "where": _where},
    "forward": {"training": _bool, "rows": _rows, "mark": _text, "weights": _flat},
    "step": {"optimizer": _text, "lr": _rates, "gradient": _flat, "missing": _int},
    "disturbed": {"how": _text},
    "joining": {"given": _texts, "environ": _texts, "parent": _int},
    "group": {"rank": _rank, "world_size": _rank, "backend": _text, "threads": _int},
    "collective": {
        **{"name": _text, "peer": _int_or_none, "line": _int_or_none, "op": _text_or_none},
        **{"bytes": _int, "shapes": _shapes},
    },
    "left": {},
    "wrote": {"path": _text, "how": _text},
    "device": {"number": _int, "what": _text},
    "sent": {"bytes": _int},
}

"""What a function returned: which type it is of, and whether it is what it should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch

from course_lib.grading.inside.encoding import Unknown
from course_lib.grading.laws.finding import Finding

TOLERANCE = 1e-5  # relative; of sums in float32, in whatever order


def number(value: Any) -> float | None:
    """A value as a number: a plain one, or a tensor or array that holds one; None where it is none."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        plain = torch.as_tensor(value)
        if plain.numel() != 1 or plain.dtype == torch.bool or plain.is_complex():
            return None
        return float(plain.item())
    return float(value) if type(value) in (int, float) else None


def integer(value: Any) -> int | None:
    """A value as a whole number; None where it is none, or of a type for fractions."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        plain = torch.as_tensor(value)
        if plain.numel() != 1 or plain.dtype == torch.bool or plain.is_floating_point() or plain.is_complex():
            return None
        return int(plain.item())
    return value if type(value) is int else None


def whole(value: Any) -> int | None:
    """As `integer`, also of a type for fractions, as long as there is none."""
    exact, found = integer(value), number(value)
    return int(found) if exact is None and found is not None and found.is_integer() else exact


def integers(value: Any) -> list[int] | None:
    """A list, tuple, or one-dimensional tensor or array of whole numbers; None where it is none."""
    found = [integer(each) for each in _items(value)] if _is_row(value) else [None]
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(found) else None


def numbers(value: Any) -> list[float] | None:
    """As `integers`, of any numbers."""
    found = [number(each) for each in _items(value)] if _is_row(value) else [None]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def close(value: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two numbers are the same but for rounding."""
    return isfinite(value) and abs(value - expected) <= tolerance * max(1e-6, abs(expected))


def tensors_close(value: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether two tensors of the same shape are, measured by their largest value."""
    if value.shape != expected.shape or not bool(torch.isfinite(value.double()).all()):
        return False
    scale = expected.double().abs().max().item() if expected.numel() else 0.0
    return bool(((value.double() - expected.double()).abs() <= tolerance * max(1e-6, scale)).all())


def unchanged(value: Any, before: Any) -> bool:
    """Whether an argument is, to the last bit, what it was."""
    if isinstance(before, (torch.Tensor, np.ndarray)):
        if type(value) is not type(before) or value.shape != before.shape or value.dtype != before.dtype:
            return False
        return bool(torch.equal(torch.as_tensor(value), torch.as_tensor(before)))
    if isinstance(before, (list, tuple)):
        pairs = zip(value, before, strict=True) if type(value) is type(before) and len(value) == len(before) else None
        return pairs is not None and all(unchanged(each, other) for each, other in pairs)
    if isinstance(before, dict):
        if type(value) is not dict or list(value) != list(before):
            return False
        return all(unchanged(value[name], before[name]) for name in before)
    if isinstance(before, float) and before != before:
        return type(value) is float and value != value
    return type(value) is type(before) and value == before


def kept(function: str, after: Sequence[Any], before: Sequence[Any], names: Sequence[str]) -> Iterator[Finding]:
    """The arguments are as they were."""
    changed = [
        name for place, name in enumerate(names) if place >= len(after) or not unchanged(after[place], before[place])
    ]
    for name in changed:
        yield Finding(
            "changes-arguments",
            f"After {function}(…), its argument `{name}` is not what it was before.",
            "Who else holds what you were given? Which operations change it in place?",
        )


def of_other_type(function: str, value: Any, wanted: str) -> Finding:
    """It returned something else than was asked for."""
    if value is None:
        return Finding(
            "returns-nothing",
            f"{function}(…) returned nothing (None). It should return {wanted}.",
            "What does a function return that has no `return`, or whose `return` is not reached?",
        )
    return Finding(
        "type", f"{function}(…) returned {described(value)}. It should return {wanted}.", "Which type does it end with?"
    )


def described(value: Any) -> str:
    """What a value is, in words, without what is in it."""
    if isinstance(value, Unknown):
        return f"something of type {value.what}"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {dtype(value)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, (list, tuple, dict)):
        of = f"{_kinds(value)}: {_kinds(value.values())}" if isinstance(value, dict) else _kinds(value)
        return f"a {type(value).__name__} of {len(value)}" + (f" ({of})" if value else "")
    return f"a value of type {type(value).__name__}"


def _kinds(values: Iterable[Any]) -> str:
    """Of which types values are, in words."""
    return ", ".join(list(dict.fromkeys(type(each).__name__ for each in values))[:3])


def figure(value: float) -> str:
    """A number for people: four digits."""
    return f"{value:.4g}"


def _is_row(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.ndim == 1
    return isinstance(value, (list, tuple))


def _items(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return list(value.unbind())
    return list(torch.as_tensor(value).unbind()) if isinstance(value, np.ndarray) else list(value)


def dtype(tensor: torch.Tensor) -> str:
    """The type of a tensor's values in words."""
    return str(tensor.dtype).removeprefix("torch.")

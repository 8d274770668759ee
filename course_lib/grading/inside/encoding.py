"""Values on their way out of the sandbox: msgpack, with tensors as their bytes; nothing that could run code.

Types are kept exactly. What is none of these becomes an `Unknown`, which is equal to nothing but itself, so an object
that claims to be equal to everything gains nothing.
"""

from __future__ import annotations

import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import torch

MOST_BYTES = 1 << 25  # of one value
DEEPEST = 20
LONGEST_RANGE = 100_000
MOST_ITEMS = 1_000_000  # of all lists and dicts: each takes much more memory than the byte that it may have come as
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}  # that one can calculate with
KIND = "\0kind"  # a key that no dict of a student's has by chance


@dataclass(frozen=True, eq=False)
class Unknown:
    """A value that cannot be sent: what type it was of, or why not."""

    what: str


class Room:
    """How many items may still be decoded."""

    def __init__(self) -> None:
        self.left = MOST_ITEMS

    def take(self, items: list[Any]) -> list[Any]:
        """Count these.

        Raises:
            _Full: they are too many.
        """
        self.left -= len(items) + 1
        if self.left < 0:
            raise _Full
        return items


class _Full(Exception):
    """There is no room for more items."""


def encode(value: Any) -> bytes:
    """A value as bytes."""
    content = _packed(_tagged(value, DEEPEST))
    return content if len(content) <= MOST_BYTES else _packed(_unknown(f"more than {MOST_BYTES >> 20} MB"))


def decode(content: bytes, room: Room | None = None) -> Any:
    """The value again; `Unknown` where there is no room for all that is in it.

    Raises:
        ValueError: it is not what `encode` makes.
    """
    room = room or Room()
    try:
        return _plain(
            msgpack.unpackb(
                content,
                unicode_errors="surrogatepass",
                list_hook=room.take,
                object_pairs_hook=lambda pairs: dict(room.take(pairs)),
            )
        )
    except _Full:
        return Unknown(f"a value of more than {MOST_ITEMS:,} items")
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"not an encoded value: {error}") from error


def _packed(tagged: Any) -> bytes:
    content: bytes = msgpack.packb(tagged, unicode_errors="surrogatepass")  # of which Python's texts may have some
    return content


def _tagged(value: Any, depth: int) -> Any:
    value = _as_built_in(value)
    kind = type(value)
    if depth == 0:
        return _unknown("a value that is nested too deeply")
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _unknown("an int of more than 64 bits")
    if kind is list:
        return [_tagged(each, depth - 1) for each in value]
    if kind is tuple:
        return {KIND: "tuple", "items": [_tagged(each, depth - 1) for each in value]}
    if kind in (dict, OrderedDict):
        return {KIND: "dict", "items": [[_tagged(each, depth - 1) for each in pair] for pair in value.items()]}
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _tensor(value.detach())
    if kind is torch.device:
        return str(value)
    if kind is np.ndarray or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
        values = np.asarray(value)
        known = values.dtype.kind in "biuf"
        return {**_tensor(torch.from_numpy(values.copy())), KIND: "array"} if known else _unknown(kind)
    return _unknown(value.what if kind is Unknown else kind)


def _as_built_in(value: Any) -> Any:
    """What a subclass of a built-in type holds: the values of a named tuple, the number of an IntEnum.

    Its own methods are not asked.
    """
    if isinstance(value, (bool, np.generic, torch.Tensor)):
        return value
    plain: tuple[Any, ...] = (int, float, str)
    for kind in plain:
        if isinstance(value, kind) and type(value) is not kind:
            return kind.__getnewargs__(value)[0]
    if isinstance(value, list) and type(value) is not list:
        return list(list.__iter__(value))
    if isinstance(value, tuple) and type(value) is not tuple:
        return tuple(tuple.__iter__(value))
    if isinstance(value, dict) and type(value) is not dict:
        return dict(dict.items(value))
    if type(value) is range and len(value) <= LONGEST_RANGE:
        return list(value)
    if type(value) is array.array:
        return value.tolist()
    return value


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or dtype not in DTYPES or tensor.nbytes > MOST_BYTES:
        return _unknown(f"a tensor of shape {tuple(tensor.shape)} and type {dtype}")
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)  # a view of one value may have any stride
    flat.copy_(tensor.reshape(-1))
    data = flat.view(torch.uint8).numpy().tobytes()
    return {KIND: "tensor", "dtype": dtype, "shape": list(tensor.shape), "data": data}


def _unknown(what: type | str) -> dict[str, Any]:
    return {KIND: "unknown", "what": what if isinstance(what, str) else f"{what.__module__}.{what.__qualname__}"[:200]}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = value[KIND]
    if kind == "tuple":
        return tuple(_plain(each) for each in value["items"])
    if kind == "dict":
        return {_key(name): _plain(each) for name, each in value["items"]}
    if kind in ("tensor", "array"):
        dtype = DTYPES[value["dtype"]]
        data = bytearray(memoryview(value["data"]))  # of bytes only: a number would be a length
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensor = flat.reshape(value["shape"])
        return tensor if kind == "tensor" else tensor.numpy()
    if kind == "unknown":
        return Unknown(str(value["what"]))
    raise ValueError(f"not an encoded value: {kind!r}")


def _key(name: Any) -> Any:
    key = _plain(name)
    if isinstance(key, np.ndarray) and key.ndim == 0:
        key = key.item()  # as a table's index has them
    return key if isinstance(key, (str, int, float, bool, tuple, type(None))) else Unknown(str(type(key)))

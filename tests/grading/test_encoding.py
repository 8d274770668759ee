from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading.inside.encoding import DEEPEST, KIND, MOST_BYTES, Unknown, decode, encode

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(st.characters(codec=None))
KEYS = st.text() | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.none()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)


def same(one: Any, other: Any) -> bool:
    """Equal, of exactly the same types all the way down; a NaN is the same as a NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(
            same(*keys) and same(*values) for keys, values in (zip(*both, strict=True) for both in pairs)
        )
    return bool(one == other)


@given(VALUES)
def test_a_value_comes_back_with_its_exact_types(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(DTYPES), st.booleans())
def test_a_tensor_comes_back_bit_by_bit(shape: list[int], dtype: torch.dtype, as_parameter: bool) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    if as_parameter and dtype.is_floating_point:
        tensor = torch.nn.Parameter(tensor)
    back = decode(encode(tensor))
    assert type(back) is torch.Tensor
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert torch.equal(back, tensor.detach())


def test_a_tensor_that_is_not_laid_out_in_order_comes_back_as_it_is_read() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()[1:, ::2]
    assert torch.equal(decode(encode(tensor)), tensor)


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.float32(1.5), np.int64(3), np.array([], dtype=np.uint8)]
)
def test_numpy_comes_back_as_numpy(array: Any) -> None:
    back = decode(encode(array))
    assert type(back) is np.ndarray
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Text(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Number(float):
    pass


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        EqualToAll(),
        {1, 2},
        print,
        2**64,
        np.array(["text"]),
        torch.zeros(3).as_subclass(Sub),
        1j,
    ],
)
def test_what_is_of_no_known_type_is_equal_to_nothing(value: Any) -> None:
    back = decode(encode([value]))[0]
    assert type(back) is Unknown
    assert back != value or type(value) in (EqualToAll, Text)
    assert back not in [1, "right", 1.0, None, Unknown(back.what)]


def test_what_is_nested_too_deeply_is_cut_off() -> None:
    value: Any = 1
    for _ in range(DEEPEST + 5):
        value = [value]
    back = decode(encode(value))
    depth = 0
    while type(back) is list:
        back, depth = back[0], depth + 1
    assert depth == DEEPEST
    assert type(back) is Unknown
    loop: list[Any] = []
    loop.append(loop)
    assert type(decode(encode(loop))) is list


def test_what_is_too_large_does_not_get_out() -> None:
    assert type(decode(encode(torch.zeros(MOST_BYTES + 1, dtype=torch.uint8)))) is Unknown
    content = encode(["x" * MOST_BYTES] * 2)
    assert len(content) < 1000
    assert type(decode(content)) is Unknown


@given(st.binary(max_size=60) | VALUES.map(encode).map(lambda content: content[:-1]))
def test_anything_else_is_no_value(content: bytes) -> None:
    try:
        decode(content)
    except ValueError:
        pass


@pytest.mark.parametrize(
    "content",
    [
        {"a": 1},
        {KIND: "tensor", "dtype": "float32", "shape": [9], "data": bytes(4)},
        {KIND: "tensor", "dtype": "load", "shape": [1], "data": bytes(4)},
        {KIND: "tensor", "dtype": "float32", "shape": [1 << 60], "data": 1 << 62},
        {KIND: "code"},
        b"bytes",
        msgpack.ExtType(5, b"code"),
        msgpack.Timestamp(0),
    ],
)
def test_what_no_encoder_makes_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="not an encoded value"):
        decode(msgpack.packb(content))


def test_what_is_nested_for_ever_is_refused() -> None:
    with pytest.raises(ValueError, match="not an encoded value"):
        decode(b"\x91" * 100_000)


@pytest.mark.parametrize(("value", "plain"), [(Text("right"), "right"), (Number(1.0), 1.0)])
def test_what_is_made_from_a_built_in_type_comes_back_as_that(value: Any, plain: Any) -> None:
    """Its own ideas of what it is equal to stay where they were."""
    back = decode(encode(value))
    assert type(back) is type(plain)
    assert back == plain
    assert back != "wrong"

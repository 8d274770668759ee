"""What functions return comes out of the sandbox as it was, whatever a learner may choose; and nothing else does."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from enum import IntEnum

import numpy as np
import pytest
import torch

from course_lib.grading.inside.encoding import Unknown, decode, encode

Point = namedtuple("Point", "x y")


class Rank(IntEnum):
    LAST = 3


class EqualToAll(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2), (1, 2)),
        (Rank.LAST, 3),
        (EqualToAll(2.5), 2.5),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, {2: [1]}), {2: [1]}),
        ({np.int64(4): 1.0}, {4: 1.0}),
        (range(3), [0, 1, 2]),
        (torch.Size([2, 3]), (2, 3)),
    ],
)
def test_relatives_of_built_in_types_come_as_these(value, plain):
    found = decode(encode(value))
    assert type(found) is type(plain)
    assert found == plain


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, dtype=torch.long),
        torch.where(torch.empty(0, dtype=torch.bool), 1, 2),
        torch.arange(12).flip(0)[1::12],  # one value, in a stride of twelve
        torch.arange(12).view(3, 4).t(),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.ones(3, requires_grad=True),
    ],
)
def test_tensors_come_whatever_they_are_views_of(tensor):
    found = decode(encode(tensor))
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor.detach())


@pytest.mark.parametrize("value", [{1, 2}, iter([1]), object(), range(10**12)])
def test_what_is_none_of_these_is_unknown(value):
    assert isinstance(decode(encode(value)), Unknown)

"""The memory of this process in large pages: a fork then copies few entries of its table, and an end frees few."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = 2 << 20  # bytes of a large page
_MADV_COLLAPSE = 25  # from asm-generic/mman-common.h; Linux 6.1 and later


def collapse() -> None:
    """Put all memory of this process's own into large pages, where the system can (on Linux)."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for begin, end in _own():
        first, last = -(-begin // SIZE) * SIZE, end // SIZE * SIZE
        if first < last:
            advise(first, last - first, _MADV_COLLAPSE)  # where it is refused, all stays as it is


def _own() -> Iterator[tuple[int, int]]:
    """Where the heap and what else no file is behind begin and end."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *others = line.split()
        if rights == "rw-p" and (len(others) == 3 or others[3] == "[heap]"):
            begin, end = (int(each, 16) for each in addresses.split("-"))
            yield begin, end

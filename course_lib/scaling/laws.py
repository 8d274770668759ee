"""The laws of parallel speedup, each one line; numbers or arrays of them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

Number = TypeVar("Number", float, np.ndarray)


def amdahl(ranks: Number, serial_fraction: float) -> Number:
    """The speedup of a fixed amount of work, of which this fraction cannot be divided: 1 / (f + (1 - f) / N).

    Amdahl 1967, Validity of the single processor approach to achieving large scale computing capabilities.
    """
    return 1 / (serial_fraction + (1 - serial_fraction) / ranks)


def gustafson(ranks: Number, serial_fraction: float) -> Number:
    """The speedup where the work grows with the ranks, as in weak scaling: N - f (N - 1).

    `serial_fraction` is of the time on N ranks. Gustafson 1988, Reevaluating Amdahl's law, CACM 31(5).
    """
    return ranks - serial_fraction * (ranks - 1)


def karp_flatt(speedup: Number, ranks: Number) -> Number:
    """The serial fraction that a measured speedup on N > 1 ranks amounts to: (1 / S - 1 / N) / (1 - 1 / N).

    Where it grows with N, it is not serial work that limits the speedup but what ranks cost each other. Karp and Flatt
    1990, Measuring parallel processor performance, CACM 33(5).
    """
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)

"""How long a link needs for a message, and the link that a table of measured times tells of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, log2

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from course_lib.errors import ConfigError, FitError
from course_lib.scaling.tables import measurements, numbers

KINDS = ("all_reduce", "point_to_point")
# What one TCP stream keeps on its way. Gloo, which sends over one stream, moved 152 MB/s over a round trip of 10 ms and
# 282 MB/s over 5 ms (64 to 128 MiB between two hosts, tc_cluster_setting, results/p2p.md): 1.5 MB a round trip.
STREAM_WINDOW_BYTES = 1.5e6
INITIAL_WINDOW_BYTES = 10 * 1460  # ten segments: RFC 6928, and Linux
# Slow start doubles the window in each round trip (RFC 5681, section 3.1); one more tells the sender to begin.
STARTUP_ROUND_TRIPS = 1 + log2(STREAM_WINDOW_BYTES / INITIAL_WINDOW_BYTES)
# Shorter start-ups come from launches and buffers, not from a long way that fills a window.
SHORTEST_SLOW_START_S = 1e-3
SIZES_FOR_PIECES = 4  # fewer message sizes cannot tell the cost of pieces from the other three parts


@dataclass(frozen=True)
class Link:
    """What carries messages from one rank to the next.

    A message of S bytes takes `latency_s + startup_s + S/B + 2 sqrt(piece_s S/B)`, with B the bandwidth.
    The root is the price of cutting a message in k pieces, so that pieces overlap on their way: k pieces cost
    k piece_s, and the first one, S/(kB) long, overlaps with nothing; the best k gives the root. It makes the
    effective bandwidth rise over five decades of sizes, as NCCL's does, which the line `latency + S/B` cannot
    (Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994).

    Attributes:
        latency_s: seconds before the first byte of any message; a collective pays it at every hop.
        bandwidth_bytes_per_s: of endless messages. Between nodes it is what a whole node sends at once.
        piece_s: seconds for each piece of a long message.
        startup_s: seconds until a stream of large messages flows; paid once a pass, not at every hop.
        window_bytes: what may be on its way unacknowledged; None where nothing limits it.
        round_trip_s: until an acknowledgement is back, while all send. No more than `window_bytes` go in that time.

    Raises:
        ConfigError: a value is negative or not finite, or the bandwidth or the window is 0.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    piece_s: float = 0.0
    startup_s: float = 0.0
    window_bytes: float | None = None
    round_trip_s: float = 0.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if name == "window_bytes" and value is None:
                continue
            above_zero = name in ("bandwidth_bytes_per_s", "window_bytes")
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not (number and 0 <= value < inf and (value > 0 or not above_zero)):
                least = "above 0" if above_zero else "of 0 or more"
                raise ConfigError(f"{name} of a link must be a finite number {least}, not {value!r}.")

    def transfer_seconds(self, bytes: np.ndarray) -> np.ndarray:
        """Seconds that messages of this many bytes occupy the link, without the latency."""
        wire = bytes / self.bandwidth_bytes_per_s
        seconds = self.startup_s + wire + 2 * np.sqrt(self.piece_s * wire)
        if self.window_bytes is None:
            return seconds
        return np.maximum(seconds, bytes * (self.round_trip_s / self.window_bytes))


def fit_link(frame: pd.DataFrame, kind: str = "all_reduce") -> Link:
    """The link that explains measured times, with errors relative to them, since they span decades.

    What the times cannot tell is left at 0: one row gives the bandwidth, two rows an intercept too, four sizes
    also `piece_s`. Fit over the sizes in use: the bandwidth of endless messages does not show in short ones.

    An intercept is `latency_s` if messages shorter than a stream's window were measured. Large messages alone show
    the start-up of the stream, which says nothing of a hop. If it is as long as a TCP stream's slow start, the round
    trip follows from it, and with it the limit that the window sets (see `_window`).

    Args:
        frame: rows of one link. Columns `bytes` of the message, `seconds`; for all-reduces also `ranks` and, if known,
            `nodes`. Rows with a missing value, and all-reduces of one rank, are left out.
        kind: "all_reduce" inverts the formula of the ring; "point_to_point" is for single sends.

    Raises:
        FitError: a column is missing or not positive, no row is left, rows of two links are mixed, or the
            times do not grow with the bytes.
    """
    if kind not in KINDS:
        raise FitError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}.")
    single = kind == "point_to_point"
    bytes, seconds, hops, passes, ranks = _sends(frame) if single else _rings(frame)
    message = bytes if single else bytes / ranks
    short = bool((message < STREAM_WINDOW_BYTES).any() or (np.ptp(bytes) == 0 and np.ptp(ranks) > 0))
    terms = {"bandwidth": passes * bytes}
    if len(np.unique(np.stack([bytes, ranks]), axis=1).T) > 1:
        terms |= {"latency": hops} if short else {"startup": passes}
    pieces = {"pieces": passes * np.sqrt(bytes)} if short and len(np.unique(bytes)) >= SIZES_FOR_PIECES else {}
    found = _least_relative_squares(terms | pieces, seconds)
    if not found["bandwidth"]:  # the root took all
        found = _least_relative_squares(terms, seconds)
    if not found["bandwidth"]:
        raise FitError("The times do not grow with the bytes, so they tell no bandwidth. Add larger messages.")
    bandwidth = 1 / found["bandwidth"]
    startup = found.get("startup", 0.0)
    window, round_trip = _window(startup, bandwidth) if single else (None, 0.0)
    return Link(
        latency_s=found.get("latency", 0.0),
        bandwidth_bytes_per_s=bandwidth,
        piece_s=found.get("pieces", 0.0) ** 2 * bandwidth / 4,
        startup_s=startup,
        window_bytes=window,
        round_trip_s=round_trip,
    )


def _window(startup_s: float, bandwidth: float) -> tuple[float | None, float]:
    """The window and the round trip, while all send, of a stream whose lone sends start up that slowly.

    The start-up is a number of round trips. More than two windows in each of them are no single stream (NCCL opens
    several), and their window is not known. Delay is imposed at each host on what leaves it (tc netem). A lone
    send meets it once, on the data or on the acknowledgements; in a collective every host sends, both meet it, and
    a window takes twice as long to be acknowledged. That is why gloo's all-reduce under delay is slower
    than its single sends promise.
    """
    round_trip = startup_s / STARTUP_ROUND_TRIPS
    on_the_way = bandwidth * round_trip
    if startup_s < SHORTEST_SLOW_START_S or on_the_way > 2 * STREAM_WINDOW_BYTES:
        return None, 0.0
    return max(STREAM_WINDOW_BYTES, on_the_way), 2 * round_trip


def _sends(frame: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Bytes, seconds, hops, passes over the link, and ranks of each single send."""
    table = measurements(frame, "bytes", "seconds")
    one = np.ones(len(table))
    return table["bytes"].to_numpy(), table["seconds"].to_numpy(), one, one, 2 * one


def _rings(frame: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Bytes, seconds, hops, passes over the link, and ranks of each all-reduce in a ring.

    On several nodes the link is the one between nodes: hops inside them are so much shorter that they are left out.
    """
    frame = frame.reset_index(drop=True)  # tables put one below the other say each index twice
    table = measurements(frame, "bytes", "seconds", "ranks")
    table["nodes"] = numbers(frame, "nodes")["nodes"].reindex(table.index) if "nodes" in frame else np.nan
    table = table[table["ranks"] > 1]
    if not len(table):
        raise FitError("The table has no all-reduce of two or more ranks, so it tells nothing of a link.")
    several = table["nodes"] > 1
    if several.any() and (table["nodes"] == 1).any():
        raise FitError("Rows on one node and on several tell of two links. Fit each of them on its own rows.")
    bytes, seconds, ranks, nodes = table[["bytes", "seconds", "ranks", "nodes"]].to_numpy().T
    return bytes, seconds, 2 * (np.where(several, nodes, ranks) - 1), 2 * (ranks - 1) / ranks, ranks


def _least_relative_squares(terms: dict[str, np.ndarray], seconds: np.ndarray) -> dict[str, float]:
    """The coefficients, none negative, whose sum of terms has the least squared error relative to the seconds."""
    columns = np.stack(list(terms.values()), axis=1) / seconds[:, None]
    scale = columns.max(axis=0)
    coefficients, _ = nnls(columns / scale, np.ones(len(seconds)))
    return dict(zip(terms, map(float, coefficients / scale), strict=True))

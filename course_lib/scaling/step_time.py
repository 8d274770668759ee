"""How long a step takes on N GPUs: compute, waiting for the slowest, and what of communication is not hidden."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from course_lib.errors import FitError
from course_lib.scaling.buckets import BUCKET_BYTES, bucket_sizes
from course_lib.scaling.collectives import Cluster, Link, all_reduce_seconds
from course_lib.scaling.fitting import Fit, Prior, doublings, fit_positive, interval, known
from course_lib.scaling.hardware import Hardware
from course_lib.scaling.stragglers import expected_max
from course_lib.scaling.tables import measurements, numbers, positive

# A backward pass costs twice a forward pass: gradients by activations and by weights (Kaplan et al. 2020, arXiv
# 2001.08361, section 2.1).
BACKWARD_SHARE = 2 / 3
EXPECTED_NOISE = 0.02  # relative, of a measured step on a quiet machine; what a table has more, it shows
# Of the GPUs; chosen on Pollux's traces for intervals that cover, see benchmarks/scaling_accuracy.py.
DRIFT_PER_DOUBLING = 0.04
SHORTEST_S = 1e-6  # parameters are positive: what a profile calls nothing is this long

# What is known of the parameters beforehand, in their order; the first three are set by the table at hand.
USUAL = {
    "overhead_s": Prior(0.3, 7),  # of the shortest step
    "sample_s": Prior(1, 7),  # of the median step, per sample
    "transfer_s": Prior(0.05, 7),  # of the shortest step
    "inter_transfer_s": Prior(1.2, 2.5, of="transfer_s"),  # networks mostly match their nodes; a cloud's may not
    "intra_hop_s": Prior(2e-5, 2),  # NCCL's tuning.cc: 4 to 8 us a message, a few buckets
    "inter_hop_s": Prior(1e-4, 2),
    "straggling": Prior(0.02, 2.7),
    "sharing": Prior(0.01, 2.7),
    "contention": Prior(0.2, 2),  # Echo (2024), table 2: kernels run 1.38 to 1.48 times as long while they overlap
}


@dataclass(frozen=True)
class StepTimeModel:
    """The time of a step from nine parameters, each of which is something that can be measured.

    On N GPUs, g on each node, with b samples on each:

        compute       C = (overhead + sample b) (1 + sharing (g-1))      the GPUs of a node share a host
        stragglers    W = C straggling E[max of N standard normals]      all wait for the slowest
        all-reduce    A = ring or tree, as collectives.py has them, over links that need `transfer` and,
                          between nodes, `inter_transfer` seconds for the gradient
        hidden        H = min(backward, (1 - tail) A)                    the last bucket has nothing to hide behind
        step          T = C + W + A - (1 - contention) H                 what overlaps is slowed down by it

    With accumulation over k passes, (k-1) (C+W) more, without communication. DDP's own cost is in the overhead.

    Attributes:
        fitted: the parameters, in the order of `USUAL`, and how certain they are.
        tail: the share of the all-reduce that no backward pass can hide.
        largest: the most GPUs it was fitted to.
    """

    fitted: Fit
    tail: float
    largest: float

    @classmethod
    def fit(cls, frame: pd.DataFrame, cluster: Cluster | None = None) -> StepTimeModel:
        """Fit to measured steps: one row a measurement, of one model on one kind of machine.

        Args:
            frame: columns `nodes`, `gpus` (on all nodes together), `local_batch` (samples per GPU and pass) and
                `step_time_s`; where known, `sync_time_s` (what the step took beyond its compute), `gradient_bytes` and
                `accumulation`.
            cluster: its links, where they are known. Needed to predict for several nodes from a table of one:
                otherwise all there is to go by is that networks mostly suit their nodes.

        Raises:
            FitError: a column is missing or holds something else, or rows differ in `gradient_bytes`.
        """
        frame = frame.reset_index(drop=True)  # tables put one below the other say each index twice
        table = frame.loc[measurements(frame, "nodes", "gpus", "local_batch", "step_time_s").index]
        layout, seconds = _Layout.of(table), table["step_time_s"].to_numpy(float)
        gradient_bytes = _gradient_bytes(table)
        tail = _tail(gradient_bytes)
        compute, timed = _measured_compute(table, seconds)

        def predict(values: np.ndarray) -> np.ndarray:
            one, late, exposed = _parts(values, layout, tail)
            return np.concatenate([one + late + exposed, one[timed]])

        priors = _priors(seconds, layout, cluster, gradient_bytes)
        placements = len(np.unique(np.stack([layout.nodes, layout.gpus]), axis=1).T)
        observed = np.concatenate([seconds, compute])
        fitted = fit_positive(predict, observed, priors, EXPECTED_NOISE, groups=placements, aside=len(compute))
        return cls(fitted, tail, float(layout.gpus.max()))

    @classmethod
    def of(cls, hardware: Hardware, flops_per_sample: float, gradient_bytes: float) -> StepTimeModel:
        """What the profile of a machine promises, where nothing was measured.

        Args:
            hardware: its profile (see hardware.py).
            flops_per_sample: floating-point operations of forward and backward on one sample.
            gradient_bytes: size of the gradient: four bytes a parameter, in fp32.
        """
        promised = {
            "overhead_s": Prior(max(hardware.step_overhead_s, SHORTEST_S), 1.5),
            "sample_s": Prior(flops_per_sample / hardware.flops_per_s, 1.5),
            **_link_priors(hardware.cluster, gradient_bytes),
        }
        fitted = known(USUAL | promised, EXPECTED_NOISE)
        return cls(fitted, _tail(gradient_bytes), float(hardware.cluster.gpus_per_node))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> StepTimeModel:
        """The model that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        fitted = Fit.from_dict(content["fitted"])
        if fitted.values.shape != (len(USUAL),) or fitted.covariance.shape != (len(USUAL), len(USUAL)):
            raise ValueError(f"It has {fitted.values.size} parameters, and {len(USUAL)} are needed.")
        tail, largest = float(content["tail"]), float(content["largest"])
        if not 0 <= tail <= 1 or not 1 <= largest < np.inf:
            raise ValueError(f"Its tail is {tail:g} and its largest number of GPUs {largest:g}, which cannot be.")
        return cls(fitted, tail, largest)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return {"fitted": self.fitted.to_dict(), "tail": self.tail, "largest": self.largest}

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(zip(USUAL, map(float, self.fitted.values), strict=True))

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The step of each row of `nodes, gpus, local_batch` and, where it is there, `accumulation`; the index is kept.

        Returns:
            `step_time_s`, the bounds `low` and `high` of the 80 % interval of a measurement, `throughput` (samples/s of
            all GPUs), and what the step consists of: `compute_s`, `straggler_s` and `communication_s` (not hidden).

        Raises:
            FitError: a column is missing or holds something else, or a time is no finite number.
        """
        layout = _Layout.of(frame)
        drift = DRIFT_PER_DOUBLING * doublings(layout.gpus, self.largest)
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            step, low, high = interval(lambda values: _step(values, layout, self.tail), self.fitted, drift)
        if not np.isfinite([step, low, high]).all():
            raise FitError("A step would take no finite time, so figures of the hardware cannot be. Calibrate anew.")
        compute, waiting, exposed = _parts(self.fitted.values, layout, self.tail)
        samples = layout.gpus * layout.local_batch * layout.accumulation
        columns = {"step_time_s": step, "low": low, "high": high, "throughput": samples / step}
        split = {"compute_s": compute, "straggler_s": waiting, "communication_s": exposed}
        return pd.DataFrame(columns | split, index=frame.index)


@dataclass(frozen=True)
class _Layout:
    """Where a step runs, and on what: arrays [n]. `slowest` is the expected largest of `gpus` standard normals."""

    nodes: np.ndarray
    gpus: np.ndarray
    local_batch: np.ndarray
    accumulation: np.ndarray
    slowest: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _Layout:
        names = ("nodes", "gpus", "local_batch", "accumulation")
        given = frame if "accumulation" in frame else frame.assign(accumulation=1.0)
        table = positive(given.assign(accumulation=given["accumulation"].fillna(1.0)), *names)
        if len(table) < len(frame):
            raise FitError("nodes, gpus and local_batch must be known in every row.")
        if (table["gpus"] < table["nodes"]).any():
            raise FitError("gpus counts those of all nodes together, so it cannot be below nodes.")
        columns = {name: table[name].to_numpy() for name in names}
        return cls(**columns, slowest=expected_max(columns["gpus"]))


def _step(values: np.ndarray, layout: _Layout, tail: float) -> np.ndarray:
    return np.add.reduce(_parts(values, layout, tail))


def _parts(values: np.ndarray, layout: _Layout, tail: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of compute, of waiting for stragglers and of communication that is not hidden; see StepTimeModel."""
    overhead, sample, transfer, inter_transfer, intra_hop, inter_hop, straggling, sharing, contention = values
    nodes, gpus = layout.nodes, layout.gpus
    one_pass = (overhead + sample * layout.local_batch) * (1 + sharing * (gpus / nodes - 1))
    late = one_pass * straggling * layout.slowest
    # Links that send one gradient in `transfer` seconds: the bytes are 1.
    cluster = Cluster(1, Link(intra_hop, 1 / transfer), Link(inter_hop, 1 / inter_transfer))
    all_reduce = all_reduce_seconds(1, gpus, cluster, nodes=nodes)
    hidden = np.minimum(BACKWARD_SHARE * (one_pass + late), (1 - tail) * all_reduce)
    exposed = all_reduce - (1 - np.minimum(contention, 1)) * hidden
    return layout.accumulation * one_pass, layout.accumulation * late, exposed


def _tail(gradient_bytes: float | None) -> float:
    """The share of the all-reduce that waits for the end of the backward pass.

    It is the last of B buckets. Of equal buckets it would be 1/B; but most parameters lie near the output, whose
    gradients come first, and most time near the input, so that the buckets before it are long on their way by then:
    1/B^2. With a single bucket nothing can be hidden. Where the size is not known all can be.
    """
    return 0.0 if gradient_bytes is None else 1 / len(bucket_sizes(gradient_bytes)) ** 2


def _measured_compute(table: pd.DataFrame, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What steps took without their sync time, and in which rows that is known."""
    if "sync_time_s" not in table:
        return np.array([]), np.zeros(len(table), bool)
    compute = seconds - numbers(table, "sync_time_s")["sync_time_s"].to_numpy()
    timed = (compute > 0) & (compute <= seconds)
    return compute[timed], timed


def _gradient_bytes(table: pd.DataFrame) -> float | None:
    if "gradient_bytes" not in table:
        return None
    sizes = numbers(table, "gradient_bytes")["gradient_bytes"].dropna().unique()
    if len(sizes) > 1:
        raise FitError("Rows differ in gradient_bytes, so they are of different models. Fit each on its own rows.")
    return float(sizes[0]) if len(sizes) else None


def _priors(
    seconds: np.ndarray, layout: _Layout, cluster: Cluster | None, gradient_bytes: float | None
) -> dict[str, Prior]:
    """What is known before the fit: from the order of magnitude of the steps, and from the links."""
    shortest = float(seconds.min())
    scale = {
        "overhead_s": shortest,
        "sample_s": float(np.median(seconds / layout.local_batch / layout.accumulation)),
        "transfer_s": shortest,
    }
    priors = {name: replace(prior, median=prior.median * scale.get(name, 1)) for name, prior in USUAL.items()}
    return priors | (_link_priors(cluster, gradient_bytes) if cluster else {})


def _link_priors(cluster: Cluster, gradient_bytes: float | None) -> dict[str, Prior]:
    """What the links say of a gradient's way: in DDP not more than within a factor of two."""
    buckets = bucket_sizes(gradient_bytes or BUCKET_BYTES)
    intra, inter = (float(link.transfer_seconds(buckets).sum()) for link in (cluster.intra, cluster.inter))
    hops = {
        f"{name}_hop_s": Prior(max(link.latency_s, SHORTEST_S) * len(buckets), 2)
        for name, link in (("intra", cluster.intra), ("inter", cluster.inter))
    }
    if gradient_bytes is None:  # then only how many times as long it takes between nodes is known
        return {"inter_transfer_s": Prior(inter / intra, 2, of="transfer_s"), **hops}
    return {"transfer_s": Prior(intra, 2), "inter_transfer_s": Prior(inter, 2), **hops}

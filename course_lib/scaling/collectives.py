"""How long an all-reduce takes, by algorithm, on a cluster of nodes.

The formulae are those of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
in MPICH" (IJHPCA 19, 2005), with the latencies that NCCL counts (src/graph/tuning.cc) on machines with two
kinds of link. N ranks on k nodes, g on each of them, reduce S bytes; T is how long a link needs for S bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from course_lib.errors import CollectiveError, ConfigError
from course_lib.scaling.links import Link, fit_link

__all__ = ["ALGORITHMS", "Cluster", "Link", "all_reduce_seconds", "fit_link"]

ALGORITHMS = ("auto", "ring", "tree", "halving_doubling", "hierarchical")
# NCCL's tuning.cc takes a tree to reach this much of the bandwidth of a ring.
TREE_BANDWIDTH = 0.92


@dataclass(frozen=True)
class Cluster:
    """Nodes that are alike, any number of them.

    Attributes:
        gpus_per_node: GPUs of one node, which are filled one node after the other.
        intra: the link between the GPUs of a node.
        inter: the link between nodes; its bandwidth is that of all network cards of a node together.

    Raises:
        ConfigError: the number of GPUs is not whole or below 1, or a link is none.
    """

    gpus_per_node: int
    intra: Link
    inter: Link

    def __post_init__(self) -> None:
        gpus: object = self.gpus_per_node
        if isinstance(gpus, bool) or not isinstance(gpus, (int, np.integer)) or gpus < 1:
            raise ConfigError(f"gpus_per_node must be a whole number of 1 or more, not {gpus!r}.")
        links: dict[str, object] = {"intra": self.intra, "inter": self.inter}
        for name, link in links.items():
            if not isinstance(link, Link):
                raise ConfigError(f"{name} must be a Link(latency_s, bandwidth_bytes_per_s), not {link!r}.")


@dataclass(frozen=True)
class _Job:
    """All-reduces to be timed: arrays of one shape, and how long each kind of link needs for the bytes."""

    ranks: np.ndarray
    nodes: np.ndarray
    cluster: Cluster
    intra_s: np.ndarray
    inter_s: np.ndarray

    @property
    def slowest_s(self) -> np.ndarray:
        """Of the links in use. A link inside nodes is not if each has one rank, nor one between nodes on one node."""
        return np.maximum(
            np.where(self.ranks > self.nodes, self.intra_s, 0.0), np.where(self.nodes > 1, self.inter_s, 0.0)
        )


def all_reduce_seconds(
    bytes: ArrayLike, ranks: ArrayLike, cluster: Cluster, algorithm: str = "auto", nodes: ArrayLike | None = None
) -> float | np.ndarray:
    """Seconds of an all-reduce; none for one rank.

    Args:
        bytes: size of the tensor on each rank. `bytes`, `ranks` and `nodes` may be arrays and broadcast.
        ranks: how many ranks take part.
        cluster: the nodes they run on.
        algorithm: "ring": 2(N-1) hops and 2(N-1)/N T of the slowest link; what gloo does. "tree": NCCL's trees between
            nodes. "halving_doubling": 2 log2(N) hops. "hierarchical": reduce-scatter in each node, rings between nodes,
            all-gather. "auto": the faster of ring and tree, the two that NCCL chooses between where no switch reduces.
        nodes: over how many nodes the ranks spread as evenly as possible; by default as few as hold them.

    Returns:
        A float if all inputs are numbers, else an array of the shape they broadcast to.

    Raises:
        CollectiveError: bytes are negative or not finite, ranks or nodes not whole or below 1, nodes
            outnumber ranks, shapes do not broadcast, or there is no such algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise CollectiveError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}.")
    size, world = _numbers("bytes", bytes, least=0), _whole_numbers("ranks", ranks)
    spread = np.ceil(world / cluster.gpus_per_node) if nodes is None else _whole_numbers("nodes", nodes)
    try:
        size, world, spread = np.broadcast_arrays(size, world, spread)
    except ValueError as error:
        shapes = f"bytes {size.shape}, ranks {world.shape}, nodes {spread.shape}"
        raise CollectiveError(f"These shapes do not broadcast to one: {shapes}.") from error
    if (spread > world).any():
        raise CollectiveError("There are more nodes than ranks. Each node needs at least one rank.")
    job = _Job(world, spread, cluster, cluster.intra.transfer_seconds(size), cluster.inter.transfer_seconds(size))
    seconds = np.where(world > 1, _FORMULAE[algorithm](job), 0.0)
    return seconds if seconds.ndim else float(seconds)


def _ring(job: _Job) -> np.ndarray:
    """Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (JPDC 69, 2009): 2(N-1) hops, 2(N-1)/N T.

    All links work at the same time, so the slowest sets the pace. Of the hops, NCCL counts 2(k-1) between nodes.
    """
    ranks, nodes = job.ranks, job.nodes
    hops = 2 * (ranks - nodes) * job.cluster.intra.latency_s + 2 * (nodes - 1) * job.cluster.inter.latency_s
    return hops + 2 * (ranks - 1) / ranks * job.slowest_s


def _tree(job: _Job) -> np.ndarray:
    """NCCL's tuning.cc: 2((N/k-1) intra + log2(k) inter) of latency, and S bytes up and S bytes down each link."""
    cluster = job.cluster
    hops = (job.ranks / job.nodes - 1) * cluster.intra.latency_s + np.log2(job.nodes) * cluster.inter.latency_s
    return 2 * hops + 2 * job.slowest_s / TREE_BANDWIDTH


def _halving_doubling(job: _Job) -> np.ndarray:
    """Rabenseifner's, in Thakur et al.: 2 log2(N) hops, 2(N-1)/N T; with near partners, those of the node, first.

    Counts that are no power of two pay for the hops of the next one.
    """
    per_node = np.ceil(job.ranks / job.nodes)
    return _by_level(job, per_node, np.ceil(np.log2(per_node)), np.ceil(np.log2(job.nodes)))


def _hierarchical(job: _Job) -> np.ndarray:
    """Rings in two levels (Cho et al., "BlueConnect", MLSys 2019): 2(g-1) + 2(k-1) hops, 2(g-1)/g T + 2(k-1)/k T.

    Between nodes each of a node's ranks reduces its S/g bytes, all of them at once over the network of the node.
    """
    per_node = np.ceil(job.ranks / job.nodes)
    return _by_level(job, per_node, per_node - 1, job.nodes - 1)


def _by_level(job: _Job, per_node: np.ndarray, hops_intra: np.ndarray, hops_inter: np.ndarray) -> np.ndarray:
    """Reduce-scatter and all-gather inside nodes around those between nodes: one level works at a time."""
    intra = hops_intra * job.cluster.intra.latency_s + (per_node - 1) / per_node * job.intra_s
    inter = hops_inter * job.cluster.inter.latency_s + (job.nodes - 1) / job.nodes * job.inter_s
    return 2 * (intra + inter)


def _auto(job: _Job) -> np.ndarray:
    return np.minimum(_ring(job), _tree(job))


_FORMULAE = {
    "auto": _auto,
    "ring": _ring,
    "tree": _tree,
    "halving_doubling": _halving_doubling,
    "hierarchical": _hierarchical,
}


def _numbers(name: str, values: ArrayLike, least: int) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise CollectiveError(f"{name} must be numbers, not {values!r}.") from error
    if not ((array >= least) & (array < np.inf)).all():
        raise CollectiveError(f"{name} must be finite numbers of {least} or more, not {values!r}.")
    return array


def _whole_numbers(name: str, values: ArrayLike) -> np.ndarray:
    array = _numbers(name, values, least=1)
    if (array != np.floor(array)).any():
        raise CollectiveError(f"{name} must be whole numbers, not {values!r}.")
    return array

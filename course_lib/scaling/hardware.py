"""Profiles of well-known hardware: what a node of GPUs computes and how it is connected, each with its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from typing import Any

from course_lib.errors import ConfigError
from course_lib.scaling.collectives import Cluster, Link


@dataclass(frozen=True)
class Hardware:
    """A kind of node, any number of which make a cluster.

    Attributes:
        name: what `find` knows it by.
        title: what people read.
        cluster: the GPUs of a node and the links inside and between nodes.
        flops_per_s: what one GPU achieves in training, not its peak. A multiplication and an addition are two
            operations, and backward costs twice what forward does (`TRAINING_FLOPS_OF_RESNET50`).
        autocast_flops_per_s: the same under autocast to bf16 or fp16.
        step_overhead_s: of a step, whatever the batch: launches of kernels, Python, the optimizer.
        memory_bytes: of one GPU.
        sources: where each figure is from, or how it was estimated.

    Raises:
        ConfigError: a figure is not a finite number above 0 (the overhead: of 0 or more).
    """

    name: str
    title: str
    cluster: Cluster
    flops_per_s: float
    autocast_flops_per_s: float
    step_overhead_s: float
    memory_bytes: float
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("flops_per_s", "autocast_flops_per_s", "step_overhead_s", "memory_bytes"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value < inf or (value == 0 and name != "step_overhead_s"):
                raise ConfigError(f"{name} of hardware {self.name!r} must be a finite number above 0, not {value!r}.")

    def in_precision(self, precision: str) -> Hardware:
        """The same hardware with `flops_per_s` as it is in a precision of RunConfig: "fp32", "bf16" or "fp16"."""
        return self if precision == "fp32" else replace(self, flops_per_s=self.autocast_flops_per_s)


# He et al. 2015 (arXiv 1512.03385, table 1) and torchvision give a forward pass of ResNet-50 on a 224x224 image as
# 4.1e9 with a multiplication and an addition counted as one: 8.2e9 operations, and backward twice that.
TRAINING_FLOPS_OF_RESNET50 = 3 * 2 * 4.1e9
_RESNET50 = "flops_per_s: {} images/s of ResNet-50 on one GPU in fp32{}, {} under autocast, at 24.6 GFLOP an image"
_LAMBDA = " (lambdal/deeplearning-benchmark @ aa5addb6a536, pytorch-train-throughput-fp32.csv and -fp16.csv)."
_ESTIMATED = (
    "flops_per_s: estimated, not measured: the A100's times the ratio of memory bandwidths, {} to 2.04 TB/s ({}), "
    "since memory bounds ResNet-50. From the V100 to the A100 that rule is 19 % too high under autocast."
)
# A step of ResNet-50 at batch 32 takes 97 ms on a V100 (pytorch benchmarks/distributed/ddp/README.md), 10 more than
# 32 images at its rate with large batches: 64 us for each of its 161 parameter tensors.
STEP_OVERHEAD_S = 30 * 64e-6
_OVERHEAD = (
    "step_overhead_s: for a small network of 30 parameter tensors, at 64 us each: ResNet-50 has 161, and at batch 32 "
    "on a V100 takes 10 ms more than at its rate at large ones (pytorch benchmarks/distributed/ddp/README.md, lambdal)."
)
# Fitted (fit_link) to NCCL's times on 8 A100s, 32 KiB to 16 GiB: stas00/ml-engineering network/README.md.
_PIECE_S = 8.6e-6
_NVLINK_HOP_S = 3.4e-6
_NET_HOP_S = 14e-6
_HOPS = (
    "latencies: NCCL's own constants for hops of a ring with its Simple protocol, 3.4 us over NVLink and 14 us over a "
    "network (NVIDIA/nccl src/graph/tuning.cc @ 5067397c2676). Cost of pieces: fitted to NCCL on 8 A100s."
)
LINE_RATE_SHARE = 0.9
_SHARE = "network: 90 % of the line rate of {} is assumed to reach the tensors."


def _nvlink(bytes_per_s: float) -> Link:
    return Link(_NVLINK_HOP_S, bytes_per_s, piece_s=_PIECE_S)


def _network(bits_per_s: float) -> Link:
    return Link(_NET_HOP_S, LINE_RATE_SHARE * bits_per_s / 8, piece_s=_PIECE_S)


DEFAULT = "a100"
# Of one card a node. The links of PROFILES without a network in their name are those of all cards the node comes with.
NETWORKS = {
    "10gbe": ("10 Gb/s Ethernet", Link(30e-6, 1.2e9, piece_s=_PIECE_S)),
    "100gbe": ("100 Gb/s Ethernet", _network(100e9)),
    "hdr": ("InfiniBand HDR, 200 Gb/s", _network(200e9)),
    "ndr": ("InfiniBand NDR, 400 Gb/s", _network(400e9)),
}
_10GBE = (
    "network: NCCL sent 128 MiB in 112 ms between hosts with 10 Gb/s, 97 % of the line rate "
    "(BinhangYuan/tc_cluster_setting results/p2p.md @ 75581a5bab58); 30 us for a hop over TCP is assumed."
)


_NODES = (
    Hardware(
        "v100",
        "8x V100 16 GB (DGX-1), NVLink 2, 4x 100 Gb/s InfiniBand",
        Cluster(8, _nvlink(117e9), _network(4 * 100e9)),
        369 * TRAINING_FLOPS_OF_RESNET50,
        833 * TRAINING_FLOPS_OF_RESNET50,
        STEP_OVERHEAD_S,
        16e9,
        (
            _RESNET50.format(369, "", 833) + _LAMBDA,
            _OVERHEAD,
            "NVLink: 150 GB/s each way (NVIDIA V100 data sheet), of which NCCL is taken to reach 78 % as on the A100.",
            "4x 100 Gb/s: pytorch benchmarks/distributed/ddp/README.md. " + _SHARE.format("four cards"),
            _HOPS,
        ),
    ),
    Hardware(
        "a100",
        "8x A100 80 GB SXM, NVLink 3, 8x 200 Gb/s InfiniBand HDR",
        Cluster(8, _nvlink(244.7e9), _network(8 * 200e9)),
        1066 * TRAINING_FLOPS_OF_RESNET50,
        1582 * TRAINING_FLOPS_OF_RESNET50,
        STEP_OVERHEAD_S,
        80e9,
        (
            _RESNET50.format(1066, " (that is TF32, which its containers switch on)", 1582) + _LAMBDA,
            _OVERHEAD,
            "NVLink: fitted to NCCL on 8 A100s, 1.3 GB/s of bus bandwidth at 32 KiB and 235 at 16 GiB "
            "(stas00/ml-engineering network/README.md @ 744d01e18b79).",
            "8x 200 Gb/s: NVIDIA DGX A100 data sheet. " + _SHARE.format("eight cards"),
            _HOPS,
        ),
    ),
    Hardware(
        "h100",
        "8x H100 80 GB SXM, NVLink 4, 8x 400 Gb/s InfiniBand NDR",
        Cluster(8, _nvlink(365.6e9), _network(8 * 400e9)),
        1066 * TRAINING_FLOPS_OF_RESNET50 * 3.35 / 2.04,
        1582 * TRAINING_FLOPS_OF_RESNET50 * 3.35 / 2.04,
        STEP_OVERHEAD_S,
        80e9,
        (
            _ESTIMATED.format(3.35, "NVIDIA H100 SXM and A100 80 GB data sheets"),
            _OVERHEAD,
            "NVLink: NCCL's ring on 8 H200s, whose NVLink is the same, 365.6 GB/s at 8 GiB (stas00/ml-engineering).",
            "8x 400 Gb/s: NVIDIA DGX H100 data sheet. " + _SHARE.format("eight cards"),
            _HOPS,
        ),
    ),
    Hardware(
        "h200",
        "8x H200 141 GB SXM, NVLink 4, 8x 400 Gb/s InfiniBand NDR",
        Cluster(8, _nvlink(365.6e9), _network(8 * 400e9)),
        1066 * TRAINING_FLOPS_OF_RESNET50 * 4.8 / 2.04,
        1582 * TRAINING_FLOPS_OF_RESNET50 * 4.8 / 2.04,
        STEP_OVERHEAD_S,
        141e9,
        (
            _ESTIMATED.format(4.8, "NVIDIA H200 and A100 80 GB data sheets"),
            _OVERHEAD,
            "NVLink: NCCL's ring on 8 H200s, 365.6 GB/s at 8 GiB (stas00/ml-engineering network/README.md, SHARP).",
            "141 GB: mlcommons/inference_results_v4.1 closed/NVIDIA/systems/H200-SXM-141GBx8_TRT_MaxQ.json.",
            "8x 400 Gb/s: NVIDIA DGX H200 data sheet. " + _SHARE.format("eight cards"),
            _HOPS,
        ),
    ),
    Hardware(
        "b200",
        "8x B200 180 GB SXM, NVLink 5, 8x 400 Gb/s InfiniBand NDR",
        Cluster(8, _nvlink(682.2e9), _network(8 * 400e9)),
        1066 * TRAINING_FLOPS_OF_RESNET50 * 8 / 2.04,
        1582 * TRAINING_FLOPS_OF_RESNET50 * 8 / 2.04,
        STEP_OVERHEAD_S,
        180e9,
        (
            _ESTIMATED.format(8, "NVIDIA DGX B200 and A100 80 GB data sheets"),
            _OVERHEAD,
            "NVLink: NCCL's ring on 8 B200s, 682.2 GB/s at 8 GiB (stas00/ml-engineering network/README.md, SHARP).",
            "180 GB: mlcommons/inference_results_v6.0 closed/Nebius/systems/nebius_b200_n1.json.",
            "8x 400 Gb/s: the same file. " + _SHARE.format("eight cards"),
            _HOPS,
        ),
    ),
    Hardware(
        "t4",
        "4x T4 16 GB in the cloud (AWS g4dn.12xlarge), PCIe, TCP",
        Cluster(4, Link(5.7e-6, 1.5e9), Link(30e-6, 0.52e9)),
        TRAINING_FLOPS_OF_RESNET50 / 4.225e-3,
        TRAINING_FLOPS_OF_RESNET50 / 4.225e-3,
        STEP_OVERHEAD_S,
        16e9,
        (
            "flops_per_s: 4.225 ms for each further image of a ResNet-50 step on one GPU (Pollux, OSDI 2021, traces in "
            "petuum/adaptdl osdi21-artifact @ c793c7089bd3). Its precision is not stated; autocast gets the same.",
            _OVERHEAD,
            "PCIe: ResNet-18's step at 32 images grows by 6, 9 and 15 ms on 2, 3 and 4 GPUs (same traces), as much as "
            "rings at 1.5 GB/s add; 5.7 us a hop: NCCL's constant for PCIe.",
            "network: the steps of ResNet-18 and ResNet-50 at the smallest batches on 2 to 16 nodes (same traces) "
            "leave 0.5 GB/s of the 50 Gb/s to the gradients; 30 us a hop is assumed.",
        ),
    ),
)


def _with_network(node: Hardware, network: str) -> Hardware:
    title, link = NETWORKS[network]
    own = node.title.split(", ")
    source = _10GBE if network == "10gbe" else _SHARE.format("one card a node")
    return replace(
        node,
        name=f"{node.name}-{network}",
        title=f"{', '.join(own[:2])}, {title}",
        cluster=replace(node.cluster, inter=link),
        sources=(*(text for text in node.sources if "network:" not in text), source),
    )


PROFILES = {node.name: node for node in _NODES} | {
    f"{node.name}-{network}": _with_network(node, network) for node in _NODES for network in NETWORKS
}


def find(name: str) -> Hardware:
    """The profile of this name, such as "a100" or, with another network between nodes, "a100-10gbe".

    Raises:
        ConfigError: there is none; the message lists the names.
    """
    if name not in PROFILES:
        nodes, networks = (", ".join(names) for names in ((node.name for node in _NODES), NETWORKS))
        raise ConfigError(
            f"There is no hardware profile {name!r}. Take one of {nodes}; for another network than its own, "
            f"add one of {networks} to it, as in a100-10gbe.",
            "hardware",
        )
    return PROFILES[name]


def to_dict(hardware: Hardware) -> dict[str, Any]:
    """What JSON can hold of a profile; `from_dict` makes the profile of it again."""
    return asdict(hardware) | {"sources": list(hardware.sources)}


def from_dict(values: object) -> Hardware:
    """The profile that `to_dict` wrote.

    Raises:
        ConfigError: a value is missing, unknown, or cannot be; names it.
    """
    given = _fields_of(Hardware, "the profile", values)
    cluster = _fields_of(Cluster, "cluster", given["cluster"])
    links = {end: Link(**_fields_of(Link, f"cluster.{end}", cluster[end])) for end in ("intra", "inter")}
    texts = given["sources"]
    if not isinstance(texts, list) or not all(
        isinstance(text, str) for text in (*texts, given["name"], given["title"])
    ):
        raise ConfigError("name, title and each of the sources of a hardware profile must be text.")
    return Hardware(**(given | {"cluster": Cluster(**(cluster | links)), "sources": tuple(texts)}))


def _fields_of(kind: type, where: str, values: object) -> dict[str, Any]:
    """These values, if they are the fields of a dataclass, no more and no less."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} of saved hardware must be an object with named values, not {values!r}.")
    names = {field.name for field in fields(kind)}
    missing, unknown = names - values.keys(), values.keys() - names
    if missing or unknown:
        wrong = ", ".join([*(f"no {name}" for name in sorted(missing)), *(f"unknown {name!r}" for name in unknown)])
        raise ConfigError(f"{where} of saved hardware is damaged: {wrong}. Calibrate anew, or mend the file.")
    return dict(values)

"""Profiles are complete, physically ordered, and survive JSON; damaged ones are refused by name."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from course_lib.config import CHOICES
from course_lib.errors import ConfigError
from course_lib.scaling.collectives import Link, all_reduce_seconds
from course_lib.scaling.hardware import DEFAULT, NETWORKS, PROFILES, Hardware, find, from_dict, to_dict

NODES = ("v100", "a100", "h100", "h200", "b200", "t4")
GRADIENTS = 102e6  # bytes of ResNet-50's


def test_every_node_comes_with_every_network() -> None:
    names = {*NODES, *(f"{node}-{network}" for node in NODES for network in NETWORKS)}
    assert set(PROFILES) == names
    assert {"10gbe", "100gbe"} < set(NETWORKS)
    assert DEFAULT in PROFILES
    for name in names:
        assert find(name).name == name
    assert len({profile.title for profile in PROFILES.values()}) == len(names)


def test_a_name_that_is_none_is_answered_with_those_that_are() -> None:
    with pytest.raises(ConfigError) as error:
        find("a1000")
    for name in (*NODES, *NETWORKS):
        assert name in str(error.value)


@pytest.mark.parametrize("name", PROFILES)
def test_a_source_is_cited_for_each_figure(name: str) -> None:
    sources = " ".join(find(name).sources)
    for figure in ("flops_per_s:", "step_overhead_s:", "network:", "us"):
        assert figure in sources
    assert ("estimated" in sources) == (name.split("-")[0] in ("h100", "h200", "b200"))


def test_newer_hardware_is_faster() -> None:
    generations = [find(name) for name in ("v100", "a100", "h100", "h200", "b200")]
    for older, newer in pairwise(generations):
        assert older.flops_per_s < newer.flops_per_s
        assert older.autocast_flops_per_s < newer.autocast_flops_per_s
        assert older.memory_bytes <= newer.memory_bytes
        for ranks in (8, 64):
            times = [all_reduce_seconds(GRADIENTS, ranks, profile.cluster) for profile in (older, newer)]
            assert times[0] >= times[1]


@pytest.mark.parametrize("node", NODES)
def test_another_network_changes_what_crosses_it_and_nothing_else(node: str) -> None:
    own = find(node)
    times = []
    for network in ("10gbe", "100gbe", "hdr", "ndr"):
        other = find(f"{node}-{network}")
        assert replace(other, name=own.name, title=own.title, sources=own.sources, cluster=own.cluster) == own
        assert other.cluster.intra == own.cluster.intra
        times.append(all_reduce_seconds(GRADIENTS, 4 * own.cluster.gpus_per_node, other.cluster))
    assert times == sorted(times, reverse=True)
    assert times[0] > times[1]


@pytest.mark.parametrize("name", NODES)
def test_a_network_is_slower_than_the_links_of_a_node(name: str) -> None:
    cluster = find(name).cluster
    assert cluster.inter.bandwidth_bytes_per_s < cluster.intra.bandwidth_bytes_per_s
    assert cluster.inter.latency_s > cluster.intra.latency_s


@pytest.mark.parametrize("precision", CHOICES["precision"])
def test_every_precision_of_a_run_has_its_speed(precision: str) -> None:
    profile = find("v100")
    expected = profile.flops_per_s if precision == "fp32" else profile.autocast_flops_per_s
    assert profile.in_precision(precision).flops_per_s == expected


@pytest.mark.parametrize("name", PROFILES)
def test_json_gives_the_same_profile(name: str) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(find(name)), allow_nan=False))) == find(name)


def test_json_keeps_the_window_of_a_measured_link() -> None:
    profile = find("t4")
    link = Link(1e-3, 1e8, 1e-6, 1e-2, 1.5e6, 2e-2)
    measured = replace(profile, cluster=replace(profile.cluster, inter=link))
    assert from_dict(json.loads(json.dumps(to_dict(measured)))) == measured


def _damaged(*path: str, value: Any = None, drop: bool = False) -> dict[str, Any]:
    values = deepcopy(to_dict(find("a100")))
    inside = values
    for name in path[:-1]:
        inside = inside[name]
    if drop:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (None, "the profile"),
        ([1, 2], "the profile"),
        ({}, "no cluster"),
        (_damaged("flops_per_s", drop=True), "no flops_per_s"),
        (_damaged("color", value="green"), "unknown 'color'"),
        (_damaged("flops_per_s", value="fast"), "flops_per_s"),
        (_damaged("flops_per_s", value=0), "flops_per_s"),
        (_damaged("memory_bytes", value=float("nan")), "memory_bytes"),
        (_damaged("name", value=3), "must be text"),
        (_damaged("sources", value="a page"), "must be text"),
        (_damaged("sources", value=[1]), "must be text"),
        (_damaged("cluster", value=8), "cluster"),
        (_damaged("cluster", "gpus_per_node", value=0), "gpus_per_node"),
        (_damaged("cluster", "inter", value=None), r"cluster\.inter"),
        (_damaged("cluster", "intra", "latency_s", drop=True), r"cluster\.intra.*no latency_s"),
        (_damaged("cluster", "intra", "latency_s", value=-1), "latency_s"),
    ],
)
def test_a_damaged_profile_is_refused(values: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        from_dict(values)


def test_hardware_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="step_overhead_s"):
        replace(find("a100"), step_overhead_s=-1.0)
    assert isinstance(replace(find("a100"), step_overhead_s=0.0), Hardware)

"""What is told of ranks that do not come together, whatever part of them came so far."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.starting import joined, started
from course_lib.grading.sandbox import Process, Record

TAKEN = {
    **{"kind": "raised", "type": "DistNetworkError", "kinds": ["DistNetworkError", "RuntimeError"]},
    **{"message": "The server socket has failed to listen: EADDRINUSE (Address already in use)", "where": None},
}


def joining(rank: int, fails: bool) -> Process:
    """A process that asked to be this rank, and perhaps found the port of rank 0 taken."""
    asks: dict[str, Any] = {"kind": "joining", "given": {"rank": str(rank)}, "environ": {}, "parent": 1}
    return Process(rank, None, [asks, TAKEN] if fails else [asks])


@given(st.integers(2, 4), st.data())
def test_two_that_ask_for_one_rank_are_told_so_whoever_came_to_ask_at_all(world_size: int, data: st.DataObject) -> None:
    """Only one has the port, and the failure of the other may end some before they ask."""
    twice = [joining(0, False), joining(0, True)]
    others = [joining(rank, False) for rank in range(1, data.draw(st.integers(1, world_size - 1)))]
    evidence = Evidence(Record(data.draw(st.permutations(twice + others)), "ended", 1.0, [], {}))
    told = [*started(evidence, world_size), *joined(evidence, world_size)]
    assert told[0].fault == "same-rank"


@given(st.integers(2, 4), st.data())
def test_a_port_that_another_program_has_is_told(world_size: int, data: st.DataObject) -> None:
    ranks = [joining(rank, rank == 0) for rank in range(data.draw(st.integers(1, world_size - 1)))]
    evidence = Evidence(Record(data.draw(st.permutations(ranks)), "ended", 1.0, [], {}))
    assert [finding.fault for finding in started(evidence, world_size)] == ["port"]

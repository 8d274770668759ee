"""Whatever a process tells, it is an event as the probes tell it, or it is none; and no law stumbles over an event."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.grading.evidence import Evidence
from course_lib.grading.inside.encoding import Room, encode
from course_lib.grading.laws import dealing, learning, reporting, starting, writing
from course_lib.grading.laws.replay import Reference
from course_lib.grading.sandbox import Process, Record
from course_lib.grading.told import event_of

SIZE = 4 * 3 + 3  # values of the model
REFERENCE = Reference(
    lambda: nn.Linear(4, 3),
    torch.rand(9, 4),
    torch.arange(9) % 3,
    cross_entropy,
    lambda each: torch.optim.SGD(each, 0.1),
)
COLLECTIVE = {"kind": "collective", "name": "gather", "peer": None, "line": None, "op": None, "bytes": 4}
RIGHT = {"kind": "group", "program": 0, "at": 1.0, "rank": 0, "world_size": 2, "backend": "gloo", "threads": 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "passed"},
        {"kind": 1},
        {"program": "0"},
        {"at": None},
        {"rank": -1},
        {"rank": "0"},
        {"rank": True},
        {"world_size": 1 << 40},
        {"backend": None},
        {"kind": "forward"},
        *({**COLLECTIVE, **more} for more in ({}, {"shapes": 1}, {"shapes": [[-1]]}, {"shapes": [["1"]]})),
        *(
            {"kind": "forward", "training": True, "mark": "", "rows": torch.empty(*shape, dtype=torch.float64)}
            for shape in ((10**9, 0), (1, 1000))
        ),
    ],
)
def test_what_no_probe_tells_is_no_event(changed):
    assert event_of(encode(RIGHT)) == RIGHT
    with pytest.raises(ValueError, match=r"."):
        event_of(encode({**RIGHT, **changed}))


@pytest.mark.parametrize("content", [b"", b"\x90", b"\x80", b"\xc0", b"\x91" * 100_000, b"\xff", encode([RIGHT])])
def test_what_cannot_be_read_is_no_event(content):
    with pytest.raises(ValueError, match=r"."):
        event_of(content)


def test_there_is_room_for_so_many_items_of_all_events_of_a_job():
    event, room = encode({"kind": "returned", "program": 0, "at": 1.0, "value": [[]] * 300_000}), Room()
    told = [event_of(event, room) for _ in range(3)]
    assert told[0] is not None
    assert told[-1] is None


def test_what_was_too_much_to_be_sent_is_nobodys_lie():
    assert event_of(encode({**RIGHT, "more": torch.zeros(1 << 24)})) is not None  # as far as it goes
    assert event_of(encode({"kind": "returned", "program": 0, "at": 1.0, "value": ["x" * (1 << 20)] * 40})) is None


def tensors(draw, *shape, dtype=torch.float32):
    wild = draw(st.sampled_from([0.0, 1.0, 255.0, float("nan"), float("inf"), 1e300]))
    return (torch.rand(shape, dtype=torch.float64) * wild).to(dtype)


KINDS = ["forward", "forward", "step", "group", "joining", "wrote", "left", "device", "disturbed"]


@st.composite
def events(draw):
    kind = draw(
        st.sampled_from(["forward", "forward", "step", "group", "joining", "wrote", "left", "device", "disturbed"])
    )
    number = st.integers(0, 3)
    event = {
        "forward": lambda: {
            "training": draw(st.booleans()),
            "rows": tensors(draw, draw(number), draw(st.sampled_from([1, 4, 8])), dtype=torch.float64),
            "mark": draw(st.sampled_from("abc")),
            **({"weights": tensors(draw, draw(st.sampled_from([0, 1, SIZE])))} if draw(st.booleans()) else {}),
        },
        "step": lambda: {
            "optimizer": "SGD",
            "lr": [],
            "missing": 0,
            "gradient": tensors(draw, draw(st.sampled_from([0, SIZE]))),
        },
        "group": lambda: {"rank": draw(number), "world_size": draw(number), "backend": "x", "threads": 1},
        "joining": lambda: {
            "given": {"rank": draw(st.sampled_from(["0", "x", "-1"]))},
            "environ": {"RANK": None},
            "parent": 1,
        },
        "wrote": lambda: {"path": "data/x", "how": draw(st.sampled_from(["open", "move", "?"]))},
        "left": dict,
        "device": lambda: {"number": draw(number), "what": "x"},
        "disturbed": lambda: {"how": "?"},
    }[kind]()
    told = event_of(encode({"kind": kind, "program": draw(st.integers(0, 1)), "at": 1.0, **event}))
    assert told is not None
    return told


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(events(), max_size=8), max_size=3), st.sampled_from(["ended", "time", "broken"]))
def test_no_law_stumbles_over_events(processes, why):
    evidence = Evidence(Record([Process(pid, 0, each) for pid, each in enumerate(processes)], why, 1.0, [""], {}))
    laws = [
        starting.started(evidence, 2),
        starting.joined(evidence, 2),
        starting.ended(evidence),
        writing.one_writer(evidence, "data/x", ()),
        writing.prepared_once(evidence, "data"),
    ]
    for rank in evidence.ranks.values():
        reporting.weights_after(rank, 2)
    reporting.evaluated_by(evidence, 2)
    if evidence.trained and len(evidence.trained) == len(evidence.ranks):  # what all laws of training ask first
        laws += [
            starting.equally_long(evidence),
            dealing.dealt(evidence, 2, 9, 4),
            dealing.reshuffled(evidence, 2),
            dealing.batches(evidence, 2),
            dealing.apart(evidence),
            learning.same_start(evidence),
            learning.in_step(evidence),
            learning.as_one_process(evidence, REFERENCE),
        ]
        laws.append(reporting.speed(evidence, [1.0, 2.0]))
    for law in laws:
        for finding in law:
            assert finding.seen

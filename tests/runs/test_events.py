"""What is written can be read: each event once, whatever happened to the file."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import DiskFullError, FolderError, ReportError, WriteError
from course_lib.runs.events import EventReader, EventWriter, ranks_in

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
reports = st.lists(st.dictionaries(st.text(min_size=1), values, max_size=4), max_size=8)


def numbered(reported: list[dict], rank: int = 0) -> list[dict]:
    return [{**each, "kind": "note", "rank": rank, "time": float(i)} for i, each in enumerate(reported)]


def write(folder: Path | str, events: list[dict], rank: int = 0) -> Path:
    path = Path(folder) / f"events-rank{rank}.jsonl"
    writer = EventWriter(path)
    for event in events:
        writer.write(event)
    writer.close()
    return path


@settings(max_examples=50)
@given(reports)
def test_what_is_written_is_read_once(reported):
    events = numbered(reported)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, events)
        reader = EventReader(folder)
        assert reader.read_new() == events
        assert reader.read_new() == []
        assert reader.damaged == 0


@settings(max_examples=50)
@given(reports, st.data())
def test_reading_in_pieces_gives_what_reading_at_once_gives(reported, data):
    """However the bytes arrive, in the middle of a line or of a character."""
    events = numbered(reported)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as growing:
        content = write(folder, events).read_bytes()
        cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
        reader, read = EventReader(growing), []
        for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            with (Path(growing) / "events-rank0.jsonl").open("ab") as file:
                file.write(content[start:end])
            read += reader.read_new()
        assert read == events
        assert reader.damaged == 0


@settings(max_examples=50)
@given(reports, st.lists(st.binary(min_size=1).map(lambda junk: junk.replace(b"\n", b"\xff")), min_size=1), st.data())
def test_a_damaged_line_takes_no_other_with_it(reported, junk, data):
    events = numbered(reported)
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, events)
        lines = path.read_bytes().splitlines()
        for line in junk:
            lines.insert(data.draw(st.integers(0, len(lines))), line)
        path.write_bytes(b"\n".join(lines) + b"\n")
        reader = EventReader(folder)
        assert reader.read_new() == events
        assert reader.damaged == len(junk)


@pytest.mark.parametrize("line", ["5", "[]", "{}", '{"kind": "step"}', '{"kind": "step", "time": null}', "[" * 100_000])
def test_json_that_is_no_event_is_damage(tmp_path, line):
    (tmp_path / "events-rank0.jsonl").write_text(line + "\n")
    reader = EventReader(tmp_path)
    assert reader.read_new() == []
    assert reader.damaged == 1


def test_a_torn_last_line_is_kept_for_later(tmp_path):
    path = write(tmp_path, numbered([{}, {"loss": 1.5}]))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = EventReader(tmp_path)
    assert [event["time"] for event in reader.read_new()] == [0.0]
    assert reader.read_new() == []
    with path.open("ab") as file:
        file.write(whole[-10:])
    assert reader.read_new() == [{"kind": "note", "rank": 0, "time": 1.0, "loss": 1.5}]
    assert reader.damaged == 0


def test_ranks_are_read_together_in_order_of_time_and_may_come_late(tmp_path):
    write(tmp_path, [{"kind": "step", "rank": 2, "time": time} for time in (1.0, 4.0)], rank=2)
    reader = EventReader(tmp_path)
    assert [event["rank"] for event in reader.read_new()] == [2, 2]
    write(tmp_path, [{"kind": "step", "rank": 0, "time": time} for time in (5.0, 8.0)], rank=0)
    write(tmp_path, [{"kind": "step", "rank": 10, "time": time} for time in (6.0, 7.0)], rank=10)
    assert [(event["rank"], event["time"]) for event in reader.read_new()] == [(0, 5.0), (10, 6.0), (10, 7.0), (0, 8.0)]


def test_ranks_are_found_among_other_files():
    assert ranks_in(
        ["rank0.log", "events-rank10.jsonl", "events-rank2.jsonl", "events-rankx.jsonl", "config.json"]
    ) == [2, 10]


def test_numbers_that_json_lacks_are_null(tmp_path):
    event = {"kind": "step", "time": 1.0, "loss": math.nan, "more": [math.inf, 2.0, {"deep": -math.inf}]}
    path = write(tmp_path, [event])

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(path.read_text(), parse_constant=refuse)
    assert read == {"kind": "step", "time": 1.0, "loss": None, "more": [None, 2.0, {"deep": None}]}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (np.float64("nan"), None),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([3]), 3),
        (torch.tensor(1.5, dtype=torch.bfloat16, requires_grad=True), 1.5),
        (torch.tensor(float("inf")), None),
        ((1, torch.tensor(2), "three"), [1, 2, "three"]),
        ({"accuracy": torch.tensor(True)}, {"accuracy": True}),
    ],
)
def test_tensors_and_arrays_of_one_element_are_numbers(tmp_path, value, read):
    write(tmp_path, [{"kind": "note", "time": 0.0, "value": value}])
    assert EventReader(tmp_path).read_new() == [{"kind": "note", "time": 0.0, "value": read}]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (torch.zeros(2), "'value'"),
        (np.zeros((2, 2)), "'value'"),
        (object(), "'value'"),
        (1j, "'value'"),
        (np.complex64(1j), "'value'"),
        (b"bytes", "'value'"),
        ([1, {"deep": {2, 3}}], "'value[1].deep'"),
    ],
)
def test_another_value_is_refused_by_name_and_spoils_nothing(tmp_path, value, named):
    writer = EventWriter(tmp_path / "events-rank0.jsonl")
    with pytest.raises(ReportError) as caught:
        writer.write({"kind": "note", "time": 0.0, "value": value})
    assert named in str(caught.value)
    assert type(value).__name__ in str(caught.value) or "set" in str(caught.value)
    writer.write({"kind": "note", "time": 1.0})
    writer.close()
    assert EventReader(tmp_path).read_new() == [{"kind": "note", "time": 1.0}]


def test_a_second_writer_appends(tmp_path):
    write(tmp_path, numbered([{"part": 1}]))
    write(tmp_path, numbered([{"part": 2}]))
    assert [event["part"] for event in EventReader(tmp_path).read_new()] == [1, 2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_by_the_file():
    writer = EventWriter("/dev/full")
    with pytest.raises(DiskFullError, match="/dev/full"):
        writer.write({"kind": "note", "time": 0.0})
    writer.close()


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(WriteError, match=r"gone.*No such file"):
        EventWriter(tmp_path / "gone" / "events-rank0.jsonl")


UNTIL_FULL = """
import resource, sys
from course_lib.errors import WriteError
from course_lib.runs.events import EventWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
writer = EventWriter(sys.argv[1])
written = 0
try:
    while True:
        writer.write({"kind": "note", "time": float(written)})
        written += 1
except WriteError:  # of a file that is too large: a disk that is full tears lines alike
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write({"kind": "after", "time": 1e6})
print(written)
"""


def test_a_line_torn_by_a_full_disk_is_the_only_loss(tmp_path):
    """The kernel takes a part of the line that no longer fits; when there is room again, recording goes on."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("the size of files is limited here")
    command = [sys.executable, "-c", UNTIL_FULL, str(tmp_path / "events-rank0.jsonl")]
    written = int(
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stdout
    )
    reader = EventReader(tmp_path)
    events = reader.read_new()
    assert [event["time"] for event in events] == [*map(float, range(written)), 1e6]
    assert written > 10
    assert reader.damaged == 1


WRITE_MANY = """
import sys
from course_lib.runs.events import EventWriter

writer = EventWriter(sys.argv[1])
for number in range(5000):
    writer.write({"kind": "step", "time": float(number), "text": "x" * (number % 300)})
"""


def test_a_reader_at_the_same_time_sees_every_event_whole(tmp_path):
    path = tmp_path / "events-rank0.jsonl"
    root = Path(__file__).parents[2]
    reader, read = EventReader(tmp_path), []
    with subprocess.Popen([sys.executable, "-c", WRITE_MANY, str(path)], cwd=root) as writer:
        while writer.poll() is None:
            read += reader.read_new()
    read += reader.read_new()
    assert [event["time"] for event in read] == list(map(float, range(5000)))
    assert reader.damaged == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs Linux's count of bytes read")
def test_only_what_is_new_is_read(tmp_path):
    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    write(tmp_path, numbered([{"text": "x" * 1000}] * 1000))
    reader = EventReader(tmp_path)
    assert len(reader.read_new()) == 1000
    write(tmp_path, numbered([{"loss": 1.0}] * 3))
    looking = -bytes_read() + bytes_read()
    before = bytes_read()
    assert len(reader.read_new()) == 3
    assert bytes_read() - before - looking < 1000


def test_a_missing_folder_is_an_error_of_ours(tmp_path):
    with pytest.raises(FolderError, match="nowhere"):
        EventReader(tmp_path / "nowhere").read_new()

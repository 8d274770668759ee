"""A mistake gets one readable paragraph that names the value, the right exit code, and loses nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from commands import QUICK

USAGE = [
    ("train --batch-size 0", "batch_size must be at least 1, not 0"),
    ("train --train-samples 600 --batch-size 700", "batch of 700 images"),
    ("train --train-samples 600 --batch-size 200 --num-gpus 4", "above the 600 training images"),
    ("train --train-samples 9999999", "9999999"),
    ("train --num-gpus 0", "num_gpus must be at least 1, not 0"),
    ("train --num-gpus 1.5", "--num-gpus': '1.5' is not a whole number"),
    ("train --lr -1", "lr must be above 0, not -1.0"),
    ("train --lr fast", "--lr': 'fast' is not a number"),
    ("train --lr nan", "nan"),
    ("train --model resnet", "not 'resnet'"),
    ("train --optimiser sgd", "--optimiser"),
    ("train --resume-from nowhere", "nowhere holds no run"),
    ("sweep --num-gpus 1,,2", "'' is not a whole number"),
    ("sweep --batch-size 64,0", "batch_size must be at least 1, not 0"),
    ("sweep --scaling sideways", "not 'sideways'"),
    ("sweep --scaling strong --batch-size 127", "127"),
    ("sweep --repeats 0", "repeats"),
    ("sweep --repeats 1000000000", "2,000,000,000"),
    (f"train --seed {2**64}", str(2**64)),
    (f"sweep --seed 0,{2**63}", str(2**63)),
    ("report", "FOLDER"),
    ("report nowhere", "nowhere"),
    ("report .", "There is no run in"),
    ("teach", "'teach'"),
]


@pytest.mark.parametrize(("command", "named"), USAGE)
def test_usage_errors(cli, command, named):
    ended = cli(*command.split())
    assert ended.code == 2
    assert ended.out == ""
    assert named in ended.paragraph()
    assert list(Path().iterdir()) == []


def test_with_json_the_error_is_an_object(cli):
    ended = cli("train", "--batch-size", "0", "--json")
    assert ended.code == 2
    assert ended.json() == {"error": {"type": "ConfigError", "message": "batch_size must be at least 1, not 0."}}
    ended = cli("train", "--no-such-option", "--json")
    assert ended.code == 2
    assert ended.json()["error"]["type"] == "UsageError"


def test_a_gpu_that_is_not_there(cli, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ended = cli("train", *QUICK, "--device", "cuda")
    assert ended.code == 2
    assert "'cuda'" in ended.paragraph()
    assert "doctor" in ended.paragraph()


def test_a_folder_that_cannot_be_made(cli, tmp_path):
    Path("file").write_text("mine")
    for out in ("file", "file/below", tmp_path / "file" / "below" / "deep"):
        ended = cli("train", *QUICK, "--out", out)
        assert ended.code == 2
        assert str(out) in ended.paragraph()
    ended = cli("sweep", *QUICK, "--out", "file")
    assert ended.code == 2
    assert "file" in ended.paragraph()
    assert Path("file").read_text() == "mine"


def test_a_run_is_never_written_over(cli):
    Path("there").mkdir()
    Path("there/kept").write_text("mine")
    ended = cli("train", *QUICK, "--out", "there")
    assert ended.code == 2
    assert "there is already there" in ended.paragraph()
    ended = cli("sweep", *QUICK, "--out", "there")
    assert ended.code == 2
    assert "kept" in ended.paragraph()
    assert Path("there/kept").read_text() == "mine"


def make_run(config: str) -> None:
    Path("run").mkdir(exist_ok=True)
    Path("run/config.json").write_text(config)


def test_a_run_that_cannot_be_read(cli):
    make_run('{"form')
    ended = cli("report", "run")
    assert ended.code == 2
    assert "run/config.json" in ended.paragraph()
    make_run('{"format": 99}')
    ended = cli("report", "run", "--json")
    assert ended.code == 2
    assert "format 99" in ended.json()["error"]["message"]


def test_a_full_disk(cli, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        ended = cli("train", *QUICK, "--batch-size", 100, "--out", disk / "run", "--json")  # its checkpoint has no room
        assert ended.code == 1
        assert ended.json()["error"]["type"] == "DiskFullError"
        assert str(disk) in ended.err.splitlines()[-1]  # above it, perhaps, what the epoch reached
        recorded = (disk / "run" / "events-rank0.jsonl").read_text().splitlines()
        assert [event["step"] for event in map(json.loads, recorded) if event["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(OSError, match="No space"):
            (disk / "fill").write_bytes(bytes(2**20))
        ended = cli("train", *QUICK, "--out", disk / "next")
        assert ended.code == 2
        assert "No space left" in ended.paragraph()
        ended = cli("report", disk / "run", "--out", disk / "report.html")
        assert ended.code == 2
        assert "No space left" in ended.paragraph()
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("arguments", [["report", "run", "--json"], ["train", "--help"]])
def test_nobody_reads_the_output(program, arguments):
    make_run(json.dumps({"format": 1, "config": {}}))
    reader, writer = os.pipe()
    os.close(reader)
    ended = program(*arguments, stdout=writer).end()
    os.close(writer)
    assert ended.err == ""
    assert ended.code == 1


def test_output_onto_a_full_disk(program):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    make_run(json.dumps({"format": 1, "config": {}}))
    with open("/dev/full", "w") as full:
        ended = program("report", "run", "--json", stdout=full).end()
    assert ended.code == 1
    assert "No space left" in ended.paragraph()

"""`ddp-course doctor`: what can run here, why not the rest, and what to do."""

from pathlib import Path

import pytest
import torch

from course_lib.runs import devices

pytestmark = pytest.mark.usefixtures("no_process_left")


def test_a_machine_that_can_run_the_course(cli):
    ended = cli("doctor", "--json")
    assert ended.code == 0
    told = ended.json()
    assert told["can_run"] is True
    found = {finding["name"]: finding for finding in told["findings"]}
    assert all(finding["state"] != "problem" for finding in told["findings"])
    assert all(finding["remedy"] for finding in told["findings"] if finding["state"] == "without")
    assert found["PyTorch"]["facts"]["version"] == torch.__version__
    assert found["GPUs"]["facts"]["count"] == torch.cuda.device_count()
    assert found["CPU"]["facts"]["cores"] == devices.core_count()
    assert found["Backends"]["facts"]["gloo"] is True
    assert found["2 CPU ranks"]["facts"]["launch_seconds"] > 0
    assert list(Path().iterdir()) == []


def test_a_machine_that_cannot(cli, monkeypatch):
    Path("file").touch()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    monkeypatch.setenv("DDP_COURSE_DATA", "nothing")
    ended = cli("doctor", "--out", "file/runs")
    assert ended.code == 1
    lines = ended.out.splitlines()
    problems = [" ".join(line.split()[2:]) for line in lines if line.startswith("✗ problem")]
    assert [problem.split()[0] for problem in problems] == ["Data", "Network", "Runs", "2"]
    assert "nowhere0" in problems[1]
    assert "file/runs" in problems[2]
    assert any("$DDP_COURSE_DATA is nothing" in line for line in lines)
    assert "cannot run here" in lines[-1]

"""Whatever a program leaves in its folder, the next one finds nothing of it."""

from __future__ import annotations

import os
import socket

from submissions_at_work import make_folders_without_end

from course_lib.grading.inside.emptying import empty
from course_lib.grading.sandbox import Program

LEAVES = """
import os, socket
from pathlib import Path
where = os.getcwd()
for folder in (where, "/tmp", "/dev/shm", os.path.expanduser("~")):
    os.chdir(folder)
    Path("left.py").write_text("x")
    os.makedirs("shut/in/it")
    os.symlink("shut", "to")
    Path("shut/in/file").write_text("x")
    for _ in range(1200):
        os.mkdir("deep")
        os.chdir("deep")
    os.chdir(folder)
    for path in ("shut/in/it", "shut/in", "shut"):
        os.chmod(path, 0)
    os.chmod(".", 0o500)
"""
LISTS = """
import os
folders = (".", "..", "/tmp", "/dev/shm", os.path.expanduser("~"))
print(sorted(name for folder in folders for name in os.listdir(folder)))
"""


def test_all_goes_however_deep_shut_or_strange_it_is(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder = tmp_path / "folder"
    (folder / "shut" / "in").mkdir(parents=True)
    os.mkfifo(folder / "shut" / "pipe")
    os.symlink(outside, folder / "shut" / "link")
    os.symlink(outside, folder / "link")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "s"))
    make_folders_without_end(folder)
    for path in ("shut/in", "shut", "."):
        os.chmod(folder / path, 0)
    assert empty([folder])
    assert not any(folder.iterdir())
    assert (outside / "kept").exists()
    assert not empty([folder / "nowhere"])


def test_a_program_finds_nothing_of_the_one_before(sandbox):
    runs = [Program(path="train.py", folder="node0")]
    first = sandbox.run(runs, {"node0/train.py": LEAVES.encode()}, 10.0)
    assert first.why == "ended", first
    second = sandbox.run(runs, {"node0/train.py": LISTS.encode()}, 10.0)
    assert second.why == "ended", second
    assert not any(word in second.output[0] for word in ("left", "shut", "deep", "to'")), second.output
    assert "train.py" in second.output[0]


LINKS = """
import os
os.makedirs("run")
with open("run/first.pt", "w") as file:
    file.write("it")
os.symlink("first.pt", "run/last.pt")
os.symlink("/etc/hosts", "outside.pt")
os.symlink("again.pt", "again.pt")
os.mkfifo("pipe.pt")
os.makedirs("folder.pt")
os.symlink("pipe.pt", "topipe.pt")
"""


def test_files_are_collected_through_links_but_not_from_elsewhere(sandbox):
    wanted = ["run/last.pt", "outside.pt", "again.pt", "pipe.pt", "topipe.pt", "folder.pt", ".grader", "../etc/hosts"]
    record = sandbox.run([Program(path="train.py")], {"train.py": LINKS.encode()}, 10.0, wanted)
    assert record.why == "ended"
    assert record.files == {"run/last.pt": b"it"}

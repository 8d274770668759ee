"""How the server of a sandbox is started: in a bubblewrap, or as a process like any other where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import course_lib
from course_lib.grading import inside

FOLDER = "/box"  # of a job, in the sandbox
SCRATCH = ("/tmp", "/dev/shm")  # where programs may write too
CODE = "/inside"  # what runs there of the course
SIZE = str(256 << 20)  # bytes of each folder that can be written
NOBODY = "65534"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
SERVER = "course_lib.grading.inside.server"
# As for ranks (runs/launcher.py): memory is kept, and no process has threads before it is forked.
VARIABLES = {
    "PATH": os.pathsep.join((os.path.dirname(sys.executable), "/usr/bin", "/bin")),  # torchrun is beside Python
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "CUDA_VISIBLE_DEVICES": "",  # exercises are judged on CPU ranks
    "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
}


@cache
def works() -> bool:
    """Whether bubblewrap is here, and may do what it has to: containers and some systems refuse."""
    program = shutil.which("bwrap")
    if program is None:
        return False
    try:
        tried = subprocess.run([program, *_walls(), "true"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def command(isolated: bool, folder: str) -> list[str]:
    """The command that starts the server, whose jobs run in `folder`."""
    server = [sys.executable, "-m", SERVER, folder]
    return ["bwrap", *_walls(), *_python(), *server] if isolated else server


def environment(isolated: bool) -> dict[str, str]:
    """Its environment: nothing of the user's."""
    if isolated:
        own = [f"{CODE}/course_lib/grading/inside/startup", CODE]
        return {**VARIABLES, "HOME": FOLDER, "PYTHONPATH": os.pathsep.join(own)}
    own = [str(Path(inside.__file__).parent / "startup"), str(Path(course_lib.__file__).parents[1])]
    paths = (*own, *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    home = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    return {**VARIABLES, **home, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _walls() -> list[str]:
    """No other process, network or user, and of the machine's files those that every program needs."""
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--uid", NOBODY, "--gid", NOBODY]
    words += ["--hostname", "sandbox"]
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in (*SCRATCH, FOLDER):
        words += ["--size", SIZE, "--tmpfs", path]
    return [*words, "--chdir", FOLDER]


def _python() -> list[str]:
    """This Python and its packages, and of the course what runs in there."""
    course = Path(course_lib.__file__).parent
    words = []
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix, str(Path(sys.executable).resolve().parents[1]))):
        if not _is_below(Path(prefix), [Path(path) for path in SYSTEM]):
            words += ["--ro-bind", prefix, prefix]
    shown = [Path(sys.base_prefix), Path(sys.prefix), *map(Path, SYSTEM)]
    if _is_below(course, shown):
        words += ["--tmpfs", str(course)]  # the checks of the exercises are in there
    inside_of = Path(inside.__file__).parent
    for path in (inside_of / "etc").iterdir():
        words += ["--ro-bind", str(path), f"/etc/{path.name}"]
    return [*words, "--ro-bind", str(inside_of), f"{CODE}/course_lib/grading/inside"]


def _is_below(path: Path, folders: list[Path]) -> bool:
    return any(path == folder or folder in path.parents for folder in folders)

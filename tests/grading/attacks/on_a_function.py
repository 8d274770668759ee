"""Code that tries to earn points for `deal` (part 1.1) without solving it, or to harm who grades it.

OUTSIDE is the path of a file on the grader's machine that none may make. Each text is a solution cell.
"""

from __future__ import annotations

WRONG = """
def deal(samples, world_size, rank):
    return []
"""

ATTACKS = {
    "an object that is equal to everything": """
class Anything(list):
    def __eq__(self, other): return True
    def __len__(self): return 10**6
    def __iter__(self): return iter(())
    def __contains__(self, other): return True
    __hash__ = object.__hash__
def deal(samples, world_size, rank):
    return Anything()
""",
    "assertions and comparisons are switched off": """
import builtins, operator, torch
builtins.all = builtins.any = lambda *_: True
operator.eq = lambda *_: True
torch.equal = torch.allclose = lambda *_, **__: True
def deal(samples, world_size, rank):
    return []
""",
    "the checks are looked for on the disk": """
import os, re
def deal(samples, world_size, rank):
    for top in ("/", "/inside", "/box", "/tmp", "/root", "/home", "/work", "/usr/local"):
        for folder, _, names in os.walk(top):
            if folder.count("/") > 9:
                continue
            for name in names:
                if name in ("ex01_deal.py", "01_deal_the_data.py", "dealing.py"):
                    # It was found: the answer that it would accept is given.
                    return list(range(rank, samples, world_size))
    return []
""",
    "the course is imported": """
import importlib, sys
def deal(samples, world_size, rank):
    sys.meta_path[:] = [finder for finder in sys.meta_path if "NoCourse" not in type(finder).__name__]
    try:
        importlib.import_module("course_lib.grading.exercises.ex01_deal")
    except BaseException:
        return []
    return list(range(rank, samples, world_size))
""",
    "what carries answers is patched": """
import gc, msgpack, types
msgpack.packb = lambda *_, **__: b"\\x82\\xa4kind\\xa8returned\\xa5value\\xa6passed"
for each in gc.get_objects():
    if isinstance(each, types.FunctionType) and each.__name__ in ("encode", "tell", "_tagged"):
        each.__code__ = (lambda *_, **__: b"passed").__code__
def deal(samples, world_size, rank):
    return []
""",
    "another verdict is sent": """
import glob, msgpack, os, socket, struct
def send(event):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.path.abspath(".grader"))
        content = msgpack.packb(event)
        s.sendall(struct.pack("!I", len(content)) + content)
for kind in ("returned", "passed", "over"):
    send({"\\0kind": "dict", "items": [["kind", kind], ["value", True], ["is", "over"], ["points", 100]]})
if os.fork() == 0:
    send({"\\0kind": "dict", "items": [["kind", "returned"], ["value", True]]})
    os._exit(0)
os.write(1, b'{"is": "over", "why": "ended", "passed": true}\\n')
def deal(samples, world_size, rank):
    return []
""",
    "a pickle that runs code": """
import pickle
class Bomb:
    def __reduce__(self):
        import os
        return os.system, ("touch OUTSIDE",)
def deal(samples, world_size, rank):
    return [Bomb(), pickle.dumps(Bomb())]
""",
    "what sends is sent nonsense": """
import os, socket
def deal(samples, world_size, rank):
    long = b"\\x01\\0\\0\\0" + b"\\x91" * 100_000
    for content in (b"\\xff" * 4, b"\\0\\0\\0\\5abc", b"\\0\\0\\0\\1", b"\\0\\0\\0\\1\\xc0", os.urandom(10_000), long):
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(os.path.abspath(".grader"))
                s.sendall(content)
        except OSError:
            pass
    return []
""",
    "more is told than anybody would read": """
import msgpack, os, socket, struct
def deal(samples, world_size, rank):
    event = msgpack.packb({"\\0kind": "dict", "items": [["kind", "forward"], ["x", "a" * 1_000_000]]})
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.abspath(".grader"))
            for _ in range(600):
                s.sendall(struct.pack("!I", len(event)) + event)
    except OSError:
        pass
    return []
""",
    "a value without end": """
def deal(samples, world_size, rank):
    value = []
    value.append(value)
    return value
""",
    "a value that is very deep": """
def deal(samples, world_size, rank):
    value = []
    for _ in range(100_000):
        value = [value]
    return value
""",
    "a number with a million digits": """
def deal(samples, world_size, rank):
    return [10 ** 1_000_000] * samples
""",
    "the server is killed": """
import os, signal
os.kill(os.getppid(), signal.SIGKILL)
def deal(samples, world_size, rank):
    return []
""",
    "everybody is killed": """
import os, signal
try:
    os.kill(1, signal.SIGKILL)
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid != os.getpid():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
except OSError:
    pass
def deal(samples, world_size, rank):
    return []
""",
    "an exit that looks well": """
import os
open("result.json", "w").write('{"passed": true}')
open("conftest.py", "w").write("def pytest_sessionfinish(session): session.exitstatus = 0")
open("pytest.ini", "w").write("[pytest]\\naddopts = --collect-only")
print("2 passed")
os._exit(0)
""",
    "an end that cannot be interrupted": """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
def deal(samples, world_size, rank):
    while True:
        pass
""",
    "a child that would outlive it": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "98765"])
    os._exit(0)
def deal(samples, world_size, rank):
    return []
""",
    "a file outside": """
import os
def deal(samples, world_size, rank):
    for path in ("OUTSIDE", "/etc/passwd", "/usr/bin/python3"):
        try:
            with open(path, "a") as file:
                file.write("x")
        except OSError:
            pass
    return []
""",
    "the network": """
import socket
def deal(samples, world_size, rank):
    for address in (("1.1.1.1", 53), ("127.0.0.1", 22)):
        try:
            with socket.create_connection(address, timeout=0.5):
                return list(range(rank, samples, world_size))
        except OSError:
            pass
    return []
""",
    "50 MB of output": """
import sys
def deal(samples, world_size, rank):
    for _ in range(50):
        sys.stdout.write("x" * 1_000_000)
        sys.stderr.write("\\n")
    return []
""",
    "a fork bomb": """
import os
def deal(samples, world_size, rank):
    while True:
        try:
            os.fork()
        except OSError:
            pass
""",
    "a memory bomb": """
def deal(samples, world_size, rank):
    taken = []
    while True:
        taken.append(bytearray(b"x") * (64 << 20))
""",
    "a full memory disk": """
def deal(samples, world_size, rank):
    for folder in ("/dev/shm", "/tmp", "."):
        number = 0
        try:
            while number < 100:
                with open(f"{folder}/full-{number}", "wb") as file:
                    file.write(b"x" * (32 << 20))
                number += 1
        except OSError:
            pass
    return []
""",
    "another clock": """
import time
time.time = time.monotonic = time.perf_counter = lambda: 0.0
time.sleep = lambda seconds: None
def deal(samples, world_size, rank):
    return []
""",
    "the memory of the server is changed": """
import ctypes, os
def deal(samples, world_size, rank):
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/mem", "r+b"):
            return list(range(rank, samples, world_size))
    except OSError:
        pass
    if ctypes.CDLL(None).ptrace(16, parent, 0, 0) == 0:  # PTRACE_ATTACH
        return list(range(rank, samples, world_size))
    return []
""",
}

"""Code that is after the grader itself, or after what other submissions left there; each text is a cell for `deal`.

None has points, the grader is not blamed, and who comes next is judged as ever.
"""

from __future__ import annotations

NOTHING = """
def deal(samples, world_size, rank):
    return []
"""
# Each process that is not this one, among them those that judge.
OTHERS = """
import os
others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]
"""
# The channel of the checks, and more of its events than anybody would read.
CHANNEL = """
import gc, msgpack, os, socket, struct, threading, torch
def channel():
    return next(each for each in gc.get_objects() if type(each).__name__ == "Channel")
def send(content, times):
    try:
        channel().tell("began")
        for _ in range(times):
            channel()._socket.sendall(content)
    except OSError:
        pass
"""
LIBRARY = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
library.shmat.restype = ctypes.c_void_p
"""
ON_THE_GRADER = {
    "what others are granted is taken away": OTHERS
    + """
import resource
for pid in others:
    for limit, most in ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, 600 << 20)):
        try:
            resource.prlimit(pid, limit, (most, most))
        except OSError:
            pass
"""
    + NOTHING,
    "others are to be killed later": OTHERS
    + """
import resource
for pid in others:
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (8, 9))
    except OSError:
        pass
"""
    + NOTHING,
    "others are made slow": OTHERS
    + """
for pid in others:
    try:
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        pass
"""
    + NOTHING,
    "the server is stopped, and the job goes on": """
import os, signal
parent = os.getppid()
with open(f"/proc/{parent}/stat") as file:
    server = int(file.read().rpartition(")")[2].split()[1])
if server > 1:
    os.kill(server, signal.SIGSTOP)
"""
    + NOTHING,
    "one connects, tells nothing, and does not end": """
import os, socket
if os.fork() == 0:
    there = socket.socket(socket.AF_UNIX)
    there.connect(os.path.abspath(".grader"))
    while True:
        pass
def deal(samples, world_size, rank):
    while True:
        pass
""",
    "its own output is read": """
import os, threading
def read(end):
    while True:
        try:
            os.read(end, 1 << 16)
        except OSError:
            pass
def deal(samples, world_size, rank):
    threading.Thread(target=read, args=(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK),), daemon=True).start()
    while True:
        os.write(1, b"x" * 100)
""",
    "more small events than anybody would read": CHANNEL
    + """
def deal(samples, world_size, rank):
    event = msgpack.packb({"\\0kind": "dict", "items": [["kind", "began"], ["program", 0]]})
    send((struct.pack("!I", len(event)) + event) * 20_000, 2_000)
    return []
""",
    "looks without end": CHANNEL
    + """
def deal(samples, world_size, rank):
    send(bytes(4) * 100_000, 1_000)
    return []
""",
    "values that become much larger": CHANNEL
    + """
def deal(samples, world_size, rank):
    count = 20_000_000
    event = b"\\xdd" + struct.pack("!I", count) + b"\\x90" * count
    send(struct.pack("!I", len(event)) + event, 3)
    return [[]] * 2_000_000
""",
    "rows without values": CHANNEL
    + """
def deal(samples, world_size, rank):
    for shape in ((10**9, 0), (1, 10**6)):
        rows = torch.empty(*shape, dtype=torch.float64)
        channel().tell("forward", training=True, rows=rows, mark="", weights=None)
    return []
""",
    "a type that nobody calculates with": """
import torch
def deal(samples, world_size, rank):
    return torch.zeros(3, dtype=torch.uint8).view(torch.bits8)
""",
    "an error with a name of a million letters": """
class Error(Exception):
    pass
Error.__name__ = "E" * 1_000_000
def deal(samples, world_size, rank):
    raise Error()
""",
    "memory that no process has": LIBRARY
    + """
import os
def deal(samples, world_size, rank):
    for _ in range(60):
        segment = library.shmget(0, 64 << 20, 0o1600)
        address = library.shmat(segment, None, 0)
        if segment < 0:
            break
        library.memset(ctypes.c_void_p(address), 1, 64 << 20)
        library.shmdt(ctypes.c_void_p(address))
    for number in range(60):
        file = os.memfd_create(str(number))
        for _ in range(60):
            os.write(file, bytes(1 << 20))
    return []
""",
    "memory that processes share": """
import mmap
def deal(samples, world_size, rank):
    taken = []
    while True:
        taken.append(mmap.mmap(-1, 64 << 20))
        for place in range(0, 64 << 20, mmap.PAGESIZE):
            taken[-1][place] = 1
""",
    "a disk of its own": LIBRARY
    + """
import os
def deal(samples, world_size, rank):
    library.unshare(0x10020000)
    os.mkdir("disk")
    if library.mount(b"none", os.path.abspath("disk").encode(), b"tmpfs", 0, None) == 0:
        return list(range(rank, samples, world_size))
    return []
""",
    "threads without end": """
import threading
def deal(samples, world_size, rank):
    threading.stack_size(1 << 16)
    while True:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
}
# One leaves the answer where the next may find it.
LEFT = {
    "in the memory of the server": (
        """
def deal(samples, world_size, rank):  # a mark that nobody else would have: %s
    return list(range(rank, samples, world_size))
""",
        """
import re
mark = bytes(reversed(bytearray(b"%s")))
found = []
for line in open("/proc/self/maps"):
    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
    if line.split()[1].startswith("rw"):
        with open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(begin)
            try:
                found += re.findall(mark + b".{10,100}return", memory.read(end - begin), re.DOTALL)
            except OSError:
                pass
def deal(samples, world_size, rank):
    return list(range(rank, samples, world_size)) if found else []
""",
    ),
    "in messages and keys": (
        LIBRARY
        + """
from ctypes import create_string_buffer
queue = library.msgget(7, 0o1600)
library.msgsnd(queue, create_string_buffer(b"\\1" + bytes(7) + b"%s"), 8, 0)
library.shmget(7, 4096, 0o1600)
def deal(samples, world_size, rank):
    return list(range(rank, samples, world_size))
""",
        LIBRARY
        + """
def deal(samples, world_size, rank):  # %s
    found = library.msgget(7, 0) >= 0 or library.shmget(7, 0, 0) >= 0
    return list(range(rank, samples, world_size)) if found else []
""",
    ),
}

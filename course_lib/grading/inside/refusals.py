"""System calls that no exercise needs, and that would leave something which nobody counts or removes.

Memory that is no process's and no file's, disks of any size, and messages and keys that outlive a job.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

# Their numbers, by the machine; from asm/unistd_64.h and asm-generic/unistd.h.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        317,
        {
            **{"memfd_create": 319, "memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240},
            **{"add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "mount": 165, "fsopen": 430},
        },
    ),
    "aarch64": (
        0xC00000B7,
        277,
        {
            **{"memfd_create": 279, "memfd_secret": 447, "shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180},
            **{"add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97, "mount": 40, "fsopen": 430},
        },
    ),
}
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # from linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, and so on
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # from linux/seccomp.h
_NUMBER, _MACHINE = 0, 4  # where they are in a struct seccomp_data
_NO_NEW_PRIVILEGES, _FILTER, _AS_FAST_AS_BEFORE = 38, 1, 4


def begin() -> None:
    """Refuse these calls, here and in all forks, for ever; where this machine is not known, refuse nothing."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return
    machine, seccomp, calls = _MACHINES[platform.machine()]
    numbers = sorted(calls.values())
    steps = [(_LOAD, 0, 0, _MACHINE), (_IF_EQUAL, 0, len(numbers) + 2, machine), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    library, kept = ctypes.CDLL(None), ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(steps), ctypes.addressof(kept))
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    library.syscall(seccomp, _FILTER, _AS_FAST_AS_BEFORE, program)

# SPDX-License-Identifier: Apache-2.0
"""Run a program whose system calls of some names fail, as in a container: `forbid.py unshare,mount ERRNO PROGRAM...`

The filter is one of seccomp(2), which child processes inherit and cannot remove.
"""

import ctypes
import errno
import os
import platform
import sys

NUMBERS = {
    "x86_64": {"mount": 165, "personality": 135, "ptrace": 101, "unshare": 272},
    "aarch64": {"mount": 40, "personality": 92, "ptrace": 117, "unshare": 97},
}[platform.machine()]

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD_NUMBER, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction)))


def forbid(names: list[str], error: int) -> None:
    """Make these system calls fail in this process and its children."""
    tests = [
        instruction
        for name in names
        for instruction in (Instruction(_JUMP_EQUAL, 0, 1, NUMBERS[name]), Instruction(_RETURN, 0, 0, _FAIL | error))
    ]
    lines = [Instruction(_LOAD_NUMBER, 0, 0, 0), *tests, Instruction(_RETURN, 0, 0, _ALLOW)]
    program = Program(len(lines), (Instruction * len(lines))(*lines))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    forbid(sys.argv[1].split(","), getattr(errno, sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])

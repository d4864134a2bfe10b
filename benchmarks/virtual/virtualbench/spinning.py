# SPDX-License-Identifier: Apache-2.0
"""How much two unrelated programs slow each other down on this machine: the floor for two runs at once.

Cores that share an execution unit, a cache or a host with others slow each other down, whatever runs on them.
"""

import subprocess
import sys
import time

# Arithmetic in registers, and copies that no cache of a core's own holds.
_WORK = {
    "arithmetic": "n = 0\nfor i in range(20_000_000): n += i",
    "memory": "a = bytearray(64 << 20)\nfor _ in range(80): b = bytes(a)",
}


def seconds(kind: str, count: int) -> float:
    """How long the slowest of ``count`` at once takes."""
    began = time.monotonic()
    working = [subprocess.Popen([sys.executable, "-c", _WORK[kind]]) for _ in range(count)]
    for process in working:
        process.wait()
    return time.monotonic() - began


KINDS = tuple(_WORK)

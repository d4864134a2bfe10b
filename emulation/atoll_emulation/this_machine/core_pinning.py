# SPDX-License-Identifier: Apache-2.0
"""Choose the processor core of a virtual kernel: an idle one that no other virtual kernel has.

A kernel is one thread of work: pinned to a core it is twice as fast as when it wanders (platform facts in
docs/virtual-time.md).
"""

import contextlib
import os
import socket
import time
from collections.abc import Generator
from pathlib import Path

_SAMPLE_S = 0.1  # ten ticks of /proc/stat
_IDLE_FIELDS = (3, 4)  # of a cpu line, without its name: idle, iowait; proc(5)


@contextlib.contextmanager
def claimed_core() -> Generator[int]:
    """Claim a core for one virtual kernel until the block or this process ends; its number.

    The least used of those allowed and not taken; when all are taken, the least used.
    """
    cores = _cores_by_use(_SAMPLE_S)
    for core in cores:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.closing(lock):
            try:
                lock.bind(f"\0atoll-virtual-core-{core}")  # abstract: vanishes with the process
            except OSError:
                continue
            yield core
            return
    yield cores[0]


def usable_cores() -> int:
    """Return how many virtual kernels can have a core of their own at once."""
    return len(os.sched_getaffinity(0))


def _cores_by_use(seconds: float) -> list[int]:
    """Return the allowed cores, the most idle first; equally idle ones from the last to the first."""
    before = _idle_ticks()
    time.sleep(seconds)
    after = _idle_ticks()
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    return sorted(allowed, key=lambda core: before.get(core, 0) - after.get(core, 0))


def _idle_ticks() -> dict[int, int]:
    ticks: dict[int, int] = {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            ticks[int(name[3:])] = sum(int(fields[field]) for field in _IDLE_FIELDS)
    return ticks

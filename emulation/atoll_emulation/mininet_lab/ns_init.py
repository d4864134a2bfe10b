# SPDX-License-Identifier: Apache-2.0
"""First process of the lab's PID namespace (docs/contracts.md, "Lab init").

It does little, so that nothing can keep it from ending: it forks the process that builds and serves the lab
(lab_server.py), reaps orphans, and ends when its standard input ends, on SIGTERM or SIGINT, or with that process.
With it the kernel kills every other process of the lab, and with the last one go namespaces and interfaces.
"""

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

from atoll_core.errors import LabError
from atoll_emulation.mininet_lab.namespaces import set_up_namespaces


def main() -> None:
    """Set the namespaces up, start the lab and wait for its end. Never returns."""
    if os.getpid() != 1:
        sys.exit(
            "atoll_emulation.mininet_lab.ns_init must be the first process of a PID namespace: EmulatedLab starts it"
        )
    pid_outside = int(Path("/proc/self").readlink().name)  # before the lab's own /proc hides the outside's numbers
    try:
        set_up_namespaces()
    except (LabError, OSError) as error:
        os.write(1, json.dumps({"type": "failed", "message": str(error)}).encode() + b"\n")
        os._exit(1)
    os.write(1, json.dumps({"type": "namespaces", "pid": pid_outside}).encode() + b"\n")
    lab = os.fork()
    if lab == 0:
        from atoll_emulation.mininet_lab.lab_server import serve

        serve()
    watch(lab)


def watch(lab: int) -> None:
    """End this process when standard input or process ``lab`` ends; reap other children."""
    end_signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    for number in (*end_signals, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)  # without a handler the kernel keeps signals from PID 1
    poll = select.poll()
    poll.register(0, select.POLLRDHUP)  # hang-up only: the lab's process reads
    poll.register(wake_read, select.POLLIN)
    while True:
        _reap(lab)
        for descriptor, _ in poll.poll():
            if descriptor == 0:
                os._exit(0)
            if end_signals & set(os.read(wake_read, 64)):
                os._exit(0)


def _reap(lab: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if child[0] == lab:
                os._exit(os.waitstatus_to_exitcode(child[1]) & 0xFF)


if __name__ == "__main__":
    main()

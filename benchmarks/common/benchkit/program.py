# SPDX-License-Identifier: Apache-2.0
"""``python -m benchkit.program MODULE [ARGUMENT...]``: a benchmark, or a part of one, that can be ended at any time.

Ctrl-C ends it with one line and exit code 130, SIGTERM with 143, at any time, imports included. Its files and processes
are removed at the end. A part, such as ``hostsbench.measure``, is silent: the program that started it prints the line.
"""

import contextlib
import os
import runpy
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT


def part(module: str, *arguments: str) -> list[str]:
    """The command line of a part of a benchmark, for a process of its own.

    SIGINT is ignored at first, because an interpreter that is starting would print a traceback.
    """
    return ["env", "--ignore-signal=INT", sys.executable, "-m", "benchkit.program", module, *arguments]


def main() -> None:
    """Run the module; its exit code is this program's."""
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if "." not in module:
            sys.stderr.write("interrupted: measurements not printed yet are lost; nothing is left running\n")
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            sys.stdout.flush()  # output into a file or a pipe
        # Not sys.exit: CPython 3.11 ends by the signal if it came within an exec of text, as dataclasses have.
        os._exit(INTERRUPTED)


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()

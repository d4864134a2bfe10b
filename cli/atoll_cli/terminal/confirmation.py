# SPDX-License-Identifier: Apache-2.0
"""Ask before something is changed."""

import sys


def confirm(question: str, otherwise: str, *, as_json: bool) -> bool:
    """Ask on the terminal; returns whether the answer is yes.

    Without a terminal, and with --json, which shows nothing before, the answer is no, and ``otherwise`` is printed on
    standard error.
    """
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        print(otherwise, file=sys.stderr)
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

# SPDX-License-Identifier: Apache-2.0
"""Entry point of the program: prints one line on Ctrl-C even while modules are being imported."""

import sys

from atoll_core.garbage_collection import relax_garbage_collection

_INTERRUPTED = 130  # docs/exit-codes.md


def main() -> None:
    """Run the command line. Ctrl-C during imports ends the program as it does later."""
    relax_garbage_collection()
    try:
        from atoll_cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    run()

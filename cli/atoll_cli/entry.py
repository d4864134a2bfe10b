# SPDX-License-Identifier: Apache-2.0
"""Entry point of the program. It imports nothing before Ctrl-C can be answered in one line."""

import sys

_INTERRUPTED = 130  # docs/exit-codes.md


def main() -> None:
    """Run the command line; Ctrl-C while it is being loaded ends it as Ctrl-C does later."""
    try:
        from atoll_cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    run()

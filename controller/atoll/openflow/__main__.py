# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll.openflow --listen 127.0.0.1:6653``: the controller process (docs/contracts.md).

It speaks JSON lines on standard input and output, OpenFlow 1.3 to the switches, and ends when its standard input ends.
It holds nothing that matters: killing it stops no packet, and the switches keep their tables.
"""

import argparse
import logging
import os
import sys

from atoll.openflow.lines import say
from atoll.openflow.requests import Requests
from atoll.openflow.runtime import RUNTIME, start


def main() -> int:
    """Serve until standard input ends; 1 if the port can't be had."""
    arguments = argparse.ArgumentParser(prog="python -m atoll.openflow", description=__doc__)
    arguments.add_argument(
        "--listen", default="127.0.0.1:6653", metavar="HOST:PORT", help="where switches connect (%(default)s)"
    )
    listen: str = arguments.parse_args().listen
    logging.basicConfig(level=logging.WARNING, format="controller: %(message)s")
    host, _, port = listen.rpartition(":")
    try:
        switchboard, bound = start(host, int(port))
    except (OSError, ValueError, OverflowError) as error:
        sys.stderr.write(f"cannot listen for switches on {listen}: {error}\n")
        return 1
    say({"type": "ready", "runtime": RUNTIME, "port": bound})
    requests = Requests(switchboard.switch)
    for line in sys.stdin.buffer:
        requests.take(line)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # os-ken's threads have no end of their own

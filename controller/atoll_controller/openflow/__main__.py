# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_controller.openflow --listen 127.0.0.1:6653``: the controller process (docs/contracts.md).

It exchanges JSON lines on standard input and output, and OpenFlow 1.3 with the switches. It ends when its standard
input ends. It keeps no state: killing it stops no packet, and the switches keep their tables.
"""

import argparse
import logging
import os
import sys
from typing import Any

from atoll_controller.openflow import runtime_adapter
from atoll_core.garbage_collection import relax_garbage_collection
from atoll_core.plan.switch_features import Runtime


def main() -> int:
    """Serve until standard input ends; 1 if the framework is not installed or the port is not available."""
    arguments = argparse.ArgumentParser(prog="python -m atoll_controller.openflow", description=__doc__)
    arguments.add_argument(
        "--listen", default="127.0.0.1:6653", metavar="HOST:PORT", help="where switches connect (%(default)s)"
    )
    framework: dict[str, Any] = {"type": Runtime, "choices": list(Runtime), "default": Runtime.OS_KEN}
    arguments.add_argument("--runtime", **framework, help="the framework that speaks OpenFlow (%(default)s)")
    options = arguments.parse_args()
    logging.basicConfig(level=logging.WARNING, format="controller: %(message)s")
    try:
        runtime_adapter.choose(options.runtime)
    except ImportError as error:
        sys.stderr.write(f"{options.runtime} cannot be loaded by {sys.executable}: {error}\n")
        return 1
    return _serve(options.listen)


def _serve(listen: str) -> int:
    # These load the framework, or modules that it may have replaced.
    from atoll_controller.openflow.app import start
    from atoll_controller.openflow.request_server import RequestServer, write_line

    host, _, port = listen.rpartition(":")
    try:
        registry, bound_port = start(host, int(port))
    except (OSError, ValueError, OverflowError) as error:
        sys.stderr.write(f"cannot listen for switches on {listen}: {error}\n")
        return 1
    relax_garbage_collection()
    write_line({"type": "ready", "runtime": runtime_adapter.title(), "port": bound_port})
    server = RequestServer(registry.switch)
    for line in runtime_adapter.lines_of_input():
        server.enqueue(line)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the framework's threads have no end of their own

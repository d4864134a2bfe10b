# SPDX-License-Identifier: Apache-2.0
"""Write the controller's messages: one JSON object a line on standard output, whole lines from any thread."""

import json
import os
import sys
import threading
from typing import Any

_lock = threading.Lock()


def write_line(message: dict[str, Any]) -> None:
    """Write one line. The process ends when its reader has closed the pipe."""
    line = json.dumps(message, separators=(",", ":")) + "\n"
    with _lock:
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)

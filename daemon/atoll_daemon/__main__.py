# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_daemon [--for-run]``: the process that owns a lab until `atoll down` or a signal."""

import sys

from atoll_daemon.server import main

sys.exit(main(sys.argv[1:]))

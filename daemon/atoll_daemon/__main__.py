# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_daemon [--for-run]``: own a testbed until told otherwise."""

import sys

from atoll_daemon.server import main

sys.exit(main(sys.argv[1:]))

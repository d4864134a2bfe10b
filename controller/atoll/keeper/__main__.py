# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll.keeper [--for-run]``: own a testbed until told otherwise."""

import sys

from atoll.keeper.server import main

sys.exit(main(sys.argv[1:]))

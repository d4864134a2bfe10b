# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_daemon [--for-run]``: the process that owns a lab until `atoll down` or a signal."""

import sys

from atoll_core.garbage_collection import relax_garbage_collection

relax_garbage_collection()  # before the imports, which make most objects
from atoll_daemon.server import main  # noqa: E402

sys.exit(main(sys.argv[1:]))

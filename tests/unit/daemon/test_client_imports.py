# SPDX-License-Identifier: Apache-2.0
"""Commands that only talk to the daemon start without the models of descriptions."""

import subprocess
import sys


def test_the_client_of_the_daemon_does_not_load_pydantic() -> None:
    script = "import sys, atoll_daemon.client; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

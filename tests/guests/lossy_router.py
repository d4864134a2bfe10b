# SPDX-License-Identifier: Apache-2.0
"""A router that loses packets to the island and counts none of them: ``python lossy_router.py WORLD ISLAND``."""

import signal
import subprocess
import sys

subprocess.run(["tc", "qdisc", "add", "dev", sys.argv[2], "root", "netem", "loss", "2%"], check=True)
signal.pause()

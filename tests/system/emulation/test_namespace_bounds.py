# SPDX-License-Identifier: Apache-2.0
"""A bound on namespaces that is reached is told as such: the kernel's own words for it are those for a full disk."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.lab

ASK = "from atoll_emulation.mininet_lab.namespaces import namespaces_error; print(namespaces_error())"
BOUNDED = f"echo 0 > /proc/sys/user/max_net_namespaces && exec {sys.executable} -c '{ASK}'"


def test_a_bound_that_is_reached_is_named() -> None:
    """In a user namespace of this test's own, where network namespaces are bounded to none."""
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", BOUNDED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == (
        "unshare: unshare failed: the allowed number of namespaces is in use, user.max_net_namespaces is 0\n"
    )

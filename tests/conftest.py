# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where the project is, and whether this machine can hold a laboratory."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

# A plain user's PATH lacks the sbin directories on Debian; Open vSwitch and others live there.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return PROJECT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``lab`` where no laboratory can be; fail instead when ATOLL_REQUIRE_LAB is set (CI)."""
    laboratory = [item for item in items if item.get_closest_marker("lab")]
    reason = why_no_laboratory() if laboratory else None
    if reason is None:
        return
    if os.environ.get("ATOLL_REQUIRE_LAB"):
        raise pytest.UsageError(f"ATOLL_REQUIRE_LAB is set, but {reason}")
    for item in laboratory:
        item.add_marker(pytest.mark.skip(reason=reason))


@functools.cache
def why_no_laboratory() -> str | None:
    """Why this machine cannot hold an emulated laboratory, or None if it can. Asks the machine, not the product."""
    for program in ("ip", "mnexec", "ovs-vswitchd", "ovsdb-server", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine; run: make setup"
    namespaces = ["unshare", "--net", "--pid", "--mount", "--fork"]
    if os.geteuid() != 0:
        namespaces += ["--user", "--map-root-user"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode != 0:
        return "neither root nor user namespaces here"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing or may not be opened"
    return None

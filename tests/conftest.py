# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where the project is, and whether this machine can hold a laboratory."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import hypothesis
import pytest

from atoll_core.errors import MachineError
from atoll_emulation.mininet_lab.namespaces import namespaces_error
from atoll_emulation.uml.kernel import find_virtual_kernel
from screenshots.browser import find_browser
from tests.counts import pytest_addoption, pytest_configure
from tests.failures import pytest_sessionstart
from tests.skips import no_tun, pytest_make_collect_report, pytest_runtest_call, pytest_runtest_setup

__all__ = [  # hooks: no unannounced skip, no test that is missing, no failure that shows at the end only
    "pytest_addoption",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_sessionstart",
]

# Wall time says nothing of an example: a busy machine meets no deadline. The examples of a property are the same each
# time, so that a change is judged by itself; ATOLL_NEW_EXAMPLES=1 draws others, and a failure prints what repeats it.
hypothesis.settings.register_profile(
    "atoll",
    deadline=None,
    derandomize=not os.environ.get("ATOLL_NEW_EXAMPLES"),
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("atoll")

PROJECT = Path(__file__).resolve().parent.parent
_VIRTUAL_HANGS_S = 900
"""Of the machine's time, which tests in virtual time do not go by; what they start is given up before."""

# A plain user's PATH lacks the sbin directories on Debian; Open vSwitch and others live there.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return PROJECT


@pytest.hookimpl(trylast=True)  # after -m has left out what is not wanted
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``lab`` where no laboratory can be, ``virtual`` ones where no kernel for them can, and so on.

    Fail instead when ATOLL_REQUIRE_LAB is set (CI), or ATOLL_REQUIRE_BROWSER. Tests in virtual time get their bound.
    Those marked ``long`` begin after the others, so that most mistakes show in the first minute.
    """
    items.sort(key=lambda item: item.get_closest_marker("long") is not None)
    for item in items:
        if item.get_closest_marker("virtual") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_VIRTUAL_HANGS_S))
    for marker, why_not, required in (
        ("lab", why_no_laboratory, "ATOLL_REQUIRE_LAB"),
        ("virtual", why_no_virtual_time, "ATOLL_REQUIRE_LAB"),
        ("browser", why_no_browser, "ATOLL_REQUIRE_BROWSER"),
    ):
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = why_not() if marked else None
        if reason is None:
            continue
        if os.environ.get(required):
            raise pytest.UsageError(f"{required} is set, but {reason}")
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@functools.cache
def why_no_virtual_time() -> str | None:
    """Why this machine cannot start a kernel for virtual time, or None if it can."""
    try:
        find_virtual_kernel()
    except MachineError as error:
        return str(error)
    return namespaces_error()


def why_no_browser() -> str | None:
    """Why the live page cannot be opened here, or None if it can."""
    return None if find_browser() else "there is no Chromium on this machine; run: make test-page"


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
    if no_tun():
        return "/dev/net/tun is missing or may not be opened"
    return None

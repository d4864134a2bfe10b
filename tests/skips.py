# SPDX-License-Identifier: Apache-2.0
"""The skips that are allowed, and when. Any other skip fails its test: nothing goes untested without a word.

Tests that ``-m`` leaves out are not skipped ones. With ATOLL_REQUIRE_LAB, ..._BROWSER, ..._SERVERS or
..._COMPOSE the tests themselves fail where they would be skipped.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest


def always() -> bool:
    """On every machine; tests/counts.toml does not count these tests."""
    return True


def plain_user() -> bool:
    """This user can neither be another one nor install packages."""
    return os.geteuid() != 0


@cache
def no_package(name: str) -> bool:
    """This machine's distribution has no such package, so that `tools/setup test` cannot install it."""
    if not shutil.which("apt-cache"):
        return True
    policy = subprocess.run(["apt-cache", "policy", name], capture_output=True, text=True, check=False).stdout
    return not re.search(r"^ +Candidate: [^(]", policy, re.MULTILINE)


def without(*packages: str) -> Callable[[], bool]:
    """A condition: one of these cannot be installed here, by this user or from this distribution."""
    return lambda: plain_user() or any(no_package(name) for name in packages)


def no_control_groups() -> bool:
    """The hierarchy of control groups (cgroup v2) is not mounted, or may not be written."""
    return not os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)


def no_tun() -> bool:
    """This machine lets nobody make tunnel interfaces."""
    return not os.access("/dev/net/tun", os.R_OK | os.W_OK)


def closed_checkout() -> bool:
    """Other users cannot read the checkout."""
    return not all(path.stat().st_mode & 0o005 == 0o005 for path in Path(__file__).resolve().parents)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Tests that may be skipped for a reason, under a condition. Both patterns are regular expressions."""

    tests: str
    reason: str
    when: Callable[[], bool]
    why: str


ALLOWED = (
    Allowed(
        "tests/(system|repo)/", "neither root nor user namespaces here", plain_user, "the system forbids laboratories"
    ),
    Allowed("tests/(system|repo)/", "/dev/net/tun is missing or may not", no_tun, "the machine forbids laboratories"),
    Allowed("tests/(system|repo)/", "`atoll kernel build`", always, "make test-virtual builds the kernel first"),
    Allowed("tests/(system|repo)/", "no Chromium on this machine", always, "make test-page installs it first"),
    Allowed(
        "tests/(system|repo)/", "is not built: make test-servers", always, "make test-servers builds the servers first"
    ),
    Allowed("tests/", "no Docker Compose", always, "Docker is not a requirement"),
    Allowed(
        "tests/(system|repo)/", "takes? root$", plain_user, "only root has machines with file systems of their own"
    ),
    Allowed("tests/unit/daemon/test_foreign_users", "takes root$", plain_user, "only root becomes another user"),
    Allowed("tests/unit/emulation/test_kernel_build", "takes root$", plain_user, "only root builds for every user"),
    Allowed(
        "tests/(system|repo)/", "other users cannot read the checkout", closed_checkout, "a clone in /srv runs them"
    ),
    Allowed("tests/(system|repo)/", "there is no (sshd|sudo)", without("openssh-server", "sudo"), "tests only"),
    Allowed(
        "tests/system/traffic/test_pep_programs",
        "there is no (curl|nginx|wrk)",
        without("curl", "nginx-light", "wrk"),
        "tests only",
    ),
    Allowed("tests/system/virtual/test_virtual_pepsal", "PEPsal is not installed", always, "it is not distributed"),
    Allowed("tests/unit/analysis/test_flow_records", "nfdump", without("nfdump"), "tests only"),
    Allowed("tests/unit/analysis/test_tshark_agreement", "tshark", without("tshark"), "tests only"),
    Allowed("tests/unit/analysis/test_flow_records", "Argus", without("argus-server", "argus-client"), "tests only"),
    Allowed(
        "tests/unit/analysis/test_rtt_lists", "ping does not run here", plain_user, "not every system lets users ping"
    ),
    Allowed(
        "tests/system/agent/test_agent_", "make no control groups", no_control_groups, "containers have none to write"
    ),
)


def find_allowed(test: str, reason: str) -> Allowed | None:
    """What allows this skip here and now, if anything does."""
    for allowed in ALLOWED:
        if re.match(allowed.tests, test) and re.search(allowed.reason, reason) and allowed.when():
            return allowed
    return None


def judge(test: str, reason: str) -> None:
    """Fail a test that is skipped for a reason that is not announced for it here and now."""
    if find_allowed(test, reason) is None:
        pytest.fail(f"skipped, which tests/skips.py does not allow here: {reason}", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def _judging(item: pytest.Item) -> Generator[None]:
    try:
        yield
    except pytest.skip.Exception as skip:
        judge(item.nodeid, str(skip))
        raise


pytest_runtest_setup = _judging  # skips by marks and by fixtures
pytest_runtest_call = _judging  # skips by the tests themselves


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file may not be skipped as a whole: nothing would say which tests it has."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} is skipped as a whole; mark its tests instead: {report.longrepr}"
    return report

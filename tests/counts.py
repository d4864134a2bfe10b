# SPDX-License-Identifier: Apache-2.0
"""Whether a whole target ran: ``make`` names it by ``--target``, and tests/counts.toml records how many tests CI runs.

The test of tests that disappear without a word: left out by a marker, a file that is not collected, a skipped file.
"""

import os
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.skips import always, find_allowed, no_control_groups, plain_user

COUNTS = Path(__file__).with_name("counts.toml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--target NAME``, of a run that is the whole of it."""
    parser.addoption("--target", metavar="NAME", help=f"fail if fewer tests run than {COUNTS.name} records for NAME")
    parser.addoption("--record", action="store_true", help=f"write in {COUNTS.name} how many tests of --target ran")


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that reports, not in xdist's workers."""
    target, is_recording = config.getoption("--target"), config.getoption("--record")
    if target is None or hasattr(config, "workerinput"):
        return
    counts = tomllib.loads(COUNTS.read_text(encoding="utf-8"))
    if target not in counts:
        raise pytest.UsageError(f"--target {target}: tests/{COUNTS.name} records {', '.join(counts)}")
    if is_recording and plain_user():
        raise pytest.UsageError("--record: only root runs all tests")
    config.pluginmanager.register(Count(target, None if is_recording else counts[target]))


class Count:
    """The tests of a session that ran, and those that were skipped as tests/skips.py allows, with the reason.

    ``recorded``: None if the session is to be recorded.
    """

    def __init__(self, target: str, recorded: int | None) -> None:
        self._target, self._recorded = target, recorded
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails in its fixtures has run."""
        if report.skipped and not hasattr(report, "wasxfail"):
            assert isinstance(report.longrepr, tuple)
            self._skipped[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.when == "call" or report.failed:
            self._ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record or fail a session that passed."""
        if session.exitstatus != pytest.ExitCode.OK:
            return
        if self._wrong():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._recorded is None:
            text = re.sub(rf"(?m)^{self._target} = .*", self._record, COUNTS.read_text(encoding="utf-8"))
            COUNTS.write_text(text, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is wrong, what cannot run here, or that the record is out of date."""
        wrong, ran, recorded = self._wrong(), len(self._ran), self._recorded or len(self._ran)
        for line in wrong:
            terminalreporter.write_line(f"ERROR: {line}", red=True)
        if ran > recorded:
            terminalreporter.write_line(f"{ran} tests ran; write so in tests/{COUNTS.name}: {self._record}")
        elif ran < recorded and not wrong:
            reasons = "; ".join(f"{reason} ({n})" for reason, n in Counter(self._impossible.values()).items())
            terminalreporter.write_line(f"{ran} of {recorded} tests ran; cannot run here: {reasons}")

    @property
    def _record(self) -> str:
        return f"{self._target} = {len(self._ran)}"

    @property
    def _impossible(self) -> dict[str, str]:
        """The skipped tests that this user or machine cannot run. CI may lack control groups, and nothing else."""
        in_ci = bool(os.environ.get("ATOLL_REQUIRE_LAB"))
        allowed = {test: find_allowed(test, reason) for test, reason in self._skipped.items()}
        return {
            test: self._skipped[test]
            for test, skip in allowed.items()
            if skip and (skip.when is no_control_groups if in_ci else skip.when is not always)
        }

    def _wrong(self) -> list[str]:
        wrong: list[str] = []
        if self._recorded is not None and len(self._ran) + len(self._impossible) < self._recorded:
            wrong.append(
                f"{len(self._ran)} tests ran and {len(self._skipped)} were skipped: fewer ran than the "
                f"{self._recorded} of tests/{COUNTS.name}; if the others were removed on purpose, write there: "
                f"{self._record}"
            )
        if self._recorded is None and self._impossible:
            wrong.append(f"{len(self._impossible)} tests cannot run here: record on a machine that runs all")
        possible = self._skipped.keys() - self._impossible
        files = {name.partition("::")[0] for name in possible} - {name.partition("::")[0] for name in self._ran}
        return wrong + [
            f"{file}: all its tests were skipped, and nothing else tests what it does" for file in sorted(files)
        ]

# SPDX-License-Identifier: Apache-2.0
"""Whether a whole target ran: ``make`` names it by ``--target``, and tests/counts.toml records how many tests it has.

The test of tests that disappear without a word: left out by a marker, a file that is not collected, a skipped file.
"""

import os
import tomllib
from pathlib import Path

import pytest

COUNTS = Path(__file__).with_name("counts.toml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--target NAME``, of a run that is the whole of it."""
    parser.addoption("--target", metavar="NAME", help=f"fail if fewer tests run than {COUNTS.name} records for NAME")


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that reports, not in xdist's workers."""
    target = config.getoption("--target")
    if target is None or hasattr(config, "workerinput"):
        return
    counts = tomllib.loads(COUNTS.read_text(encoding="utf-8"))
    if target not in counts:
        raise pytest.UsageError(f"--target {target}: tests/{COUNTS.name} records {', '.join(counts)}")
    config.pluginmanager.register(Count(target, counts[target]))


class Count:
    """The tests of a session that ran, and those that were skipped as tests/skips.py allows."""

    def __init__(self, target: str, recorded: int) -> None:
        self._target, self._recorded = target, recorded
        self._ran: set[str] = set()
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails in its fixtures has run."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.add(report.nodeid)
        elif report.when == "call" or report.failed:
            self._ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that passed."""
        if session.exitstatus == pytest.ExitCode.OK and self._wrong():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is wrong, or that the record is out of date."""
        for line in self._wrong():
            terminalreporter.write_line(f"ERROR: {line}", red=True)
        count = len(self._ran) + len(self._skipped)
        if count > self._recorded:
            terminalreporter.write_line(f"{count} tests; write so in tests/{COUNTS.name}: {self._target} = {count}")

    def _wrong(self) -> list[str]:
        ran, skipped = len(self._ran), len(self._skipped)
        wrong: list[str] = []
        if ran + skipped < self._recorded:
            wrong.append(
                f"{ran} tests ran and {skipped} were skipped, fewer than the {self._recorded} of tests/{COUNTS.name}; "
                f"if the others were removed on purpose, write there: {self._target} = {ran + skipped}"
            )
        if os.environ.get("ATOLL_REQUIRE_LAB"):
            files = {name.partition("::")[0] for name in self._skipped} - {
                name.partition("::")[0] for name in self._ran
            }
            wrong += [
                f"{file}: all its tests were skipped, and nothing else tests what it does" for file in sorted(files)
            ]
        return wrong

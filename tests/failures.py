# SPDX-License-Identifier: Apache-2.0
"""A test that fails is named at once, with its reason in a line; the details follow at the end as always."""

import pytest
from _pytest.terminal import TerminalReporter


def pytest_sessionstart(session: pytest.Session) -> None:
    """Report in the process that has the terminal, not in xdist's workers."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        session.config.pluginmanager.register(_Failures(terminal))


class _Failures:
    def __init__(self, terminal: TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)  # after the letter of the test
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = (crash.message if crash else report.longreprtext).partition("\n")[0]
            self._terminal.write_line(f"\nFAILED {report.nodeid}: {reason}", red=True)

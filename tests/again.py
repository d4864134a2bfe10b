# SPDX-License-Identifier: Apache-2.0
"""pytest, with a second try for what a moment of the machine may spoil: ``python -m tests.again ARGUMENTS OF PYTEST``.

A virtual machine stands still for tens of milliseconds now and then (docs/benchmarks.md, "limit"), and a laboratory in
real time sees it. A test of such a laboratory that has failed is therefore tried once more, with the machine to itself
and every fixture made anew, and counts if it passes then; both outcomes are printed. Nothing else has a second try: not
what needs no laboratory, not virtual time, which leaves nothing to chance, unless real time is held beside it (marked
``figures``, too), nor more than a few at once: no accident.
"""

import subprocess
import sys

import pytest

MOST = 4  # more failures than these are no accident


class Failures:
    """A plugin of pytest that remembers which tests failed, and which of them may be spoilt by a moment."""

    def __init__(self) -> None:
        self.of_the_moment: list[str] = []
        self.others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for every phase of every test, by xdist's workers as well."""
        if not report.failed:
            return
        real_time = "lab" in report.keywords and ("virtual" not in report.keywords or "figures" in report.keywords)
        kind = self.of_the_moment if real_time else self.others
        if report.nodeid not in kind:
            kind.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is nothing of the moment."""
        if report.failed:
            self.others.append(report.nodeid)

    @property
    def worth_a_second_try(self) -> bool:
        """Whether nothing failed but a few tests that the machine may have spoilt."""
        return not self.others and 0 < len(self.of_the_moment) <= MOST


def main(arguments: list[str]) -> int:
    """Run pytest, and what deserves it a second time. Returns pytest's exit code."""
    failures = Failures()
    status = pytest.main(arguments, plugins=[failures])
    if status != pytest.ExitCode.TESTS_FAILED or not failures.worth_a_second_try:
        return int(status)
    print(f"\nagain, with the machine to itself: {' '.join(failures.of_the_moment)}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *failures.of_the_moment], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

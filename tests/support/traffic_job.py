# SPDX-License-Identifier: Apache-2.0
"""A traffic job of ours on loopback, as tests and benchmarks start it, and how evenly its channels were served."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Job:
    """A traffic job of ours: it stops when its input ends."""

    def __init__(self, config: dict[str, Any], *argv: str) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(config) + "\n")
        self._process.stdin.flush()
        self.ready = self.next_of("ready")

    def next_of(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds; others are skipped."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message["type"] in kinds:
                return message
        msg = f"the job ended with {self._process.wait()} before it said any of {kinds}"
        raise AssertionError(msg)

    def stop(self, kinds: tuple[str, ...] = ("done",)) -> dict[str, Any]:
        """Its next message of some kinds, once its input has ended; it must exit with 0."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        done = self.next_of(*kinds)
        assert self._process.wait(10) == 0
        return done

    def kill(self) -> None:
        """Whatever a failed test leaves."""
        self._process.kill()
        with self._process:  # closes the pipes and waits
            pass


@contextmanager
def running(config: dict[str, Any], *argv: str) -> Generator[Job]:
    """A job while the block lasts."""
    job = Job(config, *argv)
    try:
        yield job
    finally:
        job.kill()


def jain(shares: list[int]) -> float:
    """Jain's index of fairness."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))

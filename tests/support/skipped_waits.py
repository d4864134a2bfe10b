# SPDX-License-Identifier: Apache-2.0
"""An event loop that skips waits: its clock jumps to the next timer. Tests of timers take no time, and are exact.

For tests without sockets, processes and threads: this clock does not wait for them.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _SkippingSelector(selectors.DefaultSelector):
    """Returns at once; ``now_s`` is the time at which a real one would return."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "the test waits for ever"
        self.now_s += timeout
        return super().select(0)


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now_s


def skipping_waits(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on such a loop."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=_SkippingLoop) as runner:
            runner.run(test(**fixtures))

    return run

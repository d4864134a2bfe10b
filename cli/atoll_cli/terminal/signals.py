# SPDX-License-Identifier: Apache-2.0
"""Cancel the work of a command on Ctrl-C, SIGTERM or SIGHUP, so that it can clean up."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def unless_interrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Await ``work``, and cancel it when a signal asks the process to end; ``work`` cleans up on cancellation.

    Raises asyncio.CancelledError in that case. The caller turns it into an InterruptedByUserError that reports the
    state that is left.
    """
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, task.cancel)
    return await task

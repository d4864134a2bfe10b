# SPDX-License-Identifier: Apache-2.0
"""Ending a verb that has something to undo: Ctrl-C, SIGTERM and a terminal that goes away cancel its work."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def unless_interrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Do the work, which undoes what it did when it is cancelled.

    Raises asyncio.CancelledError, then, if one of the signals came; who calls it says in an InterruptedByUserError what
    became of what was begun.
    """
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, task.cancel)
    return await task

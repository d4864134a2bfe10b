# SPDX-License-Identifier: Apache-2.0
"""Connections within stateful boxes that a swap moves: waited for, then ended so that both of their ends learn of it.

They are found and ended by `ss` (iproute2) where the box is. A kernel that cannot end a program's connections
(CONFIG_INET_DIAG_DESTROY) ends them with the program, which is started again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from atoll_controller.planner.job_privileges import RESET_CONNECTIONS
from atoll_core.errors import LabError, UsageError
from atoll_core.lab.network import Network
from atoll_core.units import Duration
from atoll_hosts.machine import Machine

_LOOK_EVERY_S = 0.2
_DEFAULT_LIMIT = "60 s"

# Of the experiment's hosts only: a real box has others, that of whoever looks after it among them.
_FOUND = "state connected exclude time-wait ( {peers} )"
_COUNT = 'found=$(ss -Htn $@) || exit 1; printf \'{"connections":%d}\\n\' "$(printf %s "$found" | grep -c .)"'

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """What becomes of connections that break: ended when packets turn, or first waited for, up to ``wait``."""

    wait: Duration | None = None

    @classmethod
    def parse(cls, text: str) -> "ConnectionPolicy":
        """``reset``, ``wait`` or ``wait:LIMIT``. Raises UsageError."""
        word, separator, limit = text.partition(":")
        if text == "reset":
            return cls()
        if word != "wait":
            raise UsageError(f"--connections: {text!r} is neither reset nor wait nor wait:LIMIT, such as 'wait:30 s'")
        try:
            return cls(Duration.parse(limit if separator else _DEFAULT_LIMIT))
        except ValueError as error:
            raise UsageError(f"--connections: {text!r}: {error}") from None


class BoxConnections:
    """The TCP connections that programs on boxes hold.

    ``machine``: one by its name (KeyError: none of ours). ``restart``: ends a box's program, and its
    connections with it, and starts it again.
    """

    def __init__(
        self,
        network: Network,
        machine: Callable[[str], Machine],
        restart: Callable[[str], Awaitable[None]],
        tell: Tell,
    ) -> None:
        self._machine = machine
        self._restart = restart
        self._tell = tell
        self._filter = _FOUND.format(peers=f"dst {network.world} or dst {network.island}").split()
        self._external = frozenset(box.name for box in network.boxes if not box.is_managed)

    async def wait(self, boxes: Iterable[str], limit: Duration) -> None:
        """Return when the boxes hold no connections any more, or after ``limit``, which is told. Raises LabError."""
        deadline = time.monotonic() + limit.ns / 1e9
        left = [box for box in boxes if box not in self._external]
        while left:
            counts = {box: await self._count(box) for box in left}
            left = [box for box, count in counts.items() if count]
            if left and time.monotonic() >= deadline:
                self._say("limit", {box: counts[box] for box in left})
                return
            if left:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def reset(self, boxes: Iterable[str]) -> None:
        """End the connections that the boxes hold; what was done is told. Raises LabError."""
        for box in boxes:
            if box in self._external:
                self._say("time-out", {box: None})
                continue
            held = await self._count(box)
            if not held:
                continue
            await self._run(box, "ss", "-Ktn", *self._filter)
            refused = await self._count(box)
            if refused:
                await self._restart(box)
            self._say("restart" if refused else "reset", {box: held})

    def _say(self, how: str, boxes: Mapping[str, int | None]) -> None:
        self._tell({"type": "swap", "t_ns": time.time_ns(), "state": "connections", "how": how, "boxes": boxes})

    async def _count(self, box: str) -> int:
        answer = await self._run(box, "sh", "-c", _COUNT, "count", *self._filter)
        return int((answer or {})["connections"])

    async def _run(self, box: str, *argv: str) -> dict[str, Any] | None:
        """Run a command to its end; its last line of JSON. Raises LabError."""
        job = await self._machine(box).start_job(f"connections-{box}", argv, privileges=RESET_CONNECTIONS)
        ended = await job.wait()
        if ended.code != 0:
            raise LabError(f"{box}: the connections it holds cannot be told: {job.exit_text()}")
        return job.last

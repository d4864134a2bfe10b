# SPDX-License-Identifier: Apache-2.0
"""TCP connections in stateful boxes that a swap affects: admit no others, wait for their end, then reset them.

`ss` (iproute2) finds and resets them on the box's machine. If the kernel cannot reset a program's connections
(CONFIG_INET_DIAG_DESTROY), the program is restarted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from atoll_controller.planner.job_limits import RESET_CONNECTIONS
from atoll_core.errors import LabError, UsageError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import SwapEvent
from atoll_core.lab.box_kind import PEER_PORT
from atoll_core.lab.network import Network
from atoll_core.units import Duration
from atoll_hosts.machine import Machine

_POLL_S = 0.2
_DEFAULT_LIMIT = "60 s"

# Only connections of the experiment's hosts: a real box has others, such as an administrator's SSH session.
_FILTER = "state connected exclude time-wait ( {peers} )"
# Those between two boxes are none of the hosts': they end by no wait, and are made again when they are reset.
_WAIT_FILTER = f"state connected exclude time-wait ( {{peers}} ) and sport != {PEER_PORT} and dport != {PEER_PORT}"
_COUNT_SCRIPT = 'found=$(ss -Htn $@) || exit 1; printf \'{"connections":%d}\\n\' "$(printf %s "$found" | grep -c .)"'


class _Admit(Protocol):
    """Lets TCP connections begin through a box, or drops their first packets. Raises LabError."""

    async def __call__(self, box: str, *, on: bool) -> None:
        """See :class:`_Admit`."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """Policy for connections that a swap breaks: reset them, after waiting up to ``wait`` for their end."""

    wait: Duration | None = None

    @classmethod
    def parse(cls, text: str) -> "ConnectionPolicy":
        """``reset``, ``wait`` or ``wait:LIMIT``. Raises UsageError."""
        mode, separator, limit = text.partition(":")
        if text == "reset":
            return cls()
        if mode != "wait":
            raise UsageError(f"--connections: {text!r} is neither reset nor wait nor wait:LIMIT, such as 'wait:30 s'")
        try:
            return cls(Duration.parse(limit if separator else _DEFAULT_LIMIT))
        except ValueError as error:
            raise UsageError(f"--connections: {text!r}: {error}") from None


class BoxConnections:
    """The TCP connections of programs on boxes, and the policy for those that a swap breaks.

    ``machine_named``: the machine with a name (KeyError: no such machine). ``restart``: restarts a box's program.
    ``admit``: lets connections begin through a box, or drops their first packets.
    """

    def __init__(
        self,
        network: Network,
        machine_named: Callable[[str], Machine],
        restart: Callable[[str], Awaitable[None]],
        admit: _Admit,
        events: EventBus,
        policy: ConnectionPolicy,
    ) -> None:
        self._machine_named = machine_named
        self._restart = restart
        self._admit = admit
        self._closed_boxes: set[str] = set()  # to new connections
        self._events = events
        self._policy = policy
        peers = f"dst {network.world} or dst {network.island}"
        self._filter = _FILTER.format(peers=peers).split()
        self._wait_filter = _WAIT_FILTER.format(peers=peers).split()
        self._external = frozenset(box.name for box in network.boxes if not box.is_managed)

    async def wait(self, boxes: Collection[str]) -> bool:
        """Wait until the boxes have no connections; after the policy's limit, publish an event and return.

        New ones do not begin there until :meth:`reopen`: their hosts try again, and take the new path by then.
        Returns whether the policy is to wait. Raises LabError.
        """
        if self._policy.wait is None or not boxes:
            return False
        deadline = time.monotonic() + self._policy.wait.s
        busy_boxes = [box for box in boxes if box not in self._external]
        for box in busy_boxes:
            self._closed_boxes.add(box)
            await self._admit(box, on=False)
        while busy_boxes:
            counts = {box: await self._count(box) for box in busy_boxes}
            busy_boxes = [box for box, count in counts.items() if count]
            if busy_boxes and time.monotonic() >= deadline:
                self._publish("limit", {box: counts[box] for box in busy_boxes})
                break
            if busy_boxes:
                await asyncio.sleep(_POLL_S)
        return True

    async def reset(self, boxes: Iterable[str]) -> None:
        """Reset the boxes' connections, publish an event for each box, and :meth:`reopen`. Raises LabError."""
        try:
            for box in boxes:
                await self._reset(box)
        finally:
            await self.reopen()

    async def _reset(self, box: str) -> None:
        if box in self._external:
            self._publish("time-out", {box: None})
            return
        count = await self._count(box)
        await self._run(box, "ss", "-Ktn", *self._filter)
        if not count:
            return
        remaining = await self._count(box)
        if remaining:
            await self._restart(box)
        self._publish("restart" if remaining else "reset", {box: count})

    async def reopen(self) -> None:
        """Let connections begin again. Raises LabError; the next call tries again."""
        for box in sorted(self._closed_boxes):
            await self._admit(box, on=True)
            self._closed_boxes.discard(box)

    def _publish(self, outcome: str, boxes: Mapping[str, int | None]) -> None:
        self._events.publish(SwapEvent(time.time_ns(), "connections", {"how": outcome, "boxes": boxes}))

    async def _count(self, box: str) -> int:
        answer = await self._run(box, "sh", "-c", _COUNT_SCRIPT, "count", *self._wait_filter)
        return int((answer or {})["connections"])

    async def _run(self, box: str, *argv: str) -> dict[str, Any] | None:
        """Run a command to its end and return its last line of JSON. Raises LabError."""
        job = await self._machine_named(box).start_job(f"connections-{box}", argv, privileges=RESET_CONNECTIONS)
        ended = await job.wait()
        if ended.code != 0:
            raise LabError(f"{box}: its connections cannot be listed or reset: {job.exit_text()}")
        return job.last

# SPDX-License-Identifier: Apache-2.0
"""The daemon's end of the controller: a child process, its switches, and requests to them. No framework here."""

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atoll_core.clone import remedy
from atoll_core.codec import from_json, to_json
from atoll_core.errors import LabError, MachineError
from atoll_core.openflow_wire import encoder
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.switch_features import Runtime, SwitchFeatures, UnmanagedState
from atoll_core.secret_variables import without_secrets

_LINE_LIMIT = 64 * 1024 * 1024  # bytes; the table of a full switch is one line
_READY_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 30.0  # above the controller's own, whose error has the reason
_END_TIMEOUT_S = 2.0
_STDERR_LINES = 20  # lines

PYTHON_VARIABLE = "ATOLL_RYU_PYTHON"

OnProgress = Callable[[int], None]
"""Takes the number of changes that a switch has acknowledged so far."""


def interpreter(runtime: Runtime) -> str:
    """The path of a Python that has the runtime.

    For Ryu the one that ATOLL_RYU_PYTHON names, else this one if it has Ryu, else that of ``.venv-ryu`` next to this
    environment, which ``tools/ryu`` makes. Raises MachineError, with the remedy, when there is none.
    """
    if runtime is Runtime.OS_KEN:
        return sys.executable
    configured = os.environ.get(PYTHON_VARIABLE)
    if configured is None and importlib.util.find_spec("ryu") is not None:
        return sys.executable
    python = Path(configured) if configured else Path(sys.prefix).parent / ".venv-ryu" / "bin" / "python"
    if os.access(python, os.X_OK):
        return str(python)
    make = remedy("run `tools/ryu`, or ", "")
    raise MachineError(
        f"Ryu is not installed ({python} does not exist); {make}name a Python with atoll[ryu]: {PYTHON_VARIABLE}=/path"
    )


@dataclass(frozen=True, slots=True)
class SwitchState:
    """A connected switch: the number of its tables, and its interfaces by port number."""

    dpid: int
    up: bool
    tables: int = 0
    ports: dict[int, str] = field(default_factory=dict[int, str])


class Controller:
    """A running controller process. Build it with :meth:`start`.

    ``switches``: every switch that has ever connected, by datapath id. ``on_event`` takes its events as they come (JSON
    objects). When the process has ended (``closed``), pending requests and later ones fail with LabError.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.switches: dict[int, SwitchState] = {}
        self._features: dict[int, SwitchFeatures] = {}
        self._tables: dict[tuple[int, int], tuple[str, tuple[FlowEntry | UnmanagedEntry, ...]]] = {}
        self.on_event: Callable[[dict[str, Any]], None] | None = None
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.runtime = ""
        self.port = 0
        self._process = process
        self._request_ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._progress: dict[int, OnProgress | None] = {}  # of pending requests
        self._deadlines: dict[int, asyncio.Timeout] = {}
        self._ready = asyncio.Event()
        self._switch_change = asyncio.Condition()
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._reader = asyncio.create_task(self._read_all())

    @classmethod
    async def start(
        cls, prefix: Sequence[str], python: str, listen: str = "127.0.0.1:6653", runtime: Runtime = Runtime.OS_KEN
    ) -> "Controller":
        """Start the process (``prefix`` puts it into the lab's namespaces) and wait until it listens.

        ``python``: an interpreter that has the runtime and this package. Raises LabError with the process's own message
        when it doesn't listen.
        """
        process = await asyncio.create_subprocess_exec(
            *(*prefix, python, "-m", "atoll_controller.openflow", "--listen", listen, "--runtime", runtime),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # a Ctrl-C at the terminal is the daemon's to deal with
            env=without_secrets(os.environ),
        )
        controller = cls(process)
        try:
            await controller._until_ready()
        except BaseException:
            await controller.close()
            raise
        return controller

    @property
    def closed(self) -> asyncio.Future[str]:
        """Done, with the reason, once the process has ended. Cancelling one waiter does not affect others."""
        return asyncio.shield(self._closed)

    async def wait_for(self, dpids: Iterable[int], timeout: float) -> None:  # noqa: ASYNC109 - the caller's words name it
        """Wait until these switches are connected. Raises LabError naming those that are not after ``timeout`` s."""
        expected = set(dpids)

        def missing() -> list[int]:
            return sorted(dpid for dpid in expected if dpid not in self.switches or not self.switches[dpid].up)

        async with self._switch_change:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._switch_change.wait_for(lambda: not missing() or self.closed.done())
        if missing():
            names = ", ".join(str(dpid) for dpid in missing())
            reason = self.closed.result() if self.closed.done() else f"not within {timeout:g} s"
            raise LabError(f"switches with datapath id {names} did not connect to the controller: {reason}")

    async def read(self, dpid: int, switch_name: str, table: int = 0) -> tuple[FlowEntry | UnmanagedEntry, ...]:
        """The entries of a switch, with its name in the plan. Raises LabError.

        The switch sends its whole table each time; an unchanged table is not transferred from the controller again.
        """
        digest, entries = self._tables.get((dpid, table), ("", ()))
        answer = await self._request("read", dpid=dpid, table=table, known=digest)
        if "entries" in answer:
            entries = (
                *(from_json(FlowEntry, {**entry, "switch": switch_name}) for entry in answer["entries"]),
                *(from_json(UnmanagedEntry, {**entry, "switch": switch_name}) for entry in answer["foreign"]),
            )
            self._tables[dpid, table] = answer["digest"], entries
        return entries

    async def has_exactly(self, dpid: int, entries: Iterable[FlowEntry], table: int = 0) -> bool:
        """Read the whole table back: whether the switch has exactly these entries. Raises LabError.

        Also False for a switch that returns an entry in other bytes than those sent: ``read`` understands these.
        """
        entries = tuple(entries)
        digest = encoder.table_digest(encoder.entry_key(entry) for entry in entries)
        answer = await self._request("read", dpid=dpid, table=table, known=digest)
        if "entries" in answer:
            return False
        self._tables[dpid, table] = digest, tuple(replace(entry, why="") for entry in entries)
        return True

    async def change(
        self,
        dpid: int,
        delete: Iterable[FlowEntry | UnmanagedEntry],
        add: Iterable[FlowEntry],
        table: int = 0,
        progress: OnProgress | None = None,
    ) -> None:
        """Delete, then add, a barrier after each. Raises LabError naming the entry that was refused.

        ``progress``: takes the number of changes that the switch has acknowledged, again and again.
        """
        deleted = tuple(delete)
        await self._request(
            "change",
            progress,
            dpid=dpid,
            table=table,
            delete=[to_json(entry) for entry in deleted if isinstance(entry, FlowEntry)],
            foreign=[to_json(entry) for entry in deleted if isinstance(entry, UnmanagedEntry)],
            add=[to_json(entry) for entry in add],
        )

    async def count(self, dpid: int, table: int = 0) -> int:
        """The number of entries in a table, without reading them. Raises LabError."""
        return (await self._request("count", dpid=dpid, table=table))["count"]

    async def features(self, dpid: int) -> SwitchFeatures:
        """The description and table features of a switch, read once a connection. Raises LabError."""
        if dpid not in self._features:
            answer = await self._request("features", dpid=dpid)
            self._features[dpid] = from_json(SwitchFeatures, answer["features"])
        return self._features[dpid]

    async def leftovers(self, dpid: int) -> UnmanagedState:
        """The groups and meters on a switch. Raises LabError."""
        return from_json(UnmanagedState, (await self._request("leftovers", dpid=dpid))["leftovers"])

    async def clear(self, dpid: int, leftovers: UnmanagedState) -> None:
        """Delete groups and meters of a switch. Raises LabError naming the first that it does not delete."""
        await self._request("clear", dpid=dpid, leftovers=to_json(leftovers))

    async def counters(self, dpid: int, table: int = 0) -> dict[str, Any]:
        """Counters of ports and entries as docs/contracts.md has them. Raises LabError."""
        answer = await self._request("counters", dpid=dpid, table=table)
        return {"ports": answer["ports"], "entries": answer["entries"]}

    async def packets(self, dpid: int, entries: Iterable[FlowEntry], table: int = 0) -> tuple[int | None, ...]:
        """The packet counter of each of these entries; None if the switch does not have it. Raises LabError."""
        answer = await self._request("packets", dpid=dpid, table=table, entries=[to_json(entry) for entry in entries])
        return tuple(answer["packets"])

    async def send(self, dpid: int, frames: Iterable[tuple[FlowEntry, bytes]]) -> tuple[str | None, ...]:
        """Let the switch send frames by the actions of entries, which need not be installed (packet-out).

        Returns the switch's error for each frame, or None. Raises LabError.
        """
        requests = [{"entry": to_json(entry), "frame": frame.hex()} for entry, frame in frames]
        return tuple((await self._request("send", dpid=dpid, frames=requests))["refused"])

    async def close(self) -> None:
        """End the process; the switches keep forwarding. Returns when it is gone, however often it is called."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self.closed
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self.closed
        await self._reader

    async def _until_ready(self) -> None:
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({ready, self.closed}, timeout=_READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                reason = self.closed.result() if self.closed.done() else f"not ready after {_READY_TIMEOUT_S:g} s"
                raise LabError(f"the controller did not start: {reason}")
        finally:
            ready.cancel()

    async def _request(self, op: str, progress: OnProgress | None = None, **fields: Any) -> dict[str, Any]:
        request_id = next(self._request_ids)
        self._progress[request_id] = progress
        answer = self._pending[request_id] = asyncio.get_running_loop().create_future()
        try:
            if self.closed.done() or self._process.stdin is None:
                raise LabError(f"the controller is gone: {self.closed.result() if self.closed.done() else 'no stream'}")
            try:
                self._process.stdin.write(json.dumps({"id": request_id, "op": op, **fields}).encode() + b"\n")
                await self._process.stdin.drain()
            except (ConnectionError, RuntimeError):
                raise LabError(f"the controller is gone: {await self.closed}") from None
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S) as deadline:
                    self._deadlines[request_id] = deadline
                    return await answer
            except TimeoutError:
                raise LabError(f"the controller did not answer '{op}' within {_ANSWER_TIMEOUT_S:g} s") from None
        finally:
            del self._pending[request_id], self._progress[request_id]
            self._deadlines.pop(request_id, None)
            answer.cancel()

    async def _read_all(self) -> None:
        streams = (self._process.stdout, self._process.stderr)
        if streams[0] is None or streams[1] is None:  # never so: both are pipes
            return
        errors = asyncio.create_task(self._read_stderr(streams[1]))
        try:
            async for line in streams[0]:
                await self._on_message(json.loads(line))
        except Exception as error:  # noqa: BLE001 - a line that is no message, or too long: nothing after it can be trusted
            self._stderr.append(f"its message cannot be read: {type(error).__name__}: {error}")
            self._process.kill()
        await errors
        code = await self._process.wait()
        last_line = f": {self._stderr[-1]}" if self._stderr else ""
        self._closed.set_result(f"it ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}{last_line}")
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(LabError(f"the controller is gone: {self.closed.result()}"))
        async with self._switch_change:
            self._switch_change.notify_all()

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._stderr.append(line.decode(errors="replace").rstrip())

    async def _on_message(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "answer":
                answer = self._pending.get(message.get("id", 0))
                if answer is not None and not answer.done():
                    if message["ok"]:
                        answer.set_result(message)
                    else:
                        answer.set_exception(LabError(message["error"]))
                return
            case "progress":
                self._on_progress(message["id"], message["done"])
                return
            case "ready":
                self.runtime, self.port = message["runtime"], message["port"]
                self._ready.set()
            case "switch":
                await self._on_switch(message)
            case _:
                pass
        if self.on_event is not None:
            self.on_event(message)

    def _on_progress(self, request_id: int, done: int) -> None:
        """A switch works on a request: wait longer for the answer."""
        if request_id in self._deadlines and request_id in self._pending:
            self._deadlines[request_id].reschedule(asyncio.get_running_loop().time() + _ANSWER_TIMEOUT_S)
            if (progress := self._progress[request_id]) is not None:
                progress(done)

    async def _on_switch(self, message: dict[str, Any]) -> None:
        ports = {int(number): name for number, name in message["ports"].items()}
        state = SwitchState(message["dpid"], message["state"] == "up", message["tables"], ports)
        self._features.pop(state.dpid, None)  # it may come back as another one
        async with self._switch_change:
            self.switches[state.dpid] = state
            self._switch_change.notify_all()

# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownArgumentType=false
"""One connected switch, seen from the controller process: requests out, replies matched to them by transaction id.

Waits are those of the standard library: os-ken's own events never time out in native threads. Of its queues the plain
one: eventlet, Ryu's hub, makes no other wait without stopping everybody.
"""

import queue
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll_controller.openflow import runtime_adapter
from atoll_core.openflow_wire import encoder, feature_parser
from atoll_core.openflow_wire.flow_stats import (
    EntryStats,
    action_lists,
    entry_count,
    entry_records,
    parse_entry,
    record_key,
    records,
    sort_fields,
)
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.switch_features import SwitchFeatures, UnmanagedState

_REPLY_TIMEOUT_S = 10.0
_WINDOW_SIZES = (64, 1024)  # flow-mods before a barrier is waited for: the first, and at most
_WINDOW_S = 0.5  # a window is doubled while switches take less than this for one
_CHUNK_BYTES = 65536  # bytes handed to the framework at a time
_MAX_XID = 0xFFFFFFFF

_PORT_RECORD = struct.Struct("!I4x8Q32x8x")
_PORT_COUNTERS = tuple(f"{way}_{unit}" for unit in ("packets", "bytes", "dropped", "errors") for way in ("rx", "tx"))

Entry = FlowEntry | UnmanagedEntry

OnProgress = Callable[[int], None]
"""Takes the number of changes that a switch has acknowledged so far."""


class SwitchError(Exception):
    """The switch refused something, did not answer, or went away; the message is one line."""


class _RefusedError(SwitchError):
    """The switch answered a request for information with an error."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a transaction: the body of a multipart reply, the end of a barrier, or the text of an error."""

    xid: int
    body: bytes = b""
    more: bool = False  # another part follows
    error: str | None = None


class SwitchSession:
    """A switch whose connection is up. The framework calls ``take`` and ``connection_lost``, one worker the rest.

    ``send`` hands bytes to the connection; ``ports``: interface names by port number, without reserved ports.
    """

    def __init__(self, dpid: int, tables: int, ports: dict[str, str], send: Callable[[bytes], Any]) -> None:
        self.dpid = dpid
        self.tables = tables
        self.ports = ports
        self._send_bytes = send
        self._lock = threading.Lock()
        self._next_xid = 1
        self._xids = range(0)
        self._replies: queue.Queue[Reply | None] = queue.Queue()
        self._lost = False

    def read(self, table: int, known_digest: str | None = None) -> tuple[str, list[Entry] | None]:
        """The digest of all tables, and their entries (7.3.5.2), or None if the digest is known.

        All entries of other tables than ``table`` are foreign. Raises SwitchError, MalformedError.
        """
        rows = [*entry_records(self._multipart(encoder.flow_request(encoder.ALL_TABLES, 0), "its entries"), table)]
        digest = encoder.table_digest(record_key(record, table) for record in rows)
        if digest == known_digest:
            return digest, None
        name = str(self.dpid)
        return digest, [
            (parse_entry(record, name) if record.table == table else None) or unmanaged_entry(record, name, table)
            for record in rows
        ]

    def count(self, table: int) -> int:
        """The number of entries in a table (7.3.5.3), without reading them. Raises SwitchError."""
        request = encoder.flow_request(table, 0, encoder.AGGREGATE)
        return entry_count(self._multipart(request, "the number of its entries"))

    def features(self) -> SwitchFeatures:
        """Description and table features; no tables if the switch does not report them. Raises SwitchError."""
        request = encoder.multipart_request(encoder.DESCRIPTION, 0)
        described = feature_parser.parse_description(self._multipart(request, "its description"))
        try:
            reply = self._multipart(encoder.multipart_request(encoder.TABLE_FEATURES, 0), "its table features")
        except _RefusedError:  # optional in OpenFlow 1.3 (7.3.5.5): many devices leave it out
            return SwitchFeatures(described, ())
        return SwitchFeatures(described, feature_parser.parse_tables(reply))

    def counters(self, table: int) -> dict[str, Any]:
        """Counters of all ports (7.3.5.6) and of a table's entries, as JSON. Raises SwitchError."""
        ports = _PORT_RECORD.iter_unpack(self._multipart(encoder.port_request(0), "its ports' counters"))
        return {
            "ports": {
                str(number): dict(zip(_PORT_COUNTERS, counts, strict=True))
                for number, *counts in ports
                if number <= encoder.PORT_MAX
            },
            "entries": [
                {"cookie": record.cookie, "packets": record.packets, "bytes": record.octets}
                for record in records(self._multipart(encoder.flow_request(table, 0), "its entries"))
            ],
        }

    def change(
        self, delete: Iterable[Entry], add: Iterable[FlowEntry], table: int, progress: OnProgress | None = None
    ) -> int:
        """Delete, wait for a barrier, add, wait for a barrier; the number of barriers (one for each window).

        ``progress``: called after each barrier but the last of either kind. Raises SwitchError with the first refused
        entry; the other entries of its window have been processed.
        """
        deletions, additions = list(delete), list(add)
        deleted = self._batch(deletions, lambda entry, xid: encoder.delete(entry, table, xid), progress=progress)
        done = len(deletions)
        on_add: OnProgress | None = None if progress is None else lambda number: progress(done + number)
        return deleted + self._batch(additions, lambda entry, xid: encoder.add(entry, table, xid), progress=on_add)

    def leftovers(self) -> UnmanagedState:
        """Its groups and meters (7.3.5.9, 7.3.5.13); none if it supports neither. Raises SwitchError."""

        def numbers_of(request: bytes, numbers: Callable[[bytes], tuple[int, ...]]) -> tuple[int, ...]:
            try:
                return numbers(self._multipart(request, "its groups and meters"))
            except _RefusedError:  # both are optional in OpenFlow 1.3 (5.6, 5.7)
                return ()

        groups = numbers_of(encoder.multipart_request(encoder.GROUPS, 0), encoder.group_numbers)
        return UnmanagedState(groups, numbers_of(encoder.meter_request(0), encoder.meter_numbers))

    def clear(self, leftovers: UnmanagedState) -> int:
        """Delete groups, then meters, and wait for a barrier; the number of barriers. Raises SwitchError."""
        groups = [(f"the end of group {number}", encoder.delete_group, number) for number in leftovers.groups]
        meters = [(f"the end of meter {number}", encoder.delete_meter, number) for number in leftovers.meters]
        return self._batch([*groups, *meters], lambda each, xid: each[1](each[2], xid), lambda each: each[0])

    def packets(self, entries: Iterable[FlowEntry], table: int) -> list[int | None]:
        """The packet counter of each entry (7.3.5.2); None: it is not in the table. Raises SwitchError."""
        body = self._multipart(encoder.flow_request(table, 0), "its entries")
        by_entry = {(record.priority, sort_fields(record.match)): record.packets for record in records(body)}
        return [by_entry.get((entry.priority, encoder.match_fields(entry.match))) for entry in entries]

    def send(self, frames: Sequence[tuple[FlowEntry, bytes]]) -> list[str | None]:
        """Let the switch send each frame by its entry's actions, whether or not it is installed (packet-out: 7.3.7).

        Returns the switch's error for each one, or None. Raises SwitchError if it does not answer.
        """
        xids, replies = self._begin(len(frames) + 1)
        messages = [encoder.packet_out(entry, frame, xid) for (entry, frame), xid in zip(frames, xids, strict=False)]
        self._send([*messages, encoder.barrier(xids[-1])])
        refused: list[str | None] = [None] * len(frames)
        while (reply := self._next_reply(replies)).xid != xids[-1]:
            refused[reply.xid - xids[0]] = reply.error
        if reply.error is not None:
            raise SwitchError(f"switch {self.dpid} refused a barrier: {reply.error}")
        return refused

    def take(self, reply: Reply) -> bool:
        """Pass a reply or an error to its request; False if there is none."""
        with self._lock:
            replies = self._replies if reply.xid in self._xids else None
        if replies is not None:
            replies.put(reply)
        return replies is not None

    def connection_lost(self) -> None:
        """End all requests, as the connection has ended."""
        with self._lock:
            self._lost = True
            self._replies.put(None)

    def _multipart(self, request: bytes, subject: str) -> bytes:
        """The bodies of all parts of the reply to a request, whose transaction id is filled in here."""
        xids, replies = self._begin(1)
        self._send([request[:4] + struct.pack("!I", xids[0]) + request[8:]])
        parts: list[bytes] = []
        while True:
            reply = self._next_reply(replies)
            if reply.error is not None:
                raise _RefusedError(f"switch {self.dpid} does not report {subject}: {reply.error}")
            parts.append(reply.body)
            if not reply.more:
                return b"".join(parts)

    def _batch(
        self,
        entries: Sequence[Any],
        pack: Callable[[Any, int], bytes],
        text_of: Callable[[Any], str] | None = None,
        progress: OnProgress | None = None,
    ) -> int:
        """Send messages such as flow-mods, a barrier after each window; ``text_of``: its text in errors.

        Errors come before the barrier's reply (6.2). The size of a window follows the rate of the switch: hardware that
        takes a hundred flow-mods a second answers within the limit, and reports progress; others lose no time.
        """
        size, barriers, sent = _WINDOW_SIZES[0], 0, 0
        while sent < len(entries) or not barriers:
            window = entries[sent : sent + size]
            start_s = time.monotonic()
            errors = self._send_window(window, pack, text_of or _entry_text)
            barriers += 1
            if errors:
                more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
                raise SwitchError(errors[0] + more)
            sent += len(window)
            if progress is not None and sent < len(entries):
                progress(sent)
            if time.monotonic() - start_s < _WINDOW_S:
                size = min(2 * size, _WINDOW_SIZES[1])
        return barriers

    def _send_window(
        self, window: Sequence[Any], pack: Callable[[Any, int], bytes], text_of: Callable[[Any], str]
    ) -> list[str]:
        """Send a window and a barrier; the switch's errors before its reply. Raises SwitchError without a reply."""
        errors: list[str] = []
        xids, replies = self._begin(len(window) + 1)
        self._send([*map(pack, window, xids), encoder.barrier(xids[-1])])
        while (reply := self._next_reply(replies)).error is not None:
            if reply.xid == xids[-1]:
                raise SwitchError(f"switch {self.dpid} refused a barrier: {reply.error}")
            errors.append(f"switch {self.dpid} refused {text_of(window[reply.xid - xids[0]])}: {reply.error}")
        return errors

    def _begin(self, number: int) -> "tuple[range, queue.Queue[Reply | None]]":
        """Transaction ids for this many messages, and the queue for their replies. Late replies are discarded."""
        with self._lock:
            if self._next_xid + number > _MAX_XID:
                self._next_xid = 1
            self._xids = range(self._next_xid, self._next_xid + number)
            self._next_xid += number
            self._replies = queue.Queue()
            if self._lost:
                self._replies.put(None)
            return self._xids, self._replies

    def _send(self, messages: Iterable[bytes]) -> None:
        chunk = bytearray()
        for message in messages:
            chunk += message
            if len(chunk) >= _CHUNK_BYTES:
                self._send_bytes(bytes(chunk))
                chunk.clear()
        self._send_bytes(bytes(chunk))

    def _next_reply(self, replies: "queue.Queue[Reply | None]") -> Reply:
        try:
            reply = replies.get(timeout=_REPLY_TIMEOUT_S)
        except queue.Empty:
            raise SwitchError(f"switch {self.dpid} did not answer within {_REPLY_TIMEOUT_S:g} s") from None
        if reply is None:
            raise SwitchError(f"switch {self.dpid} disconnected")
        return reply


def _entry_text(entry: Entry) -> str:
    """The entry in error messages: its reason, if it has one, and its content."""
    text = str(entry).removeprefix(f"{entry.switch}: ")
    return f"'{entry.why}' ({text})" if isinstance(entry, FlowEntry) and entry.why else text


_ofp = runtime_adapter.module("ofproto.ofproto_v1_3")
_parser = runtime_adapter.module("ofproto.ofproto_v1_3_parser")
_RESERVED_PORTS = {
    getattr(_ofp, f"OFPP_{name}"): name
    for name in ("IN_PORT", "TABLE", "NORMAL", "FLOOD", "ALL", "CONTROLLER", "LOCAL", "ANY")
}


def unmanaged_entry(record: EntryStats, switch: str, table: int) -> UnmanagedEntry:
    """A record as an entry that can be shown and deleted. ``table``: the plan's."""
    text = "" if record.table == table else f"table {record.table}, "
    try:
        action_lists(record.instructions)  # the framework's parser does not end at an action of no length
        text += _record_text(_parser.OFPFlowStats.parser(record.raw, 0))
    except encoder.MalformedError as error:
        text += f"its instructions are malformed: {error}"
    return UnmanagedEntry(switch, record.priority, record.cookie, record.oxm.hex(), text, record.table)


def _record_text(stats: Any) -> str:
    fields = ", ".join(
        f"{name} {'/'.join(map(str, field)) if isinstance(field, tuple) else field}"
        for name, field in stats.match.items()
    )
    actions: list[str] = []
    for instruction in stats.instructions:
        if isinstance(instruction, _parser.OFPInstructionActions):
            actions += map(_action_text, instruction.actions)
        else:
            actions.append(type(instruction).__name__.removeprefix("OFPInstruction"))
    times = ((stats.idle_timeout, "idle"), (stats.hard_timeout, "hard"))
    limits = "".join(f", {name} time-out {seconds} s" for seconds, name in times if seconds)
    return f"{fields or 'any frame'}: {', '.join(actions) or 'drop'}{limits}"


def _action_text(action: Any) -> str:
    if isinstance(action, _parser.OFPActionOutput):
        return f"port {_RESERVED_PORTS.get(action.port, action.port)}"
    return type(action).__name__.removeprefix("OFPAction").removeprefix("NXAction")

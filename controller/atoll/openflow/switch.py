# SPDX-License-Identifier: Apache-2.0
"""One connected switch, seen from the controller process: requests out, replies matched to them by transaction id.

Waits are those of the standard library: os-ken's own events never time out in native threads.
"""

import itertools
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from atoll.model.flow import FlowEntry, ForeignEntry
from atoll.openflow.codec import add_message, delete_message, entry_from, error_words

_REPLY_TIMEOUT_S = 10.0
_MAX_XID = 0xFFFFFFFF

Entry = FlowEntry | ForeignEntry


class SwitchError(Exception):
    """The switch refused something, did not answer, or went away; the message is one line."""


class Switch:
    """A datapath in the state MAIN. ``take`` and ``lost`` are called by os-ken's threads, the rest by one worker."""

    def __init__(self, datapath: Any, tables: int) -> None:
        self.datapath = datapath
        self.dpid: int = datapath.id
        self.tables = tables
        self._xids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._lost = False

    @property
    def ports(self) -> dict[str, str]:
        """Interface names by port number, reserved ports left out."""
        ports = sorted(self.datapath.ports.values(), key=lambda port: port.port_no)
        return {str(port.port_no): port.name.decode(errors="replace") for port in ports if port.port_no <= ofp.OFPP_MAX}

    def read(self, table: int) -> list[Entry]:
        """All entries of a table (7.3.5.2). Raises SwitchError."""
        return [entry_from(stats, str(self.dpid)) for stats in self._flow_stats(table)]

    def counters(self, table: int) -> dict[str, Any]:
        """Counters of all ports (7.3.5.6) and of a table's entries, as JSON. Raises SwitchError."""
        names = (
            "rx_packets",
            "tx_packets",
            "rx_bytes",
            "tx_bytes",
            "rx_dropped",
            "tx_dropped",
            "rx_errors",
            "tx_errors",
        )
        ports = self._multipart(parser.OFPPortStatsRequest(self.datapath, 0, ofp.OFPP_ANY))
        entries = [
            {"cookie": stats.cookie, "packets": stats.packet_count, "bytes": stats.byte_count}
            for stats in self._flow_stats(table)
        ]
        return {
            "ports": {
                str(port.port_no): {name: getattr(port, name) for name in names}
                for port in ports
                if port.port_no <= ofp.OFPP_MAX
            },
            "entries": entries,
        }

    def change(self, delete: Iterable[Entry], add: Iterable[FlowEntry], table: int) -> int:
        """Delete, wait for a barrier, add, wait for a barrier; the number of barriers.

        Raises SwitchError naming the first entry that was refused; what was sent beside it has been done.
        """
        self._batch([(entry, delete_message(self.datapath, entry, table)) for entry in delete])
        self._batch([(entry, add_message(self.datapath, entry, table)) for entry in add])
        return 2

    def take(self, message: Any) -> bool:
        """Hand a reply or an error to whoever waits for it; False if nobody does."""
        with self._lock:
            waiting = self._waiting.get(message.xid)
        if waiting is not None:
            waiting.put(message)
        return waiting is not None

    def lost(self) -> None:
        """The connection has ended: nobody needs to wait any longer."""
        with self._lock:
            self._lost = True
            for waiting in self._waiting.values():
                waiting.put(None)

    def _flow_stats(self, table: int) -> list[Any]:
        return self._multipart(parser.OFPFlowStatsRequest(self.datapath, table_id=table, match=parser.OFPMatch()))

    def _multipart(self, request: Any) -> list[Any]:
        found: list[Any] = []
        replies = self._send([request])
        try:
            while True:
                reply = self._next(replies)
                if isinstance(reply, parser.OFPErrorMsg):
                    raise SwitchError(f"switch {self.dpid} refused {type(request).__name__}: {error_words(reply)}")
                found += reply.body
                if not reply.flags & ofp.OFPMPF_REPLY_MORE:
                    return found
        finally:
            self._forget([request])

    def _batch(self, changes: Sequence[tuple[Entry, Any]]) -> None:
        """Send flow-mods and a barrier. Errors come before the barrier's reply (6.2)."""
        barrier = parser.OFPBarrierRequest(self.datapath)
        messages = [message for _, message in changes]
        replies = self._send([*messages, barrier])
        errors: list[str] = []
        try:
            while not isinstance(reply := self._next(replies), parser.OFPBarrierReply):
                refused = next((entry for entry, message in changes if message.xid == reply.xid), None)
                asked = "a barrier" if refused is None else str(refused).removeprefix(f"{refused.switch}: ")
                errors.append(f"switch {self.dpid} refused {asked}: {error_words(reply)}")
                if refused is None:
                    break
        finally:
            self._forget([*messages, barrier])
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise SwitchError(errors[0] + more)

    def _send(self, messages: Sequence[Any]) -> "queue.SimpleQueue[Any]":
        replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for message in messages:
            message.set_xid(next(self._xids) & _MAX_XID)
        with self._lock:
            self._waiting |= {message.xid: replies for message in messages}
            if self._lost:
                replies.put(None)
        for message in messages:
            self.datapath.send_msg(message)
        return replies

    def _next(self, replies: "queue.SimpleQueue[Any]") -> Any:
        try:
            reply = replies.get(timeout=_REPLY_TIMEOUT_S)
        except queue.Empty:
            raise SwitchError(f"switch {self.dpid} did not answer within {_REPLY_TIMEOUT_S:g} s") from None
        if reply is None:
            raise SwitchError(f"switch {self.dpid} disconnected")
        return reply

    def _forget(self, messages: Sequence[Any]) -> None:
        with self._lock:
            for message in messages:
                self._waiting.pop(message.xid, None)

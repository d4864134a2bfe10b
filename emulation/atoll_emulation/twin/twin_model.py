# SPDX-License-Identifier: Apache-2.0
"""A hardware switch as its controller sees it: tables, rates, lags, frozen counters, errors. Pure; time is an argument.

Messages of the controller are taken one after the other, flow-mods at a limited rate. What the switch answers is in its
own tables at once. Its data plane follows later: ``_Actions.operations`` are flow-mods for the bridge that forwards.
Section numbers are those of OpenFlow 1.3.5.
"""

import random
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from atoll_core.lab.twin import TwinBehaviour
from atoll_core.openflow_wire import encoder
from atoll_core.openflow_wire.flow_stats import RECORD_HEAD, records, sort_fields, split_fields
from atoll_emulation.twin import twin_tables
from atoll_emulation.twin.twin_tables import RefusedError, TwinTable

METER_ID = 1
"""The meter of the bridge that entries in software pass."""

_ERROR, _BARRIER_REPLY = 1, 21
_MULTIPART = struct.Struct("!HH4x")
_TABLE_STATISTICS = struct.Struct("!B3xIQQ")
_ADD, _MODIFY, _MODIFY_STRICT, _DELETE, _DELETE_STRICT = range(5)  # 7.3.4.2
_MORE = 1  # flag of a multipart reply: another part follows
_PART_BYTES = 60_000  # of a reply; a message has at most 65535
_ERROR_DATA_BYTES = 64  # of the refused message, at least (7.4.4)
_DESCRIPTION = struct.Struct("!256s256s256s32s256s")

_Key = tuple[int, int, bytes]  # table, priority, match with its fields in order


@dataclass(slots=True)
class _Entry:
    """An entry of the switch's own tables. ``packets`` and ``octets``: as read from the data plane last."""

    table: int
    priority: int
    cookie: int
    flags: int
    timeouts: tuple[int, int]  # idle and hard time-out, seconds: reported, never carried out
    match: bytes
    instructions: bytes
    created_s: float
    packets: int = 0
    octets: int = 0


@dataclass(slots=True)
class _Actions:
    """Actions of the switch at an instant: messages to the controller and flow-mods to the bridge, each in their order.

    ``needs_counters``: the bridge's entries are to be read, and given to ``set_counters``.
    """

    replies: list[bytes] = field(default_factory=list[bytes])
    operations: list[bytes] = field(default_factory=list[bytes])
    needs_counters: bool = False


class TwinModel:
    """One switch, which begins with empty tables at time ``now`` (seconds of any clock).

    ``title``: its model in its description.
    """

    def __init__(
        self, tables: Mapping[int, TwinTable], behaviour: TwinBehaviour, title: str, seed: int, now: float
    ) -> None:
        self.behaviour = behaviour
        self._tables = tables
        self._title = title
        self._random = random.Random(seed)  # noqa: S311 - the lags of an emulated switch
        self._hardware = next(number for number in tables if number not in (twin_tables.START, twin_tables.SOFTWARE))
        self.reset(now)

    def reset(self, now: float) -> None:
        """Forget all entries and messages, as a reboot does."""
        self._entries: dict[_Key, _Entry] = {}
        self._forwarding: dict[_Key, bytes] = {}  # the flow-mods by which the data plane came to its entries
        self._inbox: deque[tuple[float, bytes]] = deque()
        self._due_changes: deque[tuple[float, _Key, bytes]] = deque()
        self._busy_until_s = now
        self._lag_s = self._draw_lag_s()
        self._read_s = now  # when the counters were read last
        self._reading = False
        self._counted_request: bytes | None = None  # the request that has current counters

    def drop_messages(self) -> None:
        """Forget messages that were not taken yet, as their connection has ended; entries stay."""
        self._inbox.clear()

    @property
    def is_reading(self) -> bool:
        """Whether it waits for the bridge's counters."""
        return self._reading

    @property
    def forwarding(self) -> list[bytes]:
        """Flow-mods that bring an empty bridge to the present data plane."""
        return list(self._forwarding.values())

    @property
    def entries(self) -> list[_Entry]:
        """The entries of the switch's own tables."""
        return list(self._entries.values())

    def receive(self, message: bytes, now: float) -> None:
        """Take a message of the controller: a flow-mod, a barrier, a request for statistics. ``advance`` answers."""
        begin_s = max(now, self._busy_until_s)
        rate = self.behaviour.flow_mods_per_s
        duration_s = 1 / rate if rate and message[1] == encoder.FLOW_MOD else 0.0
        self._busy_until_s = begin_s + duration_s
        self._inbox.append((self._busy_until_s, message))

    def next_s(self) -> float | None:
        """When ``advance`` has something to do next; None: not before another message."""
        due_times = [self._due_changes[0][0]] if self._due_changes else []
        if self._inbox and not self._reading:
            due_times.append(self._inbox[0][0])
        if self.behaviour.statistics.ns and not self._reading:
            due_times.append(self._read_s + self.behaviour.statistics.s)
        return min(due_times, default=None)

    def advance(self, now: float) -> _Actions:
        """Do everything that is due."""
        actions = _Actions()
        interval_s = self.behaviour.statistics.s
        if interval_s and not self._reading and now >= self._read_s + interval_s:
            self._reading = actions.needs_counters = True
        while self._inbox and self._inbox[0][0] <= now and not self._reading:
            self._apply_due(self._inbox[0][0], actions)
            at_s, message = self._inbox[0]
            if self._must_wait(message, at_s):
                break
            if not interval_s and self._is_statistics_request(message) and self._counted_request is not message:
                self._reading = actions.needs_counters = True
                self._counted_request = message
                break
            self._inbox.popleft()
            self._process(message, at_s, actions)
        self._apply_due(now, actions)
        return actions

    def set_counters(self, body: bytes, now: float) -> None:
        """The bridge's entries, as a flow statistics reply has them (7.3.5.2). Raises MalformedError."""
        self._reading = False
        self._read_s = now
        for record in records(body):
            entry = self._entries.get((record.table, record.priority, sort_fields(record.match)))
            if entry is not None:
                entry.packets, entry.octets = record.packets, record.octets

    def _must_wait(self, message: bytes, at_s: float) -> bool:
        """Whether a barrier waits for the data plane; then so do the messages behind it."""
        if message[1] != encoder.BARRIER_REQUEST or self.behaviour.early_barriers or not self._due_changes:
            return False
        wait_s = self._due_changes[-1][0] - at_s
        self._inbox = deque((max(due_s, at_s + wait_s), each) for due_s, each in self._inbox)
        self._busy_until_s = max(self._busy_until_s, self._inbox[-1][0])
        return True

    def _apply_due(self, now: float, actions: _Actions) -> None:
        while self._due_changes and self._due_changes[0][0] <= now:
            _, key, message = self._due_changes.popleft()
            if message[25] == _DELETE_STRICT:
                self._forwarding.pop(key, None)
            else:
                self._forwarding[key] = message
            actions.operations.append(message)

    def _is_statistics_request(self, message: bytes) -> bool:
        kind = int.from_bytes(message[8:10])
        return message[1] == encoder.MULTIPART_REQUEST and kind in (encoder.FLOW, encoder.AGGREGATE)

    def _process(self, message: bytes, at_s: float, actions: _Actions) -> None:
        xid = message[4:8]
        try:
            match message[1]:
                case encoder.FLOW_MOD:
                    self._flow_mod(message, at_s)
                case encoder.BARRIER_REQUEST:
                    self._lag_s = self._draw_lag_s()
                    actions.replies.append(encoder.message(_BARRIER_REPLY, xid))
                case encoder.MULTIPART_REQUEST:
                    kind = int.from_bytes(message[8:10])
                    actions.replies += _multipart(kind, xid, self._answer(kind, message[16:], at_s))
                case _:
                    actions.replies.append(_error(message, twin_tables.BAD_REQUEST, twin_tables.BAD_TYPE))
        except RefusedError as refused:
            actions.replies.append(_error(message, refused.kind, refused.code))

    def _flow_mod(self, message: bytes, at_s: float) -> None:
        """Change the switch's own tables, and let the data plane follow. Raises RefusedError."""
        (_, _, _, _, cookie, _, table, command, idle, hard, priority, _, _, _, flags) = (
            encoder.FLOW_MOD_HEAD.unpack_from(message)
        )
        match_bytes = int.from_bytes(message[50:52])
        match = sort_fields(message[52 : 48 + match_bytes])
        instructions = message[48 + -(-match_bytes // 8) * 8 :]
        if command in (_DELETE, _DELETE_STRICT):
            for key in self._selected_keys(table, priority, match, strict=command == _DELETE_STRICT):
                del self._entries[key]
                self._schedule(key, at_s, _flow_mod(key, _DELETE_STRICT, 0, b""))
            return
        if table not in self._tables:
            raise RefusedError(twin_tables.FLOW_MOD_FAILED, twin_tables.BAD_TABLE_ID)
        if table == twin_tables.START:
            raise RefusedError(twin_tables.FLOW_MOD_FAILED, twin_tables.NOT_PERMITTED)
        if self.behaviour.refuses:
            self._tables[table].require(match, instructions)
        if command in (_MODIFY, _MODIFY_STRICT):
            for key in self._selected_keys(table, priority, match, strict=command == _MODIFY_STRICT):
                self._entries[key].instructions = instructions
                self._schedule(key, at_s, self._bridge_message(key, self._entries[key]))
            return
        key = table, priority, match
        if key not in self._entries and table == self._hardware and self._is_full():
            raise RefusedError(twin_tables.FLOW_MOD_FAILED, twin_tables.TABLE_FULL)
        entry = _Entry(table, priority, cookie, flags, (idle, hard), match, instructions, at_s)
        self._entries[key] = entry
        self._schedule(key, at_s, self._bridge_message(key, entry))

    def _is_full(self) -> bool:
        count = sum(table == self._hardware for table, _, _ in self._entries)
        return count >= self.behaviour.max_entries - self.behaviour.occupied

    def _selected_keys(self, table: int, priority: int, match: bytes, *, strict: bool) -> list[_Key]:
        """The entries that a modification or deletion is about (6.4)."""
        if strict:
            return [key for key in [(table, priority, match)] if key in self._entries]
        conditions = set(split_fields(match))
        return [
            key
            for key in self._entries
            if table in (encoder.ALL_TABLES, key[0]) and conditions <= set(split_fields(key[2]))
        ]

    def _schedule(self, key: _Key, at_s: float, operation: bytes) -> None:
        """Let the data plane do this when the lag has passed, after everything before it."""
        due_s = at_s + self._lag_s
        self._due_changes.append((max(due_s, self._due_changes[-1][0]) if self._due_changes else due_s, key, operation))

    def _draw_lag_s(self) -> float:
        return self._random.uniform(self.behaviour.lag_min.s, self.behaviour.lag_max.s)

    def _bridge_message(self, key: _Key, entry: _Entry) -> bytes:
        limited = entry.table == twin_tables.SOFTWARE and self.behaviour.software_packets_per_s and entry.instructions
        meter = struct.pack("!HHI", twin_tables.METER, 8, METER_ID) if limited else b""
        return _flow_mod(key, _ADD, entry.cookie, meter + entry.instructions)

    def _answer(self, kind: int, body: bytes, at_s: float) -> Iterator[bytes]:
        """The records of the reply to a request for statistics. Raises RefusedError."""
        match kind:
            case encoder.DESCRIPTION:
                texts = ("HP", self._title, "twin", "", "twin of a hardware switch, by atoll")
                return iter([_DESCRIPTION.pack(*(text.encode() for text in texts))])
            case encoder.FLOW:
                return self._flow_records(body, at_s)
            case encoder.AGGREGATE:
                entries = self._entries_in_table(body)
                sums = (sum(entry.packets for entry in entries), sum(entry.octets for entry in entries), len(entries))
                return iter([struct.pack("!QQI4x", *sums)])
            case encoder.TABLE_STATISTICS:
                numbers = [key[0] for key in self._entries]
                return iter(_TABLE_STATISTICS.pack(number, numbers.count(number), 0, 0) for number in self._tables)
            case encoder.TABLE_FEATURES:
                return (table.features() for table in self._tables.values())
            case encoder.GROUPS | encoder.METERS:
                return iter(())
            case _:
                raise RefusedError(twin_tables.BAD_REQUEST, twin_tables.BAD_MULTIPART)

    def _entries_in_table(self, body: bytes) -> list[_Entry]:
        (table, *_) = encoder.FLOW_REQUEST_BODY.unpack_from(body)
        return [entry for entry in self._entries.values() if table in (encoder.ALL_TABLES, entry.table)]

    def _flow_records(self, body: bytes, at_s: float) -> Iterator[bytes]:
        if body[0] in (encoder.ALL_TABLES, twin_tables.START):  # the read-only table has one entry
            goto = struct.pack("!HHB3x", twin_tables.GOTO_TABLE, 8, self._hardware)
            yield _record(_Entry(twin_tables.START, 0, 0, 0, (0, 0), b"", goto, 0.0), at_s)
        for entry in self._entries_in_table(body):
            yield _record(entry, at_s)


def pipeline(tables: Mapping[int, TwinTable], behaviour: TwinBehaviour) -> list[bytes]:
    """Messages that make a bridge without entries a bridge with the pipeline of the hardware."""
    hardware = next(
        table for number, table in tables.items() if number not in (twin_tables.START, twin_tables.SOFTWARE)
    )
    goto = struct.pack("!HHB3x", twin_tables.GOTO_TABLE, 8, hardware.number)
    rate = behaviour.software_packets_per_s
    band = struct.pack("!HHII4x", 1, 16, rate, max(1, rate // 10))  # drop (7.3.4.5); bursts of a tenth of a second
    flags = 0b0110  # packets/s, with a burst
    meters = [
        encoder.delete_meter(METER_ID, 0),
        struct.pack("!BBHIHHI", encoder.VERSION, encoder.METER_MOD, 16 + len(band), 0, 0, flags, METER_ID) + band,
    ]
    return [*(meters if rate else []), _flow_mod((twin_tables.START, 0, b""), _ADD, 0, goto)]


def clear_bridge() -> bytes:
    """The flow-mod that deletes every entry of a bridge."""
    return _flow_mod((encoder.ALL_TABLES, 0, b""), _DELETE, 0, b"")


def _flow_mod(key: _Key, command: int, cookie: int, instructions: bytes) -> bytes:
    table, priority, match = key
    return encoder.flow_mod(0, cookie, table, command, priority, encoder.pack_oxm(match), instructions)


def _record(entry: _Entry, at_s: float) -> bytes:
    packed = encoder.pack_oxm(entry.match)
    length = RECORD_HEAD.size + len(packed) + len(entry.instructions)
    seconds = int(max(0.0, at_s - entry.created_s))
    head = (length, entry.table, seconds, 0, entry.priority, *entry.timeouts, entry.flags, entry.cookie)
    return RECORD_HEAD.pack(*head, entry.packets, entry.octets) + packed + entry.instructions


def _error(refused: bytes, kind: int, code: int) -> bytes:
    return encoder.message(_ERROR, refused[4:8], struct.pack("!HH", kind, code) + refused[:_ERROR_DATA_BYTES])


def _multipart(kind: int, xid: bytes, bodies: Iterator[bytes]) -> list[bytes]:
    parts = [b""]
    for record in bodies:
        if len(parts[-1]) + len(record) > _PART_BYTES:
            parts.append(b"")
        parts[-1] += record
    return [
        encoder.message(encoder.MULTIPART_REPLY, xid, _MULTIPART.pack(kind, _MORE if number < len(parts) else 0) + part)
        for number, part in enumerate(parts, start=1)
    ]

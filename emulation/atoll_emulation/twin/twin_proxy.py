# SPDX-License-Identifier: Apache-2.0
"""The proxy of a twin: between a controller and a bridge of Open vSwitch, by the decisions of its model.

The bridge takes the proxy for its controller, and the controller takes it for a switch. Entries, barriers, statistics
of entries and table features are the model's. Ports, packets out and packets in are the bridge's own.
"""

import asyncio
import contextlib
import itertools
import struct
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from atoll_core.lab.twin import TwinBehaviour, TwinSettings
from atoll_core.openflow_wire import encoder
from atoll_emulation.twin.twin_model import TwinModel, clear_bridge, pipeline
from atoll_emulation.twin.twin_tables import tables_of
from atoll_switches.capability_profile import behaviour, profile

_HELLO, _ERROR, _ECHO_REPLY, _FEATURES_REQUEST, _FEATURES_REPLY = 0, 1, 3, 5, 6
_MODEL_MESSAGES = {encoder.FLOW_MOD, encoder.BARRIER_REQUEST, encoder.GROUP_MOD, encoder.METER_MOD}
_MODEL_STATISTICS = {
    encoder.DESCRIPTION,
    encoder.FLOW,
    encoder.AGGREGATE,
    encoder.TABLE_STATISTICS,
    encoder.GROUPS,
    encoder.METERS,
    encoder.TABLE_FEATURES,
}
_FEATURES = struct.Struct("!QIBB2xII")  # datapath id, buffers, tables, auxiliary id, capabilities, reserved (7.3.1)
_CAPABILITIES = 0b0111  # statistics of flows, tables and ports
_BACK_OFF_S = (1.0, 8.0)  # between attempts to connect to the controller, as Open vSwitch has it: first, longest
_MOST_PENDING = 4096  # requests to the bridge whose answers are remembered


@dataclass(frozen=True, slots=True)
class TwinSpec:
    """One twin. ``port``: where its bridge connects, on 127.0.0.1."""

    switch: str
    driver: str
    port: int
    settings: TwinSettings


@dataclass(frozen=True, slots=True)
class _Pending:
    """The reason for a message to the bridge, and the controller's own transaction id or message behind it."""

    reason: str  # operation, counters, forwarded, barrier
    message: bytes = b""


class TwinProxy:
    """One twin. :meth:`serve` it; ``controller``: host and port."""

    def __init__(self, spec: TwinSpec, controller: tuple[str, int]) -> None:
        hardware = profile(spec.driver)
        self._spec = spec
        self._controller_address = controller
        self._behaviour: TwinBehaviour = behaviour(spec.driver, spec.settings)
        self._tables = tables_of(hardware, self._behaviour.max_entries)
        self._loop = asyncio.get_running_loop()
        self._model = TwinModel(self._tables, self._behaviour, hardware.title, spec.settings.seed, self._loop.time())
        self._bridge: asyncio.StreamWriter | None = None
        self._controller: asyncio.StreamWriter | None = None
        self._dpid = 0
        self._xids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._counter_bytes = b""
        self._needs_bridge_barrier = False  # whether packets were sent out since the last barrier
        self._timer: asyncio.TimerHandle | None = None
        self._connect_from_s = 0.0  # when it may connect to its controller
        self._has_bridge = asyncio.Event()

    async def serve(self) -> None:
        """Serve its bridge and its controller until cancelled. Raises OSError if the port is not available."""
        server = await asyncio.start_server(self._serve_bridge, "127.0.0.1", self._spec.port)
        async with server:
            await self._serve_controller()

    def disconnect(self, for_s: float) -> None:
        """Break the connection to the controller, and connect again after that time; entries stay."""
        self._connect_from_s = self._loop.time() + for_s
        if self._controller is not None:
            self._controller.transport.abort()

    def reboot(self) -> None:
        """Lose all entries at once, and connect to the controller again when the switch has started."""
        self._model.reset(self._loop.time())
        self._counter_bytes, self._needs_bridge_barrier = b"", False
        self._pending.clear()
        self._install_on_bridge()
        self.disconnect(self._behaviour.reboot.s)

    # The bridge

    async def _serve_bridge(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._bridge is not None:
            self._bridge.transport.abort()
        self._bridge = writer
        writer.write(encoder.message(_HELLO) + encoder.message(_FEATURES_REQUEST))
        try:
            async for messages in _batches(reader):
                for message in messages:
                    self._on_bridge_message(message)
        except encoder.MalformedError as error:
            self._report(f"its bridge sent a malformed message: {error}")
        finally:
            writer.close()
            if self._bridge is writer:
                self._bridge = None
                self._has_bridge.clear()

    def _on_bridge_message(self, message: bytes) -> None:
        kind, xid = message[1], int.from_bytes(message[4:8])
        match kind:
            case 0 | 3:  # hello, echo reply
                pass
            case 2:  # echo request
                self._write_bridge(message[:1] + bytes([_ECHO_REPLY]) + message[2:])
            case 6:  # features reply
                (self._dpid, *_) = _FEATURES.unpack_from(message, encoder.HEADER.size)
                self._install_on_bridge()
                self._has_bridge.set()
            case 10 | 12:  # packet in, port status
                self._write_controller(message)
            case _:
                self._on_bridge_answer(message, self._pending.get(xid))

    def _on_bridge_answer(self, message: bytes, pending: _Pending | None) -> None:
        if pending is None:  # of before a reboot
            return
        is_error = message[1] == _ERROR
        match pending.reason:
            case "forwarded":
                answer = message[:4] + pending.message[4:8] + message[8:]
                if is_error:
                    answer = answer[:12] + pending.message[: len(message) - 12]
                self._write_controller(answer)
            case "barrier":
                self._model.receive(pending.message, self._loop.time())
                self._advance_model()
            case "counters":
                self._counter_bytes += b"" if is_error else message[16:]
                if is_error or not message[11] & 1:
                    self._model.set_counters(self._counter_bytes, self._loop.time())
                    self._counter_bytes = b""
                    self._advance_model()
            case _ if is_error:
                self._report(f"its bridge refused a change: error {message[8:12].hex()} of {message[12:].hex()}")
            case _:
                pass

    def _install_on_bridge(self) -> None:
        """Make the bridge forward as the data plane of the model."""
        changes = [clear_bridge(), *pipeline(self._tables, self._behaviour), *self._model.forwarding]
        for change in changes:
            self._send_to_bridge(change, _Pending("operation"))
        if self._model.is_reading:
            self._model.set_counters(b"", self._loop.time())
        self._advance_model()

    def _send_to_bridge(self, message: bytes, pending: _Pending) -> None:
        xid = next(self._xids) & 0xFFFFFFFF
        self._pending[xid] = pending
        while len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        self._write_bridge(message[:4] + xid.to_bytes(4) + message[8:])

    def _write_bridge(self, message: bytes) -> None:
        if self._bridge is not None:
            self._bridge.write(message)

    # The controller

    async def _serve_controller(self) -> None:
        """Connect to the controller again and again, as long as there is a bridge."""
        back_off_s = _BACK_OFF_S[0]
        while True:
            await self._has_bridge.wait()
            await asyncio.sleep(max(0.0, self._connect_from_s - self._loop.time()))
            try:
                reader, writer = await asyncio.open_connection(*self._controller_address)
            except OSError:
                await asyncio.sleep(back_off_s)
                back_off_s = min(2 * back_off_s, _BACK_OFF_S[1])
                continue
            back_off_s = _BACK_OFF_S[0]
            self._controller = writer
            try:
                writer.write(encoder.message(_HELLO))
                async for messages in _batches(reader):
                    for message in messages:
                        self._on_controller_message(message)
                    self._advance_model()
            except encoder.MalformedError as error:
                self._report(f"its controller sent a malformed message: {error}")
            finally:
                self._controller = None
                self._model.drop_messages()
                writer.close()
            await asyncio.sleep(min(back_off_s, 0.1))  # a controller that closes at once is not connected to in a loop

    def _on_controller_message(self, message: bytes) -> None:
        now = self._loop.time()
        match message[1]:
            case 0 | 3 | 9:  # hello, echo reply, set config
                pass
            case 2:  # echo request
                self._write_controller(message[:1] + bytes([_ECHO_REPLY]) + message[2:])
            case 5:  # features request
                features = _FEATURES.pack(self._dpid, 0, len(self._tables), 0, _CAPABILITIES, 0)
                self._write_controller(encoder.message(_FEATURES_REPLY, message[4:8], features))
            case encoder.BARRIER_REQUEST if self._needs_bridge_barrier:  # its packets out are processed by the bridge
                self._needs_bridge_barrier = False
                self._send_to_bridge(message, _Pending("barrier", message))
            case kind if kind in _MODEL_MESSAGES or _is_answered_by_model(message):
                self._model.receive(message, now)
            case kind:
                self._needs_bridge_barrier |= kind == encoder.PACKET_OUT
                self._send_to_bridge(message, _Pending("forwarded", message))

    def _write_controller(self, message: bytes) -> None:
        if self._controller is not None:
            self._controller.write(message)

    # The model

    def _advance_model(self) -> None:
        """Do what is due in the model, and come back when there is more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        actions = self._model.advance(self._loop.time())
        for operation in actions.operations:
            self._send_to_bridge(operation, _Pending("operation"))
        for reply in actions.replies:
            self._write_controller(reply)
        if actions.needs_counters:
            if self._bridge is None:
                self._model.set_counters(b"", self._loop.time())
            else:
                self._send_to_bridge(encoder.flow_request(encoder.ALL_TABLES, 0), _Pending("counters"))
        due_s = self._model.next_s()
        if due_s is not None:
            self._timer = self._loop.call_at(due_s, self._advance_model)

    def _report(self, text: str) -> None:
        sys.stderr.write(f"twin of {self._spec.switch}: {text}\n")
        sys.stderr.flush()


async def serve_twins(proxies: Iterable[TwinProxy]) -> None:
    """Serve twins until cancelled. Raises OSError if a port is not available."""
    await asyncio.gather(*(proxy.serve() for proxy in proxies))


async def _batches(reader: asyncio.StreamReader) -> AsyncIterator[list[bytes]]:
    """The messages of a connection until it ends, those that arrive together as one list. Raises MalformedError."""
    pending = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            pending += data
            messages: list[bytes] = []
            start = 0
            while len(pending) - start >= encoder.HEADER.size and len(pending) - start >= (
                length := _length(pending, start)
            ):
                messages.append(pending[start : start + length])
                start += length
            pending = pending[start:]
            yield messages


def _length(data: bytes, start: int) -> int:
    """The length of the message whose header begins there. Raises MalformedError."""
    length = int.from_bytes(data[start + 2 : start + 4])
    if length < encoder.HEADER.size:
        raise encoder.MalformedError(f"a message of {length} bytes")
    return length


def _is_answered_by_model(message: bytes) -> bool:
    return message[1] == encoder.MULTIPART_REQUEST and int.from_bytes(message[8:10]) in _MODEL_STATISTICS

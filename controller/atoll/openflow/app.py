# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUntypedBaseClass=false
"""The app, of os-ken or Ryu: switches come and go, replies are handed on. It decides and asks nothing by itself.

A switch keeps its table when it comes and when it goes: what it should hold is the plan's business.
"""

import struct
import threading
from typing import Any, ClassVar

from atoll.openflow import framework, wire
from atoll.openflow.lines import say
from atoll.openflow.refusals import error_words
from atoll.openflow.switch import Reply, Switch

_events = framework.module("controller.ofp_event")
_handler = framework.module("controller.handler")
_ofp = framework.module("ofproto.ofproto_v1_3")
_parser = framework.module("ofproto.ofproto_v1_3_parser")
_parsers = framework.module("ofproto.ofproto_parser")
_HANDSHAKE, _CONFIG = _handler.HANDSHAKE_DISPATCHER, _handler.CONFIG_DISPATCHER
_MAIN, _DEAD = _handler.MAIN_DISPATCHER, _handler.DEAD_DISPATCHER

_MULTIPART = struct.Struct("!HH4x")  # what follows the header of a multipart reply: type, flags
_OURS = {
    wire.DESCRIPTION,
    wire.FLOW,
    wire.AGGREGATE,
    wire.PORT_STATISTICS,
    wire.GROUPS,
    wire.METERS,
    wire.TABLE_FEATURES,
}
_VERSIONS = {1: "1.0", 2: "1.1", 3: "1.2", 4: "1.3", 5: "1.4", 6: "1.5"}


@_parsers.register_msg_parser(wire.VERSION)
def parse(datapath: Any, version: int, kind: int, length: int, xid: int, buffer: Any) -> Any:
    """A message of OpenFlow 1.3; replies that this package asks for stay bytes, which it reads faster itself."""
    if kind == wire.MULTIPART_REPLY:
        subject, flags = _MULTIPART.unpack_from(buffer, 8)
        if subject in _OURS:
            message = _parser.OFPMultipartReply(datapath, body=bytes(buffer[16:]), flags=flags)
            message.set_headers(version, kind, length, xid)
            return message
    return _parser.msg_parser(datapath, version, kind, length, xid, buffer)


class Switchboard(framework.app_base()):
    """The switches that are connected, by datapath id."""

    OFP_VERSIONS: ClassVar = [_ofp.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._connected: dict[int, tuple[Any, Switch]] = {}
        self._tables: dict[int, int] = {}
        self._too_old: set[str] = set()

    def switch(self, dpid: int) -> Switch | None:
        """The switch of that datapath id, if it is connected."""
        with self._lock:
            return self._connected.get(dpid, (None, None))[1]

    @_handler.set_ev_cls(_events.EventOFPHello, _HANDSHAKE)
    def hello(self, event: Any) -> None:
        """Say once of each address that there is a switch which cannot speak OpenFlow 1.3 (6.3.1)."""
        message = event.msg
        told = {version for element in getattr(message, "elements", None) or () for version in element.versions}
        offered = told or {version for version in _VERSIONS if version <= message.version}
        host = message.datapath.address[0]
        if wire.VERSION in offered or host in self._too_old:
            return
        self._too_old.add(host)
        spoken = ", ".join(_VERSIONS.get(version, f"version {version}") for version in sorted(offered))
        text = (
            f"a switch at {host} speaks OpenFlow {spoken} only and 1.3 is needed; on Open vSwitch: "
            "`ovs-vsctl set bridge BRIDGE protocols=OpenFlow13`, on ProCurve: `version 1.3 only`"
        )
        say({"type": "error", "dpid": None, "cookie": None, "message": text})

    @_handler.set_ev_cls(_events.EventOFPSwitchFeatures, _CONFIG)
    def features(self, event: Any) -> None:
        """The handshake's features reply (7.3.1) says how many tables there are."""
        self._tables[event.msg.datapath_id] = event.msg.n_tables

    @_handler.set_ev_cls(_events.EventOFPStateChange, [_MAIN, _DEAD])
    def state(self, event: Any) -> None:
        """A switch is ready, or its connection has ended (perhaps after it has already connected again)."""
        datapath = event.datapath
        if event.state == _MAIN:
            switch = Switch(datapath.id, self._tables.get(datapath.id, 0), _ports(datapath), datapath.send)
            with self._lock:
                _, before = self._connected.get(datapath.id, (None, None))
                self._connected[datapath.id] = datapath, switch
            if before is not None:
                before.lost()
            self._say_switch(switch, "up", switch.ports)
            return
        with self._lock:
            connection, switch = self._connected.get(datapath.id, (None, None))
            if switch is None or connection is not datapath:
                return
            del self._connected[datapath.id]
        switch.lost()
        self._say_switch(switch, "down", {})

    @_handler.set_ev_cls(_events.EventOFPMultipartReply, _MAIN)
    def answer(self, event: Any) -> None:
        """Hand a part of an answer to the request it answers."""
        message = event.msg
        self._take(message, Reply(message.xid, message.body, more=bool(message.flags & _ofp.OFPMPF_REPLY_MORE)))

    @_handler.set_ev_cls(_events.EventOFPBarrierReply, _MAIN)
    def barrier(self, event: Any) -> None:
        """Hand the end of a batch to whoever sent it."""
        self._take(event.msg, Reply(event.msg.xid))

    @_handler.set_ev_cls(_events.EventOFPErrorMsg, [_CONFIG, _MAIN])
    def error(self, event: Any) -> None:
        """Hand an error to the request that caused it; one that nobody asked for becomes an event."""
        words = _error_words(event.msg)
        if not self._take(event.msg, Reply(event.msg.xid, error=words)):
            say({"type": "error", "dpid": event.msg.datapath.id, "cookie": None, "message": words})

    def _take(self, message: Any, reply: Reply) -> bool:
        dpid = message.datapath.id
        switch = None if dpid is None else self.switch(dpid)
        return switch is not None and switch.take(reply)

    def _say_switch(self, switch: Switch, state: str, ports: dict[str, str]) -> None:
        say({"type": "switch", "dpid": switch.dpid, "state": state, "tables": switch.tables, "ports": ports})


def _ports(datapath: Any) -> dict[str, str]:
    """Interface names by port number, reserved ports left out."""
    ports = sorted(datapath.ports.values(), key=lambda port: port.port_no)
    return {str(port.port_no): port.name.decode(errors="replace") for port in ports if port.port_no <= wire.PORT_MAX}


def _error_words(message: Any) -> str:
    if message.type == _ofp.OFPET_EXPERIMENTER:
        return f"experimenter error {message.exp_type} of {message.experimenter:#010x}"
    return error_words(message.type, message.code)

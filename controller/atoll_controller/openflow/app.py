# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUntypedBaseClass=false
"""The app of os-ken or Ryu: it tracks connections and passes replies to sessions. It sends no requests by itself.

A switch keeps its table when it connects and disconnects: the client decides about its entries. The framework is
started here, too: os-ken has no manager program any more, and Ryu's needs a web server.
"""

import logging
import socket
import struct
import threading
from typing import Any, ClassVar

from atoll_controller.openflow import runtime_adapter
from atoll_controller.openflow.request_server import write_line
from atoll_controller.openflow.switch_session import Reply, SwitchSession
from atoll_core.errors import plain
from atoll_core.openflow_wire import encoder

_manager = runtime_adapter.module("base.app_manager")  # before the controller, which imports it back
_controller = runtime_adapter.module("controller.controller")
_ofp_handler = runtime_adapter.module("controller.ofp_handler")
_cfg = runtime_adapter.module("cfg")
_hub = runtime_adapter.module("lib.hub")
_events = runtime_adapter.module("controller.ofp_event")
_handler = runtime_adapter.module("controller.handler")
_ofp = runtime_adapter.module("ofproto.ofproto_v1_3")
_parser = runtime_adapter.module("ofproto.ofproto_v1_3_parser")
_parsers = runtime_adapter.module("ofproto.ofproto_parser")
_HANDSHAKE, _CONFIG = _handler.HANDSHAKE_DISPATCHER, _handler.CONFIG_DISPATCHER
_MAIN, _DEAD = _handler.MAIN_DISPATCHER, _handler.DEAD_DISPATCHER

_MULTIPART = struct.Struct("!HH4x")  # after the header of a multipart reply: type, flags
_VERSIONS = {1: "1.0", 2: "1.1", 3: "1.2", 4: "1.3", 5: "1.4", 6: "1.5"}

# Types of messages that the framework's handlers take (7.1); its parsers of others may not end (see ``parse_message``).
_HELLO, _FEATURES_REPLY = 0, 6
_FRAMEWORK_TYPES = {_HELLO, 1, 2, 3, _FEATURES_REPLY, 12, 21}  # hello, error, echo, features, port status, barrier
_PORT_DESCRIPTION = 13  # the one multipart reply that the framework asks for: records of one size

# A connection that has ended is noticed only by sending on it: the framework's reader waits for its sender, and that
# one for something to send. So echo requests are sent all the time; a switch that leaves this many unanswered is gone.
_ECHO_INTERVAL_S = 1.0
_MAX_UNANSWERED_ECHOS = 15
_SOCKET_TIMEOUT_S = 15.0  # for a switch to read its messages: old ones need four seconds for a window of entries
_BACKLOG = 64


def start(host: str, port: int) -> tuple[Any, int]:
    """Listen and serve. Returns the switchboard and the bound port (0: any). Raises OSError if it is not available.

    The framework does not report whether and where its listener is bound, so its controller is replaced by one that
    binds before it serves.
    """
    _cfg.CONF(args=[], project="atoll", default_config_files=[], default_config_dirs=[])
    _cfg.CONF.set_override("echo_request_interval", _ECHO_INTERVAL_S)
    _cfg.CONF.set_override("maximum_unreplied_echo_requests", _MAX_UNANSWERED_ECHOS)
    _cfg.CONF.set_override("socket_timeout", _SOCKET_TIMEOUT_S)
    logging.getLogger("ofp_event").setLevel(logging.CRITICAL)  # the switchboard reports it for users
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    _ofp_handler.OpenFlowController = lambda: lambda: _serve(listener)
    manager = _manager.AppManager.get_instance()
    manager.load_apps([_ofp_handler.__name__, __name__])
    manager.instantiate_apps(**manager.create_contexts())
    return manager.applications[SwitchRegistry.__name__], listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        connection, address = listener.accept()
        _hub.spawn(_controller.datapath_connection_factory, connection, address)


def parse_message(datapath: Any, version: int, message_type: int, length: int, xid: int, buffer: Any) -> Any:
    """A message of OpenFlow 1.3, or of another version the hello; None for one that is not used here.

    The framework's own parsers step from record to record by lengths that the switch states: with a length of 0 they
    would not end. Only messages without such records are given to them. Replies that this package asks for stay bytes,
    which it reads faster itself. Raises MalformedError.
    """
    if message_type == _HELLO:
        list(encoder.split(bytes(buffer[8:length]), 4, length_offset=2, align=8))  # its elements (7.5.1)
        return _BY_VERSION[version](datapath, version, message_type, length, xid, buffer)
    if version != encoder.VERSION:
        return None
    if message_type == encoder.MULTIPART_REPLY:
        subject, flags = _MULTIPART.unpack_from(buffer, 8)
        if subject != _PORT_DESCRIPTION:
            message = _parser.OFPMultipartReply(datapath, body=bytes(buffer[16:]), flags=flags)
            message.set_headers(version, message_type, length, xid)
            return message
    elif message_type not in _FRAMEWORK_TYPES:
        return None
    return _parser.msg_parser(datapath, version, message_type, length, xid, buffer)


_BY_VERSION = {
    number: runtime_adapter.module(f"ofproto.ofproto_v{name.replace('.', '_')}_parser").msg_parser
    for number, name in _VERSIONS.items()
    if name != "1.1"  # which the frameworks do not have
}
for _version in _BY_VERSION:
    _parsers.register_msg_parser(_version)(parse_message)


class SwitchRegistry(runtime_adapter.app_base()):
    """The switches that are connected, by datapath id."""

    OFP_VERSIONS: ClassVar = [_ofp.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._connected: dict[int, tuple[Any, SwitchSession]] = {}
        self._tables: dict[Any, int] = {}  # by connection
        self._reported_hosts: set[str] = set()
        self._refused: set[tuple[int, str]] = set()

    def switch(self, dpid: int) -> SwitchSession | None:
        """The switch of that datapath id, if it is connected."""
        with self._lock:
            return self._connected.get(dpid, (None, None))[1]

    @_handler.set_ev_cls(_events.EventOFPHello, _HANDSHAKE)
    def on_hello(self, event: Any) -> None:
        """Report a switch without OpenFlow 1.3, once for each address (6.3.1)."""
        message = event.msg
        listed = {version for element in getattr(message, "elements", None) or () for version in element.versions}
        offered = listed or {version for version in _VERSIONS if version <= message.version}
        host = message.datapath.address[0]
        if encoder.VERSION in offered or host in self._reported_hosts:
            return
        self._reported_hosts.add(host)
        versions = ", ".join(_VERSIONS.get(version, f"version {version}") for version in sorted(offered))
        text = (
            f"a switch at {host} speaks only OpenFlow {versions}, but 1.3 is needed; on Open vSwitch: "
            "`ovs-vsctl set bridge BRIDGE protocols=OpenFlow13`, on ProCurve: `version 1.3 only`"
        )
        write_line({"type": "error", "dpid": None, "cookie": None, "message": text})

    @_handler.set_ev_cls(_events.EventOFPSwitchFeatures, _CONFIG)
    def on_features(self, event: Any) -> None:
        """Take the number of tables from the handshake's features reply (7.3.1)."""
        self._tables[event.msg.datapath] = event.msg.n_tables

    @_handler.set_ev_cls(_events.EventOFPStateChange, [_MAIN, _DEAD])
    def on_state_change(self, event: Any) -> None:
        """A switch is ready, or its connection has ended.

        A second connection with the datapath id of a switch that is connected is refused: it may be another switch. A
        switch that restarts may come again before the end of its old connection is handled here, which it has closed.
        """
        datapath = event.datapath
        tables = self._tables.pop(datapath, 0)
        if event.state == _MAIN:
            switch = SwitchSession(datapath.id, tables, _ports(datapath), datapath.send)
            with self._lock:
                old_datapath, old_session = self._connected.get(datapath.id, (None, None))
                is_taken = old_datapath is not None and old_datapath.socket.fileno() >= 0
                if not is_taken:
                    self._connected[datapath.id] = datapath, switch
            if is_taken:
                self._refuse(datapath, old_datapath)
                return
            if old_session is not None:
                old_session.connection_lost()
            self._write_switch(switch, "up", switch.ports)
            return
        with self._lock:
            connection, switch = self._connected.get(datapath.id, (None, None))
            if switch is None or connection is not datapath:
                return
            del self._connected[datapath.id]
            self._refused = {refused for refused in self._refused if refused[0] != datapath.id}
        switch.connection_lost()
        self._write_switch(switch, "down", {})

    def _refuse(self, datapath: Any, old_datapath: Any) -> None:
        """Close a second connection of one datapath id, and report it once for each address."""
        datapath.close()
        refused = datapath.id, datapath.address[0]
        if refused not in self._refused:
            self._refused.add(refused)
            text = (
                f"a second switch with datapath id {datapath.id} connected from {datapath.address[0]} and was refused; "
                f"the first is at {old_datapath.address[0]}: give each switch a datapath id of its own (a switch that "
                "has restarted is taken once its old connection has timed out)"
            )
            write_line({"type": "error", "dpid": datapath.id, "cookie": None, "message": text})

    @_handler.set_ev_cls(_events.EventOFPMultipartReply, _MAIN)
    def on_multipart_reply(self, event: Any) -> None:
        """Pass a part of an answer to its request."""
        message = event.msg
        self._pass_reply(message, Reply(message.xid, message.body, more=bool(message.flags & _ofp.OFPMPF_REPLY_MORE)))

    @_handler.set_ev_cls(_events.EventOFPBarrierReply, _MAIN)
    def on_barrier_reply(self, event: Any) -> None:
        """Pass the end of a batch to its request."""
        self._pass_reply(event.msg, Reply(event.msg.xid))

    @_handler.set_ev_cls(_events.EventOFPErrorMsg, [_CONFIG, _MAIN])
    def on_error(self, event: Any) -> None:
        """Pass an error to the request that caused it; an error without a request becomes an event."""
        text = _error_text(event.msg)
        if not self._pass_reply(event.msg, Reply(event.msg.xid, error=text)):
            write_line({"type": "error", "dpid": event.msg.datapath.id, "cookie": None, "message": text})

    def _pass_reply(self, message: Any, reply: Reply) -> bool:
        with self._lock:
            connection, switch = self._connected.get(message.datapath.id, (None, None))
        return switch is not None and connection is message.datapath and switch.take(reply)

    def _write_switch(self, switch: SwitchSession, state: str, ports: dict[str, str]) -> None:
        write_line({"type": "switch", "dpid": switch.dpid, "state": state, "tables": switch.tables, "ports": ports})


def _ports(datapath: Any) -> dict[str, str]:
    """Interface names by port number, reserved ports left out."""
    ports = sorted(datapath.ports.values(), key=lambda port: port.port_no)
    return {
        str(port.port_no): plain(port.name.decode(errors="replace"))
        for port in ports
        if port.port_no <= encoder.PORT_MAX
    }


_ADVICE = {
    "OFPFMFC_TABLE_FULL": "the table is full: combine prefixes, or attach hosts to more switches",
    "OFPFMFC_BAD_TABLE_ID": "the table does not exist or accepts no entries: check the switch's driver in lab.yaml",
    "OFPFMFC_EPERM": "the switch does not allow controllers to change this table: check its OpenFlow configuration",
    "OFPFMFC_OVERLAP": "it overlaps an entry of the same priority",
    "OFPBAC_BAD_OUT_PORT": "an output port does not exist: compare the ports in lab.yaml with `atoll switches`",
    "OFPBAC_BAD_TYPE": "the switch does not know the action: check its driver in lab.yaml",
    "OFPBAC_MATCH_INCONSISTENT": "the actions do not fit the match, for example popping a tag of untagged frames",
    "OFPBAC_BAD_SET_ARGUMENT": "the VLAN id is out of range: 1 to 4094",
    "OFPBAC_TOO_MANY": "more actions than the switch supports: let taps share a port, or move a tap to another switch",
    "OFPBAC_UNSUPPORTED_ORDER": "the switch does not support the actions in this order: move the tap to another switch",
    "OFPBIC_UNSUP_INST": "the table does not support apply-actions: check the switch's driver in lab.yaml",
    "OFPBIC_BAD_TABLE_ID": "the table does not exist: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_FIELD": "the table cannot match this field: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_WILDCARDS": "the table requires more fields in the match: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_VALUE": "a matched value is out of range, for example a port that does not exist",
    "OFPBRC_EPERM": "the switch does not allow this to this controller: check its OpenFlow configuration",
    "OFPBRC_IS_SLAVE": "another controller is master of this switch: configure only one controller there",
    "OFPBRC_BAD_TABLE_ID": "the table does not exist: check the switch's driver in lab.yaml",
}


def _error_text(message: Any) -> str:
    """The error in the specification's names, ``OFPET_BAD_ACTION OFPBAC_BAD_OUT_PORT``; its meaning and remedy."""
    if message.type == _ofp.OFPET_EXPERIMENTER:
        return f"experimenter error {message.exp_type} of {message.experimenter:#010x}"
    kind = _ofp.ofp_error_type_to_str(message.type).split("(")[0]
    code = _ofp.ofp_error_code_to_str(message.type, message.code).split("(")[0]
    return f"{kind} {code} ({_ADVICE[code]})" if code in _ADVICE else f"{kind} {code}"

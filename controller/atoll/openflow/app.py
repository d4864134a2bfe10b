# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false
"""The os-ken app: switches come and go, replies are handed on. It decides nothing and sends nothing by itself.

A switch keeps its table when it comes and when it goes: what it should hold is the plan's business.
"""

import threading
from typing import Any, ClassVar

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

from atoll.openflow.codec import error_words
from atoll.openflow.lines import say
from atoll.openflow.switch import Switch


class Switchboard(app_manager.OSKenApp):
    """The switches that are connected, by datapath id."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._connected: dict[int, Switch] = {}
        self._tables: dict[int, int] = {}

    def switch(self, dpid: int) -> Switch | None:
        """The switch of that datapath id, if it is connected."""
        with self._lock:
            return self._connected.get(dpid)

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event: Any) -> None:
        """The handshake's features reply (7.3.1) says how many tables there are."""
        self._tables[event.msg.datapath_id] = event.msg.n_tables

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def state(self, event: Any) -> None:
        """A switch is ready, or its connection has ended (perhaps after it has already connected again)."""
        datapath = event.datapath
        if event.state == MAIN_DISPATCHER:
            switch = Switch(datapath, self._tables.get(datapath.id, 0))
            with self._lock:
                before = self._connected.get(datapath.id)
                self._connected[datapath.id] = switch
            if before is not None:
                before.lost()
            say({"type": "switch", "dpid": switch.dpid, "state": "up", "tables": switch.tables, "ports": switch.ports})
            return
        with self._lock:
            switch = self._connected.get(datapath.id)
            if switch is None or switch.datapath is not datapath:
                return
            del self._connected[datapath.id]
        switch.lost()
        say({"type": "switch", "dpid": switch.dpid, "state": "down", "tables": switch.tables, "ports": {}})

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, MAIN_DISPATCHER)
    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def reply(self, event: Any) -> None:
        """Hand a reply to the request it answers."""
        switch = self.switch(event.msg.datapath.id)
        if switch is not None:
            switch.take(event.msg)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, event: Any) -> None:
        """Hand an error to the request that caused it; one that nobody asked for becomes an event."""
        dpid = event.msg.datapath.id
        switch = None if dpid is None else self.switch(dpid)
        if switch is None or not switch.take(event.msg):
            say({"type": "error", "dpid": dpid, "cookie": None, "message": error_words(event.msg)})

# SPDX-License-Identifier: Apache-2.0
"""Twins of hardware in tests: a model that one sends messages to by hand, and labs whose switches have twins."""

import struct
from dataclasses import replace

from atoll_core.lab.network import Network
from atoll_core.lab.twin import TwinSettings
from atoll_core.openflow_wire import encoder
from atoll_core.openflow_wire.flow_stats import EntryStats, records
from atoll_core.plan.flow_entry import FlowEntry
from atoll_core.units import Duration
from atoll_emulation.twin.twin_model import TwinModel
from atoll_emulation.twin.twin_tables import tables_of
from atoll_switches.capability_profile import behaviour, profile

AT_ONCE = TwinSettings(
    flow_mods_per_s=0, lag_min=Duration(0), lag_max=Duration(0), statistics=Duration(0), software_packets_per_s=0
)
"""A twin without lag or rate, whose counters are current."""


def twinned(network: Network, driver: str, settings: TwinSettings, **others: TwinSettings) -> Network:
    """The same lab with a twin for every switch; ``others``: settings of some switches (``-`` is ``_``)."""
    own = {name.replace("_", "-"): each for name, each in others.items()}
    switches = (replace(switch, driver=driver, twin=own.get(switch.name, settings)) for switch in network.switches)
    return replace(network, switches=tuple(switches))


class Desk:
    """A model, and what it has answered and done by now."""

    def __init__(self, driver: str, settings: TwinSettings) -> None:
        known, found = profile(driver), behaviour(driver, settings)
        self.model = TwinModel(tables_of(known, found.max_entries), found, known.title, settings.seed, 0.0)
        self.replies: list[tuple[float, bytes]] = []
        self.operations: list[tuple[float, bytes]] = []
        self.reads: list[float] = []
        self.bridge = b""  # what the bridge tells of its entries
        self._xid = 0

    def send(self, message: bytes, now: float = 0.0) -> int:
        """Send a message at an instant; its transaction id."""
        self._xid += 1
        self.model.receive(message[:4] + self._xid.to_bytes(4) + message[8:], now)
        return self._xid

    def until(self, now: float) -> None:
        """Let everything happen up to an instant, each when it is due."""
        while (due := self.model.next_s()) is not None and due <= now:
            outcome = self.model.advance(due)
            self.replies += [(due, each) for each in outcome.replies]
            self.operations += [(due, each) for each in outcome.operations]
            if outcome.needs_counters:
                self.reads.append(due)
                self.model.set_counters(self.bridge, due)

    def answers(self, xid: int) -> list[bytes]:
        """What was answered to a message."""
        return [message for _, message in self.replies if int.from_bytes(message[4:8]) == xid]

    def errors(self) -> list[tuple[int, int, int]]:
        """Transaction id, type and code of each error."""
        return [
            (int.from_bytes(message[4:8]), *struct.unpack_from("!HH", message, 8))
            for _, message in self.replies
            if message[1] == 1
        ]

    def entries(self, now: float, table: int = encoder.ALL_TABLES) -> list[EntryStats]:
        """The entries that the switch tells at an instant."""
        xid = self.send(encoder.flow_request(table, 0), now)
        self.until(now)
        return [record for message in self.answers(xid) for record in records(message[16:])]


def reported(entry: FlowEntry, table: int, packets: int) -> bytes:
    """A record of a bridge about an entry."""
    match = encoder.pack_match(entry.match)
    length = 48 + len(match)
    return struct.pack("!HBxIIHHHH4xQQQ", length, table, 0, 0, entry.priority, 0, 0, 0, 0, packets, 9 * packets) + match

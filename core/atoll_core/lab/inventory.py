# SPDX-License-Identifier: Apache-2.0
"""The inventory: the real machines and switches for those of a lab.yaml, and how they are reached.

A lab.yaml describes hosts, boxes and cables; an inventory names the machines of a certain rack. One lab can have
several inventories.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from atoll_core.lab.network import ChainBox, DelayBox, Interface, LatencyClass, Network, PortPair
from atoll_core.units import Size

WORLD, ISLAND, SPARE_WORLD, SPARE_ISLAND, TRUNK, ONLY = (
    "world",
    "island",
    "spare-world",
    "spare-island",
    "trunk",
    "interface",
)


FILES_LIMIT = Size(64_000_000)
"""Largest file of a run in the memory of a machine: the log of more than half a million flows."""


@dataclass(frozen=True, slots=True)
class SshAccess:
    """SSH access to a machine. For None the SSH configuration decides; paths are absolute."""

    host: str  # a name, an address, or an alias of the SSH configuration
    user: str | None = None
    port: int | None = None
    jump: str | None = None  # [user@]host[:port] to go through
    identity: str | None = None  # file of the private key
    config: str | None = None  # SSH configuration; None: the user's own
    known_hosts: str | None = None  # file of host keys; None: the user's and the machine's
    binary: str = ".local/bin/atoll-host"  # on the machine; relative to the user's home
    sudo: bool = False  # whether the agent is started by `sudo -n`

    def __str__(self) -> str:
        """The target as an argument of ``ssh``, and its port."""
        return (f"{self.user}@" if self.user else "") + self.host + (f":{self.port}" if self.port else "")


@dataclass(frozen=True, slots=True)
class NamedInterface:
    """The name of a lab's interface on its machine. ``mac``: its expected address; None: read it from the machine."""

    slot: str  # its role in the lab: "interface", "world", "island", "trunk", a tap's name
    name: str
    mac: str | None = None


@dataclass(frozen=True, slots=True)
class InventoryMachine:
    """The real machine for one of the lab."""

    name: str
    access: SshAccess
    interfaces: tuple[NamedInterface, ...]
    arch: str | None = None  # as in `uname -m`; None: read it from the machine
    capacity: float | None = None  # of an island client, as in a Host; None: as in lab.yaml
    files_in_memory: bool | None = None  # files of a run, until it has ended; None: those of hosts
    files_limit: Size = FILES_LIMIT  # largest file in memory


@dataclass(frozen=True, slots=True)
class InventorySwitch:
    """The real switch for one of the lab; None: as in lab.yaml."""

    name: str
    dpid: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """Real machines and switches. ``file``: absolute path; the key of the rack and of its daemon's lock."""

    file: str = field(compare=False)
    address: IPv4Address  # where the controller listens, on the management network
    port: int
    machines: tuple[InventoryMachine, ...]
    switches: tuple[InventorySwitch, ...] = ()

    def machine(self, name: str) -> InventoryMachine:
        """The machine of that name (KeyError otherwise)."""
        return {machine.name: machine for machine in self.machines}[name]


def split_target(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of ``[user@]host[:port]``."""
    user, at, rest = text.rpartition("@")
    host, colon, port = rest.partition(":")
    return (user if at else None), host, (int(port) if colon else None)


def interface_slots(network: Network) -> dict[str, dict[str, Interface]]:
    """Every machine that an inventory has to name, with its interfaces by slot.

    External boxes are not included; capture hosts of physical taps are.
    """
    found: dict[str, dict[str, Interface]] = {host.name: {ONLY: host.interface} for host in network.hosts}
    for box in network.boxes:
        if box.is_managed:
            found[box.name] = {WORLD: box.world, ISLAND: box.island}
            if box.spare:
                found[box.name] |= {SPARE_WORLD: box.spare.world, SPARE_ISLAND: box.spare.island}
    for delay in network.delay_boxes:
        found[delay.name] = {TRUNK: delay.trunk} if delay.trunk else {}
        for known in delay.classes:
            if known.ports:
                slots = _class_slots(known)
                found[delay.name] |= {slots[0]: known.ports.world, slots[1]: known.ports.island}
    for tap in network.taps:
        found.setdefault(tap.host, {})[tap.name] = tap.interface
    return found


def _class_slots(known: LatencyClass) -> tuple[str, str]:
    return f"{known.name}-{WORLD}", f"{known.name}-{ISLAND}"


def apply_inventory(network: Network, inventory: Inventory, macs: Mapping[tuple[str, str], str]) -> Network:
    """The network with the rack's interface names, MAC addresses, datapath ids, drivers and capacities.

    ``macs``: addresses read from the machines, by machine and slot; others are the inventory's, or else lab.yaml's. The
    inventory must be complete.
    """
    named = {
        (machine.name, interface.slot): interface for machine in inventory.machines for interface in machine.interfaces
    }

    def real(machine: str, slot: str, interface: Interface) -> Interface:
        known = named.get((machine, slot))
        if known is None:
            return interface  # an external box's
        return replace(interface, name=known.name, mac=macs.get((machine, slot), known.mac or interface.mac))

    def box_of(box: ChainBox) -> ChainBox:
        spare = box.spare and PortPair(
            real(box.name, SPARE_WORLD, box.spare.world), real(box.name, SPARE_ISLAND, box.spare.island)
        )
        world, island = real(box.name, WORLD, box.world), real(box.name, ISLAND, box.island)
        return replace(box, world=world, island=island, spare=spare)

    def delay_of(box: DelayBox) -> DelayBox:
        def class_of(known: LatencyClass) -> LatencyClass:
            if known.ports is None:
                return known
            legs = zip(_class_slots(known), (known.ports.world, known.ports.island), strict=True)
            return replace(known, ports=PortPair(*(real(box.name, slot, leg) for slot, leg in legs)))

        trunk = box.trunk and real(box.name, TRUNK, box.trunk)
        return replace(box, trunk=trunk, classes=tuple(map(class_of, box.classes)))

    others = {switch.name: switch for switch in inventory.switches}
    capacities = {machine.name: machine.capacity for machine in inventory.machines}
    return replace(
        network,
        switches=tuple(
            replace(
                switch,
                dpid=(others[switch.name].dpid or switch.dpid) if switch.name in others else switch.dpid,
                driver=(others[switch.name].driver or switch.driver) if switch.name in others else switch.driver,
            )
            for switch in network.switches
        ),
        hosts=tuple(
            replace(
                host,
                interface=real(host.name, ONLY, host.interface),
                capacity=capacities.get(host.name) or host.capacity,
            )
            for host in network.hosts
        ),
        boxes=tuple(box_of(box) for box in network.boxes),
        delay_boxes=tuple(map(delay_of, network.delay_boxes)),
        taps=tuple(replace(tap, interface=real(tap.host, tap.name, tap.interface)) for tap in network.taps),
    )

# SPDX-License-Identifier: Apache-2.0
"""The inventory: the real machines and switches for those of a lab.yaml, and how they are reached.

A lab.yaml describes hosts, boxes and cables; an inventory names the machines of a certain rack. One lab can have
several inventories.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from atoll_core.lab.network import ChainBox, DelayBox, Interface, Network, PortPair, Switch
from atoll_core.units import Size

WORLD, ISLAND, SPARE_WORLD, SPARE_ISLAND, TRUNK, SINGLE = (
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
    user, at, host_and_port = text.rpartition("@")
    host, colon, port = host_and_port.partition(":")
    return (user if at else None), host, (int(port) if colon else None)


def interface_slots(network: Network) -> dict[str, dict[str, Interface]]:
    """Every machine that an inventory has to name, with its interfaces by slot.

    External boxes are not included; capture hosts of physical taps are.
    """
    slots: dict[str, dict[str, Interface]] = {}
    external = {box.name for box in network.boxes if not box.is_managed}

    def add(machine: str, slot: str, interface: Interface) -> Interface:
        if machine not in external:
            slots.setdefault(machine, {})[slot] = interface
        return interface

    _map_interfaces(network, add)
    return slots


def apply_inventory(network: Network, inventory: Inventory, macs: Mapping[tuple[str, str], str]) -> Network:
    """The network with the rack's interface names, MAC addresses, datapath ids, drivers and capacities.

    ``macs``: addresses read from the machines, by machine and slot; others are the inventory's, or else lab.yaml's. The
    inventory must be complete.
    """
    interfaces = {
        (machine.name, interface.slot): interface for machine in inventory.machines for interface in machine.interfaces
    }

    def real_interface(machine: str, slot: str, interface: Interface) -> Interface:
        if (machine, slot) not in interfaces:
            return interface  # an external box's
        entry = interfaces[machine, slot]
        return replace(interface, name=entry.name, mac=macs.get((machine, slot), entry.mac or interface.mac))

    def real_switch(switch: Switch) -> Switch:
        entry = switch_entries.get(switch.name, InventorySwitch(switch.name))
        return replace(switch, dpid=entry.dpid or switch.dpid, driver=entry.driver or switch.driver)

    switch_entries = {switch.name: switch for switch in inventory.switches}
    capacities = {machine.name: machine.capacity for machine in inventory.machines}
    network = _map_interfaces(network, real_interface)
    return replace(
        network,
        switches=tuple(map(real_switch, network.switches)),
        hosts=tuple(replace(host, capacity=capacities.get(host.name) or host.capacity) for host in network.hosts),
    )


def _map_interfaces(network: Network, convert: Callable[[str, str, Interface], Interface]) -> Network:
    """The network with other interfaces: ``convert`` makes them of the machine, the slot and the interface."""

    def convert_pair(machine: str, ports: PortPair, world: str, island: str) -> PortPair:
        return PortPair(convert(machine, world, ports.world), convert(machine, island, ports.island))

    def convert_box(box: ChainBox) -> ChainBox:
        ports = convert_pair(box.name, PortPair(box.world, box.island), WORLD, ISLAND)
        spare = box.spare and convert_pair(box.name, box.spare, SPARE_WORLD, SPARE_ISLAND)
        return replace(box, world=ports.world, island=ports.island, spare=spare)

    def convert_delay_box(box: DelayBox) -> DelayBox:
        trunk = box.trunk and convert(box.name, TRUNK, box.trunk)
        classes = tuple(
            replace(
                latency,
                ports=latency.ports
                and convert_pair(box.name, latency.ports, f"{latency.name}-{WORLD}", f"{latency.name}-{ISLAND}"),
            )
            for latency in box.classes
        )
        return replace(box, trunk=trunk, classes=classes)

    return replace(
        network,
        hosts=tuple(replace(host, interface=convert(host.name, SINGLE, host.interface)) for host in network.hosts),
        boxes=tuple(map(convert_box, network.boxes)),
        delay_boxes=tuple(map(convert_delay_box, network.delay_boxes)),
        taps=tuple(replace(tap, interface=convert(tap.host, tap.name, tap.interface)) for tap in network.taps),
    )

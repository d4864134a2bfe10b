# SPDX-License-Identifier: Apache-2.0
"""Load inventory.yaml to an Inventory, and check it against its lab.

Resolution continues after a mistake, so that all of them are found.
"""

from collections.abc import Collection, Mapping
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from atoll_core.description.file_kinds import INVENTORY, require_kind
from atoll_core.description.raw_inventory import RawInventory, RawMachine
from atoll_core.description.validation_messages import parse, suggest
from atoll_core.description.yaml_document import Document, KeyPath, read_document
from atoll_core.errors import DescriptionError, Diagnostic, shown
from atoll_core.lab.inventory import (
    SINGLE,
    Inventory,
    InventoryMachine,
    InventorySwitch,
    NamedInterface,
    SshAccess,
    interface_slots,
    split_target,
)
from atoll_core.lab.network import HostRole, Network


def load_inventory(path: Path, network: Network | None = None) -> Inventory:
    """The inventory that a file describes; with ``network``, check that it fits this lab exactly.

    Raises DescriptionError with every mistake in it.
    """
    document = read_document(path)
    require_kind(document, INVENTORY)
    resolver = _Resolver(parse(RawInventory, document), document, path, interface_slots(network) if network else {})
    inventory = resolver.resolve()
    if network is not None:
        resolver.check_complete(network)
    if resolver.mistakes:
        raise DescriptionError(resolver.mistakes)
    return inventory


class _Resolver:
    """One pass over a raw inventory; ``slots``: the slots of the lab's machines, if there is a lab."""

    def __init__(self, raw: RawInventory, document: Document, path: Path, slots: Mapping[str, Collection[str]]) -> None:
        self.raw = raw
        self.document = document
        self.path = path.absolute()
        self.slots = slots
        self.mistakes: list[Diagnostic] = []

    def resolve(self) -> Inventory:
        machines = tuple(self.machine(name, raw) for name, raw in self.raw.machines.items())
        self.check_duplicates(machines)
        switches = tuple(InventorySwitch(name, raw.dpid, raw.driver) for name, raw in self.raw.switches.items())
        controller = self.raw.controller
        return Inventory(str(self.path), controller.address, controller.port, machines, switches)

    def machine(self, name: str, raw: RawMachine) -> InventoryMachine:
        by_slot = dict(raw.interfaces)
        if raw.interface is not None and by_slot:
            self.note(("machines", name), f"{name}: both 'interface' and 'interfaces'; keep one of them")
        if raw.interface is not None:
            slot = next(iter(self.slots[name])) if len(self.slots.get(name, ())) == 1 else SINGLE
            by_slot[slot] = raw.interface  # a machine with one interface need not name its slot
        interfaces = tuple(NamedInterface(slot, interface.name, interface.mac) for slot, interface in by_slot.items())
        if len({interface.name for interface in interfaces}) < len(interfaces):
            self.note(("machines", name, "interfaces"), f"{name}: the same interface is used twice; name another one")
        in_memory = None if raw.files_in is None else raw.files_in == "memory"
        return InventoryMachine(name, self.access(raw), interfaces, raw.arch, raw.capacity, in_memory, raw.files_limit)

    def access(self, raw: RawMachine) -> SshAccess:
        ssh = self.raw.ssh
        user, host, port = split_target(raw.ssh)
        return SshAccess(
            host=host,
            user=user or ssh.user,
            port=port,
            jump=raw.jump or ssh.jump,
            identity=self.absolute(ssh.identity),
            config=self.absolute(ssh.config),
            known_hosts=self.absolute(ssh.known_hosts),
            binary=ssh.binary,
            sudo=ssh.sudo if raw.sudo is None else raw.sudo,
        )

    def absolute(self, file: str | None) -> str | None:
        return None if file is None else str(self.path.parent / Path(file).expanduser())

    def check_duplicates(self, machines: tuple[InventoryMachine, ...]) -> None:
        """Refuse two machines with one SSH target, or with one MAC address."""
        targets: dict[tuple[str, int | None, str | None], str] = {}
        macs: dict[str, str] = {}
        for machine in machines:
            access = machine.access
            first = targets.setdefault((access.host, access.port, access.jump), machine.name)
            if first != machine.name:
                message = f"{machine.name} and {first} are both {access}; each machine has one role in the lab"
                self.note(("machines", machine.name, "ssh"), message)
            for interface in machine.interfaces:
                owner = macs.setdefault(interface.mac, machine.name) if interface.mac else machine.name
                if owner != machine.name:
                    message = f"{machine.name}: MAC address {interface.mac} is that of {owner}; correct one of them"
                    self.note(("machines", machine.name), message)

    def check_complete(self, network: Network) -> None:
        """Check that the inventory has every machine and interface of the lab, and no others."""
        slots = self.slots
        for name in slots:
            if name not in self.raw.machines:
                missing = f"machine {shown(name)} of lab {network.name} is missing; add {_example(name, slots)}"
                self.note(("machines",), missing)
        self.check_management(network)
        clients = [host.name for host in network.with_role(HostRole.ISLAND_CLIENT)]
        for name, raw in self.raw.machines.items():
            if name not in slots:
                suggestion = suggest(name, slots, "machines")
                self.note(("machines", name), f"unknown machine {shown(name)} in lab {network.name}; {suggestion}")
                continue
            self.check_slots(name, raw)
            self.check_address(network, name, raw)
            if raw.capacity is not None and name not in clients:
                self.note(("machines", name, "capacity"), f"{name}: only island clients have channels; remove it")
        switch_names = [switch.name for switch in network.switches]
        for name in self.raw.switches:
            if name not in switch_names:
                suggestion = suggest(name, switch_names, "switches")
                self.note(("switches", name), f"unknown switch {shown(name)} in lab {network.name}; {suggestion}")
        dpids: dict[int, str] = {}
        for switch in network.switches:
            override = self.raw.switches.get(switch.name)
            dpid = (override.dpid if override else None) or switch.dpid
            if (owner := dpids.setdefault(dpid, switch.name)) != switch.name:
                key_path = ("switches", switch.name if override else owner)
                self.note(key_path, f"datapath id {dpid} is both {owner}'s and {switch.name}'s; correct one of them")

    def check_management(self, network: Network) -> None:
        """Check that no address by which a machine is reached is in a network of the experiment."""
        targets: list[tuple[KeyPath, str, str | None]] = [
            (("controller", "address"), "controller", str(self.raw.controller.address)),
            (("ssh", "jump"), "ssh", self.raw.ssh.jump),
        ]
        for name, raw in self.raw.machines.items():
            targets += [(("machines", name, key), name, getattr(raw, key)) for key in ("ssh", "jump")]
        for key_path, owner, target in targets:
            address = _parse_address(split_target(target)[1]) if target else None
            for end, end_network in (("world", network.world), ("island", network.island)):
                if address is not None and address in end_network:
                    text = f"{owner}: {address} is in the {end} network {end_network} of the lab"
                    self.note(key_path, f"{text}; write its address on the management network")

    def check_address(self, network: Network, name: str, raw: RawMachine) -> None:
        """Check the address of a host that is reached in-band."""
        key_path: KeyPath = ("machines", name, "ssh")
        address = _parse_address(split_target(raw.ssh)[1])
        if address is None:
            return
        control = next((host.control for host in network.hosts if host.name == name), None)
        if control is not None and address != control:
            self.note(
                key_path, f"{name}: its 'control' in lab.yaml is {control}, and this is {address}; correct one of them"
            )

    def check_slots(self, name: str, raw: RawMachine) -> None:
        needed = set(self.slots[name])
        described = set(raw.interfaces) or (needed if len(needed) == 1 and raw.interface else set())
        key_path: KeyPath = ("machines", name)
        if missing := sorted(needed - described):
            self.note(key_path, f"{name}: no interface for {', '.join(missing)}; write {_example(name, self.slots)}")
        if extra := sorted(described - needed):
            suggestion = suggest(extra[0], sorted(needed), "interfaces")
            self.note(key_path, f"{name}: the lab has no interface {', '.join(extra)} there; {suggestion}")

    def note(self, key_path: KeyPath, message: str) -> None:
        self.mistakes.append(self.document.mistake(key_path, message))


def _parse_address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None  # a host's name


def _example(name: str, slots: Mapping[str, Collection[str]]) -> str:
    names = sorted(slots[name])
    if len(names) == 1:
        return f"'{name}: {{ssh: ADDRESS, interface: NAME}}'"
    interfaces = ", ".join(f"{slot}: NAME" for slot in names)
    return f"'{name}: {{ssh: ADDRESS, interfaces: {{{interfaces}}}}}'"

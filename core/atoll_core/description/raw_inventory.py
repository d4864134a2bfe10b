# SPDX-License-Identifier: Apache-2.0
"""inventory.yaml as it is written: one class for each mapping. ``resolve_inventory`` makes an Inventory of it."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from atoll_core.description.raw_lab import Driver
from atoll_core.description.raw_types import (
    RESERVED_INTERFACES,
    Address,
    Capacity,
    FileSize,
    Key,
    Mac,
    Raw,
    ShortForm,
    refusal,
)
from atoll_core.lab.inventory import FILES_LIMIT

_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_TARGET = rf"([A-Za-z_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9_.-]*(:{_PORT})?"
_NIC = r"[^\s/:]{1,15}"  # dev_valid_name() of the kernel, net/core/dev.c, which refuses these two, too:
_REFUSED_NICS = (".", "..", *RESERVED_INTERFACES)


def _text_matching(pattern: str, noun: str, example: str) -> Any:
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value) and value not in _REFUSED_NICS:
            return value
        raise refusal(value, f"is not {noun}, such as '{example}'")

    return read


Target = Annotated[
    str,
    PlainValidator(_text_matching(_TARGET, "an SSH target [user@]host[:port], port 1 to 65535", "root@10.0.0.11")),
    WithJsonSchema({"type": "string", "pattern": f"^{_TARGET}$"}),
]
Nic = Annotated[
    str,
    PlainValidator(_text_matching(_NIC, "the name of an interface", "eth1")),
    WithJsonSchema({"type": "string", "pattern": f"^{_NIC}$"}),
]


class RawInterface(ShortForm):
    """An interface of a machine; a name is short for {name: NAME}."""

    _SHORT: ClassVar[str] = "name"

    name: Nic = Field(examples=["eth1"])
    """Its name on the machine."""
    mac: Mac | None = None
    """Expected MAC address; default: the machine's own."""


class RawSsh(Raw):
    """SSH access to machines without settings of their own. For keys left out, your SSH configuration decides."""

    user: str | None = Field(default=None, examples=["root"])
    """User on the machines."""
    jump: Target | None = Field(default=None, examples=["lab@gateway"])
    """Host to go through, [user@]host[:port]."""
    identity: str | None = Field(default=None, examples=["id_ed25519"])
    """File of the private key, relative to this file."""
    config: str | None = None
    """SSH configuration, relative to this file; default ~/.ssh/config."""
    known_hosts: str | None = Field(default=None, examples=["known_hosts"])
    """File of host keys, relative to this file; default ~/.ssh/known_hosts."""
    binary: str = Field(default=".local/bin/atoll-host", min_length=1)
    """Path of atoll-host on the machines; default .local/bin/atoll-host in the user's home."""
    sudo: bool = False
    """Whether atoll-host is started by sudo without a password; default false."""


class RawController(Raw):
    """Address and port of the controller."""

    address: Address = Field(examples=["192.168.100.1"])
    """Address of this machine on the management network."""
    port: int = Field(default=6653, ge=1, le=65535)
    """TCP port; default 6653."""


class RawInventorySwitch(Raw):
    """A real switch, where it differs from lab.yaml."""

    dpid: int | None = Field(default=None, ge=1, le=2**64 - 1, examples=[3])
    """Datapath id; default as in lab.yaml."""
    driver: Driver | None = Field(default=None, examples=["ovs"])
    """Capability profile in switch-configs; default as in lab.yaml."""


class RawMachine(Raw):
    """The real machine for one of the lab."""

    ssh: Target = Field(examples=["10.0.0.11"])
    """SSH address, [user@]host[:port]; the host may be an alias of your SSH configuration."""
    interface: RawInterface | None = Field(default=None, examples=["eth1"])
    """Its interface in the experiment network, if it has one."""
    interfaces: dict[Key, RawInterface] = Field(default={}, examples=["{world: eth1, island: eth2}"])
    """Several interfaces: by world and island (boxes), or by tap (capture hosts)."""
    capacity: Capacity | None = Field(default=None, examples=[4])
    """Capacity of an island client relative to the others' (its channels); default as in lab.yaml."""
    arch: Literal["x86_64", "aarch64", "armv7l"] | None = Field(default=None, examples=["aarch64"])
    """As in `uname -m`, for `atoll hosts install`; default: read from the machine."""
    files_in: Literal["memory", "disk"] | None = Field(default=None, examples=["disk"])
    """Where files of a run are until it has ended; default memory for hosts, disk for other machines."""
    files_limit: FileSize = Field(default=FILES_LIMIT, examples=["256 MB"])
    """Largest file in memory; default 64 MB."""
    jump: Target | None = Field(default=None, examples=["lab@gateway"])
    """Overrides the key of the same name under ssh, for this machine."""
    sudo: bool | None = Field(default=None, examples=[True])
    """Overrides the key of the same name under ssh, for this machine."""


class RawInventory(Raw):
    """The real machines and switches for those of a lab.yaml."""

    controller: RawController = Field(examples=["{address: 192.168.100.1}"])
    """Address and port of the controller."""
    ssh: RawSsh = Field(default=RawSsh(), examples=["{user: root}"])
    """SSH access to the machines."""
    machines: dict[Key, RawMachine] = Field(examples=["{w1: {ssh: 10.0.0.11, interface: eth1}}"])
    """Machines by the name they have in lab.yaml."""
    switches: dict[Key, RawInventorySwitch] = Field(default={}, examples=["{sw-c: {dpid: 4660}}"])
    """Switches that differ from lab.yaml, by name."""

# SPDX-License-Identifier: Apache-2.0
"""lab.yaml as it is written: one class for each mapping. ``resolve_lab`` makes a Network of it.

The descriptions of the fields are shown by editors, through the JSON Schema. docs/descriptions.md has more.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError

from atoll_core.description.raw_types import (
    Address,
    Between,
    Capacity,
    InterfaceName,
    Key,
    Mac,
    Name,
    Port,
    Prefix,
    Raw,
    Share,
    ShortForm,
)
from atoll_core.lab.box_kind import BoxKind, Forwarding
from atoll_core.lab.network import BUILT_IN_KINDS, HostRole
from atoll_core.plan.plan import Privilege
from atoll_core.units import Duration, Rate, Size

TrunkRate = Annotated[Rate, Between(Rate, "1 kbit/s", "1000 Gbit/s")]
Rtt = Annotated[Duration, Between(Duration, "0 ms", "60 s")]
TwinTime = Annotated[Duration, Between(Duration, "0 ms", "600 s")]
JitterAmount = Annotated[Duration, Between(Duration, "0 ms", "30 s")]
Residence = Annotated[Duration, Between(Duration, "0 ms", "60 s")]
MemorySize = Annotated[Size, Between(Size, "1 MB", "1000 GB")]

MTU_MIN, MTU_MAX = 576, 9216  # every host accepts 576 bytes (RFC 791); the link engine takes up to 9216
Driver = Literal["ovs", "procurve-v1", "procurve-v2", "procurve-v3"]
Mtu = Annotated[int, Field(ge=MTU_MIN, le=MTU_MAX)]
Argv = Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=64)]


class RawNetworks(Raw):
    """The two address ranges; every host is in one of them."""

    world: Prefix = Field(examples=["10.10.0.0/16"])
    """IPv4 network of the world end."""
    island: Prefix = Field(examples=["10.20.0.0/16"])
    """IPv4 network of the island end."""


class RawTwin(Raw):
    """How the twin of a hardware switch behaves, where it differs from the profile of the driver; true: as there."""

    flow_mods_per_s: int | None = Field(default=None, ge=0, le=1_000_000, examples=[100])
    """Flow-mods taken per second; 0: not limited."""
    lag_min: TwinTime | None = Field(default=None, examples=["250 ms"])
    """The shortest time that the data plane follows behind."""
    lag_max: TwinTime | None = Field(default=None, examples=["3 s"])
    """The longest time that the data plane follows behind; 0 s: at once."""
    early_barriers: bool | None = None
    """Whether barriers are answered before the data plane follows."""
    statistics: TwinTime | None = Field(default=None, examples=["20 s"])
    """Interval at which packet counters are read; 0 s: at each request."""
    software_packets_per_s: int | None = Field(default=None, ge=0, le=1_000_000, examples=[100])
    """Packets/s of entries in software; 0: not limited."""
    max_entries: int | None = Field(default=None, ge=1, le=1_000_000)
    """Size of the hardware table."""
    occupied: int | None = Field(default=None, ge=0, le=1_000_000, examples=[20])
    """Entries of access lists and QoS in the hardware table."""
    refuses: bool | None = None
    """Whether entries that a table cannot take are refused."""
    reboot: TwinTime | None = Field(default=None, examples=["5 s"])
    """Duration of a reboot."""
    seed: int = Field(default=1, ge=0, le=2**32 - 1)
    """Seed of the random lags; default 1."""

    @classmethod
    def expanded(cls, value: Any) -> Any:
        return {} if value is True else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = super().__get_pydantic_json_schema__(core, handler)
        return {"anyOf": [{"const": True}, handler.resolve_ref_schema(mapping)]}


class RawSwitch(Raw):
    """An OpenFlow switch."""

    dpid: int = Field(ge=1, le=2**64 - 1, examples=[1])
    """Datapath id, unique in the lab."""
    driver: Driver = Field(examples=["ovs"])
    """Capability profile in switch-configs."""
    twin: RawTwin | None = Field(default=None, examples=["true"])
    """In an emulated lab, behave as the hardware of the driver: true, or settings."""


class RawTrunk(Raw):
    """A cable between two switches."""

    from_: Port = Field(alias="from", examples=["sw-w1/24"])
    """Port at one end, switch/number."""
    to: Port = Field(examples=["sw-c/1"])
    """Port at the other end, switch/number."""
    rate: TrunkRate = Field(examples=["1 Gbit/s"])
    """Line rate, each direction."""


class RawLearningSwitch(Raw):
    """An ordinary switch, without OpenFlow, behind one port of an OpenFlow switch; only hosts are attached to it."""

    uplink: Port = Field(examples=["sw-i/1"])
    """Port of the OpenFlow switch at which its uplink ends."""
    rate: TrunkRate = Field(examples=["1 Gbit/s"])
    """Line rate of the uplink, each direction."""


class RawCable(Raw):
    """Optional keys of any interface."""

    mac: Mac | None = None
    """MAC address; default derived from the port."""
    interface: InterfaceName | None = None
    """Interface name, at most 15 characters."""


class RawLeg(RawCable):
    """Optional keys of the interface of a host or box."""

    mtu: Mtu | None = Field(default=None, examples=[1400])
    """IP bytes of the longest packet on this cable; default 1500."""


class RawHost(RawLeg):
    """An end host of the experiment network."""

    role: HostRole = Field(strict=False, examples=["world-server"])
    """Purpose of the host."""
    ip: Address = Field(examples=["10.10.0.1"])
    """IPv4 address, in the network of its end."""
    control: Address | None = Field(default=None, examples=["192.168.10.31"])
    """Of a host with one interface: its address for in-band control, in the control network. The machine has it before
    atoll is used."""
    port: Port = Field(examples=["sw-w1/1"])
    """Port its cable ends at, of an OpenFlow switch or of a learning switch."""
    interface: InterfaceName | None = None
    """Interface name; default HOST-eth0."""
    capacity: Capacity | None = Field(default=None, examples=[4])
    """Capacity of an island client relative to the others' (its channels); default 1."""


class RawBoxPort(ShortForm, RawLeg):
    """One side of a chain box; switch/number is short for {port: switch/number}."""

    _SHORT: ClassVar[str] = "port"

    port: Port = Field(examples=["sw-c/11"])
    """Switch port this side's cable ends at."""
    interface: InterfaceName | None = None
    """Interface name; default BOX-w or BOX-i."""


class RawSpare(Raw):
    """A second pair of ports of a routed box; frames that enter by one pair leave by the same."""

    world: RawBoxPort = Field(examples=["sw-c/31"])
    """The side that faces the world."""
    island: RawBoxPort = Field(examples=["sw-c/32"])
    """The side that faces the island."""


def _require_grantable(privilege: Privilege) -> Privilege:
    if privilege is Privilege.DAC_OVERRIDE:
        raise ValueError("dac-override would give the program access to every file of the machine; remove it")
    return privilege


class RawProgram(Raw):
    """A program of your own that makes a machine a box; {world} and {island} are replaced by its interfaces' names."""

    start: Argv = Field(examples=["[pepsal, -i, '{world}']"])
    """Command (program and arguments) that runs while the box is in use."""
    stop: Argv = Field(default=[], examples=["[pepctl, stop]"])
    """Command that ends the program; default: SIGTERM ends it."""
    report: Argv = Field(default=[], examples=["[pepctl, statistics]"])
    """Command that prints its statistics after a run."""
    privileges: list[Annotated[Privilege, Field(strict=False), AfterValidator(_require_grantable)]] = Field(
        default=[], examples=["[net-admin, net-raw]"]
    )
    """Capabilities that its commands keep; default none."""
    needs: dict[str, str] = Field(default={}, examples=["{pepsal: docs/pep.md tells how to build it}"])
    """Programs that its commands start, each with how to get it; `atoll check` looks for them."""
    memory_max: MemorySize | None = Field(default=None, examples=["500 MB"])
    """The most memory that each process of `start` may write to; default no limit."""


def _kind(value: object) -> BoxKind:
    if not isinstance(value, str) or value not in BoxKind.registered:
        raise PydanticCustomError("enum", "unknown kind")
    return BoxKind.named(value)


Kind = Annotated[
    BoxKind, PlainValidator(_kind), WithJsonSchema({"type": "string", "enum": [kind.name for kind in BUILT_IN_KINDS]})
]


class RawBox(Raw):
    """A box of the satellite chain."""

    kind: Kind = Field(examples=["link"])
    """Kind of the box."""
    world: RawBoxPort = Field(examples=["sw-c/15"])
    """The side that faces the world."""
    island: RawBoxPort = Field(examples=["sw-c/16"])
    """The side that faces the island."""
    spare: RawSpare | None = Field(default=None, examples=["{world: sw-c/31, island: sw-c/32}"])
    """Second pair of ports, which a swap uses to separate packets of the old and the new chain."""
    forwarding: Forwarding | None = Field(default=None, strict=False, examples=["routed"])
    """For a program or an external box. transparent: it forwards frames unchanged; routed: it forwards IP packets as a
    router."""
    stateful: bool = Field(default=False, examples=[True])
    """For a program or an external box: whether connections break when their packets no longer pass it; default
    false."""
    conserves_packets: bool | None = Field(default=None, examples=[True])
    """For a program or an external box: whether each packet leaves it exactly once and unchanged; default: unknown,
    which has the effect of false."""
    conserves_payload: bool = Field(default=True, examples=[False])
    """For a program or an external box: false if TCP payload may be lost there, or leave in the name of another host;
    default true."""
    residence_max: Residence = Field(default=Duration(0), examples=["200 ms"])
    """For a program or an external box: the longest time for which it holds a packet; swaps and pings wait for it;
    default 0 ms."""
    mtu: Mtu | None = Field(default=None, examples=[1400])
    """MTU of all its ports that do not have their own; default 1500."""
    settings: dict[str, Any] = Field(default={}, examples=["{mode: 'off'}"])
    """Settings of its kind, for all experiments that do not set them; default those of the kind."""
    program: RawProgram | None = Field(default=None, examples=["{start: [pepsal, -i, '{world}']}"])
    """For a program box: its commands."""


class RawLatencyClass(Raw):
    """A terrestrial latency the delay box can impose: on frames with a VLAN id, or between a pair of ports."""

    vlan: int | None = Field(default=None, ge=1, le=4094, examples=[101])
    """VLAN id of the class on the trunk, unique in the lab."""
    world: RawBoxPort | None = Field(default=None, examples=["sw-c/25"])
    """Instead of vlan: the port towards the world's hosts, for switches that cannot rewrite VLAN tags."""
    island: RawBoxPort | None = Field(default=None, examples=["sw-c/26"])
    """With world: the port towards the chain."""
    rtt: Rtt = Field(examples=["20 ms"])
    """Round-trip time; half of it is added in each direction."""
    jitter: JitterAmount | None = Field(default=None, examples=["1 ms"])
    """Uniform +/- jitter of the delay each way, at most half the rtt; default that of the box."""
    reorder: bool | None = None
    """Whether jitter may put packets out of order; default that of the box."""


class RawDelayBox(RawLeg):
    """A box that delays the frames of each latency class."""

    trunk: Port | None = Field(default=None, examples=["sw-c/10"])
    """Switch port of the trunk, for classes with a VLAN id."""
    rate: TrunkRate = Field(examples=["1 Gbit/s"])
    """Line rate of the trunk, or of each cable of a class, each direction."""
    classes: dict[Key, RawLatencyClass] = Field(examples=["{rtt-20: {vlan: 102, rtt: 20 ms}}"])
    """Latency classes by name."""
    jitter: Annotated[float, Share()] = Field(default=0.0, examples=["5 %"])
    """Jitter of the classes, as a share of the delay each way; default 0 %."""
    reorder: bool = False
    """Whether jitter may put packets of a class out of order; default false."""
    interface: InterfaceName | None = None
    """Interface name; default DELAYBOX-t."""


class RawTap(RawCable):
    """An observation point: a port that gets copies of frames, or a splitter in a cable, and its capture host."""

    host: Name = Field(examples=["cap-w"])
    """Capture host; several taps may share one."""
    port: Port | None = Field(default=None, examples=["sw-c/21"])
    """Switch port the copies leave by."""
    cable: Port | None = Field(default=None, examples=["sw-c/15"])
    """Instead of port, for a physical tap: the switch port whose cable it splits."""
    interface: InterfaceName | None = None
    """Interface name; default HOST-TAP."""
    direction: Literal["both", "to_island"] = Field(default="both", examples=["to_island"])
    """Frames that it copies; default both."""


class RawControl(Raw):
    """In-band control: hosts with one interface are reached through the switches of the experiment."""

    network: Prefix = Field(examples=["192.168.10.0/24"])
    """IPv4 network of the control addresses, of no other machine."""
    port: Port = Field(examples=["sw-c/24"])
    """Switch port to which the machine that runs atoll is attached for in-band control."""
    arp: bool = Field(default=True, examples=[False])
    """Whether control addresses are resolved by ARP, which takes flow entries for ARP; false: the machines have
    permanent neighbours; default true."""


class RawLab(Raw):
    """A laboratory: its switches, cables, hosts, chain boxes, delay boxes and taps."""

    name: Name = Field(examples=["island"])
    """Name of the laboratory."""
    networks: RawNetworks = Field(examples=["{world: 10.10.0.0/16, island: 10.20.0.0/16}"])
    """Address ranges of both ends."""
    switches: dict[Key, RawSwitch] = Field(examples=["{sw-c: {dpid: 3, driver: ovs}}"])
    """OpenFlow switches by name."""
    trunks: list[RawTrunk] = Field(default=[], examples=["[{from: sw-w1/24, to: sw-c/1, rate: 1 Gbit/s}]"])
    """Cables between switches."""
    learning_switches: dict[Key, RawLearningSwitch] = Field(
        default={}, examples=["{lan-1: {uplink: sw-i/1, rate: 1 Gbit/s}}"]
    )
    """Ordinary switches by name, each with many hosts behind one port of an OpenFlow switch."""
    control: RawControl | None = Field(default=None, examples=["{network: 192.168.10.0/24, port: sw-c/24}"])
    """In-band control of hosts with one interface."""
    hosts: dict[Key, RawHost] = Field(examples=["{w1: {role: world-server, ip: 10.10.0.1, port: sw-w1/1}}"])
    """End hosts by name."""
    boxes: dict[Key, RawBox] = Field(default={}, examples=["{sat: {kind: link, world: sw-c/15, island: sw-c/16}}"])
    """Chain boxes by name."""
    delay_boxes: dict[Key, RawDelayBox] = Field(
        default={}, examples=["{delay: {trunk: sw-c/10, rate: 1 Gbit/s, classes: {rtt-20: {vlan: 102, rtt: 20 ms}}}}"]
    )
    """Delay boxes by name."""
    taps: dict[Key, RawTap] = Field(default={}, examples=["{tap-w: {host: cap-w, port: sw-c/21}}"])
    """Taps by name."""

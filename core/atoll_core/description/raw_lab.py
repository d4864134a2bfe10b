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

    world: Prefix = Field(description="IPv4 network of the world end.", examples=["10.10.0.0/16"])
    island: Prefix = Field(description="IPv4 network of the island end.", examples=["10.20.0.0/16"])


class RawTwin(Raw):
    """How the twin of a hardware switch behaves, where it differs from the profile of the driver; true: as there."""

    flow_mods_per_s: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Flow-mods taken per second; 0: not limited.", examples=[100]
    )
    lag_min: TwinTime | None = Field(
        default=None, description="The shortest time that the data plane follows behind.", examples=["250 ms"]
    )
    lag_max: TwinTime | None = Field(
        default=None, description="The longest time that the data plane follows behind; 0 s: at once.", examples=["3 s"]
    )
    early_barriers: bool | None = Field(
        default=None, description="Whether barriers are answered before the data plane follows."
    )
    statistics: TwinTime | None = Field(
        default=None, description="Interval at which packet counters are read; 0 s: at each request.", examples=["20 s"]
    )
    software_packets_per_s: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Packets/s of entries in software; 0: not limited.",
        examples=[100],
    )
    max_entries: int | None = Field(default=None, ge=1, le=1_000_000, description="Size of the hardware table.")
    occupied: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Entries of access lists and QoS in the hardware table.",
        examples=[20],
    )
    refuses: bool | None = Field(default=None, description="Whether entries that a table cannot take are refused.")
    reboot: TwinTime | None = Field(default=None, description="Duration of a reboot.", examples=["5 s"])
    seed: int = Field(default=1, ge=0, le=2**32 - 1, description="Seed of the random lags; default 1.")

    @classmethod
    def expanded(cls, value: Any) -> Any:
        return {} if value is True else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"const": True}, handler.resolve_ref_schema(handler(core))]}


class RawSwitch(Raw):
    """An OpenFlow switch."""

    dpid: int = Field(ge=1, le=2**64 - 1, description="Datapath id, unique in the lab.", examples=[1])
    driver: Driver = Field(description="Capability profile in switch-configs.", examples=["ovs"])
    twin: RawTwin | None = Field(
        default=None,
        description="In an emulated lab, behave as the hardware of the driver: true, or settings.",
        examples=["true"],
    )


class RawTrunk(Raw):
    """A cable between two switches."""

    from_: Port = Field(alias="from", description="Port at one end, switch/number.", examples=["sw-w1/24"])
    to: Port = Field(description="Port at the other end, switch/number.", examples=["sw-c/1"])
    rate: TrunkRate = Field(description="Line rate, each direction.", examples=["1 Gbit/s"])


class RawLearningSwitch(Raw):
    """An ordinary switch, without OpenFlow, behind one port of an OpenFlow switch; only hosts are attached to it."""

    uplink: Port = Field(description="Port of the OpenFlow switch at which its uplink ends.", examples=["sw-i/1"])
    rate: TrunkRate = Field(description="Line rate of the uplink, each direction.", examples=["1 Gbit/s"])


class RawCable(Raw):
    """Optional keys of any interface."""

    mac: Mac | None = Field(default=None, description="MAC address; default derived from the port.")
    interface: InterfaceName | None = Field(default=None, description="Interface name, at most 15 characters.")


class RawLeg(RawCable):
    """Optional keys of the interface of a host or box."""

    mtu: Mtu | None = Field(
        default=None, description="IP bytes of the longest packet on this cable; default 1500.", examples=[1400]
    )


class RawHost(RawLeg):
    """An end host of the experiment network."""

    role: HostRole = Field(strict=False, description="Purpose of the host.", examples=["world-server"])
    ip: Address = Field(description="IPv4 address, in the network of its end.", examples=["10.10.0.1"])
    control: Address | None = Field(
        default=None,
        description=(
            "Of a host with one interface: its address for in-band control, in the control network. The machine has it "
            "before atoll is used."
        ),
        examples=["192.168.10.31"],
    )
    port: Port = Field(
        description="Port its cable ends at, of an OpenFlow switch or of a learning switch.", examples=["sw-w1/1"]
    )
    interface: InterfaceName | None = Field(default=None, description="Interface name; default HOST-eth0.")
    capacity: Capacity | None = Field(
        default=None,
        description="Capacity of an island client relative to the others' (its channels); default 1.",
        examples=[4],
    )


class RawBoxPort(ShortForm, RawLeg):
    """One side of a chain box; switch/number is short for {port: switch/number}."""

    _SHORT: ClassVar[str] = "port"

    port: Port = Field(description="Switch port this side's cable ends at.", examples=["sw-c/11"])
    interface: InterfaceName | None = Field(default=None, description="Interface name; default BOX-w or BOX-i.")


class RawSpare(Raw):
    """A second pair of ports of a routed box; frames that enter by one pair leave by the same."""

    world: RawBoxPort = Field(description="The side that faces the world.", examples=["sw-c/31"])
    island: RawBoxPort = Field(description="The side that faces the island.", examples=["sw-c/32"])


def _require_grantable(privilege: Privilege) -> Privilege:
    if privilege is Privilege.DAC_OVERRIDE:
        raise ValueError("dac-override would give the program access to every file of the machine; remove it")
    return privilege


class RawProgram(Raw):
    """A program of your own that makes a machine a box; {world} and {island} are replaced by its interfaces' names."""

    start: Argv = Field(
        description="Command (program and arguments) that runs while the box is in use.",
        examples=["[pepsal, -i, '{world}']"],
    )
    stop: Argv = Field(
        default=[], description="Command that ends the program; default: SIGTERM ends it.", examples=["[pepctl, stop]"]
    )
    report: Argv = Field(
        default=[], description="Command that prints its statistics after a run.", examples=["[pepctl, statistics]"]
    )
    privileges: list[Annotated[Privilege, Field(strict=False), AfterValidator(_require_grantable)]] = Field(
        default=[],
        description="Capabilities that its commands keep; default none.",
        examples=["[net-admin, net-raw]"],
    )
    needs: dict[str, str] = Field(
        default={},
        description="Programs that its commands start, each with how to get it; `atoll check` looks for them.",
        examples=["{pepsal: docs/pep.md tells how to build it}"],
    )
    memory_max: MemorySize | None = Field(
        default=None,
        description="The most memory that each process of `start` may write to; default no limit.",
        examples=["500 MB"],
    )


def _kind(value: object) -> BoxKind:
    if not isinstance(value, str) or value not in BoxKind.registered:
        raise PydanticCustomError("enum", "unknown kind")
    return BoxKind.named(value)


Kind = Annotated[
    BoxKind, PlainValidator(_kind), WithJsonSchema({"type": "string", "enum": [kind.name for kind in BUILT_IN_KINDS]})
]


class RawBox(Raw):
    """A box of the satellite chain."""

    kind: Kind = Field(description="Kind of the box.", examples=["link"])
    world: RawBoxPort = Field(description="The side that faces the world.", examples=["sw-c/15"])
    island: RawBoxPort = Field(description="The side that faces the island.", examples=["sw-c/16"])
    spare: RawSpare | None = Field(
        default=None,
        description="Second pair of ports, which a swap uses to separate packets of the old and the new chain.",
        examples=["{world: sw-c/31, island: sw-c/32}"],
    )
    forwarding: Forwarding | None = Field(
        default=None,
        strict=False,
        description=(
            "For a program or an external box. transparent: it forwards frames unchanged; routed: it forwards IP "
            "packets as a router."
        ),
        examples=["routed"],
    )
    stateful: bool = Field(
        default=False,
        description=(
            "For a program or an external box: whether connections break when their packets no longer pass it; "
            "default false."
        ),
        examples=[True],
    )
    conserves_packets: bool | None = Field(
        default=None,
        description=(
            "For a program or an external box: whether each packet leaves it exactly once and unchanged; default: "
            "unknown, which has the effect of false."
        ),
        examples=[True],
    )
    conserves_payload: bool = Field(
        default=True,
        description=(
            "For a program or an external box: false if TCP payload may be lost there, or leave in the name of another "
            "host; default true."
        ),
        examples=[False],
    )
    residence_max: Residence = Field(
        default=Duration(0),
        description=(
            "For a program or an external box: the longest time for which it holds a packet; swaps and pings wait for "
            "it; default 0 ms."
        ),
        examples=["200 ms"],
    )
    mtu: Mtu | None = Field(
        default=None, description="MTU of all its ports that do not have their own; default 1500.", examples=[1400]
    )
    settings: dict[str, Any] = Field(
        default={},
        description="Settings of its kind, for all experiments that do not set them; default those of the kind.",
        examples=["{mode: 'off'}"],
    )
    program: RawProgram | None = Field(
        default=None,
        description="For a program box: its commands.",
        examples=["{start: [pepsal, -i, '{world}']}"],
    )


class RawLatencyClass(Raw):
    """A terrestrial latency the delay box can impose: on frames with a VLAN id, or between a pair of ports."""

    vlan: int | None = Field(
        default=None, ge=1, le=4094, description="VLAN id of the class on the trunk, unique in the lab.", examples=[101]
    )
    world: RawBoxPort | None = Field(
        default=None,
        description="Instead of vlan: the port towards the world's hosts, for switches that cannot rewrite VLAN tags.",
        examples=["sw-c/25"],
    )
    island: RawBoxPort | None = Field(
        default=None, description="With world: the port towards the chain.", examples=["sw-c/26"]
    )
    rtt: Rtt = Field(description="Round-trip time; half of it is added in each direction.", examples=["20 ms"])
    jitter: JitterAmount | None = Field(
        default=None,
        description="Uniform +/- jitter of the delay each way, at most half the rtt; default that of the box.",
        examples=["1 ms"],
    )
    reorder: bool | None = Field(
        default=None, description="Whether jitter may put packets out of order; default that of the box."
    )


class RawDelayBox(RawLeg):
    """A box that delays the frames of each latency class."""

    trunk: Port | None = Field(
        default=None, description="Switch port of the trunk, for classes with a VLAN id.", examples=["sw-c/10"]
    )
    rate: TrunkRate = Field(
        description="Line rate of the trunk, or of each cable of a class, each direction.", examples=["1 Gbit/s"]
    )
    classes: dict[Key, RawLatencyClass] = Field(
        description="Latency classes by name.", examples=["{rtt-20: {vlan: 102, rtt: 20 ms}}"]
    )
    jitter: Annotated[float, Share()] = Field(
        default=0.0,
        description="Jitter of the classes, as a share of the delay each way; default 0 %.",
        examples=["5 %"],
    )
    reorder: bool = Field(
        default=False, description="Whether jitter may put packets of a class out of order; default false."
    )
    interface: InterfaceName | None = Field(default=None, description="Interface name; default DELAYBOX-t.")


class RawTap(RawCable):
    """An observation point: a port that gets copies of frames, or a splitter in a cable, and its capture host."""

    host: Name = Field(description="Capture host; several taps may share one.", examples=["cap-w"])
    port: Port | None = Field(default=None, description="Switch port the copies leave by.", examples=["sw-c/21"])
    cable: Port | None = Field(
        default=None,
        description="Instead of port, for a physical tap: the switch port whose cable it splits.",
        examples=["sw-c/15"],
    )
    interface: InterfaceName | None = Field(default=None, description="Interface name; default HOST-TAP.")
    direction: Literal["both", "to_island"] = Field(
        default="both", description="Frames that it copies; default both.", examples=["to_island"]
    )


class RawControl(Raw):
    """In-band control: hosts with one interface are reached through the switches of the experiment."""

    network: Prefix = Field(
        description="IPv4 network of the control addresses, of no other machine.", examples=["192.168.10.0/24"]
    )
    port: Port = Field(
        description="Switch port to which the machine that runs atoll is attached for in-band control.",
        examples=["sw-c/24"],
    )
    arp: bool = Field(
        default=True,
        description=(
            "Whether control addresses are resolved by ARP, which takes flow entries for ARP; false: the machines have "
            "permanent neighbours; default true."
        ),
        examples=[False],
    )


class RawLab(Raw):
    """A laboratory: its switches, cables, hosts, chain boxes, delay boxes and taps."""

    name: Name = Field(description="Name of the laboratory.", examples=["island"])
    networks: RawNetworks = Field(
        description="Address ranges of both ends.", examples=["{world: 10.10.0.0/16, island: 10.20.0.0/16}"]
    )
    switches: dict[Key, RawSwitch] = Field(
        description="OpenFlow switches by name.", examples=["{sw-c: {dpid: 3, driver: ovs}}"]
    )
    trunks: list[RawTrunk] = Field(
        default=[],
        description="Cables between switches.",
        examples=["[{from: sw-w1/24, to: sw-c/1, rate: 1 Gbit/s}]"],
    )
    learning_switches: dict[Key, RawLearningSwitch] = Field(
        default={},
        description="Ordinary switches by name, each with many hosts behind one port of an OpenFlow switch.",
        examples=["{lan-1: {uplink: sw-i/1, rate: 1 Gbit/s}}"],
    )
    control: RawControl | None = Field(
        default=None,
        description="In-band control of hosts with one interface.",
        examples=["{network: 192.168.10.0/24, port: sw-c/24}"],
    )
    hosts: dict[Key, RawHost] = Field(
        description="End hosts by name.", examples=["{w1: {role: world-server, ip: 10.10.0.1, port: sw-w1/1}}"]
    )
    boxes: dict[Key, RawBox] = Field(
        default={},
        description="Chain boxes by name.",
        examples=["{sat: {kind: link, world: sw-c/15, island: sw-c/16}}"],
    )
    delay_boxes: dict[Key, RawDelayBox] = Field(
        default={},
        description="Delay boxes by name.",
        examples=["{delay: {trunk: sw-c/10, rate: 1 Gbit/s, classes: {rtt-20: {vlan: 102, rtt: 20 ms}}}}"],
    )
    taps: dict[Key, RawTap] = Field(
        default={}, description="Taps by name.", examples=["{tap-w: {host: cap-w, port: sw-c/21}}"]
    )

# SPDX-License-Identifier: Apache-2.0
"""The load as experiment.yaml has it: channels of TCP flows, and UDP. ``resolve_traffic`` makes a Traffic of it."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from atoll_core.description.raw_types import Between, Key, Positive, Raw, ShortForm, refusal
from atoll_core.description.validation_messages import nearest
from atoll_core.description.yaml_document import KeyPath
from atoll_core.errors import shown
from atoll_core.experiment.flow_sizes import PUBLISHED
from atoll_core.experiment.traffic import FLOW_TIMEOUT, MAX_CHANNELS, FlowDirection, SizeMeaning, ThinkShape
from atoll_core.units import Duration, Rate, Size

ProRateSize = Annotated[Size, Between(Size, "1 B", "1 MB")]
ThinkDuration = Annotated[Duration, Between(Duration, "1 us", "24 h")]
WriteRate = Annotated[Rate, Between(Rate, "1 kbit/s", "100 Gbit/s")]
FlowTimeout = Annotated[Duration, Between(Duration, "1 s", "24 h")]
WriteChunk = Annotated[Size, Between(Size, "1 B", "1 GB")]
UdpRate = Annotated[Rate, Between(Rate, "1 kbit/s", "10 Gbit/s")]
PacketSize = Annotated[Size, Between(Size, "48 B", "9216 B", " (headers, sequence number and time stamp)")]

_BEGINS_WITH_DIGIT = re.compile(r"\s*[0-9]")


def _read_flow_sizes(value: object) -> str:
    """A distribution's name, a size, or a path. A path has a '.' or '/', so that misspelt names are found."""
    if not isinstance(value, str):
        raise refusal(value, f"is no distribution; write {PUBLISHED}, a size such as '10 kB', or a file")
    if value == PUBLISHED or "/" in value or ("." in value and not _BEGINS_WITH_DIGIT.match(value)):
        return value
    if _BEGINS_WITH_DIGIT.match(value):
        Between(Size, "1 B", "1000 GB").read(value)
        return value
    hint = f"did you mean {PUBLISHED!r}?" if nearest(value, [PUBLISHED]) else "a file's name has a '.' or '/' in it;"
    msg = f"unknown distribution {shown(value)}; {hint} write {PUBLISHED}, a size such as '10 kB', or a file"
    raise ValueError(msg)


FlowSizesText = Annotated[str, PlainValidator(_read_flow_sizes), WithJsonSchema({"type": "string"})]
FlowsPerSecond = Annotated[
    float, Positive(1_000_000, "is not a rate of flows; write flows per second, above 0 and at most 1000000")
]


class RawThink(ShortForm):
    """A pause after each flow of a channel; a duration is short for {mean: duration}."""

    _SHORT: ClassVar[str] = "mean"

    mean: ThinkDuration = Field(examples=["2 s"])
    """Mean pause."""
    distribution: ThinkShape = Field(default=ThinkShape.CONSTANT, strict=False, examples=["exponential"])
    """Distribution of the pauses: constant or exponential."""


class RawFlowSizes(ShortForm):
    """The distribution of flow sizes; text is short for {distribution: text}."""

    _SHORT: ClassVar[str] = "distribution"

    distribution: FlowSizesText = Field(default=PUBLISHED, examples=["published", "10 kB", "sizes.csv"])
    """Distribution of flow sizes: published, one size, or a file relative to this one."""
    counts: SizeMeaning = Field(default=SizeMeaning.PAYLOAD, strict=False, examples=["ip"])
    """Meaning of the sizes: TCP payload, or the IP bytes of a recorded flow, headers included."""


CHUNK_WITHOUT_RATE = "write_chunk has no write_rate to keep; add 'write_rate: 2 Mbit/s'"


class RawGroup(Raw):
    """The load of some clients; keys that are left out are those of ``traffic``, null: none."""

    clients: list[str] = Field(examples=["[i1, i2]"])
    """Island clients, each in one group at most."""
    channels: int | None = Field(ge=0, le=MAX_CHANNELS, default=None, examples=[10])
    """Channels over the clients of the group."""
    flow_sizes: RawFlowSizes | None = Field(
        default=None, examples=["published", "10 kB", "{distribution: sizes.csv, counts: ip}"]
    )
    """Distribution of flow sizes and the meaning of the sizes."""
    pro_rate: ProRateSize | None = Field(default=None, examples=["200 B"])
    """Flows smaller than this are combined to connections of this size."""
    think_time: RawThink | None = Field(default=None, examples=["2 s", "{mean: 2 s, distribution: exponential}"])
    """Pause of a channel after each flow, in place of flows_per_s."""
    flows_per_s: FlowsPerSecond | None = Field(default=None, examples=[50])
    """Open loop, in place of think_time: flows started per second, over the channels of the group."""
    timeout: FlowTimeout | None = Field(default=None, examples=["30 s"])
    """A flow that has been connected without a byte for so long has failed."""
    direction: FlowDirection | None = Field(default=None, strict=False, examples=["upload"])
    """download: servers send to the clients. upload: the clients send."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_setting_of_servers(cls, value: Any) -> Any:
        for key in ("write_rate", "write_chunk", "port"):
            if isinstance(value, dict) and key in value:
                msg = f"{key} is a setting of the servers, which all groups share; write it in 'traffic'"
                raise ValueError(msg)
        return cast("Any", value)


class RawTraffic(Raw):
    """The load."""

    channels: int = Field(ge=0, le=MAX_CHANNELS, examples=[20])
    """Channels over all island clients; 0: no load."""
    flow_sizes: RawFlowSizes = Field(
        default=RawFlowSizes(), examples=["published", "10 kB", "{distribution: sizes.csv, counts: ip}"]
    )
    """Distribution of flow sizes and the meaning of the sizes: text, or a mapping."""
    pro_rate: ProRateSize | None = Field(default=None, examples=["200 B"])
    """Flows smaller than this are combined to connections of this size; default none."""
    think_time: RawThink | None = Field(default=None, examples=["2 s", "{mean: 2 s, distribution: exponential}"])
    """Pause of a channel after each flow: a duration, or a mapping; default none."""
    flows_per_s: FlowsPerSecond | None = Field(default=None, examples=[50])
    """Open loop: flows started per second, over all channels, independently of earlier flows."""
    write_rate: WriteRate | None = Field(default=None, examples=["2 Mbit/s"])
    """Largest rate at which a sender, server or client, sends on one connection; default no limit."""
    write_chunk: WriteChunk | None = Field(default=None, examples=["64 kB"])
    """Keep write_rate of servers by writes of this size with pauses, in bursts; default paced by the kernel, as clients
    that upload always are."""
    timeout: FlowTimeout = Field(default=FLOW_TIMEOUT, examples=["30 s"])
    """A flow that has been connected without a byte for so long has failed; default 3 min."""
    direction: FlowDirection = Field(default=FlowDirection.DOWNLOAD, strict=False, examples=["upload"])
    """download: servers send to the clients. upload: the clients send. Default download."""
    port: int = Field(ge=1, le=65535, default=5001)
    """TCP port of the world servers; default 5001."""
    groups: dict[Key, RawGroup] = Field(
        default={},
        examples=["{coded: {clients: [i1, i2], channels: 10}, plain: {clients: [i3, i4], flow_sizes: 10 kB}}"],
    )
    """Clients with a load of their own, by the names of groups; the other clients have the keys above."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if problems := list(self.problems()):
            raise ValueError("; ".join(problems))
        return self

    def problems(self) -> Iterator[str]:
        """The keys that contradict each other, those of groups left out."""
        if self.think_time and self.flows_per_s is not None:
            yield "think_time and flows_per_s exclude each other; keep one of them"
        if self.flows_per_s is not None and self.channels == 0:
            yield "flows_per_s starts flows on channels; write at least 1 channel"
        if self.write_chunk and self.write_rate is None:
            yield CHUNK_WITHOUT_RATE
        if (
            self.write_chunk
            and self.write_rate
            and 8e9 * self.write_chunk.bytes / self.write_rate.bit_s >= self.timeout.ns
        ):
            yield f"a write_chunk takes longer than the timeout, {self.timeout}, at write_rate; lower it"

    @property
    def loads(self) -> dict[KeyPath, "RawTraffic"]:
        """The load of the clients in no group, and that of each group, by the key path from here."""
        return {(): self, **{("groups", name): self._load_of(group) for name, group in self.groups.items()}}

    def _load_of(self, group: RawGroup) -> "RawTraffic":
        keys: dict[str, Any] = {key: getattr(group, key) for key in group.model_fields_set - {"clients"}}
        for key, excluded in (("think_time", "flows_per_s"), ("flows_per_s", "think_time")):
            if keys.get(key):
                keys.setdefault(excluded, None)
        fields = type(self).model_fields
        given = {key: value for key, value in keys.items() if value is not None or fields[key].default is None}
        return self.model_copy(update={**given, "groups": {}})


class RawUdp(Raw):
    """UDP flows from the world's special server to hosts of the island."""

    rate: UdpRate = Field(examples=["2 Mbit/s"])
    """IP bytes a second of all flows together."""
    receivers: Literal["special", "clients"] = Field(default="special", examples=["clients"])
    """special: the island's special host receives every flow. clients: the island clients receive the flows in turn.
    Default special."""
    flow_sizes: FlowSizesText = Field(default=PUBLISHED, examples=["published", "10 kB", "sizes.csv"])
    """Distribution of flow sizes (IP bytes): published, one size, or a file relative to this one."""
    packet: PacketSize = Field(default=Size(1500), examples=["1200 B"])
    """IP bytes of each packet; the last packet of a flow can be smaller. Default 1500 B, or the path's MTU if that is
    smaller."""
    parallel: int = Field(ge=1, le=1000, default=4, examples=[4])
    """Number of simultaneous flows; default 4."""
    port: int = Field(ge=1, le=65535, default=5301)
    """UDP port of the receiver; default 5301."""


class RawGroupChange(Raw):
    """The load of a group from a change on; keys that are left out stay unchanged."""

    channels: int | None = Field(ge=0, le=MAX_CHANNELS, default=None, examples=[40])
    """Channels from then on; default those before."""
    flow_sizes: RawFlowSizes | None = Field(
        default=None, examples=["published", "10 kB", "{distribution: sizes.csv, counts: ip}"]
    )
    """Sizes of the flows that begin from then on; default those before."""
    flows_per_s: FlowsPerSecond | None = Field(default=None, examples=[100])
    """Of an open loop: flows started per second from then on."""


class RawTrafficChange(RawGroupChange):
    """The load from a change on; keys that are left out stay unchanged."""

    groups: dict[Key, RawGroupChange] = Field(default={}, examples=["{coded: {channels: 40}}"])
    """The load of groups from then on; a group without a key of its own follows that of traffic."""


class RawUdpChange(Raw):
    """UDP from a change on."""

    rate: UdpRate = Field(examples=["4 Mbit/s"])
    """IP bytes a second of all flows together, from then on."""

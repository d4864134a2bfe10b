# SPDX-License-Identifier: Apache-2.0
"""The load as experiment.yaml has it: channels of TCP flows, and UDP. ``resolve_traffic`` makes a Traffic of it."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from atoll_core.description.raw_types import Between, Positive, Raw, ShortForm, refusal
from atoll_core.description.validation_messages import nearest
from atoll_core.errors import shown
from atoll_core.experiment.flow_sizes import PUBLISHED
from atoll_core.experiment.traffic import FLOW_TIMEOUT, SizeMeaning, ThinkShape
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

    mean: ThinkDuration = Field(description="Mean pause.", examples=["2 s"])
    distribution: ThinkShape = Field(
        default=ThinkShape.CONSTANT,
        strict=False,
        description="Distribution of the pauses: constant or exponential.",
        examples=["exponential"],
    )


class RawFlowSizes(ShortForm):
    """The distribution of flow sizes; text is short for {distribution: text}."""

    _SHORT: ClassVar[str] = "distribution"

    distribution: FlowSizesText = Field(
        default=PUBLISHED,
        description="Distribution of flow sizes: published, one size, or a file relative to this one.",
        examples=["published", "10 kB", "sizes.csv"],
    )
    counts: SizeMeaning = Field(
        default=SizeMeaning.PAYLOAD,
        strict=False,
        description="Meaning of the sizes: TCP payload, or the IP bytes of a recorded flow, headers included.",
        examples=["ip"],
    )


CHUNK_WITHOUT_RATE = "write_chunk has no write_rate to keep; add 'write_rate: 2 Mbit/s'"


class RawTraffic(Raw):
    """The load."""

    channels: int = Field(ge=0, le=100_000, description="Channels over all island clients; 0: no load.", examples=[20])
    flow_sizes: RawFlowSizes = Field(
        default=RawFlowSizes(),
        description="Distribution of flow sizes and the meaning of the sizes: text, or a mapping.",
        examples=["published", "10 kB", "{distribution: sizes.csv, counts: ip}"],
    )
    pro_rate: ProRateSize | None = Field(
        default=None,
        description="Flows smaller than this are combined to connections of this size; default none.",
        examples=["200 B"],
    )
    think_time: RawThink | None = Field(
        default=None,
        description="Pause of a channel after each flow: a duration, or a mapping; default none.",
        examples=["2 s", "{mean: 2 s, distribution: exponential}"],
    )
    flows_per_s: FlowsPerSecond | None = Field(
        default=None,
        description="Open loop: flows started per second, over all channels, independently of earlier flows.",
        examples=[50],
    )
    write_rate: WriteRate | None = Field(
        default=None,
        description="Largest rate at which a server sends on one connection; default no limit.",
        examples=["2 Mbit/s"],
    )
    write_chunk: WriteChunk | None = Field(
        default=None,
        description="Keep write_rate by writes of this size with pauses, in bursts; default paced by the kernel.",
        examples=["64 kB"],
    )
    timeout: FlowTimeout = Field(
        default=FLOW_TIMEOUT,
        description="A flow that has been connected without a byte for so long has failed; default 3 min.",
        examples=["30 s"],
    )
    port: int = Field(ge=1, le=65535, default=5001, description="TCP port of the world servers; default 5001.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        problems: list[str] = []
        if self.think_time and self.flows_per_s is not None:
            problems.append("think_time and flows_per_s exclude each other; keep one of them")
        if self.flows_per_s is not None and self.channels == 0:
            problems.append("flows_per_s starts flows on channels; write at least 1 channel")
        if self.write_chunk and self.write_rate is None:
            problems.append(CHUNK_WITHOUT_RATE)
        if (
            self.write_chunk
            and self.write_rate
            and 8e9 * self.write_chunk.bytes / self.write_rate.bit_s >= self.timeout.ns
        ):
            problems.append(f"a write_chunk takes longer than the timeout, {self.timeout}, at write_rate; lower it")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class RawUdp(Raw):
    """UDP flows from the world's special server to hosts of the island."""

    rate: UdpRate = Field(description="IP bytes a second of all flows together.", examples=["2 Mbit/s"])
    receivers: Literal["special", "clients"] = Field(
        default="special",
        description=(
            "special: the island's special host receives every flow. clients: the island clients receive the flows in "
            "turn. Default special."
        ),
        examples=["clients"],
    )
    flow_sizes: FlowSizesText = Field(
        default=PUBLISHED,
        description="Distribution of flow sizes (IP bytes): published, one size, or a file relative to this one.",
        examples=["published", "10 kB", "sizes.csv"],
    )
    packet: PacketSize = Field(
        default=Size(1500),
        description=(
            "IP bytes of each packet; the last packet of a flow can be smaller. Default 1500 B, or the path's MTU "
            "if that is smaller."
        ),
        examples=["1200 B"],
    )
    parallel: int = Field(
        ge=1, le=1000, default=4, description="Number of simultaneous flows; default 4.", examples=[4]
    )
    port: int = Field(ge=1, le=65535, default=5301, description="UDP port of the receiver; default 5301.")


class RawTrafficChange(Raw):
    """The load from a change on; keys that are left out stay unchanged."""

    channels: int | None = Field(
        ge=0, le=100_000, default=None, description="Channels from then on; default those before.", examples=[40]
    )
    flow_sizes: RawFlowSizes | None = Field(
        default=None,
        description="Sizes of the flows that begin from then on; default those before.",
        examples=["published", "10 kB", "{distribution: sizes.csv, counts: ip}"],
    )
    flows_per_s: FlowsPerSecond | None = Field(
        default=None, description="Of an open loop: flows started per second from then on.", examples=[100]
    )


class RawUdpChange(Raw):
    """UDP from a change on."""

    rate: UdpRate = Field(description="IP bytes a second of all flows together, from then on.", examples=["4 Mbit/s"])

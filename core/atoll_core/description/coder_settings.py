# SPDX-License-Identifier: Apache-2.0
"""The settings of coders (``atoll_core.lab.coder``) as lab.yaml and experiment.yaml have them."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from atoll_core.description.raw_types import Between, BoxSettings
from atoll_core.units import Duration, Rate, Size

_MS = 10**6


class CoderSettings(BoxSettings):
    """Settings of a coder. Both coders of a pair have the same code; when repair packets leave is each one's own."""

    scheme: Literal["rlnc", "reed-solomon", "repetition"] = Field(
        default="rlnc", description="The code, of both coders; default rlnc."
    )
    generation: int = Field(default=30, ge=2, le=1024, description="Packets of a generation; default 30.")
    redundancy: int = Field(default=3, ge=0, le=1024, description="Repair packets of a generation; default 3.")
    interleave: int = Field(
        default=1, ge=1, le=64, description="Generations that packets join in turn, against bursts; default 1."
    )
    flush: Annotated[Duration, Between(Duration, "1 ms", "10 s")] = Field(
        default=Duration(100 * _MS),
        description="Time after its first packet at which a generation ends that is not whole; default 100 ms.",
    )
    defer: Annotated[Duration, Between(Duration, "0 ms", "10 s")] = Field(
        default=Duration(100 * _MS), description="Time for which `deferred` holds repair packets; default 100 ms."
    )
    defer_generations: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Further generations after which `deferred` releases repair packets, if that is before `defer`; "
        "default none.",
    )
    link_rate: Annotated[Rate, Between(Rate, "1 kbit/s", "100 Gbit/s")] | None = Field(
        default=None, description="Rate of the link towards the other coder, for `titrated`."
    )
    link_queue: Annotated[Size, Between(Size, "1500 B", "1 GB")] | None = Field(
        default=None, description="Queue of the link towards the other coder, for `titrated`."
    )
    room: Annotated[Size, Between(Size, "1500 B", "1 GB")] | None = Field(
        default=None,
        description="Bytes that may wait before the link at most, with a repair packet; default half of `link_queue`.",
    )
    scheduler: Literal["tail", "interspersed", "deferred", "titrated"] = Field(
        default="tail",
        description=(
            "When repair packets leave. tail: at the end of their generation; interspersed: between its packets; "
            "deferred: a fixed time later; titrated: when the queue of the link has room. Default tail."
        ),
    )
    stale: Annotated[Duration, Between(Duration, "1 ms", "60 s")] = Field(
        default=Duration(1000 * _MS), description="Age at which repair packets that wait are dropped; default 1 s."
    )
    direction: Literal["both", "to_island", "to_world"] = Field(
        default="both", description="Direction in which this coder encodes; default both."
    )
    small: Annotated[Size, Between(Size, "0 B", "9216 B")] = Field(
        default=Size(0), description="Packets of so many IP bytes or less are not coded; default 0 B."
    )
    flow_threshold: Annotated[Size, Between(Size, "0 B", "1 GB")] = Field(
        default=Size(0), description="IP bytes at the beginning of each flow that are not coded; default 0 B."
    )
    low_priority: bool = Field(
        default=True, description="Whether repair packets are marked as lower effort (DSCP 1, RFC 8622); default true."
    )
    signal: Literal["hide", "mark"] = Field(
        default="hide",
        description="Whether hosts learn of losses that were repaired: mark sets CE in recovered packets that are "
        "capable of ECN; default hide.",
    )
    poll: Annotated[Duration, Between(Duration, "0 ms", "4 ms")] = Field(
        default=Duration(_MS),
        description="Interval at which packets are taken in virtual time, 0 ms: each at once; default 1 ms.",
    )

    @field_validator("scheduler")
    @classmethod
    def _has_what_it_needs(cls, scheduler: str, others: ValidationInfo) -> str:
        given: dict[str, Any] = others.data
        if scheduler == "titrated" and not (given.get("link_rate") and given.get("link_queue")):
            msg = "titrated needs the rate and the queue of the link; add link_rate and link_queue"
            raise ValueError(msg)
        if scheduler == "interspersed" and given.get("scheme") != "rlnc":
            msg = f"{given.get('scheme')} makes repair packets at the end of a generation; write scheme: rlnc, or tail"
            raise ValueError(msg)
        return scheduler

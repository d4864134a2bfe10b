# SPDX-License-Identifier: Apache-2.0
"""The settings of coders (``atoll_core.lab.coder``) as lab.yaml and experiment.yaml have them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from atoll_core.description.raw_types import Between, BoxSettings, Share
from atoll_core.errors import shown
from atoll_core.units import Duration, Rate, Size

_MS = 10**6
_MAX_REPAIRS = 1024
_SLIDING_WINDOW, _PARTIAL_UNIT_MEMORY = "sliding-window", "partial-unit-memory"
_WINDOW_SCHEMES = (_SLIDING_WINDOW, _PARTIAL_UNIT_MEMORY)
_MAX_WINDOW = 512
"""The decoder remembers 1024 packets: repair packets of the largest window may be late by as many packets as it has."""


def _number_or_adaptive(value: object) -> object:
    """Refuse with one message what is neither of the two forms."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_REPAIRS
    if not is_number and value != "adaptive":
        msg = f"{shown(value)} is neither a number of repair packets from 0 to {_MAX_REPAIRS} nor 'adaptive'"
        raise ValueError(msg)
    return value


_Redundancy = Annotated[
    Annotated[int, Field(ge=0, le=_MAX_REPAIRS)] | Literal["adaptive"], BeforeValidator(_number_or_adaptive)
]


class CoderSettings(BoxSettings):
    """Settings of a coder. Both coders of a pair have the same code; when repair packets leave is each one's own."""

    SAME_IN_PAIR: ClassVar = (
        *("scheme", "generation", "memory", "redundancy", "redundancy_max"),
        *("feedback", "feedback_packets", "in_order_hold"),
    )

    scheme: Literal["rlnc", "reed-solomon", "repetition", "sliding-window", "partial-unit-memory"] = "rlnc"
    """The code, of both coders. sliding-window: repair packets between the packets, each of the last `generation`
    packets before it. partial-unit-memory: repair packets of a generation that combine `memory` packets of the one
    before, too. Default rlnc."""
    generation: int = Field(default=30, ge=2, le=1024)
    """Packets of a generation; of a sliding window, 512 at most. Default 30."""
    memory: Annotated[int, Field(ge=1, le=_MAX_WINDOW)] | None = Field(default=None, validate_default=True)
    """Packets of the generation before that repair packets of partial-unit-memory combine; at most `generation`, and
    512 with it. Default half of `generation`, or what is left of 512."""
    redundancy_max: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Most repair packets of a generation, if they are adapted; default half of `generation`."""
    redundancy_fallback: int = Field(default=3, ge=0, le=1024)
    """Repair packets of a generation without reports, if they are adapted; at most `redundancy_max`; default 3."""
    redundancy: _Redundancy = 3
    """Repair packets of a generation, or of as many packets as a sliding window has. adaptive: as many as
    `residual_loss` needs, by the losses that the other coder reports. Default 3."""
    residual_loss: Annotated[float, Share("0.0001 %")] = 0.001
    """Share of packets that may stay lost, if repair packets are adapted; default 0.1 %."""
    feedback: Annotated[Duration, Between(Duration, "1 ms", "60 s")] | None = None
    """Interval at which each coder reports to the other one what arrived; default 100 ms if repair packets are adapted,
    else no reports."""
    feedback_packets: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Packets after which a report leaves, if that is before `feedback`; default none."""
    feedback_timeout: Annotated[Duration, Between(Duration, "10 ms", "600 s")] = Duration(3000 * _MS)
    """Time after which reports have ended, if packets were sent and none came; default 3 s."""
    interleave: int = Field(default=1, ge=1, le=64)
    """Generations that packets join in turn, against bursts; default 1."""
    flush: Annotated[Duration, Between(Duration, "1 ms", "10 s")] = Duration(100 * _MS)
    """Time after its first packet at which a generation ends that is not whole; default 100 ms."""
    defer: Annotated[Duration, Between(Duration, "0 ms", "10 s")] = Duration(100 * _MS)
    """Time for which `deferred` holds repair packets; default 100 ms."""
    defer_generations: Annotated[int, Field(ge=0, le=100)] | None = None
    """Further generations after which `deferred` releases repair packets, if that is before `defer`; default none."""
    link_rate: Annotated[Rate, Between(Rate, "1 kbit/s", "100 Gbit/s")] | None = None
    """Rate of the link towards the other coder, for `titrated`."""
    link_queue: Annotated[Size, Between(Size, "1500 B", "1 GB")] | None = None
    """Queue of the link towards the other coder, for `titrated`."""
    room: Annotated[Size, Between(Size, "1500 B", "1 GB")] | None = None
    """Bytes that may wait before the link at most, with a repair packet; default a tenth of `link_queue`, and at least
    3 kB."""
    scheduler: Literal["tail", "interspersed", "deferred", "titrated"] | None = None
    """When repair packets leave. tail: at the end of their generation; interspersed: between its packets; deferred: a
    fixed time later; titrated: when the queue of the link has room. Default tail; with sliding-window, interspersed."""
    stale: Annotated[Duration, Between(Duration, "1 ms", "60 s")] = Duration(1000 * _MS)
    """Age at which repair packets that wait are dropped; default 1 s."""
    direction: Literal["both", "to_island", "to_world"] = "both"
    """Direction in which this coder encodes; default both."""
    in_order_hold: Annotated[Duration, Between(Duration, "0 ms", "10 s")] = Duration(0)
    """Time for which packets that come after a missing one wait for it, in the order of the tunnel. Default 0 ms: none
    waits."""
    small: Annotated[Size, Between(Size, "0 B", "9216 B")] = Size(0)
    """Packets of so many IP bytes or less are not coded; default 0 B."""
    flow_threshold: Annotated[Size, Between(Size, "0 B", "1 GB")] = Size(0)
    """IP bytes at the beginning of each flow that are not coded; default 0 B."""
    low_priority: bool = True
    """Whether repair packets are marked as lower effort (DSCP 1, RFC 8622); default true."""
    signal: Literal["hide", "mark"] = "hide"
    """Whether hosts learn of losses that were repaired: mark sets CE in recovered packets that are capable of ECN;
    default hide."""
    poll: Annotated[Duration, Between(Duration, "0 ms", "4 ms")] = Duration(_MS)
    """Interval at which packets are taken in virtual time, 0 ms: each at once; default 1 ms."""

    @field_validator("memory")
    @classmethod
    def _fits_a_generation(cls, memory: int | None, info: ValidationInfo) -> int | None:
        if "scheme" not in info.data or "generation" not in info.data:
            return memory
        scheme, generation = info.data["scheme"], info.data["generation"]
        if scheme != _PARTIAL_UNIT_MEMORY:
            if memory is not None:
                msg = f"{scheme} has no memory; write scheme: partial-unit-memory, or remove memory"
                raise ValueError(msg)
            return None
        most = min(generation, _MAX_WINDOW - generation)
        if memory is None:
            return min(generation // 2, most)
        if memory > most:
            msg = f"{memory} packets are more than the {most} that fit generation: {generation}; write fewer"
            raise ValueError(msg)
        return memory

    @field_validator("generation", "interleave", "defer_generations")
    @classmethod
    def _fits_the_scheme(cls, value: int | None, info: ValidationInfo) -> int | None:
        scheme = info.data.get("scheme")
        if scheme not in _WINDOW_SCHEMES or value is None:
            return value
        most = _MAX_WINDOW - (scheme == _PARTIAL_UNIT_MEMORY)
        if info.field_name == "generation" and value > most:
            msg = f"{value} packets are more than the {most} that {scheme} can have; write fewer"
            raise ValueError(msg)
        if info.field_name == "interleave" and value > 1:
            msg = f"{scheme} does not join generations in turn; write interleave: 1, and a larger generation"
            raise ValueError(msg)
        if info.field_name == "defer_generations" and scheme == _SLIDING_WINDOW:
            msg = "a sliding window has no generations to wait for; write defer, a time"
            raise ValueError(msg)
        return value

    @field_validator("in_order_hold")
    @classmethod
    def _can_be_held_in_order(cls, hold: Duration, info: ValidationInfo) -> Duration:
        if hold.ns and info.data.get("interleave", 1) > 1:
            msg = "packets of interleaved generations cannot be held in order; write interleave: 1, "
            msg += "or in_order_hold: 0 ms"
            raise ValueError(msg)
        return hold

    @field_validator("redundancy")
    @classmethod
    def _can_be_adapted(cls, redundancy: int | str, info: ValidationInfo) -> int | str:
        values: dict[str, Any] = info.data
        if redundancy != "adaptive" or "generation" not in values:
            return redundancy
        if values.get("scheme") in {"repetition", *_WINDOW_SCHEMES}:
            msg = f"repair packets of {values['scheme']} cannot be adapted; write scheme: rlnc or reed-solomon, "
            msg += "or a number"
            raise ValueError(msg)
        max_repairs = values.get("redundancy_max") or values["generation"] // 2
        if values.get("redundancy_fallback", 0) > max_repairs:
            msg = f"redundancy_fallback is more than the {max_repairs} repair packets of redundancy_max; write no more"
            raise ValueError(msg)
        return redundancy

    @field_validator("scheduler")
    @classmethod
    def _fits_code_and_link(cls, scheduler: str | None, info: ValidationInfo) -> str | None:
        values: dict[str, Any] = info.data
        if scheduler == "titrated" and not (values.get("link_rate") and values.get("link_queue")):
            msg = "titrated needs the rate and the queue of the link; add link_rate and link_queue"
            raise ValueError(msg)
        if scheduler == "tail" and values.get("scheme") == _SLIDING_WINDOW:
            msg = "a sliding window makes repair packets between packets, so none are at the end of a generation; "
            msg += "write scheduler: interspersed, deferred or titrated"
            raise ValueError(msg)
        if scheduler == "interspersed" and values.get("scheme") not in {"rlnc", _SLIDING_WINDOW}:
            msg = f"{values.get('scheme')} makes repair packets at the end of a generation; write scheme: rlnc, or tail"
            raise ValueError(msg)
        return scheduler

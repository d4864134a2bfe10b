# SPDX-License-Identifier: Apache-2.0
"""One direction of a satellite link as it is written in experiment.yaml: rate, delay, queue and impairments.

Jitter, loss and AQM have a short form (``jitter: 5 ms``, ``loss: 0.1 %``, ``aqm: codel``), which is expanded to their
mapping.
"""

from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from atoll_core.description.raw_types import Between, Positive, Raw, Share, ShortForm, refusal
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import shown
from atoll_core.experiment.experiment import JitterShape, LossPoint
from atoll_core.plural import listed
from atoll_core.units import Duration, Rate, Size

LinkRate = Annotated[Rate, Between(Rate, "1 kbit/s", "100 Gbit/s")]
Delay = Annotated[Duration, Between(Duration, "0 ms", "60 s")]
Queue = Annotated[Size, Between(Size, "1 B", "4 GB")]  # at least one MTU of the lab, resolve_experiment.py
Threshold = Annotated[Size, Between(Size, "1 B", "4 GB")]
CodelTime = Annotated[Duration, Between(Duration, "1 us", "60 s")]
Probability = Annotated[float, Share()]

_LOSS_KINDS = ("probability", "bit_error", "model", "trace")
_CHANNEL_KEYS = ("good_to_bad", "bad_to_good", "loss_good", "loss_bad")
_DROP_TAIL = "drop-tail"  # a queue without an AQM
_RED_WEIGHT = 0.002  # Floyd and Jacobson 1993, section 6


class RawJitter(ShortForm):
    """Jitter of the delay; a duration is short for {amount: duration}."""

    _SHORT: ClassVar[str] = "amount"

    amount: Delay = Field(examples=["5 ms"])
    """Half the width of a uniform distribution, the standard deviation of others; at most the delay."""
    distribution: JitterShape = Field(default=JitterShape.UNIFORM, strict=False, examples=["normal"])
    """Distribution around the delay; default uniform."""
    correlation: Probability = Field(default=0.0, examples=["25 %"], json_schema_extra={"default": "0 %"})
    """Correlation with the packet before; default 0 %."""


def _bit_error(value: object) -> float:
    try:
        rate = float("nan") if isinstance(value, bool) else float(cast(Any, value))
    except (TypeError, ValueError):
        rate = float("nan")
    if not 0 <= rate <= 1:
        raise refusal(value, "is not a bit error rate; write a number from 0 to 1, such as 1e-7")
    return rate


class RawLoss(ShortForm):
    """Loss: a probability of packets or of bits, a Gilbert-Elliott channel, or a trace; a share is a probability."""

    _SHORT: ClassVar[str] = "probability"

    probability: Probability | None = Field(default=None, examples=["0.1 %"])
    """Probability that a packet is lost, independently of others."""
    bit_error: (
        Annotated[float, PlainValidator(_bit_error), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
        | None
    ) = Field(default=None, examples=[1e-7])
    """Probability that a bit is wrong, independently of others. A packet with a wrong bit is lost. The bits of a packet
    are those of the bytes that the link counts (see `counts`)."""
    model: Literal["gilbert-elliott"] | None = Field(default=None, examples=["gilbert-elliott"])
    """Model of bursty loss."""
    good_to_bad: Probability | None = Field(default=None, examples=["0.1 %"])
    """Probability per packet that the channel changes from good to bad."""
    bad_to_good: Probability | None = Field(default=None, examples=["20 %"])
    """Probability per packet that the channel changes from bad to good."""
    loss_good: Probability | None = Field(default=None, examples=["0 %"])
    """Loss in the good channel; default 0 %."""
    loss_bad: Probability | None = Field(default=None, examples=["50 %"])
    """Loss in the bad channel; default 100 %."""
    trace: str | None = Field(default=None, examples=["traces/loss.txt"])
    """File with one line per packet, 0 (passes) or 1 (lost), relative to this file; repeats."""
    where: LossPoint = Field(default=LossPoint.AFTER, strict=False, examples=["before"])
    """Where packets are lost. 'after' (default): at the receiver, so a lost packet has used the link; 'before': before
    the queue, so a lost packet does not use the link."""

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        kinds = [key for key in _LOSS_KINDS if getattr(self, key) is not None]
        channel_keys = [key for key in _CHANNEL_KEYS if getattr(self, key) is not None]
        if len(kinds) > 1:
            msg = f"{listed(kinds)} exclude each other; keep one of them"
            raise ValueError(msg)
        if channel_keys and not self.model:
            verb, pronoun = ("belongs", "it") if len(channel_keys) == 1 else ("belong", "them")
            msg = f"{listed(channel_keys)} {verb} to a model; add 'model: gilbert-elliott' or remove {pronoun}"
            raise ValueError(msg)
        if not kinds:
            msg = f"the kind of loss is missing; add one of {listed(_LOSS_KINDS, 'or')}, such as 'probability: 0.1 %'"
            raise ValueError(msg)
        missing = [key for key in _CHANNEL_KEYS[:2] if getattr(self, key) is None]
        if self.model and missing:
            examples = [f"{key}: {(type(self).model_fields[key].examples or [''])[0]}" for key in missing]
            msg = f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} missing; add '{', '.join(examples)}'"
            raise ValueError(msg)
        return self


class RawCodel(Raw):
    """Controlled delay, RFC 8289."""

    target: CodelTime = Field(default=Duration(5 * 10**6), examples=["5 ms"])
    """Acceptable standing sojourn time; default 5 ms."""
    interval: CodelTime = Field(default=Duration(100 * 10**6), examples=["600 ms"])
    """Time for which a sojourn time above target is accepted, about the longest RTT; default 100 ms."""


class RawRed(Raw):
    """Random early detection, Floyd and Jacobson 1993."""

    min: Threshold = Field(examples=["30 kB"])
    """Average queue below which nothing is dropped."""
    max: Threshold = Field(examples=["90 kB"])
    """Average queue above which every packet is dropped; at most the queue."""
    probability: Annotated[float, Share("0.000001 %")] = Field(
        default=0.1, examples=["10 %"], json_schema_extra={"default": "10 %"}
    )
    """Drop probability just below an average queue of max; default 10 %."""
    weight: Annotated[
        float, Positive(1, f"is not a weight; write a number above 0 and up to 1, such as {_RED_WEIGHT}")
    ] = Field(
        default=_RED_WEIGHT,
        description=f"Weight of the current queue in the moving average; default {_RED_WEIGHT}.",
        examples=[_RED_WEIGHT],
    )


class RawAqm(Raw):
    """Active queue management instead of drop-tail; ``codel`` is short for {codel: {}}, ``drop-tail`` means none."""

    codel: RawCodel | None = Field(default=None, examples=["{target: 5 ms, interval: 600 ms}"])
    """Controlled delay."""
    red: RawRed | None = Field(default=None, examples=["{min: 30 kB, max: 90 kB}"])
    """Random early detection."""

    @classmethod
    def expanded(cls, value: Any) -> Any:
        if value == _DROP_TAIL:
            return {}
        return {value: {}} if isinstance(value, str) and value in cls.model_fields else value

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        mapping = cls.expanded(value)
        if not isinstance(mapping, dict):
            msg = f"unknown aqm {shown(value)}; {suggest(value, (*cls.model_fields, _DROP_TAIL), 'aqms')}"
            raise ValueError(msg)  # noqa: TRY004 (pydantic reports ValueErrors, and a TypeError would end the program)
        return cast(Any, mapping)

    @model_validator(mode="after")
    def _has_one_algorithm(self) -> Self:
        if (self.codel is None) == (self.red is None):
            raise ValueError("write one of codel and red, such as 'aqm: codel'")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = super().__get_pydantic_json_schema__(core, handler)
        return {"anyOf": [{"enum": ["codel", _DROP_TAIL]}, handler.resolve_ref_schema(mapping)]}


class RawLowPriority(ShortForm):
    """The queue of packets marked LE; a size is short for {queue: size}."""

    _SHORT: ClassVar[str] = "queue"

    queue: Queue = Field(examples=["200 kB"])
    """Capacity of the byte queue, at least one MTU."""
    queue_packets: int | None = Field(default=None, ge=1, le=1_000_000, examples=[100])
    """Additional limit of this queue, in packets."""


def _drop_tail_as_none(value: Any) -> Any:
    return None if value == _DROP_TAIL else value


class RawDirection(Raw):
    """One direction of a satellite link."""

    rate: LinkRate = Field(examples=["16 Mbit/s"])
    """Rate at which packets are serialised."""
    delay: Delay = Field(examples=["250 ms"])
    """Propagation delay, one way."""
    queue: Queue = Field(examples=["100 kB"])
    """Capacity of the byte queue, at least one MTU."""
    queue_packets: int | None = Field(default=None, ge=1, le=1_000_000, examples=[100])
    """Additional limit of the queue, in packets."""
    low_priority: RawLowPriority | None = Field(
        default=None, examples=["200 kB", "{queue: 200 kB, queue_packets: 100}"]
    )
    """A second queue for packets marked LE (RFC 8622, DSCP 1), which is served while the first one is empty: its
    capacity, or a mapping; default none, so that they wait with all others."""
    jitter: RawJitter | None = Field(
        default=None, examples=["5 ms", "{distribution: normal, amount: 5 ms, correlation: 25 %}"]
    )
    """Jitter around the delay: a uniform +/- duration, or a mapping; default none."""
    reorder: bool = Field(default=False, examples=[False])
    """Whether jitter may put packets out of order; default false."""
    loss: RawLoss | None = Field(
        default=None,
        examples=["0.1 %", "{bit_error: 1e-7}", "{model: gilbert-elliott, good_to_bad: 0.1 %, bad_to_good: 20 %}"],
    )
    """Loss at the receiver: a share of the packets, or a mapping; default none."""
    aqm: Annotated[RawAqm | None, BeforeValidator(_drop_tail_as_none)] = Field(
        default=None, examples=["codel", "{red: {min: 30 kB, max: 90 kB}}"]
    )
    """Active queue management; default drop-tail."""
    trace: str | None = Field(default=None, examples=["traces/geo-rain.csv"])
    """CSV file with rate, delay, loss and blockage as functions of time, relative to this file."""


class RawDirectionChange(Raw):
    """One direction of a link from a change on; keys that are left out stay unchanged."""

    rate: LinkRate | None = Field(default=None, examples=["8 Mbit/s"])
    """Rate from then on."""
    delay: Delay | None = Field(default=None, examples=["270 ms"])
    """Propagation delay from then on."""
    queue: Queue | None = Field(default=None, examples=["50 kB"])
    """Byte queue from then on."""
    loss: RawLoss | None = Field(default=None, examples=["0.1 %"])
    """Loss of the link from then on; null for none."""

# SPDX-License-Identifier: Apache-2.0
"""The configuration of one direction of a link, as ``atoll-host link`` reads it (docs/contracts.md).

Unused features are left out, so that the configuration is the same as before these features existed.
"""

from typing import Any

from atoll_core.experiment.experiment import (
    Aqm,
    Bernoulli,
    BitError,
    Codel,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkDirection,
    Loss,
    LossPoint,
    LowPriority,
    TraceRow,
)


def direction_config(direction: LinkDirection) -> dict[str, Any]:
    """The keys of one direction: nanoseconds, bytes, bit/s, probabilities."""
    config: dict[str, Any] = {"rate_bit_s": direction.rate.bit_s, "delay_ns": direction.delay.ns}
    config |= _jitter(direction.jitter)
    config["queue_bytes"] = direction.queue.bytes
    if direction.queue_packets is not None:
        config["queue_packets"] = direction.queue_packets
    if direction.low_priority:
        config["low_priority"] = _low_priority(direction.low_priority)
    if direction.reorder:
        config["reorder"] = True
    if direction.loss:
        config["loss"] = _loss(direction.loss)
    if direction.aqm:
        config["aqm"] = _aqm(direction.aqm)
    if direction.trace:
        config["trace"] = [_trace_row(row) for row in direction.trace.rows]
    return config


def _jitter(jitter: Jitter | None) -> dict[str, Any]:
    if jitter is None:
        return {"jitter_ns": 0}
    if jitter.distribution is JitterShape.UNIFORM and not jitter.correlation:
        return {"jitter_ns": jitter.amount.ns}
    model = {"kind": jitter.distribution.value, "amount_ns": jitter.amount.ns, "correlation": jitter.correlation}
    return {"jitter": model}


def _low_priority(low: LowPriority) -> dict[str, Any]:
    packets = {} if low.queue_packets is None else {"queue_packets": low.queue_packets}
    return {"queue_bytes": low.queue.bytes} | packets


def _loss(loss: Loss) -> dict[str, Any]:
    return _loss_model(loss) | ({"where": loss.where.value} if loss.where is not LossPoint.AFTER else {})


def _loss_model(loss: Loss) -> dict[str, Any]:
    match loss:
        case Bernoulli(probability):
            return {"kind": "bernoulli", "probability": probability}
        case BitError(probability):
            return {"kind": "bit-error", "probability": probability}
        case GilbertElliott():
            return {
                "kind": "gilbert-elliott",
                "good_to_bad": loss.good_to_bad,
                "bad_to_good": loss.bad_to_good,
                "loss_good": loss.loss_good,
                "loss_bad": loss.loss_bad,
            }
        case _:
            return {"kind": "trace", "lost": list(loss.lost)}


def _aqm(aqm: Aqm) -> dict[str, Any]:
    if isinstance(aqm, Codel):
        return {"kind": "codel", "target_ns": aqm.target.ns, "interval_ns": aqm.interval.ns}
    return {
        "kind": "red",
        "min_bytes": aqm.min.bytes,
        "max_bytes": aqm.max.bytes,
        "max_probability": aqm.probability,
        "weight": aqm.weight,
    }


def _trace_row(row: TraceRow) -> dict[str, Any]:
    config: dict[str, Any] = {"t_ns": row.t.ns}
    if row.rate is not None:
        config["rate_bit_s"] = row.rate.bit_s
    if row.delay is not None:
        config["delay_ns"] = row.delay.ns
    if row.loss is not None:
        config["loss"] = row.loss
    if row.blocked:
        config["blocked"] = True
    return config

# SPDX-License-Identifier: Apache-2.0
"""The regime of a run's slowest link: pre-oscillation, oscillation or congestion, with the numbers that decide.

Criteria and their sources: docs/regimes.md.
"""

from enum import StrEnum
from typing import TypedDict

import polars as pl

SPAN_RTTS = 3
"""A queue oscillates if it is full and empty within 2 to 3 round-trip times: senders hear of a drop one round trip
later, and the queue drains in the next one."""

SWINGING_SHARE = 0.1
"""Oscillation: the queue is full and empty within three round trips in at least this share of the time. A single
overflow, of one large flow's slow start, is over after a few round trips."""

LOW_LOSS = 0.001
"""Below it, losses to a full queue are low."""

BURSTY_SHARE = 0.5
"""Losses are bursty if at least this share of the lost packets is in bursts (RFC 3611). Of packets that are lost
independently with a probability p, 1 - (1 - p)^32 are: 3 % at 0.1 %, half at 2 %."""

HIGH_UTILISATION = 0.9
"""From it on a link is used well; a lower one leaves room for flows that senders were made to hold back."""


class Regime(StrEnum):
    """What happens at the queue of a link."""

    PRE_OSCILLATION = "pre-oscillation"
    OSCILLATION = "oscillation"
    CONGESTION = "congestion"
    OTHER = "none of the three"


class RegimeFigures(TypedDict):
    """The regime and what decides it; None: not measured, or not to be decided."""

    regime: str | None  # `pre-oscillation`, `oscillation` or `congestion`; None: not decided
    because: str  # the reason, in one sentence
    utilisation: float | None  # utilisation of the link; None: not measured
    queue_loss: float | None  # share of packets that the full queue or its AQM dropped; None: not counted
    burst_share: float | None  # share of lost packets that were lost in bursts, as in `loss_bursts`; None: not measured
    # share of spans of three RTTs in which the queue was both full and empty; None: not measured
    swinging_share: float | None
    span_s: float | None  # length of these spans; None: the base RTT is not known
    # the concurrency of an open loop grows steadily; None: a closed loop, whose concurrency is bounded, or a load that
    # changes
    grows: bool | None


def share_of_swinging_spans(intervals: pl.DataFrame, span_s: float) -> float | None:
    """Return in which share of all spans of this length a queue was both full and empty; None if there is no span.

    ``intervals``: one link's rows of the table ``queue``. Spans begin with each interval, and are at least one long.
    """
    median_s = intervals["seconds"].median()
    if not isinstance(median_s, float) or median_s <= 0:
        return None
    length = max(1, round(span_s / median_s))
    spans = intervals.select(pl.col("full", "idle").cast(pl.Int8).rolling_max(length)).drop_nulls()
    return None if spans.is_empty() else int((spans["full"] * spans["idle"]).sum()) / len(spans)


def regime(
    *,
    utilisation: float | None,
    queue_loss: float | None,
    burst_share: float | None,
    swinging_share: float | None,
    span_s: float | None,
    concurrency_grows: bool | None,
) -> RegimeFigures:
    """Return the regime by these figures; ``burst_share`` is needed only if losses are not low."""
    figures = RegimeFigures(
        regime=None,
        because="",
        utilisation=utilisation,
        queue_loss=queue_loss,
        burst_share=burst_share,
        swinging_share=swinging_share,
        span_s=span_s,
        grows=concurrency_grows,
    )
    figures["regime"], figures["because"] = _regime(figures)
    return figures


def _regime(figures: RegimeFigures) -> tuple[Regime | None, str]:
    utilisation, queue_loss, burst_share = figures["utilisation"], figures["queue_loss"], figures["burst_share"]
    swinging_share = figures["swinging_share"]
    if utilisation is None or queue_loss is None:
        return None, "utilisation or losses of the slowest link were not measured"
    used_text, loss_text = f"utilisation {utilisation:.0%}", f"{queue_loss:.2%} lost to a full queue"
    if figures["grows"]:
        reason = "open loop (flows start independently of earlier ones), and the number of open flows grows steadily"
        return Regime.CONGESTION, f"{reason}; {used_text}, {loss_text}"
    is_well_used = utilisation >= HIGH_UTILISATION
    if queue_loss < LOW_LOSS:
        if is_well_used:
            return Regime.OTHER, f"{used_text}, and losses are negligible ({loss_text})"
        return Regime.PRE_OSCILLATION, f"{loss_text}, {used_text}"
    if burst_share is None:
        return (
            None,
            f"{loss_text}; whether in bursts is unknown, because no two captures have only this link between them",
        )
    bursts_text = f"{burst_share:.0%} of the losses in bursts"
    if burst_share < BURSTY_SHARE:
        return Regime.OTHER, f"losses are not bursty: {loss_text}, {bursts_text}"
    if is_well_used:
        return Regime.CONGESTION, f"{loss_text}, {bursts_text}, {used_text}"
    if swinging_share is None:
        return None, f"{loss_text}, {bursts_text}, {used_text}; the queue of the slowest link was not measured"
    swing_text = f"queue both full and empty within {SPAN_RTTS} RTTs {swinging_share:.0%} of the time"
    if swinging_share >= SWINGING_SHARE:
        return Regime.OSCILLATION, f"{loss_text}, {bursts_text}, {used_text}; {swing_text}"
    return Regime.PRE_OSCILLATION, f"overflows are single events: {swing_text}; {loss_text}, {used_text}"

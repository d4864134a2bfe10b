# SPDX-License-Identifier: Apache-2.0
"""Resolve one raw direction of a link to a LinkDirection: read files, check values."""

from collections.abc import Iterator
from dataclasses import replace

from atoll_core.description.link_trace import read_loss_trace, read_trace
from atoll_core.description.raw_link import RawDirection, RawLoss
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.validation_messages import Mistakes, entry_name
from atoll_core.description.yaml_document import KeyPath
from atoll_core.errors import Diagnostic
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Codel,
    GilbertElliott,
    Jitter,
    LinkDirection,
    LinkTrace,
    Loss,
    LossTrace,
    LowPriority,
    Red,
    mean_loss,
)

_SMALLEST_PROBE_BYTES = 84  # bytes of a ping
_LOSS_REMEDIES = {
    Bernoulli: "write less than 100 %",
    BitError: "write a smaller one, such as 1e-7",
    GilbertElliott: "write bad_to_good above 0 %, or loss_good or loss_bad below 100 %",
    LossTrace: "write a 0 in the file",
}
_UNTESTABLE = "so paths cannot be tested before the load"


def resolve_direction(
    raw: RawDirection, key_path: KeyPath, mistakes: Mistakes, files: ReferencedFiles
) -> LinkDirection:
    """The direction at ``key_path`` of a document. Its mistakes, and those in the files that it names, are noted."""
    trace = files.read(raw.trace, read_trace, "CSV") if raw.trace is not None else None
    if trace:
        mistakes.note_in_file((*key_path, "trace"), trace.mistakes)
    aqm = raw.aqm and (raw.aqm.codel or raw.aqm.red)
    direction = LinkDirection(
        rate=raw.rate,
        delay=raw.delay,
        queue=raw.queue,
        jitter=raw.jitter and Jitter(**dict(raw.jitter)),
        queue_packets=raw.queue_packets,
        low_priority=raw.low_priority and LowPriority(**dict(raw.low_priority)),
        reorder=raw.reorder,
        loss=raw.loss and _resolve_loss(raw.loss, (*key_path, "loss"), mistakes, files),
        aqm=aqm and (Codel if raw.aqm and raw.aqm.codel else Red)(**dict(aqm)),
        trace=replace(trace.value, file=raw.trace) if trace and trace.value else None,
    )
    for key, message in _direction_mistakes(direction, may_lose_all=key_path[0] != "links"):
        mistakes.note((*key_path, *key), message)
    if trace and trace.value:
        for row, message in _trace_mistakes(trace.value, direction, mistakes.document.where((*key_path, "rate"))):
            text = f"{entry_name(key_path)}: {message}"
            mistakes.diagnostics.append(Diagnostic(trace.value.file, trace.lines[row], text))
    return direction


def _resolve_loss(raw: RawLoss, key_path: KeyPath, mistakes: Mistakes, files: ReferencedFiles) -> Loss | None:
    if raw.trace is not None:
        trace = files.read(raw.trace, read_loss_trace)
        mistakes.note_in_file((*key_path, "trace"), trace.mistakes)
        return trace.value and replace(trace.value, file=raw.trace, where=raw.where)
    if raw.bit_error is not None:
        return BitError(raw.bit_error, raw.where)
    if raw.model is None:
        return Bernoulli(raw.probability or 0.0, raw.where)
    return GilbertElliott(
        raw.good_to_bad or 0.0,
        raw.bad_to_good or 0.0,
        0.0 if raw.loss_good is None else raw.loss_good,
        1.0 if raw.loss_bad is None else raw.loss_bad,
        raw.where,
    )


def _direction_mistakes(direction: LinkDirection, *, may_lose_all: bool) -> Iterator[tuple[KeyPath, str]]:
    """``may_lose_all``: a direction after a change."""
    min_delay, _ = direction.delays
    if direction.jitter and direction.jitter.amount > min_delay:
        delay = "the delay" if min_delay == direction.delay else "the least delay of the trace"
        yield ("jitter",), f"{direction.jitter.amount} exceeds {delay}; write at most {min_delay}"
    loss = direction.loss
    if loss and not may_lose_all and mean_loss(loss, _SMALLEST_PROBE_BYTES) == 1:
        yield ("loss",), f"every packet is lost, {_UNTESTABLE}; {_LOSS_REMEDIES[type(loss)]}"
    match direction.aqm:
        case Codel(target, interval) if target > interval:
            yield ("aqm", "codel"), f"target {target} exceeds interval {interval}; lower it"
        case Red(low, high) if low >= high:
            yield ("aqm", "red", "min"), f"{low} is not below max, {high}; lower it"
        case _:
            pass
    if isinstance(direction.aqm, Red) and direction.aqm.max > direction.queue:
        text = f"{direction.aqm.max} exceeds the queue of {direction.queue}; lower it"
        yield ("aqm", "red", "max"), text


def _trace_mistakes(trace: LinkTrace, direction: LinkDirection, rate_location: str) -> Iterator[tuple[int, str]]:
    """Mistakes in rows; ``rate_location``: file and line of the direction's rate."""
    first = trace.rows[0]
    if first.blocked or first.loss == 1:
        state = "the link is blocked" if first.blocked else "every packet is lost"
        remedy = "blocked 0" if first.blocked else "a loss below 1"
        yield 0, f"{state} at t_s 0, {_UNTESTABLE}; write {remedy} in the first row"
    too_fast = next((index for index, row in enumerate(trace.rows) if row.rate and row.rate > direction.rate), None)
    if too_fast is not None:
        max_rate = max(row.rate for row in trace.rows if row.rate)
        allowed = f"rate is {direction.rate} ({rate_location}), the largest rate that the link can have"
        yield too_fast, f"{trace.rows[too_fast].rate} is too fast: {allowed}; raise that to {max_rate}"

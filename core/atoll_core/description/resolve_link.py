# SPDX-License-Identifier: Apache-2.0
"""Resolve one raw direction of a link to a LinkDirection: read files, check values."""

from dataclasses import replace

from atoll_core.description.line_reader import FileContent
from atoll_core.description.raw_link import RawAqm, RawDirection, RawLoss
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.validation_messages import entry_name
from atoll_core.description.yaml_document import Document, Place
from atoll_core.errors import Diagnostic
from atoll_core.experiment.experiment import (
    Aqm,
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

_SMALLEST_PROBE = 84  # bytes of a ping
_LESS_LOSS = {
    Bernoulli: "write less than 100 %",
    BitError: "write a smaller one, such as 1e-7",
    GilbertElliott: "write bad_to_good above 0 %, or loss_good or loss_bad below 100 %",
    LossTrace: "write a 0 in the file",
}


def resolve_direction(
    raw: RawDirection, place: Place, document: Document, files: ReferencedFiles
) -> tuple[LinkDirection, tuple[Diagnostic, ...]]:
    """The direction at ``place`` of a document, and the mistakes in it or in the files that it names."""
    resolver = _Resolver(place, document, files)
    direction = LinkDirection(
        rate=raw.rate,
        delay=raw.delay,
        queue=raw.queue,
        jitter=Jitter(raw.jitter.distribution, raw.jitter.amount, raw.jitter.correlation) if raw.jitter else None,
        queue_packets=raw.queue_packets,
        low_priority=LowPriority(raw.low_priority.queue, raw.low_priority.queue_packets) if raw.low_priority else None,
        reorder=raw.reorder,
        loss=resolver.loss(raw.loss) if raw.loss else None,
        aqm=_aqm(raw.aqm) if raw.aqm else None,
        trace=resolver.trace(raw.trace) if raw.trace is not None else None,
    )
    resolver.check(direction)
    return direction, tuple(resolver.mistakes)


class _Resolver:
    def __init__(self, place: Place, document: Document, files: ReferencedFiles) -> None:
        self.place = place
        self.document = document
        self.files = files
        self.mistakes: list[Diagnostic] = []
        self.trace_file = ""
        self.trace_lines: tuple[int, ...] = ()

    def wrong(self, place: Place, message: str) -> None:
        whole = (*self.place, *place)
        self.mistakes.append(self.document.mistake(whole, f"{entry_name(whole)}: {message}"))

    def loss(self, raw: RawLoss) -> Loss | None:
        if raw.trace is not None:
            read = self.files.loss_trace(raw.trace)
            self.take_mistakes(("loss", "trace"), read.mistakes)
            return read.found and replace(read.found, file=raw.trace, where=raw.where)
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

    def trace(self, name: str) -> LinkTrace | None:
        read: FileContent[LinkTrace] = self.files.trace(name)
        self.take_mistakes(("trace",), read.mistakes)
        self.trace_lines = read.lines
        self.trace_file = read.found.file if read.found else ""
        return read.found and replace(read.found, file=name)

    def take_mistakes(self, place: Place, mistakes: tuple[Diagnostic, ...]) -> None:
        """Report a mistake of a file as a whole at the place that names the file."""
        for mistake in mistakes:
            if mistake.line:
                self.mistakes.append(mistake)
            else:
                self.wrong(place, f"{mistake.file}: {mistake.message}; the path is relative to this file")

    def check(self, direction: LinkDirection) -> None:
        least, _ = direction.delays
        if direction.jitter and direction.jitter.amount > least:
            what = "the delay" if least == direction.delay else "the least delay of the trace"
            self.wrong(("jitter",), f"{direction.jitter.amount} exceeds {what}; write at most {least}")
        loss = direction.loss
        # A change may lose everything later.
        if loss and mean_loss(loss, _SMALLEST_PROBE) == 1 and self.place[0] == "links":
            lost = "every packet is lost, so paths cannot be tested before the load"
            self.wrong(("loss",), f"{lost}; {_LESS_LOSS[type(loss)]}")
        if isinstance(direction.aqm, Codel):
            self.check_codel(direction.aqm)
        if isinstance(direction.aqm, Red):
            self.check_red(direction.aqm, direction)
        if direction.trace:
            self.check_trace(direction.trace, direction)

    def check_codel(self, codel: Codel) -> None:
        if codel.target > codel.interval:
            self.wrong(("aqm", "codel"), f"target {codel.target} exceeds interval {codel.interval}; lower it")

    def check_red(self, red: Red, direction: LinkDirection) -> None:
        if red.min >= red.max:
            self.wrong(("aqm", "red", "min"), f"{red.min} is not below max, {red.max}; lower it")
        if red.max > direction.queue:
            self.wrong(("aqm", "red", "max"), f"{red.max} exceeds the queue of {direction.queue}; lower it")

    def check_trace(self, trace: LinkTrace, direction: LinkDirection) -> None:
        first = trace.rows[0]
        if first.blocked or first.loss == 1:
            why = "the link is blocked" if first.blocked else "every packet is lost"
            remedy = "blocked 0" if first.blocked else "a loss below 1"
            cannot = "so paths cannot be tested before the load"
            self.in_trace(0, f"{why} at t_s 0, {cannot}; write {remedy} in the first row")
        fast = next((index for index, row in enumerate(trace.rows) if row.rate and row.rate > direction.rate), None)
        if fast is not None:
            most = max(row.rate for row in trace.rows if row.rate)
            where = self.document.where((*self.place, "rate"))
            allowed = f"rate is {direction.rate} ({where}), the largest rate that the link can have"
            self.in_trace(fast, f"{trace.rows[fast].rate} is too fast: {allowed}; raise that to {most}")

    def in_trace(self, row: int, message: str) -> None:
        self.mistakes.append(Diagnostic(self.trace_file, self.trace_lines[row], f"{entry_name(self.place)}: {message}"))


def _aqm(raw: RawAqm) -> Aqm | None:
    if raw.codel:
        return Codel(raw.codel.target, raw.codel.interval)
    return Red(raw.red.min, raw.red.max, raw.red.probability, raw.red.weight) if raw.red else None

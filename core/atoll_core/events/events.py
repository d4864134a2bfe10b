# SPDX-License-Identifier: Apache-2.0
"""Events and samples that a testbed publishes (docs/contracts.md, docs/api.md), and messages for a run's recorder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from atoll_core.events.event_text import event_text, step_text
from atoll_core.metrics.line_protocol import MetricPoint


@dataclass(frozen=True, slots=True)
class Event:
    """A thing that happened. Subclasses are the types; their fields are the keys of the JSON object."""

    type: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The type and the fields, without those that are None."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"type": self.type, **{name: part for name, part in parts.items() if part is not None}}

    def to_line(self) -> dict[str, Any]:
        """The JSON object with the text, as a line of an answer."""
        return with_text(self.to_json())


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """A part of a task that takes a while."""

    type = "progress"
    text: str

    def to_json(self) -> dict[str, Any]:
        """Steps of a lab's start have their explanation."""
        return {"type": self.type, "text": step_text(self.text)}


@dataclass(frozen=True, slots=True)
class Note(Event):
    """An incident that nobody requested, and that needs no action."""

    type = "note"
    message: str


@dataclass(frozen=True, slots=True)
class StepBegun(Event):
    """A step of a run begins."""

    type = "step"
    step: str


@dataclass(frozen=True, slots=True)
class RunBegun(Event):
    """A run has its directory."""

    type = "run"
    run: str
    run_dir: str


@dataclass(frozen=True, slots=True)
class SwitchConnection(Event):
    """A switch has connected to the controller, or its connection is lost. ``state``: up or down."""

    type = "switch"
    switch: str
    state: str


@dataclass(frozen=True, slots=True)
class SwapEvent(Event):
    """A state of a swap, with the keys that docs/contracts.md has for it. ``t_ns``: CLOCK_REALTIME."""

    type = "swap"
    t_ns: int
    state: str
    details: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The details are keys of the object itself."""
        return {"type": self.type, "t_ns": self.t_ns, "state": self.state, **self.details}


@dataclass(frozen=True, slots=True)
class Live(Event):
    """The progress of a run's load, and the first link's figures as soon as there are counters.

    They are of its direction to the island, or if all flows are uploads to the world.
    """

    type = "live"
    elapsed_s: float
    duration_s: float
    box: str | None = None
    queue_max_bytes: int | None = None
    dropped_packets: int | None = None
    rate_mbit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Counters(Event):
    """A ``counters`` line of a link or delay box."""

    type = "counters"
    box: str
    line: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The line with its box."""
        return {"box": self.box, **self.line}


@dataclass(frozen=True, slots=True)
class MetricPoints(Event):
    """Points as a run spools them, without the tags that all points of a run have."""

    type = "points"
    points: Sequence[MetricPoint]


@dataclass(frozen=True, slots=True)
class ProgramOutput(Event):
    """A line that a user's program on a box has printed; recorded by a run, not an event of the API."""

    type = "program_output"
    job: str
    line: str


SAMPLES = (Live, Counters, MetricPoints)
"""The types with current figures, which have neither a number nor a text, and which nobody keeps."""

STREAMED = (Progress, Note, StepBegun, RunBegun, SwapEvent, Live)
"""The types that a request's answer has as lines while its task lasts."""


def with_text(event: dict[str, Any]) -> dict[str, Any]:
    """An event of the API with its text and severity; samples, which have no text, are unchanged."""
    text = event_text(event)
    return event if text is None else {**event, "text": text[0], "severity": text[1]}

# SPDX-License-Identifier: Apache-2.0
"""The shapes of the API for those who watch: the picture of a lab, runs that can be watched again, metric points."""

from typing import Any, Literal

from pydantic import Field

from atoll_daemon.http.api_models import Request, Response


class Replaying(Request):
    """Which points of a run are wanted."""

    @property
    def chosen(self) -> frozenset[str]:
        """The measurements that are wanted; none: all of them."""
        return frozenset(name for name in self.measurements.split(",") if name)

    from_ns: int = Field(default=0, ge=0, description="From this instant of the run's clock on.")
    to_ns: int = Field(default=2**63 - 1, ge=0, description="Before this instant.")
    measurements: str = Field(
        default="", description="Only of these, separated by commas; all of them if empty.", examples=["link,transfer"]
    )
    follow: bool = Field(default=False, description="Go on until a run that is being made is over.")


class HopResponse(Response):
    """A hop of a chain."""

    name: str
    kind: str = Field(description="A box's kind in lab.yaml, or `tap`.")


class DrawnChain(Response):
    """A chain as it is drawn."""

    name: str
    hops: list[HopResponse] = Field(description="In order from world to island.")
    carries: dict[str, str]


class DrawnHost(Response):
    """A host as it is drawn."""

    name: str
    role: str
    ip: str


class DirectionResponse(Response):
    """What one direction of a link is configured to."""

    rate_bit_s: int
    delay_ns: int
    queue_bytes: int


class DrawnBox(Response):
    """A box as it is drawn; of a link that a chain passes, with its settings."""

    kind: str
    to_island: DirectionResponse | None = None
    to_world: DirectionResponse | None = None


class DrawnLatency(Response):
    """What delays a world server."""

    class_: str = Field(alias="class")
    rtt_ns: int


class RunDrawn(Response):
    """How far a run is."""

    id: str
    step: str | None
    elapsed_s: float | None = Field(description="Of the load; None before it.")
    duration_s: float
    metrics: bool = Field(description="False: made with `--no-metrics`; only its links and delay boxes give points.")


class PictureResponse(Response):
    """What it takes to draw the lab."""

    lab: str
    experiment: str | None
    place: str
    hosts: list[DrawnHost]
    chains: list[DrawnChain] = Field(description="In the order in which packets are offered to them.")
    boxes: dict[str, DrawnBox]
    latencies: dict[str, DrawnLatency] = Field(description="By world server; who is not delayed is not among them.")
    classes: dict[str, int] = Field(description="Round-trip time of each latency class, in ns.")
    run: RunDrawn | None


class ReplayHead(Response):
    """A run that can be watched again."""

    id: str
    experiment: str
    place: str
    began_t_ns: int = Field(description="By the wall clock, ns since 1970.")
    duration_s: float = Field(description="Of the load, as the experiment has it.")
    verdict: str | None = Field(description="`valid`, `valid with caveats` or `invalid`; None: not analysed.")
    reasons: list[str] = Field(description="Why it is invalid; none if it is valid, or not analysed.")
    caveats: list[str] = Field(description="Figures beyond a bound that its results must be read with.")
    outcome: str = Field(
        description="`running`, `completed`, `cancelled at step STEP` or `failed at step STEP: why`; "
        "of a run that was killed `running`, although it is finished."
    )
    finished: bool = Field(description="False: it is still being made.")


class ReplaysResponse(Response):
    """The latest two hundred, the last one first."""

    replays: list[ReplayHead]


class WindowResponse(Response):
    """The measurement of a run."""

    start_ns: int
    end_ns: int


class DrawnFrom(Response):
    """What stood from an instant on."""

    from_ns: int
    picture: PictureResponse


class ReplayResponse(ReplayHead):
    """All of a run but its points. Instants are those of the clock that it was made by."""

    from_ns: int
    to_ns: int
    window: WindowResponse | None = Field(description="None until the load has ended.")
    picture: PictureResponse
    metrics: bool = Field(description="False: made with `--no-metrics`; points are of links, delay boxes and events.")
    pictures: list[DrawnFrom] = Field(description="The first, and one for each scheduled change that was made.")
    events: list[dict[str, Any]] = Field(description="As those of `/v1/events`, numbered from 1.")


class PointsResponse(Response):
    """Metric points (docs/metrics.md), as one sample or one second of a replay."""

    type: Literal["points"]
    t_ns: int = Field(description="Of the latest point.")
    run: str | None = Field(description="None: of no run.")
    points: list[list[Any]] = Field(
        description="Each `[measurement, {tag: text}, {field: figure}, t_ns]`, without the tags that all points have."
    )

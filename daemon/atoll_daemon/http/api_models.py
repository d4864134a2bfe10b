# SPDX-License-Identifier: Apache-2.0
"""Models of the API: parameters, bodies and answers. ``openapi`` makes docs/openapi.json from them.

Values of `atoll_core` in answers are encoded by ``atoll_core.codec``; their JSON Schemas are made from their classes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from atoll_controller.fabric.switch_report import SwitchReport
from atoll_controller.tracing.trace_report import LiveTrace
from atoll_core.experiment.experiment import DIRECTIONS, Protocol
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_testbed.box_services import TestbedChange


class Request(BaseModel):
    """Base of parameters and bodies, and no parameters; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Response(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


# Parameters


class DescriptionRequest(Request):
    """Parameters of requests with a description."""

    file: str | None = Field(
        default=None,
        description=(
            "Only on the Unix socket: path of the file whose content is the body. The body is then a complete "
            "experiment. Paths in it are relative to the file. Its lab must be the one that is up."
        ),
    )
    set: list[str] = Field(
        default=[], description="KEY=VALUE, overrides a setting, as `atoll run --set` does; repeatable."
    )
    backend: Backend | None = Field(
        default=None, description="Link emulator; default: that of the applied experiment, else engine."
    )
    strict: bool = Field(default=False, description="Treat warnings as errors.")


class ChangeRequest(Request):
    """Parameters of a change of a chain or latency."""

    dry_run: bool = Field(default=False, description="Only return the changes that would be made.")
    connections: str = Field(
        default="reset",
        description=(
            "Handling of connections that the swap would break, such as those of a PEP: `reset`, `wait` or "
            "`wait:LIMIT`."
        ),
    )
    probe: bool = Field(default=True, description="Verify the change by probe packets, and undo it if that fails.")


class ApplyRequest(ChangeRequest, DescriptionRequest):
    """Parameters of an apply."""

    at_once: bool = Field(default=False, description="Switch immediately; packets in flight may be lost.")


class RunParameters(DescriptionRequest):
    """Parameters of a run."""

    runtime: Runtime | None = Field(default=None, description="Refuse a lab whose controller has another runtime.")
    analyse: bool = Field(default=True, description="Make tables, verdict and report as well.")
    metrics: bool = Field(
        default=True, description="Record metric points, and send them to the database if one is configured."
    )
    full_matrix: bool = Field(
        default=False, description="Ping every pair of hosts in the configuration test, not every host once."
    )
    runs: str | None = Field(
        default=None,
        description="Only on the Unix socket: parent of the run directory; default: `runs` in the directory of "
        "`atoll up`.",
    )
    influx: str | None = Field(
        default=None,
        description=(
            "Only on the Unix socket: a salted hash of the caller's database settings. If the daemon's database "
            "differs, a line of type `note` names it."
        ),
    )
    started_ns: int | None = Field(default=None, ge=0, description="Time of the user's command, ns since 1970.")


class CalibrationRequest(DescriptionRequest):
    """Parameters of a calibration."""

    directions: list[str] = Field(default=[*DIRECTIONS], description="to_island, to_world; repeatable.")
    seconds: float = Field(default=2.0, gt=0, le=600, description="Duration of each part of a link's test.")


class TraceRequest(Request):
    """The packet to trace."""

    src: str = Field(description="Source host.")
    dst: str = Field(description="Destination host.")
    protocol: Protocol = Field(default=Protocol.TCP, description="Protocol; chains can be chosen by protocol.")


class ProbeRequest(TraceRequest):
    """The probe packets to send."""

    probes: int = Field(default=5, ge=1, le=1000, description="Number of probes, ten a second.")


class EventsRequest(Request):
    """The events to return."""

    after: int | None = Field(default=None, ge=0, description="Events after this number; default: only new events.")
    last: int | None = Field(
        default=None, ge=0, le=4096, description="Instead of `after`: begin with this many past events."
    )
    samples: bool = Field(
        default=False, description="Also samples: boxes' counters each 100 ms, a run's live figures, metric points."
    )
    follow: bool = Field(default=True, description="Continue with new events; false: end after the past ones.")


class DownRequest(Request):
    """Parameters of taking a lab down."""

    force: bool = Field(
        default=False, description="Also if the lab is busy; the measurements of a run in progress are kept."
    )


class LabRequest(Request):
    """Parameters of bringing a lab up."""

    file: str = Field(description="Path of the file whose content is the body.")
    runtime: Runtime | None = Field(default=None, description="The controller's runtime; default: os-ken.")
    set: list[str] = Field(
        default=[], description="Overrides of the lab, such as `lab.delay_boxes.delay.rate=1 Gbit/s`."
    )


# Bodies


class ChainRequest(Request):
    """The new configuration of a chain."""

    chain: list[str] = Field(description="Boxes and taps in order from world to island.")
    carries: dict[str, str] = Field(
        default={}, description="Traffic of the branch, by `world` and `island` prefix and `protocol`; `main` has none."
    )


class LatencyRequest(Request):
    """The new latency of a server: either a class or an RTT."""

    class_: str | None = Field(default=None, alias="class", description="A latency class by its name.")
    rtt: str | None = Field(default=None, description="A latency class by its round-trip time, such as `90 ms`.")


class PortRequest(Request):
    """A TCP port to listen on."""

    address: str = Field(description="PORT, HOST:PORT or [V6]:PORT; without a host, loopback.")
    token: str = Field(description="The token that requests need there.")
    token_file: str | None = Field(default=None, description="The token's file; null: it is in the environment.")


# Answers


class MistakeResponse(Response):
    """One mistake."""

    where: str = Field(description="Key in the body, ?parameter or header; empty: the request as a whole.")
    message: str
    line: int | None = Field(default=None, description="Line of a YAML body.")


WARNINGS: Any = Field(default=[], description="Warnings: possible but doubtful settings of the experiment.")


class ErrorResponse(Response):
    """The reason why a request failed."""

    status: int
    message: str = Field(description="A line for each mistake.")
    exit_code: int = Field(description="Exit code of the corresponding command.")
    mistakes: list[MistakeResponse] = Field(description="The first hundred mistakes.")
    more: int = Field(default=0, description="Number of further mistakes.")


class RefusalResponse(Response):
    """Answer to a request that failed."""

    error: ErrorResponse


class BusyResponse(Response):
    """The task in progress."""

    what: str = Field(examples=["run"])
    about: str = Field(description="The experiment, or the lab that is being brought up.", examples=["geo"])
    since_ns: int


class LabResponse(Response):
    """The lab that is up."""

    name: str
    file: str
    place: Literal["mininet", "hardware"] = Field(description="The platform.")
    datapath: str | None = Field(description="Of emulated switches: userspace or kernel.")
    ovs: str | None = Field(description="Of emulated switches: the version of Open vSwitch.")
    inventory: str | None = Field(description="Of real machines: their inventory.")
    controller: str = Field(examples=["os-ken 4.2.2"])
    switches: dict[str, Literal["up", "down"]]
    experiment: str | None
    chain: list[str] | None
    failed: str | None = Field(description="The reason for which the lab failed; null if it works.")


class StatusResponse(Response):
    """The daemon and its lab."""

    version: str
    pid: int
    for_run: bool = Field(
        description="Whether a run started this daemon for itself. Its lab is then taken down "
        "while the run is analysed, and the daemon ends with the run."
    )
    seq: int = Field(description="Number of the last event.")
    listens: list[str] = Field(description="URLs of the API over TCP.")
    token_file: str | None = Field(default=None, description="The file with the token for TCP.")
    busy: BusyResponse | None
    lab: LabResponse | None


class HostResponse(Response):
    """A host of the lab."""

    name: str
    role: str
    address: str
    switch: str
    port: int


class BoxResponse(Response):
    """A box of the lab."""

    name: str
    kind: str
    routed: bool


class TapResponse(Response):
    """A tap of the lab."""

    name: str
    host: str
    physical: bool
    direction: str


class ClassResponse(Response):
    """A latency class."""

    name: str
    delay_box: str
    rtt_ns: int
    jitter_ns: int
    vlan: int | None = Field(description="VLAN id on the delay box's trunk; null for a class with ports of its own.")


class InventoryResponse(LabResponse):
    """The lab that is up, with its hosts, boxes, taps and latency classes."""

    hosts: list[HostResponse]
    boxes: list[BoxResponse]
    taps: list[TapResponse]
    latency_classes: list[ClassResponse]


class SwitchesResponse(Response):
    """The lab's switches."""

    switches: list[SwitchReport]


class EntriesResponse(Response):
    """The flow entries of a switch; `foreign`: those that no plan can contain."""

    switch: str
    table: int
    entries: list[FlowEntry]
    packets: list[int | None] = Field(description="The packet counter of each of `entries`.")
    foreign: list[UnmanagedEntry]


class CountersResponse(Response):
    """The counters of a switch; entries are identified by their cookies."""

    switch: str
    table: int
    ports: dict[str, dict[str, int]]
    entries: list[dict[str, int]]


class ExperimentResponse(Response):
    """The applied experiment."""

    name: str
    backend: Backend
    description: dict[str, Any] = Field(description="The experiment in the form of experiment.yaml.")


class ChainResponse(Response):
    """A chain of the applied experiment."""

    name: str = Field(description="`main` carries the traffic that no branch carries.")
    chain: list[str]
    carries: dict[str, str]


class ChainsResponse(Response):
    """All chains, in the order in which they are matched."""

    chains: list[ChainResponse]


class LatencyResponse(Response):
    """The latency of a world server; `class` is null if the server is not delayed."""

    server: str
    class_: str | None = Field(alias="class")
    rtt_ns: int | None


class LatenciesResponse(Response):
    """Latencies of all world servers, and all latency classes."""

    servers: list[LatencyResponse]
    classes: list[ClassResponse]


class PlanResponse(Response):
    """A plan."""

    experiment: str
    sha256: str
    plan: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(
        description="Flow entries, host settings, jobs, captures, path checks, seed, layout: docs/contracts.md."
    )
    warnings: list[MistakeResponse] = WARNINGS


class SwapPartResponse(Response):
    """A part of a swap. A swap of chains has several if nothing distinguishes the packets of both versions."""

    subject: Literal["latency", "chains"]
    what: list[str] = Field(description="The differences to the version before.")
    connections: list[str] = Field(description="Boxes whose connections break.")
    without: list[str] = Field(
        description="Boxes and taps of both the old and the new version that no packet passes until the next part."
    )
    uncoded: list[str] = Field(description="Those of `without` that encode packets.")
    renewed: list[str] = Field(description="Those of `without` whose programs begin again, with other settings.")
    drain_ns: int = Field(description="The least time until the version before has drained.")


class BudgetResponse(Response):
    """The entries of a switch's table while a swap is carried out."""

    switch: str
    driver: str
    entries: int = Field(description="Of the active experiment.")
    most_entries: int = Field(description="At any time of the swap, which adds entries before it deletes others.")
    when: str = Field(description="The stage with the most entries.")
    capacity: int
    fits: bool


class ChangesResponse(Response):
    """The changes that were made, or that would be made."""

    experiment: str
    dry_run: bool
    changes: list[TestbedChange]
    lines: list[str] = Field(description="A readable line for each change, and for each part of the swap.")
    parts: list[SwapPartResponse] = Field(description="The parts of the swap, in order; none if no path changes.")
    budgets: list[BudgetResponse] = Field(description="For each switch, if there is a swap or its dry run.")
    warnings: list[MistakeResponse] = WARNINGS


class CalibrationResponse(Response):
    """The result of a calibration."""

    calibration: dict[str, Any] = Field(description="rows: configured, measured, state; base_rtt_ns, lab_rtt_ns.")


class BoxesResponse(Response):
    """The latest counters of every link and delay box (docs/contracts.md)."""

    boxes: dict[str, dict[str, Any]]


class RunResponse(Response):
    """A run of this daemon."""

    id: str
    experiment: str
    state: Literal["running", "completed", "failed", "cancelled"]
    started_ns: int
    ended_ns: int | None = None
    run_dir: str | None = Field(default=None, description="The run directory; null until it exists.")
    step: str | None = None
    live: dict[str, Any] | None = Field(default=None, description="The latest live figures.")
    summary: dict[str, Any] | None = Field(default=None, description="summary.json; null until the run is analysed.")
    error: ErrorResponse | None = None
    warnings: list[MistakeResponse] = WARNINGS


class RunsResponse(Response):
    """All runs of this daemon, latest first."""

    runs: list[RunResponse]


class EventResponse(Response):
    """An event or a sample. docs/api.md lists the types and their further keys."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    t_ns: int = Field(description="CLOCK_REALTIME, ns since 1970.")
    seq: int | None = Field(default=None, description="The event's number; samples have none.")
    text: str | None = Field(default=None, description="A readable line; samples have none.")
    severity: Literal["info", "warning"] | None = Field(default=None, description="Of the text.")


class EndResponse(Response):
    """The lab is being taken down; the connection ends when the daemon does."""

    was_up: bool


class LiveTraceResponse(Response):
    """The result of a live trace."""

    proven: bool = Field(description="Whether probes took the planned path and were answered.")
    lost: str | None = Field(description="The hop at which the path ends early; null if it does not.")
    live: LiveTrace = Field(description="Each hop with the probes that it counted or received.")


# The live page and replays


class ReplayPointsRequest(Request):
    """The points of a run to return."""

    @property
    def chosen(self) -> frozenset[str]:
        """The measurements to return; empty: all."""
        return frozenset(name for name in self.measurements.split(",") if name)

    from_ns: int = Field(default=0, ge=0, description="Only points from this time on, by the run's clock.")
    to_ns: int = Field(default=2**63 - 1, ge=0, description="Only points before this time.")
    measurements: str = Field(
        default="",
        description="Only these measurements, separated by commas; default: all.",
        examples=["link,transfer"],
    )
    follow: bool = Field(default=False, description="Continue until the end of a run in progress.")


class HopResponse(Response):
    """A hop of a chain."""

    name: str
    kind: str = Field(description="The kind of a box in lab.yaml, or `tap`.")
    is_link: bool = Field(description="Whether it is a satellite link.")


class DrawnChain(Response):
    """A chain in the picture of a lab."""

    name: str
    hops: list[HopResponse] = Field(description="In order from world to island.")
    carries: dict[str, str]


class DrawnHost(Response):
    """A host in the picture of a lab."""

    name: str
    role: str
    ip: str


class DirectionResponse(Response):
    """The configuration of one direction of a link."""

    rate_bit_s: int
    delay_ns: int
    queue_bytes: int


class FigureResponse(Response):
    """A number that a box has among its metrics."""

    name: str
    unit: str
    what: str


class DrawnBox(Response):
    """A box in the picture of a lab; a link that a chain contains has its configuration."""

    kind: str
    is_link: bool
    to_island: DirectionResponse | None = None
    to_world: DirectionResponse | None = None
    counters: list[FigureResponse] = Field(
        default=[], description="Sums in points of the measurement that is named after its kind."
    )
    levels: list[FigureResponse] = Field(default=[], description="Other numbers in these points.")


class DrawnLatency(Response):
    """The latency of a world server in the picture of a lab."""

    class_: str = Field(alias="class")
    rtt_ns: int


class DrawnRun(Response):
    """The progress of a run in the picture of a lab."""

    id: str
    step: str | None
    elapsed_s: float | None = Field(description="Since the start of the load; null before it.")
    duration_s: float
    metrics: bool = Field(description="False for `--no-metrics`: only links and delay boxes have points.")


class PictureResponse(Response):
    """The data to draw the lab."""

    lab: str
    experiment: str | None
    place: str
    hosts: list[DrawnHost]
    chains: list[DrawnChain] = Field(description="In the order in which they are matched.")
    boxes: dict[str, DrawnBox]
    latencies: dict[str, DrawnLatency] = Field(description="By world server; servers without delay are left out.")
    classes: dict[str, int] = Field(description="Round-trip time of each latency class, in ns.")
    run: DrawnRun | None


class ReplaySummary(Response):
    """A run that can be replayed."""

    id: str
    experiment: str
    place: str = Field(description="The platform.")
    began_t_ns: int = Field(description="Start of the run by the wall clock, ns since 1970.")
    duration_s: float = Field(description="Configured duration of the load.")
    verdict: str | None = Field(description="`valid`, `valid with caveats` or `invalid`; null: not analysed.")
    reasons: list[str] = Field(description="Reasons why the run is invalid.")
    caveats: list[str] = Field(description="Figures beyond a bound; consider them when you use the results.")
    outcome: str = Field(
        description="`running`, `completed`, `cancelled at step STEP` or `failed at step STEP: REASON`. A run that was "
        "killed has `running`, although it is finished."
    )
    finished: bool = Field(description="Whether the run has ended.")


class ReplaysResponse(Response):
    """The latest two hundred runs, latest first."""

    replays: list[ReplaySummary]


class WindowResponse(Response):
    """The start and end of a measurement."""

    start_ns: int
    end_ns: int


class PictureChange(Response):
    """The picture of the lab from a time on."""

    from_ns: int
    picture: PictureResponse


class ReplayResponse(ReplaySummary):
    """A run without its points. Times are those of the run's clock."""

    from_ns: int
    to_ns: int
    window: WindowResponse | None = Field(description="The measurement; null until the load has ended.")
    picture: PictureResponse
    metrics: bool = Field(description="False for `--no-metrics`: points are of links, delay boxes and events only.")
    pictures: list[PictureChange] = Field(
        description="The lab at the start, and after each scheduled change that was made."
    )
    events: list[dict[str, Any]] = Field(
        description="Events in the form of `/v1/events`, numbered from 1. The last one of a run that was analysed has "
        "the type `verdict`, and the time of the last event before it."
    )


class PointsResponse(Response):
    """Metric points (docs/metrics.md) of a sample, or of one second of a replay."""

    type: Literal["points"]
    t_ns: int = Field(description="Time of the latest point.")
    run: str | None = Field(description="The run's id; null without a run.")
    points: list[list[Any]] = Field(
        description="Each `[measurement, {tag: text}, {field: figure}, t_ns]`, without the tags that all points have."
    )

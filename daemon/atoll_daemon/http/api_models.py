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

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Response(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


# Parameters


class DescriptionRequest(Request):
    """Parameters of requests with a description."""

    file: str | None = None
    """Only on the Unix socket: path of the file whose content is the body. The body is then a complete experiment.
    Paths in it are relative to the file. Its lab must be the one that is up."""
    set: list[str] = []
    """KEY=VALUE, overrides a setting, as `atoll run --set` does; repeatable."""
    backend: Backend | None = None
    """Link emulator; default: that of the applied experiment, else engine."""
    strict: bool = False
    """Treat warnings as errors."""


class ChangeRequest(Request):
    """Parameters of a change of a chain or latency."""

    dry_run: bool = False
    """Only return the changes that would be made."""
    connections: str = "reset"
    """Handling of connections that the swap would break, such as those of a PEP: `reset`, `wait` or `wait:LIMIT`."""
    probe: bool = True
    """Verify the change by probe packets, and undo it if that fails."""


class ApplyRequest(ChangeRequest, DescriptionRequest):
    """Parameters of an apply."""

    at_once: bool = False
    """Switch immediately; packets in flight may be lost."""


class RunParameters(DescriptionRequest):
    """Parameters of a run."""

    runtime: Runtime | None = None
    """Refuse a lab whose controller has another runtime."""
    analyse: bool = True
    """Make tables, verdict and report as well."""
    metrics: bool = True
    """Record metric points, and send them to the database if one is configured."""
    full_matrix: bool = False
    """Ping every pair of hosts in the configuration test, not every host once."""
    runs: str | None = None
    """Only on the Unix socket: parent of the run directory; default: `runs` in the directory of `atoll up`."""
    influx: str | None = None
    """Only on the Unix socket: a salted hash of the caller's database settings. If the daemon's database differs, a
    line of type `note` names it."""
    started_ns: int | None = Field(default=None, ge=0)
    """Time of the user's command, ns since 1970."""


class CalibrationRequest(DescriptionRequest):
    """Parameters of a calibration."""

    directions: list[str] = Field(default=[*DIRECTIONS])
    """to_island, to_world; repeatable."""
    seconds: float = Field(default=2.0, gt=0, le=600)
    """Duration of each part of a link's test."""


class TraceRequest(Request):
    """The packet to trace."""

    src: str
    """Source host."""
    dst: str
    """Destination host."""
    protocol: Protocol = Protocol.TCP
    """Protocol; chains can be chosen by protocol."""


class ProbeRequest(TraceRequest):
    """The probe packets to send."""

    probes: int = Field(default=5, ge=1, le=1000)
    """Number of probes, ten a second."""


class EventsRequest(Request):
    """The events to return."""

    after: int | None = Field(default=None, ge=0)
    """Events after this number; default: only new events."""
    last: int | None = Field(default=None, ge=0, le=4096)
    """Instead of `after`: begin with this many past events."""
    samples: bool = False
    """Also samples: boxes' counters each 100 ms, a run's live figures, metric points."""
    follow: bool = True
    """Continue with new events; false: end after the past ones."""


class DownRequest(Request):
    """Parameters of taking a lab down."""

    force: bool = False
    """Also if the lab is busy; the measurements of a run in progress are kept."""


class LabRequest(Request):
    """Parameters of bringing a lab up."""

    file: str
    """Path of the file whose content is the body."""
    runtime: Runtime | None = None
    """The controller's runtime; default: os-ken."""
    set: list[str] = []
    """Overrides of the lab, such as `lab.delay_boxes.delay.rate=1 Gbit/s`."""


# Bodies


class ChainRequest(Request):
    """The new configuration of a chain."""

    chain: list[str]
    """Boxes and taps in order from world to island."""
    carries: dict[str, str] = {}
    """Traffic of the branch, by `world` and `island` prefix and `protocol`; `main` has none."""


class LatencyRequest(Request):
    """The new latency of a server: either a class or an RTT."""

    class_: str | None = Field(default=None, alias="class")
    """A latency class by its name."""
    rtt: str | None = None
    """A latency class by its round-trip time, such as `90 ms`."""


class PortRequest(Request):
    """A TCP port to listen on."""

    address: str
    """PORT, HOST:PORT or [V6]:PORT; without a host, loopback."""
    token: str
    """The token that requests need there."""
    token_file: str | None = None
    """The token's file; null: it is in the environment."""


# Answers


class MistakeResponse(Response):
    """One mistake."""

    where: str
    """Key in the body, ?parameter or header; empty: the request as a whole."""
    message: str
    line: int | None = None
    """Line of a YAML body."""


WARNINGS: Any = Field(default=[], description="Warnings: possible but doubtful settings of the experiment.")


class ErrorResponse(Response):
    """The reason why a request failed."""

    status: int
    message: str
    """A line for each mistake."""
    exit_code: int
    """Exit code of the corresponding command."""
    mistakes: list[MistakeResponse]
    """The first hundred mistakes."""
    more: int = 0
    """Number of further mistakes."""


class RefusalResponse(Response):
    """Answer to a request that failed."""

    error: ErrorResponse


class BusyResponse(Response):
    """The task in progress."""

    what: str = Field(examples=["run"])
    about: str = Field(examples=["geo"])
    """The experiment, or the lab that is being brought up."""
    since_ns: int


class LabResponse(Response):
    """The lab that is up."""

    name: str
    file: str
    place: Literal["mininet", "hardware"]
    """The platform."""
    datapath: str | None
    """Of emulated switches: userspace or kernel."""
    ovs: str | None
    """Of emulated switches: the version of Open vSwitch."""
    inventory: str | None
    """Of real machines: their inventory."""
    controller: str = Field(examples=["os-ken 4.2.2"])
    switches: dict[str, Literal["up", "down"]]
    experiment: str | None
    chain: list[str] | None
    failed: str | None
    """The reason for which the lab failed; null if it works."""


class StatusResponse(Response):
    """The daemon and its lab."""

    version: str
    pid: int
    for_run: bool
    """Whether a run started this daemon for itself. Its lab is then taken down while the run is analysed, and the
    daemon ends with the run."""
    seq: int
    """Number of the last event."""
    listens: list[str]
    """URLs of the API over TCP."""
    token_file: str | None = None
    """The file with the token for TCP."""
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
    vlan: int | None
    """VLAN id on the delay box's trunk; null for a class with ports of its own."""


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
    packets: list[int | None]
    """The packet counter of each of `entries`."""
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
    description: dict[str, Any]
    """The experiment in the form of experiment.yaml."""


class ChainResponse(Response):
    """A chain of the applied experiment."""

    name: str
    """`main` carries the traffic that no branch carries."""
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
    plan: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
    """Flow entries, host settings, jobs, captures, path checks, seed, layout: docs/contracts.md."""
    warnings: list[MistakeResponse] = WARNINGS


class SwapPartResponse(Response):
    """A part of a swap. A swap of chains has several if nothing distinguishes the packets of both versions."""

    subject: Literal["latency", "chains"]
    what: list[str]
    """The differences to the version before."""
    connections: list[str]
    """Boxes whose connections break."""
    without: list[str]
    """Boxes and taps of both the old and the new version that no packet passes until the next part."""
    uncoded: list[str]
    """Those of `without` that encode packets."""
    renewed: list[str]
    """Those of `without` whose programs begin again, with other settings."""
    drain_ns: int
    """The least time until the version before has drained."""


class StageResponse(Response):
    """A stage of a swap."""

    part: int
    """The part of the swap that it belongs to, from 0."""
    subject: Literal["latency", "chains"]
    stage: Literal["install", "probe", "shift", "drain", "collect"]
    added: int
    deleted: int
    probes: int
    wait_ns: int
    """The least time that it waits at its end: a drain, until packets have left the version before."""


class BudgetResponse(Response):
    """The entries of a switch's table while a swap is carried out."""

    switch: str
    driver: str
    entries: int
    """Of the active experiment."""
    most_entries: int
    """At any time of the swap, which adds entries before it deletes others."""
    when: str
    """The stage with the most entries."""
    capacity: int
    fits: bool


class ChangesResponse(Response):
    """The changes that were made, or that would be made."""

    experiment: str
    dry_run: bool
    changes: list[TestbedChange]
    lines: list[str]
    """A readable line for each change, and for each part of the swap; of a dry run also for each stage."""
    stages: list[StageResponse]
    """The stages of the swap, in order; none if no path changes."""
    parts: list[SwapPartResponse]
    """The parts of the swap, in order; none if no path changes."""
    budgets: list[BudgetResponse]
    """For each switch, if there is a swap or its dry run."""
    warnings: list[MistakeResponse] = WARNINGS


class CalibrationResponse(Response):
    """The result of a calibration."""

    calibration: dict[str, Any]
    """rows: configured, measured, state; base_rtt_ns, lab_rtt_ns."""


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
    run_dir: str | None = None
    """The run directory; null until it exists."""
    step: str | None = None
    live: dict[str, Any] | None = None
    """The latest live figures."""
    summary: dict[str, Any] | None = None
    """summary.json; null until the run is analysed."""
    error: ErrorResponse | None = None
    warnings: list[MistakeResponse] = WARNINGS


class RunsResponse(Response):
    """All runs of this daemon, latest first."""

    runs: list[RunResponse]


class EventResponse(Response):
    """An event or a sample. docs/api.md lists the types and their further keys."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    t_ns: int
    """CLOCK_REALTIME, ns since 1970."""
    seq: int | None = None
    """The event's number; samples have none."""
    text: str | None = None
    """A readable line; samples have none."""
    severity: Literal["info", "warning"] | None = None
    """Of the text."""


class EndResponse(Response):
    """The lab is being taken down; the connection ends when the daemon does."""

    was_up: bool


class LiveTraceResponse(Response):
    """The result of a live trace."""

    proven: bool
    """Whether probes took the planned path and were answered."""
    lost: str | None
    """The hop at which the path ends early; null if it does not."""
    live: LiveTrace
    """Each hop with the probes that it counted or received."""


# The live page and replays


class ReplayPointsRequest(Request):
    """The points of a run to return."""

    @property
    def measurement_names(self) -> frozenset[str]:
        """The measurements to return; empty: all."""
        return frozenset(name for name in self.measurements.split(",") if name)

    from_ns: int = Field(default=0, ge=0)
    """Only points from this time on, by the run's clock."""
    to_ns: int = Field(default=2**63 - 1, ge=0)
    """Only points before this time."""
    measurements: str = Field(default="", examples=["link,transfer"])
    """Only these measurements, separated by commas; default: all."""
    follow: bool = False
    """Continue until the end of a run in progress."""


class HopResponse(Response):
    """A hop of a chain."""

    name: str
    kind: str
    """The kind of a box in lab.yaml, or `tap`."""
    is_link: bool
    """Whether it is a satellite link."""


class DrawnChain(Response):
    """A chain in the picture of a lab."""

    name: str
    hops: list[HopResponse]
    """In order from world to island."""
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
    counters: list[FigureResponse] = []
    """Sums in points of the measurement that is named after its kind."""
    levels: list[FigureResponse] = []
    """Other numbers in these points."""


class DrawnLatency(Response):
    """The latency of a world server in the picture of a lab."""

    class_: str = Field(alias="class")
    rtt_ns: int


class DrawnRun(Response):
    """The progress of a run in the picture of a lab."""

    id: str
    step: str | None
    elapsed_s: float | None
    """Since the start of the load; null before it."""
    duration_s: float
    metrics: bool
    """False for `--no-metrics`: only links and delay boxes have points."""


class PictureResponse(Response):
    """The data to draw the lab."""

    lab: str
    experiment: str | None
    place: str
    hosts: list[DrawnHost]
    chains: list[DrawnChain]
    """In the order in which they are matched."""
    boxes: dict[str, DrawnBox]
    latencies: dict[str, DrawnLatency]
    """By world server; servers without delay are left out."""
    classes: dict[str, int]
    """Round-trip time of each latency class, in ns."""
    run: DrawnRun | None


class ReplaySummary(Response):
    """A run that can be replayed."""

    id: str
    experiment: str
    place: str
    """The platform."""
    began_t_ns: int
    """Start of the run by the wall clock, ns since 1970."""
    duration_s: float
    """Configured duration of the load."""
    verdict: str | None
    """`valid`, `valid with caveats` or `invalid`; null: not analysed."""
    reasons: list[str]
    """Reasons why the run is invalid."""
    caveats: list[str]
    """Figures beyond a bound; consider them when you use the results."""
    outcome: str
    """`running`, `completed`, `cancelled at step STEP` or `failed at step STEP: REASON`. A run that was killed has
    `running`, although it is finished."""
    finished: bool
    """Whether the run has ended."""


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
    window: WindowResponse | None
    """The measurement; null until the load has ended."""
    picture: PictureResponse
    metrics: bool
    """False for `--no-metrics`: points are of links, delay boxes and events only."""
    pictures: list[PictureChange]
    """The lab at the start, and after each scheduled change that was made."""
    events: list[dict[str, Any]]
    """Events in the form of `/v1/events`, numbered from 1. The last one of a run that was analysed has the type
    `verdict`, and the time of the last event before it."""


class PointsResponse(Response):
    """Metric points (docs/metrics.md) of a sample, or of one second of a replay."""

    type: Literal["points"]
    t_ns: int
    """Time of the latest point."""
    run: str | None
    """The run's id; null without a run."""
    points: list[list[Any]]
    """Each `[measurement, {tag: text}, {field: figure}, t_ns]`, without the tags that all points have."""

# SPDX-License-Identifier: Apache-2.0
"""The shapes of the API: parameters, bodies and answers. docs/openapi.json is made of them (``openapi``).

What model values are in answers is written by ``atoll_core.codec`` and has its JSON Schema from their classes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from atoll_controller.fabric.switch_report import SwitchReport
from atoll_controller.tracing.packet_trace import PacketTrace
from atoll_controller.tracing.trace_report import LiveTrace
from atoll_core.experiment.experiment import Protocol
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_testbed.testbed_diff import TestbedChange


class Request(BaseModel):
    """Base of what is asked: no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Response(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(frozen=True)


# Parameters


class Nothing(Request):
    """No parameters."""


class Describing(Request):
    """How a description is read."""

    file: str | None = Field(
        default=None,
        description="Only by the Unix socket: the file whose content the body is. It is then a whole experiment, files "
        "it names are found from there, and its lab has to be the one that is up.",
    )
    set: list[str] = Field(
        default=[], description="KEY=VALUE in place of the description's own, as `atoll run --set`; repeatable."
    )
    backend: Backend | None = Field(
        default=None, description="What plays links and delay boxes; that of the experiment that stands, else engine."
    )
    strict: bool = Field(default=False, description="Refuse what is otherwise only warned of.")


class Applying(Describing):
    """How an experiment is applied."""

    dry_run: bool = Field(default=False, description="Only tell the changes that would be made.")
    at_once: bool = Field(default=False, description="Switch immediately; packets in flight may be lost.")
    connections: str = Field(
        default="reset", description="Those that break, in PEPs say: `reset`, `wait` or `wait:LIMIT`."
    )
    probe: bool = Field(default=True, description="Prove it on the data plane, or undo it.")


class Changing(Request):
    """How a chain or a latency is changed."""

    dry_run: bool = Field(default=False, description="Only tell the changes that would be made.")
    connections: str = Field(
        default="reset", description="Those that break, in PEPs say: `reset`, `wait` or `wait:LIMIT`."
    )
    probe: bool = Field(default=True, description="Prove it on the data plane, or undo it.")


class RunRequest(Describing):
    """How an experiment is run."""

    runtime: Runtime | None = Field(default=None, description="Refuse a lab whose controller has another runtime.")
    analyse: bool = Field(default=True, description="Make tables, verdict and report as well.")
    metrics: bool = Field(
        default=True, description="Spool metric points, and carry them into the database if one is set."
    )
    full_matrix: bool = Field(
        default=False, description="Ping every pair of hosts in the configuration test, not every host once."
    )
    runs: str | None = Field(
        default=None,
        description="Only by the Unix socket: where run directories go; else `runs` where `atoll up` was given.",
    )
    influx: str | None = Field(
        default=None,
        description="Only by the Unix socket: a salted mark of the caller's own database. A line of type `note` tells "
        "where points go when the daemon has another one.",
    )
    started_ns: int | None = Field(default=None, ge=0, description="When the user asked for it, ns since 1970.")


class Calibrating(Describing):
    """How links are held against their settings."""

    directions: list[str] = Field(default=["to_island", "to_world"], description="to_island, to_world; repeatable.")
    seconds: float = Field(default=2.0, gt=0, le=600, description="For each part of a link's test.")


class Tracing(Request):
    """Which packet is followed."""

    src: str = Field(description="Host that sends.")
    dst: str = Field(description="Host at the other end.")
    protocol: Protocol = Field(default=Protocol.TCP, description="It may decide which chain the packet takes.")


class Probing(Tracing):
    """Which packets are sent."""

    probes: int = Field(default=5, ge=1, le=1000, description="How many, ten a second.")


class Listening(Request):
    """Which events are wanted."""

    after: int | None = Field(default=None, ge=0, description="Those after this number; without it, what is to come.")
    last: int | None = Field(default=None, ge=0, le=4096, description="Instead of `after`: so many of the last first.")
    samples: bool = Field(
        default=False, description="Also samples: boxes' counters each 100 ms, a run's live figures, metric points."
    )
    follow: bool = Field(default=True, description="Go on with what happens; false: end with what has happened.")


class Ending(Request):
    """How a lab is taken down."""

    force: bool = Field(default=False, description="Even if it is busy; a run's measurements are kept.")


class Upping(Request):
    """How a lab is brought up."""

    file: str = Field(description="The file whose content the body is.")
    runtime: Runtime | None = Field(default=None, description="The controller's runtime; os-ken if none is named.")


# Bodies


class ChainAsked(Request):
    """A chain as it is to be."""

    chain: list[str] = Field(description="Boxes and taps in order from world to island.")
    carries: dict[str, str] = Field(
        default={}, description="Of a branch: what it carries, by `world` and `island` prefix and `protocol`."
    )


class LatencyAsked(Request):
    """A server's latency as it is to be: one of both."""

    class_: str | None = Field(default=None, alias="class", description="A latency class by its name.")
    rtt: str | None = Field(default=None, description="A latency class by its round-trip time, such as `90 ms`.")


class PortAsked(Request):
    """A TCP port to listen on."""

    address: str = Field(description="PORT, HOST:PORT or [V6]:PORT; without a host, loopback.")
    token: str = Field(description="What requests there have to have.")
    token_file: str | None = Field(default=None, description="Where that is kept; null: in the environment.")


# Answers


class WhatIsWrong(Response):
    """One mistake."""

    where: str = Field(description="Key in the body, ?parameter, header; empty: the request as a whole.")
    message: str
    line: int | None = Field(default=None, description="Of a YAML body.")


WARNINGS: Any = Field(default=[], description="What is possible in the experiment, but doubtful.")


class ErrorResponse(Response):
    """Why a request was not done."""

    status: int
    message: str = Field(description="A line a mistake.")
    exit_code: int = Field(description="What a verb of the command line exits with.")
    mistakes: list[WhatIsWrong] = Field(description="The first hundred.")
    more: int = Field(default=0, description="How many mistakes there are besides.")


class Refusal(Response):
    """Answer to a request that was not done."""

    error: ErrorResponse


class BusyResponse(Response):
    """What a lab is busy with."""

    what: str = Field(examples=["run"])
    about: str = Field(description="The experiment, or the lab that is coming up.", examples=["geo"])
    since_ns: int


class LabResponse(Response):
    """The lab that is up."""

    name: str
    file: str
    place: Literal["mininet", "hardware"] = Field(description="Where the lab lives.")
    datapath: str | None = Field(description="Of emulated switches: userspace or kernel.")
    ovs: str | None = Field(description="Of emulated switches: the version of Open vSwitch.")
    inventory: str | None = Field(description="Of a rack: its inventory.")
    controller: str = Field(examples=["os-ken 4.2.2"])
    switches: dict[str, Literal["up", "down"]]
    experiment: str | None
    chain: list[str] | None
    failed: str | None = Field(description="Why it is of no more use.")


class StatusResponse(Response):
    """The daemon and its lab."""

    version: str
    pid: int
    for_run: bool = Field(description="It was started by a run for itself and ends with it.")
    seq: int = Field(description="Number of the last event.")
    listens: list[str] = Field(description="URLs by which it is asked over TCP.")
    token_file: str | None = Field(default=None, description="Where the token of those is.")
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


class ClassResponse(Response):
    """A latency class."""

    name: str
    delay_box: str
    rtt_ns: int
    jitter_ns: int
    vlan: int


class InventoryResponse(LabResponse):
    """The lab that is up, with what it is made of."""

    hosts: list[HostResponse]
    boxes: list[BoxResponse]
    taps: list[TapResponse]
    latency_classes: list[ClassResponse]


class SwitchesResponse(Response):
    """The lab's switches."""

    switches: list[SwitchReport]


class EntriesResponse(Response):
    """What a switch holds: entries of plans, and foreign ones, which no plan could ask for."""

    switch: str
    table: int
    entries: list[FlowEntry]
    packets: list[int | None] = Field(description="How many packets each of `entries` has counted.")
    foreign: list[UnmanagedEntry]


class CountersResponse(Response):
    """What a switch has counted; entries are named by their cookies."""

    switch: str
    table: int
    ports: dict[str, dict[str, int]]
    entries: list[dict[str, int]]


class ExperimentResponse(Response):
    """The experiment that stands."""

    name: str
    backend: Backend
    description: dict[str, Any] = Field(description="As one writes it into a file.")


class ChainResponse(Response):
    """A chain that stands."""

    name: str = Field(description="`main` carries what no branch does.")
    chain: list[str]
    carries: dict[str, str]


class ChainsResponse(Response):
    """All chains, in the order in which packets are offered to them."""

    chains: list[ChainResponse]


class LatencyResponse(Response):
    """The latency of a world server; null: it is not delayed."""

    server: str
    class_: str | None = Field(alias="class")
    rtt_ns: int | None


class LatenciesResponse(Response):
    """Latencies of all world servers, and the classes there are."""

    servers: list[LatencyResponse]
    classes: list[ClassResponse]


class PlanResponse(Response):
    """A plan."""

    experiment: str
    sha256: str
    plan: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(
        description="Flow entries, host settings, jobs, captures, path checks, seed, layout: docs/contracts.md."
    )
    warnings: list[WhatIsWrong] = WARNINGS


class ChangesResponse(Response):
    """What was changed, or would be."""

    experiment: str
    dry_run: bool
    changes: list[TestbedChange]
    lines: list[str] = Field(description="The same for people, a line a change.")
    warnings: list[WhatIsWrong] = WARNINGS


class CalibrationResponse(Response):
    """What was found of each link."""

    calibration: dict[str, Any] = Field(description="rows: asked, measured, state; base_rtt_ns, lab_rtt_ns.")


class BoxesResponse(Response):
    """The latest counters of every link and delay box, as docs/contracts.md has them."""

    boxes: dict[str, dict[str, Any]]


class RunResponse(Response):
    """A run of this daemon."""

    id: str
    experiment: str
    state: Literal["running", "completed", "failed", "cancelled"]
    started_ns: int
    ended_ns: int | None = None
    run_dir: str | None = Field(default=None, description="None until it has one.")
    step: str | None = None
    live: dict[str, Any] | None = Field(default=None, description="The last live figures.")
    summary: dict[str, Any] | None = Field(default=None, description="As summary.json, once it is analysed.")
    error: ErrorResponse | None = None
    warnings: list[WhatIsWrong] = WARNINGS


class RunsResponse(Response):
    """Every run of this daemon, the last one first."""

    runs: list[RunResponse]


class EventResponse(Response):
    """An event or a sample. docs/api.md has the types and what each holds besides."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    t_ns: int = Field(description="CLOCK_REALTIME, ns since 1970.")
    seq: int | None = Field(default=None, description="Its number; samples have none.")


class EndResponse(Response):
    """The lab is being taken down; the connection ends when the daemon does."""

    was_up: bool


TraceTold = PacketTrace


class ProofResponse(Response):
    """What probes showed of a way."""

    proven: bool = Field(description="They went the planned way, and answers came back.")
    lost: str | None = Field(description="Where the way ends although it should go on.")
    live: LiveTrace = Field(description="Each station with what it counted or saw.")

# SPDX-License-Identifier: Apache-2.0
"""Run directories as a run would leave them, made without a lab: real capture files of a simulated drop-tail queue."""

import heapq
import itertools
import json
import struct
from collections import deque
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.job_plan import capture_points
from atoll_controller.planner.traffic_jobs import channel_allocations
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import (
    Chain,
    Counted,
    Experiment,
    Link,
    LinkDirection,
    PingSeries,
    TcpSettings,
    Transfer,
)
from atoll_core.experiment.link_over_time import link_over_time
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.box_kind import LINK
from atoll_core.lab.network import ChainBox, Host, HostRole, Interface, Network, Switch, Tap
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import JobSpec, PathCheck, Phase, Plan
from atoll_core.units import Duration, Rate, Size

START_NS = 1_767_322_800 * 10**9
PORT = 5001
WHISTLES = {"start": 0xA702, "end": 0xA703}
"""ICMP identifiers."""
RTTS_MS = (5, 20, 50, 90, 140, 200)
ACK, SYN, FIN, PSH = 0x10, 0x02, 0x01, 0x08


def network(clients: int = 6) -> Network:
    """One switch, six world servers, island clients, the special hosts, a satellite link and two taps."""
    ports = itertools.count(1)

    def interface(name: str) -> Interface:
        port = next(ports)
        return Interface(f"{name}-eth0", f"02:00:00:00:00:{port:02x}", PortRef("s1", port))

    def host(name: str, role: HostRole, address: str) -> Host:
        return Host(name, role, IPv4Address(address), interface(name))

    return Network(
        name="synthetic",
        file="synthetic.yaml",
        world=IPv4Network("10.10.0.0/16"),
        island=IPv4Network("10.20.0.0/16"),
        switches=(Switch("s1", 1, "ovs"),),
        trunks=(),
        hosts=(
            *(host(f"w{i}", HostRole.WORLD_SERVER, f"10.10.0.{i}") for i in range(1, 7)),
            host("ws", HostRole.WORLD_SPECIAL, "10.10.1.1"),
            host("wh", HostRole.WORLD_WHISTLE, "10.10.1.2"),
            *(host(f"i{i}", HostRole.ISLAND_CLIENT, f"10.20.0.{i}") for i in range(1, clients + 1)),
            host("is", HostRole.ISLAND_SPECIAL, "10.20.1.1"),
        ),
        boxes=(ChainBox("sat", LINK, interface("sat-w"), interface("sat-i")),),
        delay_boxes=(),
        taps=(Tap("tap-w", "cap-w", interface("cap-w")), Tap("tap-i", "cap-i", interface("cap-i"))),
    )


def experiment(**changes: Any) -> Experiment:
    """GEO, 16 Mbit/s, a queue of 100 kB; keyword arguments replace whole fields."""
    to_island = LinkDirection(Rate(16_000_000), Duration(250_000_000), Size(100_000))
    to_world = LinkDirection(Rate(4_000_000), Duration(250_000_000), Size(100_000))
    fields: dict[str, Any] = {
        "name": "synthetic",
        "file": "synthetic.yaml",
        "lab": "lab.yaml",
        "seed": 1,
        "duration": Duration(10 * 10**9),
        "chain": Chain("synthetic", ("tap-w", "sat", "tap-i")),
        "links": (Link("sat", to_island, to_world, Counted.IP),),
        "latency": tuple((f"w{i}", f"rtt-{rtt}") for i, rtt in enumerate(RTTS_MS, 1)),
        "traffic": Traffic(20, "published", PORT),
        "transfer": Transfer(Size(1_000_000), Duration(2 * 10**9), "atoll", 5201),
        "ping": PingSeries(Duration(100_000_000)),
        "tcp": TcpSettings("cubic", ecn=False, buffer_max=Size(16_000_000)),
    }
    return Experiment(**{**fields, **changes})


def plan(asked: Experiment, lab: Network, captures: tuple[str, ...]) -> Plan:
    """What the analysis reads of a plan: captures, whistles and expected RTTs."""
    points = {point.name: point for point in capture_points(lab, asked)}
    return Plan(
        lab="synthetic",
        experiment=asked.name,
        flows=(),
        hosts=(),
        jobs=tuple(
            JobSpec(f"whistle-{when}", "wh", Phase.WHISTLE, (), {"identifier": identifier})
            for when, identifier in WHISTLES.items()
        ),
        captures=tuple(points[name] for name in captures),
        checks=tuple(
            PathCheck(f"w{i}", "is", "10.20.1.1", (500 + rtt) * 10**6, rtt * 10**6, 0)
            for i, rtt in enumerate(RTTS_MS, 1)
        ),
        seed=asked.seed,
        placement=channel_allocations(lab, asked),
    )


def begin(
    base: Path, asked: Experiment, lab: Network, captures: tuple[str, ...] = ("world", "island", "link-sat")
) -> RunDir:
    """A run directory with its manifest and the events of a run that completed."""
    run = RunDir.create(base, asked.name, START_NS)
    run.write_manifest(
        {
            "experiment": to_json(asked),
            "network": to_json(lab),
            "plan": to_json(plan(asked, lab, captures)),
            "plan_sha256": "7c" * 32,
            "seed": asked.seed,
            "place": "mininet",
            "datapath": "userspace",
            "ovs": "3.1.0",
            "kernel": "6.1.0",
            "revision": "0123abcd",
            "outcome": "completed",
            "overhead_s": 21.5,
        }
    )
    for i, rtt in enumerate(RTTS_MS, 1):
        measured = rtt * 10**6 + 30_000 * i
        run.append_event("terrestrial", START_NS, server=f"w{i}", configured_ns=rtt * 10**6, measured_ns=measured)
    run.append_event("base_rtt", START_NS, rtt_ns=500_400_000)
    run.append_event("window", START_NS, start_ns=START_NS, end_ns=START_NS + asked.duration.ns)
    run.append_event("drained", START_NS + asked.duration.ns)
    return run


def write_capture_log(run: RunDir, name: str, packets: int, dropped: int = 0) -> None:
    """What a capture says in its last line."""
    done = {"type": "done", "captured_packets": packets, "captured_bytes": 0, "dropped_packets": dropped}
    (run.logs / f"capture-{name}.out").write_text('{"type":"ready"}\n' + json.dumps(done) + "\n")


class PcapWriter:
    """Writes a nanosecond pcap of IPv4 headers (snap length 96), in the order given."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1))
        self.packets = 0

    def tcp(self, t_ns: int, ends: tuple[str, int, str, int], seq: int, ack: int, flags: int, payload: int) -> None:
        """One TCP segment; ``ends``: source, its port, destination, its port."""
        src, sport, dst, dport = ends
        header = struct.pack(">HHIIBBHHH", sport, dport, seq % 2**32, ack % 2**32, 5 << 4, flags, 65535, 0, 0)
        self._ip(t_ns, src, dst, 6, header, payload)

    def udp(self, t_ns: int, ends: tuple[str, int, str, int], payload: int) -> None:
        """One UDP datagram; ``ends`` as of TCP."""
        src, sport, dst, dport = ends
        self._ip(t_ns, src, dst, 17, struct.pack(">HHHH", sport, dport, 8 + payload, 0), payload)

    def echo(self, t_ns: int, src: str, dst: str, kind: int, identifier: int, sequence: int) -> None:
        """One ICMP echo request (8) or reply (0) of 56 bytes."""
        self._ip(t_ns, src, dst, 1, struct.pack(">BBHHH", kind, 0, 0, identifier, sequence % 2**16), 56)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _ip(self, t_ns: int, src: str, dst: str, proto: int, header: bytes, payload: int) -> None:
        total = 20 + len(header) + payload
        ip = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, proto, 0, IPv4Address(src).packed, IPv4Address(dst).packed
        )
        frame = bytes(12) + b"\x08\x00" + ip + header + bytes(payload)
        kept = frame[:96]
        self._file.write(struct.pack("<IIII", t_ns // 10**9, t_ns % 10**9, len(kept), len(frame)) + kept)
        self.packets += 1


@dataclass(slots=True)
class _Flow:
    """A sender with slow start, additive increase and halving on loss; one acknowledgement a packet."""

    channel: int
    number: int
    ends: tuple[str, int, str, int]
    one_way_ns: int
    size: int
    start_ns: int
    window: float = 10.0
    threshold: float = 1e9
    next_segment: int = 0
    acked: int = 0
    recovered_ns: int = 0
    heard_ns: int = 0
    outstanding: deque[tuple[int, int]] = field(default_factory=deque)  # (segment, sent)
    again: list[int] = field(default_factory=list)

    @property
    def segments(self) -> int:
        return -(-self.size // 1448)

    def bytes_of(self, segment: int) -> int:
        return min(1448, self.size - 1448 * segment)


def simulate(base: Path, seconds: int = 10, seed: int = 1, **changes: Any) -> RunDir:
    """A whole run: TCP-like channels over a GEO link of 16 Mbit/s with a drop-tail queue of 100 kB.

    The rate follows a trace or changes of the link as they are planned.

    ``changes``: of the experiment's fields.
    """
    asked = experiment(duration=Duration(seconds * 10**9), seed=seed, **changes)
    run = begin(base, asked, network())
    for number, version in enumerate(asked.versions[1:], 1):
        at_ns = START_NS + version.at.ns
        run.append_event("change", at_ns, change=number, state="begin", planned_ns=at_ns, what=[])
        run.append_event("change", at_ns, change=number, state="end", drain_ns=0)
    _Simulation(run, asked, Random(seed)).execute()
    return run


class _Simulation:
    def __init__(self, run: RunDir, asked: Experiment, random: Random) -> None:
        self.run, self.asked, self.random = run, asked, random
        self.link = asked.link("sat").to_island
        self.over_time = link_over_time([(0, self.link)])
        self.end = START_NS + asked.duration.ns
        self.events: list[tuple[int, int, Any]] = []
        self.order = itertools.count()
        self.ports = itertools.count(20000)
        self.queue: deque[tuple[int, int]] = deque()  # (begin of serialisation, bytes) of waiting packets
        self.free_ns = START_NS
        self.frames: dict[str, list[tuple[int, int, Any]]] = {"world": [], "island": [], "link-sat": []}
        self.figures: dict[str, int] = {}
        for counter in (
            "in_packets",
            "in_bytes",
            "out_packets",
            "out_bytes",
            "dropped_packets",
            "dropped_bytes",
            "idle_ns",
        ):
            self.figures[counter] = 0
        self.queue_max = self.peak = self.sojourn_max = 0
        self.now = START_NS
        self.rtts: list[dict[str, Any]] = []
        self.flow_lines: dict[str, list[str]] = {f"i{i}": [] for i in range(1, 7)}

    def at(self, t_ns: int, action: Any) -> None:
        heapq.heappush(self.events, (t_ns, next(self.order), action))

    def execute(self) -> None:
        for channel in range(self.asked.traffic.channels):
            self.start_flow(START_NS + channel, channel, 0)
        for sequence in range(self.asked.duration.ns // 100_000_000):
            t = START_NS + 100_000_000 * sequence
            self.at(t, lambda t=t, sequence=sequence: self.ping(t, "10.10.1.1", 4711, sequence))
        for t, identifier in zip((START_NS + 1_000_000, self.end), WHISTLES.values(), strict=True):
            self.at(t, lambda t=t, identifier=identifier: self.ping(t, "10.10.1.2", identifier, 0))
        self.at(START_NS + 2 * 10**9, self.start_transfer)
        self.at(START_NS, self.count)
        while self.events:
            t, _, action = heapq.heappop(self.events)
            self.now = t
            action()
        self.write()

    # The link

    def offer(self, t: int, size: int) -> int | None:
        """When the packet has left the link, before propagation; None: dropped."""
        while self.queue and self.queue[0][0] <= t:
            self.queue.popleft()
        waiting = sum(held for _, held in self.queue)
        self.figures["in_packets"] += 1
        self.figures["in_bytes"] += size
        if self.free_ns > t and waiting + size > self.link.queue.bytes:
            self.figures["dropped_packets"] += 1
            self.figures["dropped_bytes"] += size
            return None
        if self.free_ns > t:
            self.queue.append((self.free_ns, size))
            self.queue_max = max(self.queue_max, waiting + size)
        else:
            self.figures["idle_ns"] += t - self.free_ns
        begins = max(t, self.free_ns)
        self.free_ns = begins + size * 8 * 10**9 // self.over_time.at(begins - START_NS).rate.bit_s
        self.sojourn_max = max(self.sojourn_max, self.free_ns - t)
        self.figures["out_packets"] += 1
        self.figures["out_bytes"] += size
        return self.free_ns + self.link.delay.ns

    def cross(self, t: int, size: int, frame: tuple[Any, ...]) -> int | None:
        self.frames["world"].append((t, next(self.order), frame))
        out = self.offer(t, size)
        if out is not None:
            self.frames["link-sat"].append((out, next(self.order), frame))
            self.frames["island"].append((out + 50_000, next(self.order), frame))
        return out

    def back(self, t: int, frame: tuple[Any, ...]) -> int:
        self.frames["island"].append((t, next(self.order), frame))
        self.frames["world"].append((t + 250_000_000, next(self.order), frame))
        return t + 250_000_000

    # Senders

    def start_flow(self, t: int, channel: int, number: int) -> None:
        if t >= self.end:
            return
        server = self.random.randrange(6)
        size = max(1, int(self.random.paretovariate(0.9) * 9000)) % 6_000_000 + 1
        ends = (f"10.10.0.{server + 1}", PORT, f"10.20.0.{channel % 6 + 1}", next(self.ports))
        flow = _Flow(channel, number, ends, RTTS_MS[server] * 500_000, size, t)
        self.open(flow)

    def start_transfer(self) -> None:
        self.open(_Flow(-1, 0, ("10.10.1.1", 5201, "10.20.1.1", 40000), 0, 1_000_000, self.now))

    def open(self, flow: _Flow) -> None:
        reverse = (*flow.ends[2:], *flow.ends[:2])
        at_server = self.back(flow.start_ns, ("tcp", reverse, 0, 0, SYN, 0)) + flow.one_way_ns
        self.at(at_server + flow.one_way_ns + 500_000_000, lambda: self.send(flow))

    def send(self, flow: _Flow) -> None:
        flow.heard_ns = self.now
        while len(flow.outstanding) < flow.window and (flow.again or flow.next_segment < flow.segments):
            segment = flow.again.pop(0) if flow.again else flow.next_segment
            flow.next_segment = max(flow.next_segment, segment + 1)
            flow.outstanding.append((segment, self.now))
            sent = self.now
            self.at(sent + flow.one_way_ns, lambda segment=segment, sent=sent: self.arrive(flow, segment, sent))
        heard = self.now
        self.at(heard + 1_500_000_000, lambda: self.timeout(flow, heard))

    def arrive(self, flow: _Flow, segment: int, sent: int) -> None:
        payload = flow.bytes_of(segment)
        out = self.cross(self.now, payload + 40, ("tcp", flow.ends, 1 + 1448 * segment, 1, ACK, payload))
        if out is not None:
            reverse = (*flow.ends[2:], *flow.ends[:2])
            world = self.back(out + 60_000, ("tcp", reverse, 1, 1 + 1448 * segment + payload, ACK, 0))
            self.at(world + flow.one_way_ns, lambda: self.acknowledged(flow, segment, sent))

    def acknowledged(self, flow: _Flow, segment: int, sent: int) -> None:
        if (segment, sent) not in flow.outstanding:
            return
        lost = list(itertools.takewhile(lambda pair: pair != (segment, sent), flow.outstanding))
        for _ in range(len(lost) + 1):
            flow.outstanding.popleft()
        flow.again += [segment for segment, _ in lost]
        flow.acked += 1
        if lost and sent > flow.recovered_ns:
            flow.window = flow.threshold = max(2.0, flow.window * 0.7)
            flow.recovered_ns = self.now
        else:
            flow.window += 1.0 if flow.window < flow.threshold else 1.5 / flow.window
        if flow.acked >= flow.segments:
            self.finish(flow)
        elif self.now < self.end:
            self.send(flow)

    def timeout(self, flow: _Flow, heard: int) -> None:
        if flow.heard_ns == heard and flow.outstanding and self.now < self.end:
            flow.again += [segment for segment, _ in flow.outstanding]
            flow.outstanding.clear()
            flow.window, flow.threshold = 2.0, max(2.0, flow.window / 2)
            self.send(flow)

    def finish(self, flow: _Flow) -> None:
        if flow.channel < 0:
            seconds = (self.now - flow.start_ns) / 1e9
            done = {"type": "done", "received_bytes": flow.size, "complete": True, "seconds": seconds}
            (self.run.logs / "transfer-receive.out").write_text(json.dumps(done) + "\n")
        elif self.now < self.end:
            client = f"i{flow.channel % 6 + 1}"
            self.flow_lines[client].append(
                f"{flow.channel},{flow.number},{flow.ends[0]}:{PORT},{flow.size},{flow.size},{flow.start_ns},"
                f"{flow.start_ns + 500_000_000 + 2 * flow.one_way_ns},{flow.start_ns + 10**9 + 4 * flow.one_way_ns},"
                f"{self.now},completed"
            )
            self.start_flow(self.now, flow.channel, flow.number + 1)

    def ping(self, t: int, src: str, identifier: int, sequence: int) -> None:
        out = self.cross(t, 84, ("echo", src, "10.20.1.1", 8, identifier, sequence))
        if out is None:
            self.rtts.append({"type": "lost", "target": "is", "seq": sequence})
            return
        world = self.back(out + 60_000, ("echo", "10.20.1.1", src, 0, identifier, sequence))
        if identifier == 4711:
            self.rtts.append(
                {"type": "reply", "target": "is", "seq": sequence, "sent_ns": t, "rtt_ns": world - t + 340_000}
            )

    def count(self) -> None:
        waiting = sum(held for begins, held in self.queue if begins > self.now)
        direction = {**self.figures, "oversize_packets": 0, "queue_bytes": waiting, "queue_max_bytes": self.queue_max}
        direction |= {"held_packets": 0, "lateness_max_ns": 90_000}
        self.write_box({"type": "counters", "t_ns": self.now, "to_island": direction, "to_world": direction})
        self.peak = max(self.peak, self.queue_max)
        self.queue_max = waiting
        if self.now < self.end + 2 * 10**9:
            self.at(self.now + 100_000_000, self.count)

    # Files

    def write_box(self, line: dict[str, Any]) -> None:
        with (self.run.path / "link.jsonl").open("a") as file:
            file.write(json.dumps({"box": "sat", **line}) + "\n")

    def write(self) -> None:
        mark = {
            **self.figures,
            "oversize_packets": 0,
            "queue_bytes": 0,
            "queue_max_bytes": self.peak,
            "held_packets": 0,
            "lateness_max_ns": 240_000,
            "lateness_p99_ns": 61_000,
            "lateness_histogram": [[61_000, 990], [250_000, 10]],
            "sojourn_max_ns": self.sojourn_max,
            "sojourn_histogram": [[self.sojourn_max, 1]],
            "scheduled_windows_over_rate": 0,
        }
        for name in ("begin", "end"):
            line = {"type": "mark", "mark": name, "id": 1, "t_ns": self.now, "overloaded": False}
            self.write_box({**line, "to_island": mark, "to_world": mark})
        with (self.run.logs / "ping.out").open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.rtts)
        header = "channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome\n"
        for client, lines in self.flow_lines.items():
            (self.run.logs / f"flows-{client}.csv").write_text(header + "".join(line + "\n" for line in lines))
            (self.run.logs / f"load-{client}.out").write_text(
                json.dumps({"type": "started", "t_ns": START_NS})
                + "\n"
                + json.dumps(
                    {"type": "done", "flows_completed": len(lines), "fairness": 0.993, "longest_wait_ns": 4_200_000}
                )
                + "\n"
            )
        for name, frames in self.frames.items():
            writer = PcapWriter(self.run.captures / f"{name}.pcap")
            for t, _, (kind, *fields) in sorted(frames, key=lambda item: item[:2]):
                getattr(writer, kind)(t, *fields)
            writer.close()
            write_capture_log(self.run, name, writer.packets)

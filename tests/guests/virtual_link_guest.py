# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_link in the kernel for virtual time: the same trains of packets through every kind of link.

``python -m tests.guests.virtual_link_guest`` prints, by train and kind of link, when each packet was sent and when it
arrived (ns of one clock), and what the link counted. Nothing takes time there but what is waited for.
"""

import contextlib
import ctypes
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from atoll_controller.planner.link_config import direction_config
from atoll_core.experiment.experiment import Bernoulli, Counted, Link, LinkDirection, LowPriority
from atoll_core.lab.box_kind import LINK
from atoll_core.lab.network import MTU, ChainBox, DelayBox, Interface, LatencyClass
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tc_settings import VIRTUAL_SLACK, TcSettings, delay_settings, link_settings
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary

PR_SET_TIMERSLACK = 29  # linux/prctl.h
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h
_SO_RCVBUFFORCE = 33
_CLONE_NEWNET = 0x40000000
ANSWER_S = 60
ETHERTYPE = 0x88B5  # for experiments (IEEE Std 802)
HEADER = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01"

DIRECTION = LinkDirection(Rate.parse("8 Mbit/s"), Duration.parse("20 ms"), Size.parse("30 kB"))
FAST = replace(DIRECTION, rate=Rate.parse("320 Mbit/s"), queue=Size.parse("2 MB"))
SHARED = replace(DIRECTION, low_priority=LowPriority(Size.parse("6 kB")))
# A frame, after which the engine leaves what comes in the ring for 4 ms, and 1000 at once 0.5 ms later.
_WAITING = ((0, 46), *((500_000, 46) for _ in range(1000)))
CLASSES = {101: "5 ms", 102: "20 ms", 103: "90 ms"}
"""Of the delay box: RTTs by VLAN."""
KINDS = ("tc", "engine", "kernel")  # of links: the kernel's, ours, ours with departures left to the kernel


@contextlib.contextmanager
def inside(name: str) -> Generator[None]:
    """This process in a named network namespace for a while; sockets it opens there stay there."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    ctypes.CDLL(None).setns(there, _CLONE_NEWNET)
    try:
        yield
    finally:
        ctypes.CDLL(None).setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)


@dataclass(frozen=True)
class Train:
    """Packets by how long after the start they are sent (ns), and their bytes; the link they are sent through."""

    direction: LinkDirection
    packets: tuple[tuple[int, int], ...]


def trains() -> dict[str, Train]:
    """One of every size that never fills the queue, the same with losses, one that fills the queue, a fast one."""
    draw = random.Random(1)
    mixed: list[tuple[int, int]] = []
    at_ns = 0
    for _ in range(400):
        at_ns += draw.choice((0, 0, 200_000, 1_000_000, 9_000_000))
        mixed.append((at_ns, draw.choice((46, 100, 576, 1500))))
    full = tuple((number * 1_100_000, MTU) for number in range(400))  # 1500 bytes last 1.5 ms
    fast = tuple((number // 8 * 280_000, MTU) for number in range(2000))  # bursts of eight, 343 Mbit/s
    lossy = replace(DIRECTION, loss=Bernoulli(0.3))
    return {
        "mixed": Train(DIRECTION, tuple(mixed)),
        "lossy": Train(lossy, tuple(mixed)),
        "full": Train(DIRECTION, full),
        "fast": Train(FAST, fast),
    }


@dataclass(frozen=True)
class MarkedPacket:
    """An IP packet: how long after the start it is sent (ns), its bytes, its version, and whether it is marked LE."""

    offset_ns: int
    bytes: int
    version: int
    is_le: bool


def marked_packets() -> tuple[MarkedPacket, ...]:
    """Load for both queues of ``SHARED``: the second one fills, the first one does not."""
    draw = random.Random(2)
    packets: list[MarkedPacket] = []
    at_ns = 0
    for _ in range(600):
        at_ns += draw.choice((0, 200_000, 1_000_000, 1_500_000))
        is_le = draw.random() < 0.5
        packets.append(MarkedPacket(at_ns, draw.choice((100, 576, 1500)), draw.choice((4, 6)), is_le))
    return tuple(packets)


def low_priority(kind: str) -> dict[str, Any]:
    """Packets, some of them marked LE, through a link with a queue for those."""
    packets = marked_packets()
    with _link(kind, SHARED) as box, stamped("island", "island0") as sink:
        sent = send_frames((packet.offset_ns, _ip_frame(number, packet)) for number, packet in enumerate(packets))
        time.sleep(1)
        arrived = {
            struct.unpack_from("!I", frame, _number_at(frame))[0]: stamp
            for frame, stamp in frames(sink)
            if struct.unpack_from("!H", frame, 12)[0] in _ETHERTYPES_IP
        }
        return {"sent": sent, "arrived": [arrived.get(number) for number in range(len(sent))], "mark": mark(box)}


_ETHERTYPES_IP = {0x0800: 20, 0x86DD: 40}
"""Of IPv4 and IPv6, with the bytes of their headers."""


def _ip_frame(number: int, packet: MarkedPacket) -> bytes:
    traffic_class = (1 << 2 if packet.is_le else 0) | number % 4  # DSCP, and an ECN field that must not matter
    if packet.version == 4:
        addresses = bytes((192, 0, 2, 1, 192, 0, 2, 2))  # RFC 5737
        header = struct.pack("!BBHHHBBH8s", 0x45, traffic_class, packet.bytes, 0, 0, 64, 253, 0, addresses)
        ether_type = 0x0800
    else:
        words = 6 << 28 | traffic_class << 20
        header = struct.pack("!IHBB32s", words, packet.bytes - 40, 59, 64, bytes(32))
        ether_type = 0x86DD
    payload = bytes(packet.bytes - len(header) - 4)
    return HEADER + struct.pack("!H", ether_type) + header + struct.pack("!I", number) + payload


def _number_at(frame: bytes) -> int:
    return 14 + _ETHERTYPES_IP[struct.unpack_from("!H", frame, 12)[0]]


def measure(kind: str, train: Train) -> dict[str, Any]:
    """A train through a link."""
    with _link(kind, train.direction) as box, stamped("island", "island0") as sink:
        sent = send(train.packets)
        time.sleep(1)
        arrived = dict(arrivals(sink))
        return {"sent": sent, "arrived": [arrived.get(number) for number in range(len(sent))], "mark": mark(box)}


def classes(kind: str) -> dict[int, list[int]]:
    """By VLAN, how long frames took there and back through a delay box (ns): twenty, one after the other."""
    took: dict[int, list[int]] = {}
    with _delay_box(kind), stamped("trunk", "trunk0") as port:
        for vlan in CLASSES:
            sent: list[int] = []
            for number in range(20):
                sent.append(time.time_ns())
                port.send(HEADER + struct.pack("!HHHI", 0x8100, vlan, ETHERTYPE, number) + bytes(96))
                time.sleep(0.1)
            arrived = dict(arrivals(port))
            took[vlan] = [arrived[number] - instant for number, instant in enumerate(sent)]
    return took


def backlog(kind: str) -> dict[str, Any]:
    """Far more frames than the engine reads at once wait in its ring when a change, a mark and the end come.

    The link is so fast that all are in propagation when the delay changes.
    """
    one_way = {"rate_bit_s": 10**10, "delay_ns": 20_000_000, "queue_bytes": 2_000_000}
    config = {"world": "sat-w", "island": "sat-i", **_engine(kind), "to_island": one_way, "to_world": one_way}
    with running_box("link", config) as box, stamped("island", "island0") as sink:
        sent = send(_WAITING)
        time.sleep(0.0005)
        changed = ask(box, {"op": "set", "id": 1, "to_island": {**one_way, "delay_ns": 60_000_000}})
        time.sleep(1)
        arrived = dict(arrivals(sink))
        found = {"sent": sent, "arrived": [arrived.get(number) for number in range(len(sent))]}
        found |= {"changed": changed, "mark": mark(box)}
        send(_WAITING)
        time.sleep(0.0005)
        found["next_mark"] = mark(box)
        time.sleep(1)
        mark(box)
        send(_WAITING)
        time.sleep(0.0005)
        return {**found, "done": _end(box)["to_island"]}


def overloads(direction: LinkDirection) -> list[bool]:
    """Whether a link of tc's whose netem has room for two packets was overloaded: by a train, and after it."""
    settings = tc_link(direction).config
    limit = settings["link"]["to_island"]["delay"]["limit_packets"]
    config = json.loads(re.sub(rf"\b{limit}\b", "2", json.dumps(settings)))
    with running_box("tc", config) as box:
        send(trains()["full"].packets[:40])
        time.sleep(0.1)
        by_train = mark(box)["overloaded"]
        time.sleep(0.1)
        return [by_train, mark(box)["overloaded"]]


def send(packets: tuple[tuple[int, int], ...], source: str = "world") -> list[int]:
    """Packets by how long after the start they are sent (ns), and their bytes; returns when they were."""
    return send_frames(
        (
            (offset_ns, HEADER + struct.pack("!HI", ETHERTYPE, number) + bytes(packet_bytes - 4))
            for number, (offset_ns, packet_bytes) in enumerate(packets)
        ),
        source,
    )


def send_frames(made: Iterable[tuple[int, bytes]], source: str = "world") -> list[int]:
    """Frames by how long after the start they are sent (ns); returns when they were."""
    with inside(source), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as port:
        port.bind((f"{source}0", 0))
        whole = list(made)
        begin_ns = time.time_ns() + 100_000_000
        sent: list[int] = []
        for offset_ns, frame in whole:
            wait_ns = begin_ns + offset_ns - time.time_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            sent.append(time.time_ns())
            port.send(frame)
        return sent


@contextlib.contextmanager
def stamped(namespace: str, interface: str) -> Generator[socket.socket]:
    """A port that receives every frame with the kernel's stamp."""
    with inside(namespace):
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with port:
        port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        port.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        port.bind((interface, 0))
        port.setblocking(False)
        yield port


def arrivals(port: socket.socket) -> Iterator[tuple[int, int]]:
    """Number and stamp of what has arrived and was not sent from here."""
    for frame, stamp in frames(port):
        if struct.unpack_from("!H", frame, 12)[0] == ETHERTYPE:
            yield struct.unpack_from("!I", frame, 14)[0], stamp


def frames(port: socket.socket) -> Iterator[tuple[bytes, int]]:
    """Frame and stamp of what has arrived and was not sent from here."""
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, control, _, address = port.recvmsg(2048, 256)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            stamps = [data for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)]
            seconds, nanoseconds = struct.unpack("qq", stamps[0])
            yield frame, seconds * 10**9 + nanoseconds


def furnish() -> None:
    """Machines world, island and trunk, each by a cable to the machine in the middle, box."""
    run("for ns in world island trunk box; do ip netns add $ns; done")
    for name, interface in (("world", "sat-w"), ("island", "sat-i"), ("trunk", "delay-t")):
        run(
            f"""ip link add name {name}0 netns {name} type veth peer name {interface} netns box
            ip netns exec {name} ethtool -K {name}0 tso off gso off gro off tx off
            ip netns exec box ethtool -K {interface} tso off gso off gro off tx off
            for ns in {name} box; do ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1; done
            ip -n {name} link set {name}0 promisc on up; ip -n box link set {interface} promisc on up"""
        )


def run(command: str) -> str:
    return subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def running_box(subcommand: str, config: dict[str, Any]) -> Generator[subprocess.Popen[str]]:
    """``atoll-host SUBCOMMAND`` between the machines. Raises RuntimeError with what it said if it ends too early."""
    argv, pipe = ["ip", "netns", "exec", "box", str(find_binary()), subcommand], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        _tell(process, config)
        line_of(process, "ready")
        yield process
        if not process.stdin.closed:
            _end(process)


def tc_link(direction: LinkDirection) -> TcSettings:
    """A link of the kernel's, with this direction both ways."""
    return link_settings(chain_box(), Link("sat", direction, direction, Counted.IP), VIRTUAL_SLACK)


def chain_box() -> ChainBox:
    """The link that is tried."""
    world, island = (Interface(name, "02:a7:00:00:00:01", PortRef("s", 1)) for name in ("sat-w", "sat-i"))
    return ChainBox("sat", LINK, world, island)


def delay_box() -> DelayBox:
    """The delay box that is tried, with a class for each of CLASSES."""
    known = tuple(LatencyClass(f"c{vlan}", vlan, Duration.parse(rtt), Duration(0)) for vlan, rtt in CLASSES.items())
    return DelayBox("delay", Interface("delay-t", "02:a7:00:00:00:02", PortRef("s", 2)), Rate.parse("1 Gbit/s"), known)


def _link(kind: str, direction: LinkDirection) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    if kind == "tc":
        return running_box("tc", tc_link(direction).config)
    one_way = direction_config(direction)
    ends = {"world": "sat-w", "island": "sat-i"}
    return running_box("link", {**ends, **_engine(kind), "to_island": one_way, "to_world": one_way})


def _delay_box(kind: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    box = delay_box()
    if kind == "tc":
        return running_box("tc", delay_settings(box).config)
    assert box.trunk
    known = [{"vlan": each.vlan, "delay_ns": each.rtt.ns // 2} for each in box.classes]
    return running_box("delay", {"trunk": box.trunk.name, **_engine(kind), "classes": known})


def _engine(kind: str) -> dict[str, Any]:
    return {"mtu": MTU, "seed": 1, "departures": kind}


def mark(box: subprocess.Popen[str]) -> dict[str, Any]:
    """What has passed to the island since the mark before."""
    return ask(box, {"op": "mark", "id": 1})["to_island"]


def ask(box: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any]:
    """The box's answer to a request."""
    _tell(box, request)
    return line_of(box, request["op"])


def _end(box: subprocess.Popen[str]) -> dict[str, Any]:
    assert box.stdin is not None
    box.stdin.close()
    return line_of(box, "done")


def _tell(box: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert box.stdin is not None
    box.stdin.write(json.dumps(message) + "\n")
    box.stdin.flush()


def line_of(box: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """The box's next line of a type. Raises RuntimeError, with all that it said, when there is none in a minute."""
    assert box.stdout is not None
    assert box.stderr is not None
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(ANSWER_S)
    try:
        for line in box.stdout:
            message = json.loads(line)
            if message["type"] == kind:
                return message
        how = "ended"
    except TimeoutError:
        box.kill()
        how = f"ran for {ANSWER_S} s"
    finally:
        signal.alarm(0)
    raise RuntimeError(f"the box {how} without {kind!r}: {box.stderr.read()}")


def _too_late(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    """Measure, and write what was found."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # trains leave to the nanosecond
    furnish()
    links = {name: {kind: measure(kind, train) for kind in KINDS} for name, train in trains().items()}
    waiting = {kind: backlog(kind) for kind in ("engine", "kernel")}
    overloaded = {name: overloads(train.direction) for name, train in trains().items() if name in ("mixed", "lossy")}
    found = {"links": links, "classes": {kind: classes(kind) for kind in KINDS}, "waiting": waiting}
    shared = {kind: low_priority(kind) for kind in KINDS}
    print(json.dumps({**found, "overloaded": overloaded, "shared": shared}))


if __name__ == "__main__":
    main()

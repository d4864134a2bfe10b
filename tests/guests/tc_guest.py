# SPDX-License-Identifier: Apache-2.0
"""Run by test_tc_backend in a kernel that has netem: links and delay boxes of the kernel's, measured frame by frame.

``python -m tests.guests.tc_guest RESULTS.json``. Everything happens in this one process, with frames on both sides of
a box, so what is measured is between two readings of one clock.
"""

import contextlib
import ctypes
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.experiment.experiment import Bernoulli, Counted, Jitter, JitterShape, Link, LinkDirection, Where
from atoll_core.lab import box_kind
from atoll_core.lab.network import ChainBox, DelayBox, Interface, LatencyClass
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tc_settings import TcSettings, delay_settings, link_settings
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary

_CLONE_NEWNET = 0x40000000
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_ETHERTYPE = 0x88B5  # for experiments (IEEE Std 802)
_MACS = {"a": b"\x02\0\0\0\0\x01", "b": b"\x02\0\0\0\0\x02"}
_libc = ctypes.CDLL(None, use_errno=True)

DIRECTION = LinkDirection(Rate.parse("8 Mbit/s"), Duration.parse("20 ms"), Size.parse("30 kB"))
LINK = Link("sat", DIRECTION, replace(DIRECTION, rate=Rate.parse("100 Mbit/s")), Counted.IP)
CLASSES = {101: "5 ms", 102: "20 ms", 103: "90 ms"}
PACKET = 1500


@contextlib.contextmanager
def inside(name: str) -> Generator[None]:
    """This process in a named network namespace for a while; sockets it opens there stay there."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    _libc.setns(there, _CLONE_NEWNET)
    try:
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)


class Side:
    """A machine at one side of a box, sending and receiving raw frames."""

    def __init__(self, namespace: str, interface: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        self._socket.bind((interface, 0))

    def send(self, number: int, packet_bytes: int, vlan: int | None = None) -> None:
        """One frame whose payload is ``packet_bytes`` long and begins with its number."""
        tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
        head = _MACS["b"] + _MACS["a"] + tag + struct.pack("!H", _ETHERTYPE)
        self._socket.send(head + struct.pack("!I", number) + bytes(packet_bytes - 4))

    def receive(self, limit_s: float) -> int | None:
        """The number of the next frame that arrives; None if none does in time."""
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                frame, address = self._socket.recvfrom(2048)
            except TimeoutError:
                return None
            if address[2] != socket.PACKET_OUTGOING and struct.unpack_from("!H", frame, 12)[0] == _ETHERTYPE:
                return struct.unpack_from("!I", frame, 14)[0]
        return None

    def drain(self, quiet_s: float) -> int:
        """How many frames arrive until none has for a while."""
        count = 0
        while self.receive(quiet_s) is not None:
            count += 1
        return count


class Box:
    """A running ``atoll-host tc`` in the namespace ``box``."""

    def __init__(self, config: dict[str, Any]) -> None:
        argv = ["ip", "netns", "exec", "box", str(find_binary()), "tc"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._ask(config)
        self.counters: list[dict[str, Any]] = []
        self._answer("ready")

    def mark(self) -> dict[str, Any]:
        """End a measurement."""
        self._ask({"op": "mark", "id": 1})
        return self._answer("mark")

    def request(self, op: str) -> dict[str, Any]:
        """Ask for something by name alone."""
        self._ask({"op": op, "id": 2})
        return self._answer(op)

    def end(self) -> str:
        """Close its input; what it said on standard error."""
        _, said = self._process.communicate(timeout=10)
        return said

    def _ask(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _answer(self, kind: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
            self.counters.append(message)
        raise RuntimeError(self.end())


def refused(config: dict[str, Any]) -> dict[str, Any]:
    """How a box ends that does not get what it wants."""
    argv = ["ip", "netns", "exec", "box", str(find_binary()), "tc"]
    done = subprocess.run(argv, input=json.dumps(config) + "\n", capture_output=True, text=True, check=False)
    return {"status": done.returncode, "said": done.stderr, "left": left_behind()}


def left_behind() -> list[str]:
    """Queueing disciplines and ifb devices in the box's namespace."""
    said = _run("tc -n box qdisc show; ip -n box -o link show type ifb")
    return [line for line in said.splitlines() if "noqueue" not in line]


def _run(command: str) -> str:
    return subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=True).stdout


def furnish() -> None:
    """Machines world, island and trunk, each by a cable to the machine in the middle, box."""
    _run("for ns in world island trunk box; do ip netns add $ns; done")
    for name, interface in (("world", "sat-w"), ("island", "sat-i"), ("trunk", "delay-t")):
        _run(
            f"""ip link add name {name}0 netns {name} type veth peer name {interface} netns box
            ip netns exec {name} ethtool -K {name}0 tso off gso off gro off tx off
            ip netns exec box ethtool -K {interface} tso off gso off gro off tx off
            for ns in {name} box; do ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1; done
            ip -n {name} link set {name}0 promisc on up; ip -n box link set {interface} promisc on up"""
        )


def one_way_ms(source: Side, sink: Side, *, count: int = 20, vlan: int | None = None) -> list[float]:
    """Times of single small frames, one after the other."""
    times: list[float] = []
    for number in range(count):
        began = time.monotonic()
        source.send(number, 100, vlan)
        if sink.receive(1.0) == number:
            times.append((time.monotonic() - began) * 1e3)
    return times


def saturate(source: Side, sink: Side, rate: Rate, seconds: float) -> dict[str, Any]:
    """Full-size frames at 1.3 times the rate; a frame in ten is timed from sending to arrival."""
    gap = PACKET * 8 / rate.bit_s / 1.3
    began = time.monotonic()
    sent: dict[int, float] = {}
    arrived: dict[int, float] = {}
    while (now := time.monotonic()) < began + seconds:
        while len(sent) * gap < now - began:
            sent[len(sent)] = time.monotonic()
            source.send(len(sent) - 1, PACKET)
        while (number := sink.receive(0.0005)) is not None:
            arrived[number] = time.monotonic()
    while (number := sink.receive(0.3)) is not None:
        arrived[number] = time.monotonic()
    late_half = [instant for instant in arrived.values() if instant > began + seconds / 2]
    times = [(arrived[number] - sent[number]) * 1e3 for number in arrived if arrived[number] > began + seconds / 2]
    return {
        "sent": len(sent),
        "arrived": len(arrived),
        "in_order": list(arrived) == sorted(arrived),
        "rate_bit_s": (len(late_half) - 1) * PACKET * 8 / (max(late_half) - min(late_half)),
        "one_way_median_ms": statistics.median(times),
        "one_way_max_ms": max(times),
    }


def link_results(world: Side, island: Side) -> dict[str, Any]:
    """A link: idle, saturated, counted, asked for what it cannot do."""
    box = Box(_settings(LINK).config)
    box.mark()
    idle = {"to_island": one_way_ms(world, island), "to_world": one_way_ms(island, world)}
    idle_mark = box.mark()
    load = saturate(world, island, DIRECTION.rate, 2.0)
    load_mark = box.mark()
    answers = [box.request("set"), box.request("trace-start")]
    return {
        "idle_ms": idle,
        "idle_mark": idle_mark,
        "load": load,
        "load_mark": load_mark,
        "answers": answers,
        "counters": box.counters[-3:],
        "end": box.end(),
        "left": left_behind(),
    }


def impaired_results(world: Side, island: Side) -> dict[str, Any]:
    """A link that loses before its queue and jitters, counted as Ethernet frames."""
    jitter = Jitter(JitterShape.UNIFORM, Duration.parse("10 ms"))
    lossy = replace(DIRECTION, rate=Rate.parse("100 Mbit/s"), loss=Bernoulli(0.2, Where.BEFORE), jitter=jitter)
    box = Box(_settings(replace(LINK, to_island=lossy, counts=Counted.ETHERNET)).config)
    box.mark()
    arrived: list[int] = []
    for number in range(1000):
        world.send(number, 100)
        if number % 10 == 0:
            time.sleep(0.002)
    while (number := island.receive(0.3)) is not None:
        arrived.append(number)
    result = {"arrived": len(arrived), "in_order": arrived == sorted(arrived), "mark": box.mark()["to_island"]}
    box.end()
    return result


def delay_results(trunk: Side) -> dict[str, Any]:
    """A delay box: every class, and a VLAN that is none."""
    settings = delay_settings(delay_box())
    box = Box(settings.config)
    box.mark()
    classes = {vlan: one_way_ms(trunk, trunk, vlan=vlan) for vlan in CLASSES}
    trunk.send(0, 100, 999)
    trunk.send(0, 100)
    stray = trunk.drain(0.2)
    mark = box.mark()
    box.end()
    return {"one_way_ms": classes, "stray": stray, "mark": mark, "left": left_behind()}


def refusal_results() -> dict[str, Any]:
    """Settings the kernel refuses, and one it takes otherwise than asked for."""
    config = _settings(LINK).config
    unknown = json.loads(json.dumps(config).replace(" tbf ", " tbx "))
    other = json.loads(json.dumps(config).replace('"limit": 30000', '"limit": 40000'))
    return {"unknown": refused(unknown), "other": refused(other)}


def _settings(link: Link) -> TcSettings:
    world, island = (Interface(name, "02:a7:00:00:00:01", PortRef("s", 1)) for name in ("sat-w", "sat-i"))
    return link_settings(ChainBox("sat", box_kind.LINK, world, island), link)


def delay_box() -> DelayBox:
    """The delay box that is tried, with a class for each of CLASSES."""
    known = tuple(LatencyClass(f"c{vlan}", vlan, Duration.parse(rtt), Duration(0)) for vlan, rtt in CLASSES.items())
    return DelayBox("delay", Interface("delay-t", "02:a7:00:00:00:02", PortRef("s", 2)), Rate.parse("1 Gbit/s"), known)


def main() -> None:
    """Measure, and write what was found."""
    furnish()
    world, island, trunk = Side("world", "world0"), Side("island", "island0"), Side("trunk", "trunk0")
    results = {
        "link": link_results(world, island),
        "impaired": impaired_results(world, island),
        "delay": delay_results(trunk),
        "refusals": refusal_results(),
    }
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()

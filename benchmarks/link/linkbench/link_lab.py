# SPDX-License-Identifier: Apache-2.0
"""Machines ``world`` and ``island``, each by a cable to the box between them, and a trunk for a delay box.

    world: eth0 ── sat-w [box] sat-i ── eth0: island          world: trunk0 ── delay-t [box]

This process has to be the first of namespaces of its own: everything made here is gone when it ends.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_emulation.mininet_lab.namespaces import set_up_namespaces

ADDRESSES = {"world": "10.0.0.1", "island": "10.0.0.2"}
BOX_PORTS = {"world": "sat-w", "island": "sat-i"}
TRUNK = "delay-t"

# TCP may fill 2 MB of queue and 40 ms of 320 Mbit/s; its limits count the kernel's overhead, too.
_BUFFERS = "4096 131072 33554432"


@dataclass(frozen=True, slots=True)
class LabPort:
    """An interface, in a named network namespace or in this process's own."""

    netns: str | None
    interface: str

    def json(self) -> dict[str, Any]:
        """As the probe's configuration has it."""
        return {"netns": f"/run/netns/{self.netns}" if self.netns else None, "interface": self.interface}

    def received(self) -> int:
        """Frames that have arrived, by the kernel's count."""
        where = ["-n", self.netns] if self.netns else []
        done = subprocess.run(
            ["ip", *where, "-j", "-s", "link", "show", self.interface], capture_output=True, check=True, text=True
        ).stdout
        return int(json.loads(done)[0]["stats64"]["rx"]["packets"])


WORLD = LabPort("world", "eth0")
ISLAND = LabPort("island", "eth0")
AT_BOX_FROM_WORLD = LabPort(None, "sat-w")
AT_BOX_FROM_ISLAND = LabPort(None, "sat-i")
TRUNK_HOST = LabPort("world", "trunk0")
TRUNK_BOX = LabPort(None, TRUNK)


def build() -> None:
    """Make all of it. Frames are of wire size everywhere, and nothing talks by itself."""
    set_up_namespaces()
    for name in ADDRESSES:
        _ip(f"netns add {name}")
        _still(name)
        _cable(name, "eth0", BOX_PORTS[name])
    _cable("world", "trunk0", TRUNK)
    for name, other in (("world", "island"), ("island", "world")):
        _ip(f"-n {name} address add {ADDRESSES[name]}/24 dev eth0")
        _ip(f"-n {name} neigh replace {ADDRESSES[other]} lladdr {address(other, 'eth0')} dev eth0 nud permanent")
        for sysctl in ("tcp_rmem", "tcp_wmem"):
            inside(name, ["sysctl", "-qw", f"net.ipv4.{sysctl}={_BUFFERS}"])
        inside(name, ["sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"])


def inside(netns: str, command: Sequence[str]) -> str:
    """Run a command in a machine to its end and return its output."""
    argv = ["ip", "netns", "exec", netns, *command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def address(netns: str | None, interface: str) -> str:
    """The Ethernet address of an interface."""
    where = ["-n", netns] if netns else []
    done = subprocess.run(["ip", *where, "-j", "link", "show", interface], capture_output=True, check=True, text=True)
    return str(json.loads(done.stdout)[0]["address"])


def _still(netns: str) -> None:
    inside(netns, ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])


def _cable(netns: str, interface: str, box_port: str) -> None:
    _ip(f"link add {box_port} type veth peer name {interface} netns {netns}")
    off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off"]
    inside(netns, ["ethtool", "-K", interface, *off])
    subprocess.run(["ethtool", "-K", box_port, *off], check=True, capture_output=True)
    _ip(f"-n {netns} link set {interface} up")
    _ip(f"link set {box_port} up promisc on")


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True)


def scratch() -> Path:
    """A directory in memory that ends with this process's mount namespace."""
    directory = Path("/run/linkbench")
    directory.mkdir(exist_ok=True)
    return directory

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 -- the methods' names are Mininet's
"""Mininet node and link classes of the emulated lab, and the process with the twins of its switches.

Mininet makes each cable with several commands of its own. Here its classes only record the cables, and
:func:`make_cables` makes all of them with one ``ip -batch`` and a few ioctls per machine.
"""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_emulation.mininet_lab import netdev
from atoll_emulation.mininet_lab.mininet_api import (
    Intf,
    Mininet,
    MininetHost,
    MininetLink,
    Node,
    OVSIntf,
    OVSSwitch,
    RemoteController,
)
from atoll_emulation.mininet_lab.topology import LabTopo


class TwinProcess:
    """The running process; ``ports``: where the bridge of each switch with a twin connects."""

    def __init__(self, network: Network, first_port: int, controller_port: int) -> None:
        """Start it. It ends when this process does."""
        switches = [switch for switch in network.switches if switch.twin is not None]
        self.ports = {switch.name: port for port, switch in enumerate(switches, start=first_port)}
        twins = [
            {
                "switch": switch.name,
                "driver": switch.driver,
                "port": self.ports[switch.name],
                "settings": to_json(switch.twin),
            }
            for switch in switches
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "atoll_emulation.twin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
        )
        self._write({"controller": controller_port, "twins": twins})

    def command(self, switch: str, words: list[str]) -> None:
        """``reboot`` or ``disconnect SECONDS``. Raises LabError for anything else, and for a switch without a twin."""
        if switch not in self.ports:
            names = ", ".join(self.ports)
            raise LabError(f"{switch} has no twin (`twin` in lab.yaml); switches that have one: {names}")
        match words:
            case ["reboot"]:
                self._write({"op": "reboot", "switch": switch})
            case ["disconnect", seconds] if seconds.replace(".", "", 1).isdigit():
                self._write({"op": "disconnect", "switch": switch, "for_s": float(seconds)})
            case _:
                known = "reboot, or disconnect and a number of seconds"
                raise LabError(f"{' '.join(words) or 'nothing'!r} is no command of a twin; write {known}")

    def _write(self, message: object) -> None:
        """Write a line at once: shells of the lab are forks of its server, and write here, too."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")


CONTROLLER_PORT = 6653
TWIN_PORT = 16653
"""The port of the first twin, on 127.0.0.1; of each other one the next."""


_PROMPT = chr(127)  # by which Mininet knows that a command has ended


class _NodeShell(Node):
    """A node with Mininet's shell, which starts with two program starts instead of five."""

    def startShell(self, mnopts: str | None = None) -> None:
        """Start bash on a terminal without echo, in a namespace of its own if the node has one.

        Mininet starts ``env`` and ``stty`` and searches PATH for each; none of them is needed here.
        """
        options = (mnopts or "-cd") + ("n" if self.inNamespace else "")
        bash = [shutil.which("bash") or "bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.master, self.slave = pty.openpty()
        _disable_echo(self.slave)
        terminal = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        environment = {**os.environ, "PS1": _PROMPT}
        argv = [shutil.which("mnexec") or "mnexec", options, *bash]
        self.shell = self._popen(argv, **terminal, close_fds=False, env=environment)
        self.pid = self.shell.pid
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.execed, self.lastCmd, self.lastPid, self.readbuf = False, None, None, ""
        while not self.read(1024).endswith(_PROMPT):
            self.pollOut.poll()
        self.waiting = False
        self.cmd("unset HISTFILE; set +m")


def _disable_echo(terminal: int) -> None:
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO  # the local modes (termios(3))
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


class MachineNode(_NodeShell, MininetHost):
    """A machine: a network namespace and a shell. The agent sets its addresses and routes."""

    @classmethod
    def setup(cls) -> None:
        """Do nothing: host_requirements checked the machine before the lab was started."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Record the address, so that ``i1 ping w1`` works on the command line; configure nothing."""
        interface, address = self.defaultIntf(), params.get("ip")
        if interface is not None and address:
            interface.ip, interface.prefixLen = address.split("/")
        return {}


class LabSwitch(_NodeShell, OVSSwitch):
    """An Open vSwitch bridge that forwards by its flow entries only and keeps them without a controller.

    One in fail mode ``standalone`` has no controller at all: it is a learning switch (ovs-vsctl(8)).
    ``twin_port``: where the twin of its hardware is, if it has one.
    """

    twin_port: int | None = None

    def start(self, controllers: Any) -> None:
        """Start the bridge, with its twin instead of the controllers if it has one."""
        if self.failMode == "standalone":
            controllers = []
        super().start(controllers if self.twin_port is None else [_TwinAddress(self.twin_port)])

    @classmethod
    def setup(cls) -> None:
        """Do nothing: the lab started its own Open vSwitch."""

    @classmethod
    def isOldOVS(cls) -> bool:
        """Return False: Open vSwitch is newer than 1.10 (2013)."""
        return False

    def dpctl(self, *args: str) -> str:
        """Run ovs-ofctl with the switch's OpenFlow version; the command line's ``dpctl``."""
        return self.cmd("ovs-ofctl", "--protocols=OpenFlow13", args[0], self.name, *args[1:])


@dataclass(frozen=True, slots=True)
class _TwinAddress:
    """A twin, which its bridge takes for its controller."""

    port: int
    name: str = "twin"
    protocol: str = "tcp"

    def IP(self) -> str:
        """Return the address."""
        return "127.0.0.1"


class ControllerNode(_NodeShell, RemoteController):
    """The controller's address. It need not listen yet: switches retry every second."""

    @classmethod
    def setup(cls) -> None:
        """Do nothing."""

    def checkListening(self) -> None:
        """Do nothing. Mininet's method starts telnet twice."""


class _CableEnd(Intf):
    """One end of a cable, made by :func:`make_cables`."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Do nothing: :func:`make_cables` configures all ends."""
        del params
        return {}


class Cable(MininetLink):
    """A veth pair, made by :func:`make_cables`; between switches a pair of patch ports, which Open vSwitch joins."""

    def makeIntfPair(self, *ends: Any, **options: Any) -> None:
        """Do nothing: :func:`make_cables` makes the pair, and patch ports have no Linux interfaces."""
        del ends, options


class _PatchEnd(OVSIntf):
    """One end of a trunk: a port of Open vSwitch without a Linux interface."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Do nothing."""
        del params
        return {}

    def status(self) -> str:
        """Return the state that the command line's ``links`` prints."""
        return "OK" if self.node.cmd("ovs-vsctl get Interface", self.name, "ofport").strip().isdigit() else "MISSING"


class LabNet(Mininet):
    """Mininet on a LabTopo with the classes above; ``build()``, then :func:`make_cables`, then ``start()``.

    ``datapath`` is Mininet's word: "user" or "kernel".
    """

    def __init__(self, topo: LabTopo, datapath: str) -> None:
        self.datapath = datapath
        self.twins: TwinProcess | None = None
        Mininet.inited = True  # or it would raise limits of the whole machine, such as fs.file-max
        super().__init__(
            topo=topo, switch=LabSwitch, host=MachineNode, controller=None, link=Cable, intf=_CableEnd, build=False
        )
        self.addController("controller", ControllerNode, ip="127.0.0.1", port=CONTROLLER_PORT)

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> OVSSwitch:
        """Add a switch, on the datapath the lab has."""
        return super().addSwitch(name, cls, **{"datapath": self.datapath, **params})

    def set_twin(self, name: str, port: int) -> None:
        """Let a switch, before it is started, connect to its twin."""
        for switch in self.switches:
            if switch.name == name and isinstance(switch, LabSwitch):
                switch.twin_port = port

    def addLink(self, node1: str | Node, node2: str | Node, **params: Any) -> MininetLink:
        """Add a cable; between switches a pair of patch ports (docs/decisions/0007)."""
        end1, end2 = (self[end] if isinstance(end, str) else end for end in (node1, node2))
        if isinstance(end1, OVSSwitch) and isinstance(end2, OVSSwitch):
            params["intf"] = _PatchEnd
        return super().addLink(end1, end2, **params)


def command_twin(net: LabNet, switch: str, words: list[str]) -> None:
    """Give a command to the twin of a switch. Raises LabError."""
    if net.twins is None:
        raise LabError("no switch of this lab has a twin (`twin` in lab.yaml)")
    net.twins.command(switch, words)


def make_cables(net: LabNet) -> None:
    """Make every cable that ends at a machine: full-size frames only, no IPv6, up. Raises LabError."""
    cables = [link for link in net.links if isinstance(link.intf1, _CableEnd)]
    result = subprocess.run(
        ["ip", "-batch", "-"], input=pair_commands(cables), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise LabError(f"the lab's cables could not be made: {result.stderr.strip()}")
    for machine in net.hosts:
        with netdev.in_namespace_of(machine.pid):
            netdev.disable_ipv6()
            netdev.set_up("lo")
            for end in machine.intfList():
                netdev.disable_offloads(end.name)
                netdev.set_up(end.name)
    for cable in cables:
        netdev.disable_offloads(cable.intf2.name)
        netdev.set_up(cable.intf2.name)


def pair_commands(cables: Iterable[MininetLink]) -> str:
    """Return the ``ip -batch`` commands that make the veth pairs and move each machine's end to the machine.

    Both ends have the MTU of the machine's: a frame that is longer than the receiving end's is dropped.
    """
    return "".join(
        f"link add name {cable.intf2.name} address {cable.intf2.mac} mtu {mtu} type veth "
        f"peer name {cable.intf1.name} address {cable.intf1.mac} mtu {mtu} netns {cable.intf1.node.pid}\n"
        for cable in cables
        for mtu in [cable.intf1.params["mtu"]]
    )

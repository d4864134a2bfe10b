# SPDX-License-Identifier: Apache-2.0
"""The process inside the lab that builds it and then answers requests of the daemon (docs/contracts.md, "Lab init")."""

import base64
import json
import os
import select
import struct
import sys
import traceback
from dataclasses import asdict
from typing import Any, NoReturn

from atoll_core.codec import from_json
from atoll_core.errors import AtollError, LabError, plain
from atoll_core.lab.network import Network
from atoll_core.plural import counted
from atoll_emulation.mininet_lab import open_vswitch
from atoll_emulation.mininet_lab.mininet_shell import Script, TerminalSession
from atoll_emulation.mininet_lab.netdev import in_namespace_of
from atoll_emulation.mininet_lab.nodes import CONTROLLER_PORT, TWIN_PORT, LabNet, TwinProcess, command_twin, make_cables
from atoll_emulation.mininet_lab.topology import LabTopo
from atoll_emulation.this_machine.network_state import network_state
from atoll_emulation.this_machine.packet_sockets import packet_sockets_of, set_receive_buffers

# Of each port of Open vSwitch's userspace datapath: room for 1,800 frames of full size, as a switch has. The kernel's
# default holds 93, fewer than a decoder may release at once.
_PORT_BUFFER_BYTES = 4 << 20

DATAPATHS = {"kernel": "kernel", "user": "userspace"}  # Mininet's word: Open vSwitch's and ours


class _JsonLines:
    """JSON lines on standard input and output; everything else printed goes to standard error."""

    def __init__(self) -> None:
        self._output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._pending = b""
        self._unread: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        """Write one message."""
        self._output.write(json.dumps({"type": kind, **fields}) + "\n")
        self._output.flush()

    def read(self) -> list[dict[str, Any]]:
        """Wait for input; the complete messages in it. Raises EOFError at its end."""
        data = os.read(0, 1 << 16)
        if not data:
            raise EOFError
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def next(self) -> dict[str, Any]:
        """Wait for the next message. Raises EOFError at the end of input."""
        while not self._unread:
            self._unread = self.read()
        return self._unread.pop(0)


def serve() -> NoReturn:
    """Build the lab that the first line describes, then answer requests until the lab or standard input ends."""
    lines = _JsonLines()
    try:
        network = from_json(Network, lines.next()["network"])
        switch, net = build_lab(network, lines)
        hosts = {machine.name: machine.pid for machine in net.hosts}
        lines.send("ready", hosts=hosts, datapath=DATAPATHS[net.datapath], ovs=open_vswitch.version())
        _RequestServer(lines, net, switch).serve()
    except EOFError:
        os._exit(0)
    except AtollError as error:
        lines.send("failed", message=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- Mininet raises bare Exceptions and exits on some errors
        traceback.print_exc()
        lines.send("failed", message=f"the lab could not be built: {str(error).strip() or type(error).__name__}")
    os._exit(1)


def build_lab(network: Network, lines: _JsonLines) -> tuple[open_vswitch.OpenVSwitch, LabNet]:
    """Bring up Open vSwitch, machines and cables, and when that is requested the switches; check these."""
    datapath = "kernel" if open_vswitch.kernel_has_datapath() else "user"
    lines.send("progress", text=f"Open vSwitch ({DATAPATHS[datapath]} datapath): starting it")
    switch = open_vswitch.OpenVSwitch.start()
    topo = LabTopo(network)
    parts = (("machine", topo.hosts()), ("switch", topo.switches()), ("cable", topo.links()))
    sizes = ", ".join(counted(len(names), noun) for noun, names in parts)
    lines.send("progress", text=f"{sizes}: building them")
    net = LabNet(topo, datapath)
    net.build()
    make_cables(net)
    if any(switch.twin is not None for switch in network.switches):
        net.twins = TwinProcess(network, TWIN_PORT, CONTROLLER_PORT)
        for name, port in net.twins.ports.items():
            net.set_twin(name, port)
    lines.next()  # the request to start the switches
    net.start()
    verify_switches(net)
    if datapath == "user":
        try:
            set_receive_buffers(switch.daemon.pid, _PORT_BUFFER_BYTES)
        except LabError as error:
            lines.send("progress", text=f"Open vSwitch's ports keep the kernel's small receive buffers: {error}")
    return switch, net


def verify_switches(net: LabNet) -> None:
    """Check in Open vSwitch that each port has its number and each bridge its fail mode. Raises LabError."""
    ofports, errors, fail_modes = open_vswitch.read_switch_state()
    problems: list[str] = []
    for bridge in net.switches:
        if bridge.name not in fail_modes:
            problems.append(f"{bridge.name}: there is no bridge of that name")
        elif (mode := fail_modes[bridge.name]) != bridge.failMode:
            problems.append(f"{bridge.name}: fail mode {mode}, not {bridge.failMode}")
        for interface, number in bridge.ports.items():
            if number and ofports.get(interface.name) != number:
                actual = errors.get(interface.name) or f"port {ofports.get(interface.name)}"
                problems.append(f"{bridge.name}/{number} ({interface.name}): {actual}")
    if problems:
        raise LabError("\n".join(("the switches are not as described:", *problems)))


class _RequestServer:
    """Answer requests while the lab runs: one shell at a time."""

    def __init__(self, lines: _JsonLines, net: LabNet, switch: open_vswitch.OpenVSwitch) -> None:
        self._lines = lines
        self._net = net
        self._switch = switch
        self._shell: TerminalSession | Script | None = None
        self._poll = select.poll()

    def serve(self) -> NoReturn:
        """Answer requests until Open vSwitch ends (LabError) or standard input does (EOFError)."""
        self._poll.register(0, select.POLLIN)
        twins = [self._net.twins.process] if self._net.twins is not None else []
        for process in (self._switch.database, self._switch.daemon, *twins):
            self._poll.register(os.pidfd_open(process.pid), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            end_reason = self._switch.end_reason()
            if end_reason is not None:
                raise LabError(end_reason)
            if twins and (code := twins[0].poll()) is not None:
                raise LabError(f"the twins of the switches ended (exit code {code})")
            if self._shell is not None and not ready.isdisjoint(self._shell.descriptors):
                self._forward_output(self._shell)
            if 0 in ready:
                for request in self._lines.read():
                    self.answer(request)

    def answer(self, request: dict[str, Any]) -> None:
        """Carry out a request. If it cannot be, and has an operation and an id, the answer has the reason."""
        try:
            if self._perform(request):
                return
            mistake = "unknown operation, or its fields are not as they must be"
        except (LabError, OSError) as error:
            self._lines.send(request["op"], id=request["id"], ok=False, error=plain(str(error)))
            return
        except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
            mistake = f"{type(error).__name__}: {error}"
        match request:
            case {"op": op, "id": name}:
                self._lines.send(
                    str(op), id=name, ok=False, error=plain(f"request `{op}` is not understood: {mistake}")
                )
            case _:
                sys.stderr.write(f"lab: ignored {request}\n")

    def _perform(self, request: dict[str, Any]) -> bool:
        """Carry out a request; whether it is one."""
        match request:
            case {"op": "packet-sockets", "id": name}:
                sockets = packet_sockets_of(self._switch.daemon.pid)
                counters = {interface: asdict(socket) for interface, socket in sockets.items()}
                self._lines.send("packet-sockets", id=name, sockets=counters)
            case {"op": "network-state", "id": name}:
                self._lines.send("network-state", id=name, hosts=self._network_state())
            case {"op": "twin", "id": name, "switch": switch, "words": words}:
                command_twin(self._net, switch, words)
                self._lines.send("twin", id=name)
            case {"op": "shell", "id": name} if self._shell is not None:
                self._lines.send("shell-closed", id=name, message="another shell is open on this lab")
            case {"op": "shell", "id": name, "columns": columns, "rows": rows}:
                self._begin_shell(TerminalSession.open(name, self._net, columns, rows))
            case {"op": "shell", "id": name, "script": text}:
                self._begin_shell(Script(name, self._net, text))
            case {"op": op, "id": name} if self._shell is not None and self._shell.name == name:
                return self._perform_in_shell(self._shell, op, request)
            case _:
                return False
        return True

    def _network_state(self) -> dict[str, Any]:
        hosts: dict[str, Any] = {}
        for machine in self._net.hosts:
            with in_namespace_of(machine.pid):
                hosts[machine.name] = network_state()
        return hosts

    def _begin_shell(self, shell: TerminalSession | Script) -> None:
        self._shell = shell
        for descriptor in shell.descriptors:
            self._poll.register(descriptor, select.POLLIN)

    def _perform_in_shell(self, shell: TerminalSession | Script, op: str, request: dict[str, Any]) -> bool:
        match op:
            case "shell-input" if isinstance(shell, TerminalSession):
                shell.write(base64.b64decode(request["data"]))
            case "shell-resize" if isinstance(shell, TerminalSession):
                shell.resize(request["columns"], request["rows"])
            case "shell-close":
                self._close_shell(shell)
            case _:
                return False
        return True

    def _forward_output(self, shell: TerminalSession | Script) -> None:
        output = shell.read()
        if output is None:
            self._close_shell(shell)
        elif output:
            self._lines.send("shell-output", id=shell.name, data=base64.b64encode(output).decode())

    def _close_shell(self, shell: TerminalSession | Script) -> None:
        for descriptor in shell.descriptors:
            self._poll.unregister(descriptor)
        shell.close()
        self._shell = None
        self._lines.send("shell-closed", id=shell.name)

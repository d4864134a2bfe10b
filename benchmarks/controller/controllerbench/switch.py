# SPDX-License-Identifier: Apache-2.0
"""The switch everything is installed on: Open vSwitch with three ports, and the data plane that proves entries.

This process has to be the first of namespaces of its own: everything made here is gone when it ends.
"""

import re
import select
import socket
import subprocess
import time
from collections.abc import Iterable

from atoll.model.errors import LabError
from atoll_emulation.namespaces import furnish
from atoll_emulation.ovs import OpenVSwitch
from controllerbench.entries import DPID, FROM, TAP, TRUNK, Pair

BRIDGE = "sw"
_PORTS = {FROM: "from", TRUNK: "trunk", TAP: "tap"}
_PROBE_TIMEOUT_S = 120.0
_PROBE_EVERY_S = 0.002
_ALL = 0x0003  # ETH_P_ALL
_AUXDATA, _SOL_PACKET = 8, 263  # PACKET_AUXDATA, SOL_PACKET of <linux/if_packet.h>: the tag that the kernel takes off


class Bench:
    """The bridge and the far ends of its ports."""

    def __init__(self) -> None:
        furnish()
        self._ovs = OpenVSwitch.start()
        words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        words += ["protocols=OpenFlow13", f"other-config:datapath-id={DPID:016x}"]
        for number, name in _PORTS.items():
            run("ip", "link", "add", f"{name}0", "type", "veth", "peer", "name", name)
            for end in (f"{name}0", name):
                run("ip", "link", "set", end, "up")
            words += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name, f"ofport_request={number}"]
        run("ovs-vsctl", *words)
        self._sender = _raw(f"{_PORTS[FROM]}0")
        self._receivers = {port: _raw(f"{_PORTS[port]}0") for port in (TRUNK, TAP)}
        self._probes = 0

    def connect(self, port: int) -> None:
        """Have the switch connect to the controller on that port of this machine."""
        run(
            "ovs-vsctl", "set-controller", BRIDGE, f"tcp:127.0.0.1:{port}",
            "--", "set", "controller", BRIDGE, "connection_mode=out-of-band", "max_backoff=1000",
        )  # fmt: skip

    def disconnect(self) -> None:
        """Let no controller have the switch, and empty its tables."""
        run("ovs-vsctl", "del-controller", BRIDGE)
        self.clear()

    def clear(self) -> None:
        """Empty the switch's tables."""
        ofctl("del-flows", BRIDGE)

    def count(self, table: int | None = None) -> int:
        """How many entries there are, in all tables or in one."""
        said = ofctl("dump-aggregate", BRIDGE, *([] if table is None else [f"table={table}"]))
        found = re.search(r"flow_count=(\d+)", said)
        return int(found[1]) if found else 0

    def prove(self, wanted: Iterable[Pair]) -> None:
        """Return when a frame of each pair has left by the trunk with its tag, and by the tap without one.

        Raises LabError naming the pair whose frames don't.
        """
        for pair in wanted:
            deadline = time.monotonic() + _PROBE_TIMEOUT_S
            while not self._passes(pair):
                if time.monotonic() > deadline:
                    raise LabError(f"no frame of {pair} came through within {_PROBE_TIMEOUT_S:g} s")

    def _passes(self, pair: Pair) -> bool:
        self._probes += 1
        mark = f"probe {self._probes}".encode()
        self._sender.send(pair.frame(mark))
        waited = time.monotonic() + _PROBE_EVERY_S
        expected = {TRUNK: pair.vlan, TAP: None}
        while expected and (left := waited - time.monotonic()) > 0:
            ready, _, _ = select.select([self._receivers[port] for port in expected], [], [], left)
            for port in [port for port in expected if self._receivers[port] in ready]:
                frame, vlan = _receive(self._receivers[port])
                if mark + b"\0" in frame and vlan == expected[port]:
                    del expected[port]
        return not expected


def ofctl(*words: str) -> str:
    """Run ovs-ofctl; what it printed. Raises LabError."""
    return run("ovs-ofctl", "-O", "OpenFlow13", *words)


def run(*argv: str) -> str:
    """Run a command; what it printed. Raises LabError."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise LabError(f"{' '.join(argv[:5])} failed: {first or f'exit code {done.returncode}'}")
    return done.stdout


def _raw(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    made.bind((interface, _ALL))
    made.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    return made


def _receive(taken: socket.socket) -> tuple[bytes, int | None]:
    """A frame without its tag, and the tag's VLAN id."""
    frame, ancillary, _, _ = taken.recvmsg(2048, 256)
    for level, kind, content in ancillary:
        if (level, kind) == (_SOL_PACKET, _AUXDATA):
            # struct tpacket_auxdata: status (bit 4: a tag was there), len, snaplen, mac, net, vlan_tci, vlan_tpid
            status = int.from_bytes(content[:4], "little")
            tag = int.from_bytes(content[16:18], "little")
            if status & 0x10:
                return frame, tag & 0xFFF
    if frame[12:14] == b"\x81\x00":
        return frame[:12] + frame[16:], int.from_bytes(frame[14:16]) & 0xFFF
    return frame, None

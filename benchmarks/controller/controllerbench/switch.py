# SPDX-License-Identifier: Apache-2.0
"""The switch everything is installed on: Open vSwitch with three ports, and the data plane that proves entries.

This process has to be the first of namespaces of its own: everything made here is gone when it ends.
"""

import itertools
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence

from atoll_core.errors import LabError
from atoll_emulation.mininet_lab.namespaces import set_up_namespaces
from atoll_emulation.mininet_lab.open_vswitch import OpenVSwitch
from controllerbench.entries import DPID, FROM, PROTOCOL, TAP, TRUNK, Pair

BRIDGE = "sw"
_PORTS = {FROM: "from", TRUNK: "trunk", TAP: "tap"}
_PROBE_TIMEOUT_S = 120.0
_RESEND_S = 0.02
_LOOK_S = 0.002
_UNDER_WAY = 256  # frames at a time: they fit into the queues of all ports
_PROTOCOL_AT, _PAYLOAD_AT = 14 + 9, 14 + 20  # in a frame without a tag
_RECEIVE_BUFFER = 4 << 20  # bytes
_ALL = 0x0003  # ETH_P_ALL
_AUXDATA, _SOL_PACKET = 8, 263  # PACKET_AUXDATA, SOL_PACKET of <linux/if_packet.h>: the tag that the kernel takes off


class Bench:
    """The bridge and the far ends of its ports."""

    def __init__(self) -> None:
        set_up_namespaces()
        self._ovs = OpenVSwitch.start()
        arguments = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        arguments += ["protocols=OpenFlow13", f"other-config:datapath-id={DPID:016x}"]
        for number, name in _PORTS.items():
            run("ip", "link", "add", f"{name}0", "type", "veth", "peer", "name", name)
            for end in (f"{name}0", name):
                run("ip", "link", "set", end, "up")
            arguments += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name, f"ofport_request={number}"]
        run("ovs-vsctl", *arguments)
        self._sender = _raw(f"{_PORTS[FROM]}0")
        self._receivers = {port: _raw(f"{_PORTS[port]}0") for port in (TRUNK, TAP)}
        self._rounds = 0

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
        """The number of entries in all tables or in one."""
        aggregate = ofctl("dump-aggregate", BRIDGE, *([] if table is None else [f"table={table}"]))
        match = re.search(r"flow_count=(\d+)", aggregate)
        return int(match[1]) if match else 0

    def prove(self, wanted: Sequence[Pair]) -> None:
        """Return when a frame of each pair has left by the trunk with its tag, and by the tap without one.

        A frame that has not is sent again. Raises LabError naming the first pair whose frames don't.
        """
        missing = {number: {TRUNK: pair.vlan, TAP: None} for number, pair in enumerate(wanted)}
        sent_s: dict[int, float] = {}
        ahead = iter(range(len(wanted)))
        self._rounds += 1
        deadline = time.monotonic() + _PROBE_TIMEOUT_S
        while missing:
            now = time.monotonic()
            if now > deadline:
                raise LabError(f"no frame of {wanted[next(iter(missing))]} came through within {_PROBE_TIMEOUT_S:g} s")
            due = [number for number, at in sent_s.items() if now - at > _RESEND_S][:_UNDER_WAY]
            due += itertools.islice(ahead, max(0, _UNDER_WAY - len(sent_s)))
            for number in due:
                self._sender.send(wanted[number].frame(b"%d %d" % (self._rounds, number)))
                sent_s[number] = now
            for port, number, vlan in self._arrived():
                expected = missing.get(number, {})
                if port in expected and expected[port] == vlan:
                    del expected[port]
                    if not expected:
                        del missing[number], sent_s[number]

    def _arrived(self) -> Iterator[tuple[int, int, int | None]]:
        """The frames of this round that have come: by which port, of which pair, with which tag."""
        ready, _, _ = select.select(list(self._receivers.values()), [], [], _LOOK_S)
        for port, taken in self._receivers.items():
            for _ in range(_UNDER_WAY if taken in ready else 0):
                try:
                    frame, vlan = _receive(taken)
                except BlockingIOError:
                    break
                mark = frame[_PAYLOAD_AT:].rstrip(b"\0").split()
                if frame[_PROTOCOL_AT] == PROTOCOL and len(mark) == 2 and int(mark[0]) == self._rounds:
                    yield port, int(mark[1]), vlan


def ofctl(*arguments: str) -> str:
    """Run ovs-ofctl and return its output. Raises LabError."""
    return run("ovs-ofctl", "-O", "OpenFlow13", *arguments)


def run(*argv: str) -> str:
    """Run a command and return its output. Raises LabError."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise LabError(f"{' '.join(argv[:5])} failed: {first or f'exit code {done.returncode}'}")
    return done.stdout


def _raw(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    made.bind((interface, _ALL))
    made.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    made.setblocking(False)
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

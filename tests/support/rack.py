# SPDX-License-Identifier: Apache-2.0
"""A rack out of namespaces: what `--on hardware` finds in a real one, and nothing that atoll has made.

    management network 10.99.0.0/24 (a bridge): this side 10.99.0.1, switches 10.99.0.2, machines from 10.99.0.11 on
    experiment network: cables (veth) from machines' exp0, exp1 to ports of Open vSwitch bridges; patch ports as trunks

A learning switch is a bridge of the kernel, with a cable to an Open vSwitch bridge. A physical tap is a bridge in a
cable, which sends each frame to the other end, and a copy to the capture host.

Every machine has network, mount, PID and UTS namespaces, file systems in memory where it writes, and an sshd with a
host key of its own on port 22, by which root gets in, and `tech`, who may sudo, and `guest`, who may not. Clients are
reached as `tech`, all others as root. The bridges belong to an Open vSwitch of their own; their datapath ids are not
those of lab.yaml, and they look for their controller on the management network.

Hosts with a control address have no cable in the management network, but that address on exp0. This side is attached to
the control port of the lab by ctl0, which has the first address of the control network.
"""

import json
import os
import shlex
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll_core.description.loader import load_lab
from atoll_core.lab.inventory import ISLAND, interface_slots
from atoll_core.lab.network import HostRole, Network, Tap
from tests.support.sandbox import ATOLL, ROOT, Sandbox

CONTROLLER = "10.99.0.1"
SWITCHES = "10.99.0.2"
FIRST_HOST = 11
FIRST_DPID = 0xA70000
START_S = 60.0

_SSHD_CONFIG = """Port 22
HostKey /run/host_key
PidFile /run/sshd.pid
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
MaxStartups 100
Subsystem sftp internal-sftp
"""

_MACHINE = """
set -e
mount --make-rshared /  # as systemd does
hostname $NAME
for place in /run /root /var/tmp /dev/shm; do mount -t tmpfs tmpfs $place; done
ip link set lo up
mkdir -p /run/sshd /root/.ssh
cp $RACK/keys.$NAME /run/host_key; chmod 600 /run/host_key
cp $RACK/home/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
for user in tech guest; do install -D -m 644 /root/.ssh/authorized_keys /run/$user/.ssh/authorized_keys; done
chown -R 1500 /run/tech
chown -R 1501 /run/guest
for file in passwd shadow; do mount --bind $RACK/$file /etc/$file; done
mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d
echo 'tech ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tech
cp $RACK/sshd_config /run/sshd_config
/usr/sbin/sshd -D -e -f /run/sshd_config 2>$RACK/sshd.$NAME.log &
while :; do wait || :; sleep 3600 & done
"""


_OVS = """
export OVS_RUNDIR=/run/sw OVS_DBDIR=/run/sw OVS_LOGDIR=/run/sw OVS_SYSCONFDIR=/run/sw
ovsdb-tool create /run/sw/conf.db /usr/share/openvswitch/vswitch.ovsschema
in_switches() { nsenter --net=/run/netns/switches "$@" --log-file --pidfile --detach --no-chdir; }
in_switches ovsdb-server /run/sw/conf.db --remote=punix:/run/sw/db.sock -vconsole:off
ovs-vsctl --no-wait init
in_switches ovs-vswitchd unix:/run/sw/db.sock -vconsole:off
"""


_CHECKSUMS = "ethtool -K {} tx off >/dev/null"
"""Packets of a veth pair have no checksums in userspace, where the switches are; a real NIC makes them."""

EXPERIMENT = ROOT / "tests" / "data" / "rack.yaml"
LAB = ROOT / "tests" / "data" / "rack-lab.yaml"
"""What most tests have on a rack: small, and quickly up."""


class Rack:
    """The rack of a lab's machines and switches, in a sandbox whose namespaces it fills."""

    def __init__(self, sandbox: Sandbox, network: Network) -> None:
        self.sandbox = sandbox
        self.network = network
        self.directory = sandbox.directory
        self.home = self.directory / "home"
        self.inventory = self.directory / "inventory.yaml"
        self.addresses = {name: f"10.99.0.{FIRST_HOST + i}" for i, name in enumerate(interface_slots(network))}
        self.in_band = {host.name: str(host.control) for host in network.in_band_hosts}
        self.addresses |= self.in_band

    def build(self) -> None:
        """Bring everything up; returns when every sshd listens. Skips the test where there is none."""
        if lacks := [name for name in ("sshd", "sudo") if shutil.which(name, path="/usr/sbin:/usr/bin") is None]:
            reason = f"there is no {' and no '.join(lacks)} on this machine; run: tools/setup test"
            assert not os.environ.get("ATOLL_REQUIRE_LAB"), reason
            pytest.skip(reason)
        if os.geteuid() != 0:
            pytest.skip("machines with file systems of their own take root")
        (self.home / ".ssh").mkdir(parents=True)
        (self.directory / "sshd_config").write_text(_SSHD_CONFIG)
        for file, line in (("passwd", "{0}:x:{1}:{1}::/run/{0}:/bin/bash"), ("shadow", "{0}:*:::::::")):
            people = [line.format(name, number) for name, number in (("tech", 1500), ("guest", 1501))]
            (self.directory / file).write_text(Path("/etc", file).read_text() + "\n".join([*people, ""]))
        (self.directory / "shadow").chmod(0o640)
        done = self.sandbox.run("sh", "-c", self._script(), limit_s=100)
        assert done.returncode == 0, done.stderr
        self.inventory.write_text(self.inventory_text())
        deadline = time.monotonic() + START_S
        for name in self.addresses:
            log = self.directory / f"sshd.{name}.log"
            while not (log.exists() and "Server listening" in log.read_text()):
                assert time.monotonic() < deadline, f"{name}: sshd does not listen"
                time.sleep(0.05)

    def inventory_text(self) -> str:
        """An inventory of this rack, as a technician would write it."""
        lines = [
            f"controller: {{address: {CONTROLLER}}}",
            "ssh: {user: root, known_hosts: known_hosts, identity: home/.ssh/id_ed25519}",
            "machines:",
        ]
        for name, interfaces in interface_slots(self.network).items():
            named = {slot: f"exp{i}" for i, slot in enumerate(interfaces)}
            what = "interface: exp0" if len(named) == 1 else f"interfaces: {json.dumps(named)}"
            lines.append(f"  {name}: {{ssh: {self._login(name)}, {what}}}")
        lines.append("switches:")
        lines += [f"  {switch.name}: {{dpid: {FIRST_DPID + i}}}" for i, switch in enumerate(self.network.switches)]
        return "\n".join(lines) + "\n"

    def _login(self, machine: str) -> str:
        """How a machine is reached: clients (the Pis of a laboratory) by a user who may sudo."""
        address = self.addresses[machine]
        if machine in {host.name for host in self.network.with_role(HostRole.ISLAND_CLIENT)}:
            return f"tech@{address}, sudo: true"
        return address

    # What a test does to the rack

    def prepare(self) -> None:
        """First contact: keys enrolled, atoll-host installed."""
        for verb in (["enroll", "--yes"], ["install"]):
            done = self.run(ATOLL, "hosts", *verb, "--inventory", self.inventory)
            assert done.returncode == 0, done.stderr

    def start(self, *argv: str | Path):
        """Start a command where the daemon is: on the management network, in a home of its own."""
        return self.sandbox.start("env", f"HOME={self.home}", *argv)

    def run(self, *argv: str | Path, limit_s: float = 110):
        """Run a command where the daemon is."""
        return self.sandbox.run("env", f"HOME={self.home}", *argv, limit_s=limit_s)

    def on(self, machine: str, *argv: str):
        """Run a command on a machine, behind everybody's back."""
        enter = ["nsenter", "-t", str(self._init(machine)), "-n", "-m", "-p", "-u", "--"]
        return self.sandbox.run(*enter, *argv, limit_s=100)

    def _init(self, machine: str) -> int:
        """The machine's first process, as the sandbox numbers it."""
        pid = self.sandbox.find("bash", "-c", f"#machine {machine}\n")
        assert pid is not None, f"{machine} is not up"
        return pid

    def unplug(self, machine: str) -> None:
        """Pull the machine's cable out of the management network."""
        self.sandbox.run("ip", "link", "set", f"m-{machine}", "down")

    def power_off(self, machine: str) -> None:
        """Everything on the machine is gone at once, and for good."""
        self.sandbox.kill(self._init(machine))

    def plug_in(self, machine: str) -> None:
        """Put it back."""
        self.sandbox.run("ip", "link", "set", f"m-{machine}", "up")

    def jobs(self, machine: str) -> dict[int, str]:
        """What runs on a machine because of atoll, the dead left out: command lines by pid there."""
        listed = self.on(machine, "ps", "-eo", "pid=,stat=,args=").stdout.splitlines()
        found = [line.split(maxsplit=2) for line in listed]
        return {
            int(pid): args
            for pid, stat, args in found
            if stat[0] not in "ZX" and "atoll-host" in args and not args.startswith("sudo ")
        }

    def states(self) -> dict[str, str]:
        """What :meth:`state` says of each machine, once none of their addresses is new (RFC 4862, 5.4)."""
        found = {name: self.state(name) for name in self.addresses}
        while any("tentative" in text for text in found.values()):
            time.sleep(0.1)
            found = {name: self.state(name) for name in self.addresses}
        return found

    def wait_idle(self, machine: str, limit_s: float) -> None:
        """Return when nothing of atoll runs on a machine; AssertionError after the limit."""
        deadline = time.monotonic() + limit_s
        while left := self.jobs(machine):
            assert time.monotonic() < deadline, f"{machine}, {limit_s:g} s later: {left}"
            time.sleep(0.05)

    def state(self, machine: str) -> str:
        """Everything that a run may set on a machine."""
        lines = ["ip -o address", "ip route show table all", "ip rule", "ip neighbour show nud permanent"]
        lines.append("ip -o link | sed 's:qdisc [a-z]*::'")  # an interface that was up once keeps its own
        lines += ["nft list ruleset", "sysctl -a --pattern 'ipv4[.](conf|ip_forward|tcp_|neigh)' 2>/dev/null"]
        lines += ["for i in /sys/class/net/exp*; do ethtool -k ${i##*/}; done"]
        return self.on(machine, "sh", "-c", "; ".join(lines)).stdout

    # Making it

    def _script(self) -> str:
        names = self.addresses
        lines = [
            "set -e",
            f"export RACK={shlex.quote(str(self.directory))}",
            "mount -t tmpfs tmpfs /run",
            "mkdir -p /run/netns /run/sw",
            "ssh-keygen -q -t ed25519 -N '' -f $RACK/home/.ssh/id_ed25519",
            f"for name in {' '.join(names)}; do ssh-keygen -q -t ed25519 -N '' -f $RACK/keys.$name; done",
            "ip link add mgmt type bridge",
            f"ip address add {CONTROLLER}/24 dev mgmt",
            "ip link set mgmt up",
        ]
        for name, address in {"switches": SWITCHES, **names}.items():
            lines += [f"ip netns add {name}", f"ip -n {name} link set lo up"]
            if name in self.in_band:
                continue
            lines += [
                f"ip link add m-{name} type veth peer name mgmt0 netns {name}",
                f"ip link set m-{name} master mgmt up",
                f"ip -n {name} address add {address}/24 dev mgmt0",
                f"ip -n {name} link set mgmt0 up",
            ]
        lines.append("ip netns exec switches sysctl -qw net.ipv6.conf.default.disable_ipv6=1")  # ports are no hosts
        ports, splitters = list[str](), list[str]()
        tap_in = {tap.interface.attached: tap for tap in self.network.taps if tap.physical}
        lan_at = {learning.uplink: learning.name for learning in self.network.learning_switches}
        for uplink, lan in lan_at.items():
            lines.append(f"ip -n switches link add {lan} type bridge")
            lines.append(f"ip -n switches link set {lan} up")
            port = f"{uplink.switch}-{uplink.port}"
            lines += [f"ip -n switches link add {port} type veth peer name up-{lan} netns switches"]
            lines += [f"ip -n switches link set up-{lan} master {lan}", *_plugged(port), *_plugged(f"up-{lan}")]
            ports.append(_port(uplink.switch, port, uplink.port))
        for name, interfaces in interface_slots(self.network).items():
            for number, (slot, interface) in enumerate(interfaces.items()):
                lan, tap = lan_at.get(interface.attached), tap_in.get(interface.attached)
                port = f"{lan}-{name}" if lan else f"{interface.attached.switch}-{interface.attached.port}"
                if tap:
                    is_copy = tap.interface == interface
                    if not is_copy:
                        lines += [f"ip -n switches link add {port} type veth peer name {tap.name}-sw netns switches"]
                        lines += [*_plugged(port), *_plugged(f"{tap.name}-sw")]
                        ports += [_port(interface.attached.switch, port, interface.attached.port)]
                        ports += _splitter(tap)
                        splitters += _copies(tap, is_islands=slot.endswith(ISLAND))
                    port = f"{tap.name}-{'copy' if is_copy else 'box'}"
                lines.append(f"ip -n switches link add {port} mtu 1500 type veth peer name exp{number} netns {name}")
                lines += _plugged(port)
                if lan:
                    lines.append(f"ip -n switches link set {port} master {lan}")
                elif not tap:
                    ports.append(_port(interface.attached.switch, port, interface.attached.port))
        if (control := self.network.control) is not None:
            at, length = control.port, control.network.prefixlen
            port = f"{at.switch}-{at.port}"
            lines += [f"ip -n switches link add {port} type veth peer name ctl0 netns $$", *_plugged(port)]
            lines += [f"ip address add {control.network[1]}/{length} dev ctl0", "ip link set ctl0 up"]
            ports.append(_port(at.switch, port, at.port))
            for name, address in self.in_band.items():
                lines += [f"ip -n {name} address add {address}/{length} dev exp0", f"ip -n {name} link set exp0 up"]
                lines.append(f"ip netns exec {name} {_CHECKSUMS.format('exp0')}")
            lines.append(_CHECKSUMS.format("ctl0"))
        lines += [_OVS, f"ovs-vsctl {self._bridges()} {' '.join(ports)} {self._trunks()}", *splitters]
        for name in names:
            machine = shlex.quote(f"#machine {name}\n{_MACHINE}")
            options = "--pid --mount --uts --fork --kill-child --mount-proc"
            lines.append(
                f"NAME={name} setsid nsenter --net=/run/netns/{name} unshare {options} bash -c {machine} "
                f"</dev/null >$RACK/machine.{name}.log 2>&1 &"
            )
        return "\n".join(lines) + "\n"

    def _bridges(self) -> str:
        words: list[str] = []
        for i, switch in enumerate(self.network.switches):
            name = switch.name
            words += [
                f"-- add-br {name} -- set bridge {name} datapath_type=netdev fail_mode=secure protocols=OpenFlow13",
                f"other-config:datapath-id={FIRST_DPID + i:016x}",
                f"-- set-controller {name} tcp:{CONTROLLER}:6653",
                f"-- set controller {name} connection_mode=out-of-band max_backoff=1000",
            ]
        return " ".join(words)

    def _trunks(self) -> str:
        words: list[str] = []
        for trunk in self.network.trunks:
            for here, there in ((trunk.a, trunk.b), (trunk.b, trunk.a)):
                name, peer = f"{here.switch}-{here.port}", f"{there.switch}-{there.port}"
                words += [_port(here.switch, name, here.port), f"type=patch options:peer={peer}"]
        return " ".join(words)


@contextmanager
def rack_of(lab: Path, directory: Path) -> Generator[Rack]:
    """A rack of a lab's machines that nobody has met yet, while the block lasts; its files go to a directory."""
    with Sandbox(directory) as sandbox:
        rack = Rack(sandbox, load_lab(lab))
        rack.build()
        yield rack


def _plugged(port: str) -> list[str]:
    """The switch's end of a cable is a port of a switch, which knows no offloads; the machine's end keeps its own."""
    return [
        f"ip -n switches link set {port} up",
        f"ip netns exec switches ethtool -K {port} tx off tso off gso off gro off >/dev/null",
    ]


def _splitter(tap: Tap) -> list[str]:
    """The bridge of a physical tap: ports 1 to the switch, 2 to the box, 3 to the capture host."""
    bridge = f"-- add-br {tap.name} -- set bridge {tap.name} datapath_type=netdev fail_mode=secure"
    return [bridge, *(_port(tap.name, f"{tap.name}-{end}", 1 + i) for i, end in enumerate(("sw", "box", "copy")))]


def _copies(tap: Tap, *, is_islands: bool) -> list[str]:
    """What the bridge of a physical tap forwards. ``is_islands``: its box sends frames to the island through it."""
    ways = {1: not is_islands, 2: is_islands}  # whether frames that enter there go to the island
    return [
        f"ovs-ofctl add-flow {tap.name} in_port={port},actions={3 - port}"
        f"{',3' if to_island or not tap.to_island_only else ''}"
        for port, to_island in ways.items()
    ]


def _port(switch: str, name: str, number: int) -> str:
    return f"-- add-port {switch} {name} -- set interface {name} ofport_request={number}"

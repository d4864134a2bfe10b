# SPDX-License-Identifier: Apache-2.0
"""The emulated lab is what its description says, forwards only what it is told to, and vanishes however it ends."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll_core.codec import from_json
from atoll_core.description.loader import load_lab
from atoll_core.events.event_bus import EventBus
from atoll_core.lab.network import Interface, Network
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab, LabShell
from atoll_emulation.mininet_lab.port_names import port_interface_names, used_ports
from tests.support.sandbox import NOBODY, PYTHON, ROOT, Sandbox, open_to_others, tools_without
from tests.system.runs.test_hostile import OPEN_TUN

ISLAND = ROOT / "emulation" / "labs" / "island.yaml"
SCRIPT = ROOT / "tests" / "support" / "emulated.py"

pytestmark = pytest.mark.lab
beside_the_lab = pytest.mark.asyncio(loop_scope="module")  # for what talks to the lab that the tests share


@pytest.fixture(scope="module")
def network() -> Network:
    return load_lab(ISLAND)


@pytest.fixture(scope="module")
def pair() -> Network:
    """Two machines on a switch: the contract's example, for what needs no more."""
    first = (ROOT / "tests" / "data" / "contract" / "lab-init.jsonl").read_text().splitlines()[1]
    return from_json(Network, json.loads(first)["message"]["network"])


async def started_lab(network: Network) -> EmulatedLab:
    running = await EmulatedLab.begin(network, EventBus())
    await running.complete()
    return running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(network: Network) -> AsyncIterator[EmulatedLab]:
    """One lab for every test that leaves it as it was."""
    running = await started_lab(network)
    yield running
    await running.stop()


def inside(lab: EmulatedLab, *argv: str, machine: str | None = None, check: bool = True) -> str:
    """Standard output of a command in the lab, in a machine's network namespace if one is named."""
    where = ["nsenter", f"--net=/proc/{lab.hosts[machine]}/ns/net", "--"] if machine else []
    return subprocess.run(
        [*lab.enter(), *where, *argv], capture_output=True, text=True, check=check, timeout=100
    ).stdout


# What is there


def test_every_machine_has_its_interfaces_and_no_address(lab: EmulatedLab, network: Network) -> None:
    """Names, MAC addresses, MTU 1500, up; addresses are the agent's to set, and IPv6 makes none of its own."""
    assert sorted(lab.hosts) == sorted(network.machines)
    for machine, interfaces in network.machines.items():
        links = json.loads(inside(lab, "ip", "-json", "address", machine=machine))
        found = {link["ifname"]: link for link in links if link["ifname"] != "lo"}
        assert sorted(found) == sorted(interface.name for interface in interfaces)
        for interface in interfaces:
            link = found[interface.name]
            assert link["address"] == interface.mac
            assert link["mtu"] == 1500
            assert {"UP", "LOWER_UP"} <= set(link["flags"])
            assert link["addr_info"] == []


@beside_the_lab
async def test_the_state_of_the_network_is_what_ip_says(lab: EmulatedLab) -> None:
    states = await lab.network_state()
    assert sorted(states) == sorted(lab.hosts)
    machine = min(states)
    links = json.loads(inside(lab, "ip", "-json", "address", machine=machine))
    assert states[machine]["interfaces"] == [
        {
            "name": link["ifname"],
            "mac": link["address"],
            "mtu": link["mtu"],
            "state": link["operstate"].lower(),
            "addresses": [f"{address['local']}/{address['prefixlen']}" for address in link["addr_info"]],
            "qdiscs": [] if link["qdisc"] == "noop" else [link["qdisc"]],
        }
        for link in links
    ]


def test_no_end_of_a_cable_has_an_offload(lab: EmulatedLab, network: Network) -> None:
    """Nothing that makes super-packets or leaves checksums open is on, at the machine or at the switch."""
    ends: list[tuple[str | None, str]] = [
        (machine, interface.name) for machine, held in network.machines.items() for interface in held
    ]
    names = port_interface_names(network)
    ends += [(None, names[interface.attached]) for held in network.machines.values() for interface in held]
    words = ("checksum", "segmentation", "scatter", "gso", "gro", "lro", "receive-offload")
    for machine, interface in ends:
        features = inside(lab, "ethtool", "-k", interface, machine=machine).splitlines()
        lit = [line for line in features if ": on" in line and any(word in line for word in words)]
        assert (machine, interface, lit) == (machine, interface, [])
    assert len(ends) == 2 * 28


def test_switches_have_their_numbers_and_tables_that_nobody_filled(lab: EmulatedLab, network: Network) -> None:
    """Datapath ids and port numbers as described, fail-secure, out-of-band, OpenFlow 1.3, and not one flow entry."""
    names = port_interface_names(network)
    for switch in network.switches:
        bridge = json.loads(inside(lab, "ovs-vsctl", "--format=json", "list", "Bridge", switch.name))
        held = dict(zip(bridge["headings"], bridge["data"][0], strict=True))
        assert held["fail_mode"] == "secure"
        assert held["protocols"] == "OpenFlow13"
        assert ["disable-in-band", "true"] in held["other_config"][1]
        shown = inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "show", switch.name)
        assert f"dpid:{switch.dpid:016x}" in shown
        for port in used_ports(network):
            if port.switch == switch.name:
                assert f" {port.port}({names[port]}):" in shown
        assert "actions" not in inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch.name)


def test_the_lab_shares_files_but_not_run(lab: EmulatedLab, tmp_path: Path) -> None:
    """Run directories lie outside and must be seen inside; sockets of the machine's own daemons must not be."""
    (tmp_path / "seen").write_text("outside")
    assert inside(lab, "cat", str(tmp_path / "seen")) == "outside"
    assert inside(lab, "ls", "/run").split() == ["openvswitch"]
    assert "eth0" not in inside(lab, "ls", "/sys/class/net").split()


def test_standard_streams_pass_through_enter(lab: EmulatedLab) -> None:
    done = subprocess.run([*lab.enter(), "cat"], input=b"through", capture_output=True, check=True, timeout=100)
    assert done.stdout == b"through"


# What it does


def test_frames_go_where_flow_entries_say_and_nowhere_else(lab: EmulatedLab, network: Network) -> None:
    """Without entries nothing arrives anywhere; with them a ping crosses three switches; without one of them, not."""
    w1, i1, w4 = (network.host(name).interface for name in ("w1", "i1", "w4"))
    configure(lab, "w1", w1, "10.0.0.1", {"10.0.0.2": i1.mac})
    configure(lab, "i1", i1, "10.0.0.2", {"10.0.0.1": w1.mac})
    before = received(lab, network)
    assert "0 received" in ping(lab)
    assert received(lab, network) == before

    entries = [("sw-w1", 1, 24), ("sw-c", 1, 3), ("sw-i", 24, 1), ("sw-i", 1, 24), ("sw-c", 3, 1), ("sw-w1", 24, 1)]
    for switch, there, back in entries:
        inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch, f"in_port={there},actions=output:{back}")
    assert "0% packet loss" in ping(lab)
    assert received(lab, network)[w4.name] == before[w4.name]

    inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "del-flows", "sw-c", "in_port=3")
    assert "0 received" in ping(lab)
    for switch in network.switches:
        inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "del-flows", switch.name)


def configure(lab: EmulatedLab, machine: str, interface: Interface, address: str, peers: dict[str, str]) -> None:
    inside(lab, "ip", "address", "add", f"{address}/24", "dev", interface.name, machine=machine)
    for peer, mac in peers.items():
        argv = ("ip", "neighbour", "add", peer, "lladdr", mac, "dev", interface.name, "nud", "permanent")
        inside(lab, *argv, machine=machine)


def ping(lab: EmulatedLab) -> str:
    return inside(lab, "ping", "-c", "1", "-W", "0.5", "10.0.0.2", machine="w1", check=False)


def received(lab: EmulatedLab, network: Network) -> dict[str, int]:
    """Packets that arrived at every interface of every machine."""
    counts: dict[str, int] = {}
    for machine in network.machines:
        for link in json.loads(inside(lab, "ip", "-json", "-stats", "link", machine=machine)):
            if link["ifname"] != "lo":
                counts[link["ifname"]] = link["stats64"]["rx"]["packets"]
    return counts


# The shell


@beside_the_lab
async def test_the_shell_is_mininets_command_line_on_the_running_lab(lab: EmulatedLab, network: Network) -> None:
    shell = await lab.open_shell(100, 30)
    screen = Screen(shell)
    await screen.until(PROMPT)

    await shell.write(b"nodes\n")
    listed = await screen.until(PROMPT)
    assert {*network.machines, *(switch.name for switch in network.switches)} <= set(listed.split())

    await shell.write(b"sh stty size\n")
    await screen.until("30 100")
    await shell.resize(132, 43)
    await shell.write(b"sh stty size\n")
    await screen.until("43 132")

    await shell.write(b"w1 sleep 60\n")
    await running(lab, "sleep 60")
    await shell.write(b"\x03")  # Ctrl-C ends the command, not the shell
    await screen.until("^C")
    await screen.until(PROMPT)

    await shell.write(b"\x04")  # Ctrl-D ends the shell, not the lab
    await ended(shell)
    assert inside(lab, "ovs-vsctl", "list-br").split() == sorted(switch.name for switch in network.switches)
    assert not lab.ended.done()


@beside_the_lab
async def test_one_shell_at_a_time_and_leaving_makes_room(lab: EmulatedLab) -> None:
    """A second one is refused; closing the first ends what it ran, and the next finds the machines' shells free."""
    first = await lab.open_shell()
    await Screen(first).until(PROMPT)
    await first.write(b"w1 sleep 1234\n")
    await running(lab, "sleep 1234")
    second = await lab.open_shell()
    assert await second.read() == b""
    assert second.refusal == "another shell is open on this lab"

    await first.close()
    await ended(first)
    assert "sleep 1234" not in inside(lab, "ps", "-ax", "-o", "args").splitlines()
    third = await lab.open_shell()
    screen = Screen(third)
    await screen.until(PROMPT)
    await third.write(b"w1 expr 6 '*' 7\n")
    await screen.until("42")
    await screen.until(PROMPT)
    await third.write(b"exit\n")
    await ended(third)


PROMPT = "mininet> "


class Screen:
    """What a shell shows, read piece by piece."""

    def __init__(self, shell: LabShell) -> None:
        self._shell = shell
        self._shown = ""

    async def until(self, words: str) -> str:
        """What is shown next, up to these words."""
        async with asyncio.timeout(60):
            while words not in self._shown:
                output = await self._shell.read()
                assert output, f"the shell ended: {self._shown!r}"
                self._shown += output.decode()
        before, _, self._shown = self._shown.partition(words)
        return before


async def running(lab: EmulatedLab, command: str) -> None:
    """Return when a process with this command line is there."""
    async with asyncio.timeout(60):
        while command not in inside(lab, "ps", "-ax", "-o", "args").splitlines():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.05)


async def ended(shell: LabShell) -> None:
    async with asyncio.timeout(60):
        while await shell.read():
            pass


# Endings


def lab_processes(lab: EmulatedLab) -> set[int]:
    """Processes in the lab's PID namespace, as numbered outside."""
    return in_namespace(Path(f"/proc/{lab.enter()[1].removeprefix('--target=')}/ns/pid").readlink())


def in_namespace(namespace: Path) -> set[int]:
    """Living processes whose PID namespace this is; not those that only wait to be buried."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.joinpath("ns/pid").readlink() == namespace:
                state = entry.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                found |= {int(entry.name)} if state not in "ZX" else set()
    return found


def named(pids: set[int], word: str) -> list[int]:
    """Those of these processes whose command line has the word, oldest first."""
    return [pid for pid in sorted(pids) if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize(
    ("victim", "reason"),
    [
        ("init", "the lab ended unexpectedly"),
        ("server of requests", "the lab ended unexpectedly"),
        ("unshare", "the lab ended unexpectedly (SIGKILL)"),
        ("ovs-vswitchd", "ovs-vswitchd ended (signal 9)"),
        ("ovsdb-server", "ovsdb-server ended (signal 9)"),
    ],
)
async def test_a_killed_part_takes_the_whole_lab_with_it(pair: Network, victim: str, reason: str) -> None:
    """`kill -9` of any part: every process gone within seconds, and the daemon hears why."""
    lab = await started_lab(pair)
    namespace = Path(f"/proc/{lab.enter()[1].removeprefix('--target=')}/ns/pid").readlink()
    pids = in_namespace(namespace)
    init, server = named(pids, "atoll_emulation.mininet_lab.ns_init")
    parent = int(Path(f"/proc/{init}/stat").read_text().rpartition(")")[2].split()[1])
    ours = {"init": init, "server of requests": server, "unshare": parent}
    os.kill(ours.get(victim) or named(pids, victim)[0], signal.SIGKILL)
    assert reason in await asyncio.wait_for(lab.ended, 60)
    assert in_namespace(namespace) == set()
    await lab.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_lab(pair: Network, number: int) -> None:
    lab = await started_lab(pair)
    pids = lab_processes(lab)
    os.kill(named(pids, "atoll_emulation.mininet_lab.ns_init")[0], number)
    await asyncio.wait_for(lab.ended, 60)
    assert not any(Path(f"/proc/{pid}/ns").exists() for pid in pids)


async def test_stop_returns_when_everything_is_gone_and_may_be_repeated(pair: Network) -> None:
    lab = await started_lab(pair)
    visitor = await asyncio.create_subprocess_exec(*lab.enter(), "sleep", "100")
    pids = lab_processes(lab)
    await lab.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    await asyncio.wait_for(visitor.wait(), 60)  # what entered the lab dies with it
    assert await lab.ended == "it was stopped"
    await lab.stop()
    assert (await (await lab.open_shell()).read()) == b""


def test_kill_of_the_starter_leaves_nothing(tmp_path: Path) -> None:
    """The daemon killed at once: processes, links and mounts of the machine are as before."""
    with Sandbox(tmp_path) as sandbox:
        starter = Starter(sandbox)
        facts = starter.facts()
        assert len(facts["hosts"]) == 23
        assert len(sandbox.processes()) > 23
        sandbox.kill(facts["pid"])
        starter.wait()
        sandbox.wait_clean()


def test_kill_while_the_lab_is_coming_up_leaves_nothing(tmp_path: Path) -> None:
    """At any moment of building: killed after 0.1, 0.3, 0.5, 0.7 s."""
    with Sandbox(tmp_path) as sandbox:
        for tenths in (1, 3, 5, 7):
            starter = Starter(sandbox)
            time.sleep(tenths / 10)
            pid = sandbox.find("emulated.py")
            assert pid is not None
            sandbox.kill(pid)
            starter.wait()
            sandbox.wait_clean()


class Starter:
    """emulated.py in a sandbox."""

    def __init__(self, sandbox: Sandbox, command: str = ":") -> None:
        argv = sandbox.command([PYTHON, SCRIPT, ISLAND, command])
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def facts(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.wait()
        return json.loads(line)

    def wait(self) -> tuple[str, str]:
        """End it (if it is still there); what it still said."""
        return self._process.communicate(timeout=100)


# Machines that are not ours


def test_a_plain_user_has_the_same_lab(tmp_path: Path) -> None:
    """Machines, switches and private /run as root has them; stopping leaves nothing."""
    open_to_others(tmp_path)
    with Sandbox(tmp_path, user=NOBODY, setup=OPEN_TUN.format(tmp_path / "dev")) as sandbox:
        starter = Starter(sandbox, "id -u; ovs-vsctl list-br; cat /proc/sys/net/ipv6/conf/all/disable_ipv6")
        facts = starter.facts()
        assert facts["said"] == ["0", "sw-c", "sw-i", "sw-w1", "sw-w2", "1"]
        assert len(facts["hosts"]) == 23
        assert starter.wait() == ("it was stopped\n", "")
        sandbox.wait_clean()


def requires(sandbox: Sandbox, *prefix: str) -> list[str]:
    """The lines with which `require_machine` refuses a machine."""
    program = (
        "from atoll_core.errors import MachineError\n"
        "from atoll_emulation.this_machine.host_requirements import require_machine\n"
        "try: require_machine()\nexcept MachineError as error: print(error)"
    )
    done = sandbox.run(*prefix, PYTHON, "-c", program, limit_s=100)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_machine_that_has_everything_is_not_refused(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        assert requires(sandbox) == []


def test_everything_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    """Tools of three packages in a line, the tun device in another, with remedies."""
    absent = ["ovs-vswitchd", "ovs-vsctl", "mnexec", "nft"]
    with Sandbox(tmp_path, setup="mkdir -p /dev/net && mount -t tmpfs none /dev/net") as sandbox:
        lines = requires(sandbox, "env", f"PATH={tools_without(tmp_path / 'tools', absent)}")
    packages = "mininet nftables openvswitch-switch"
    assert lines == [
        f"missing ovs-vswitchd, ovs-vsctl, mnexec, nft: run `make setup`, or `apt install {packages}`",
        "/dev/net/tun does not exist: mkdir -p /dev/net && mknod -m 666 /dev/net/tun c 10 200 (as root)",
    ]


def test_mininets_python_package_is_missed_too(tmp_path: Path) -> None:
    hide = f"mkdir {tmp_path}/empty && mount --bind {tmp_path}/empty /usr/lib/python3/dist-packages"
    with Sandbox(tmp_path, setup=hide) as sandbox:
        assert requires(sandbox) == ["missing mininet's Python package: run `make setup`, or `apt install mininet`"]


def test_a_plain_user_who_may_not_open_tun_is_told_the_remedy(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    setup = OPEN_TUN.format(tmp_path / "dev") + f" && chmod 600 {tmp_path}/dev/tun"
    with Sandbox(tmp_path, user=NOBODY, setup=setup) as sandbox:
        assert requires(sandbox) == ["/dev/net/tun may not be opened by this user: chmod 666 /dev/net/tun (as root)"]


def test_a_plain_user_without_user_namespaces_is_told_the_remedy(tmp_path: Path) -> None:
    """The kernel refuses user namespaces to a chrooted process."""
    open_to_others(tmp_path)
    jail = tmp_path / "jail"
    jail.mkdir()
    setup = f"{OPEN_TUN.format(tmp_path / 'dev')} && mount --rbind / {jail}"
    with Sandbox(tmp_path, user=NOBODY, jail=jail, setup=setup) as sandbox:
        (line,) = requires(sandbox)
    assert line.startswith("not root, and user namespaces are not allowed here (unshare: ")
    assert line.endswith("run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000")

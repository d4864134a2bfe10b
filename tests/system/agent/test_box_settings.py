# SPDX-License-Identifier: Apache-2.0
"""Settings of boxes, for real: marks, a transparent proxy, forwarding, TCP; and that nothing is left of them."""

import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.plan.plan import (
    FilterVerdict,
    HostSettings,
    LocalDelivery,
    PacketMark,
    PacketRule,
    Packets,
    RouteSettings,
)
from atoll_hosts.binary import find_binary
from atoll_hosts.job import Job
from tests.support.agent_lab import READY_S, TWO_PAIRS, Machines, ends, eventually, machines

pytestmark = pytest.mark.lab

LOCAL = PacketMark(1, 1)
FIRST, SPARE = PacketMark(0, 6), PacketMark(2, 6)
PORTS = {FIRST: 5001, SPARE: 5002}
INTERFACES = tuple(each.name for each in TWO_PAIRS.interfaces)

PROXY = replace(
    TWO_PAIRS,
    legs=tuple(replace(legs, mark=mark) for legs, mark in zip(TWO_PAIRS.legs, PORTS, strict=True)),
    local=LocalDelivery(100, LOCAL),
    packet_rules=(
        PacketRule(INTERFACES, Packets.TCP, transparent_socket=True, set_mark=LOCAL, verdict=FilterVerdict.ACCEPT),
        PacketRule(("box-i", "box-i2"), Packets.SYN, verdict=FilterVerdict.DROP),
        PacketRule(INTERFACES, Packets.ICMP_ERRORS, set_mark=LOCAL),
        *(
            PacketRule(
                ("lo",), Packets.SYN, mark=PacketMark(mark.value | 1, 7), tproxy_port=port, verdict=FilterVerdict.ACCEPT
            )
            for mark, port in PORTS.items()
        ),
    ),
    sysctls=(
        ("net.ipv4.tcp_rmem", "4096 131072 5000000"),
        ("net.ipv4.tcp_wmem", "4096 16384 5000000"),
        ("net.ipv4.tcp_congestion_control", "reno"),
    ),
)
"""A transparent proxy with two pairs of legs, as tests/guests/accept_after.py needs it."""

GUEST = Path(__file__).parents[2] / "guests/accept_after.py"

SERVER = """
import socket, sys

with socket.create_server(("10.10.0.1", 80)) as listener:
    print('{"type":"ready"}', flush=True)
    while True:
        taken, address = listener.accept()
        taken.sendall(f"{sys.argv[1]} of {address[0]}:{address[1]}".encode())
        taken.close()
"""

CLIENT = """
import socket

with socket.create_connection(("10.10.0.1", 80), 10, ("10.20.0.1", 4321)) as server:
    print(server.makefile().read(), "from", *server.getpeername())
"""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Machines]:
    """An agent in a sandbox of its own."""
    async with machines(tmp_path) as lab:
        yield lab


async def box_of(lab: Machines) -> str:
    """A machine with all legs, and with settings of somebody else."""
    box, other = await lab.add("box"), await lab.add("other")
    for interface in TWO_PAIRS.interfaces:
        await lab.cable(
            (box, interface), (other, replace(interface, name=f"o-{interface.name}", mac="02:0f:00:00:00:01"))
        )
    for name in INTERFACES:
        await lab.run(box, f"ip link set {name} up && ip link set {name} down")  # once up, its qdisc stays
    await lab.run(
        box,
        "sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.lo.forwarding=1"
        " && ip link set lo up && ip link set box-w up && ip address add 192.0.2.1/24 dev box-w"
        " && ip route add 198.51.100.0/24 dev box-w table 7"
        " && ip rule add iif box-w2 lookup 7"
        " && ip rule add fwmark 0x1/0x1 lookup 7 && ip rule add fwmark 0x2/0x6 lookup 7"
        " && ip rule add priority 10 to 10.20.0.0/16 fwmark 0x1/0x1 lookup 100"  # but for its protocol one of ours
        " && nft add table ip users"
        " && nft add chain ip users c '{ type filter hook prerouting priority mangle; }'"
        " && nft add rule ip users c meta mark 1 counter",
    )
    return box


async def python(lab: Machines, netns: str, name: str, *argv: str) -> Job:
    """A program that says when it is ready."""
    job = await lab.agent.start_job(name, [sys.executable, *argv], netns=netns)
    await job.ready(READY_S)
    return job


async def test_a_proxy_that_accepts_after_the_server_serves_both_pairs(lab: Machines) -> None:
    """Marks name the pair on every socket: both have hosts of the same addresses, and see each other's."""
    box = await lab.add("box")
    await lab.run(box, "ip link set lo up")
    first = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    spare = await ends(lab, box, TWO_PAIRS.interfaces[2:], "-2")
    await lab.agent.set_host(PROXY, box)
    held = await lab.agent.read(box, sysctls=[name for name, _ in PROXY.sysctls])
    assert held["sysctls"] == dict(PROXY.sysctls)
    pairs = [f"{legs.island}:{mark.value}:{PORTS[mark]}" for legs in PROXY.legs if (mark := legs.mark)]
    await python(lab, box, "proxy", str(GUEST), *pairs)
    for number, (world, island) in enumerate((first, spare)):
        await python(lab, world, f"server-{number}", "-c", SERVER, f"server-{number}")
        said = await lab.run(island, f"{shlex.quote(sys.executable)} -c {shlex.quote(CLIENT)}")
        assert said == f"proxied: server-{number} of 10.20.0.1:4321 from 10.10.0.1 80\n"
        assert "3 received" in await lab.run(island, "ping -c 3 -i 0.05 -W 10 10.10.0.1"), "the rest is routed"


async def test_packets_pass_while_routes_sysctls_and_rules_change(lab: Machines) -> None:
    """Only what differs is touched."""
    box = await lab.add("box")
    world, island = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    await ends(lab, box, TWO_PAIRS.interfaces[2:], "-2")
    await lab.agent.set_host(PROXY, box)
    assert "1 received" in await lab.run(island, "ping -c 1 -W 10 10.10.0.1"), world
    said: list[str] = []
    argv = ["ping", "-q", "-i", "0.002", "-c", "1000", "-W", "10", "10.10.0.1"]
    pings = await lab.agent.start_job("pings", argv, netns=island, on_output=said.append)
    drop = PacketRule(INTERFACES, Packets.SYN, verdict=FilterVerdict.DROP)
    while pings.exit is None:
        for settings in (changed(), PROXY, replace(PROXY, packet_rules=(drop, *PROXY.packet_rules))):
            await lab.agent.set_host(settings, box)
    assert any("1000 received" in line for line in said), said


async def test_a_route_can_move_to_another_interface(lab: Machines) -> None:
    box = await lab.add("box")
    await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    world, island = TWO_PAIRS.interfaces[:2]
    plain = replace(TWO_PAIRS, interfaces=(world, island), legs=())
    exchanged = (replace(world, routes=island.routes), replace(island, routes=world.routes))
    await lab.agent.set_host(plain, box)
    await lab.agent.set_host(replace(plain, interfaces=exchanged), box)
    for each in exchanged:
        assert [line.split()[0] for line in (await lab.run(box, f"ip route show dev {each.name}")).splitlines()] == [
            route.prefix for route in each.routes
        ]


async def test_without_its_proxy_the_rules_pass_nothing(lab: Machines) -> None:
    """It is the rules that keep a client's first segment from the server."""
    box = await lab.add("box")
    await lab.run(box, "ip link set lo up")
    world, island = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    await ends(lab, box, TWO_PAIRS.interfaces[2:], "-2")
    await python(lab, world, "server", "-c", SERVER, "server")
    await lab.agent.set_host(PROXY, box)
    client = CLIENT.replace(", 10,", ", 1,")
    assert not await lab.run(island, f"{shlex.quote(sys.executable)} -c {shlex.quote(client)}", check=False)
    await lab.agent.unset_host("box")
    await lab.agent.set_host(TWO_PAIRS, box)
    assert "server of" in await lab.run(island, f"{shlex.quote(sys.executable)} -c {shlex.quote(CLIENT)}")


async def test_marks_of_the_machine_s_own_packets_mean_nothing(lab: Machines) -> None:
    """The same bits lead to the proxy only where a host of the experiment is addressed."""
    box = await box_of(lab)
    await lab.run(box, "ip rule delete fwmark 0x1/0x1 lookup 7 && ip rule delete fwmark 0x2/0x6 lookup 7")
    await lab.agent.set_host(PROXY, box)
    assert "local 10.20.0.1 dev lo table 100" in await lab.run(box, "ip route get 10.20.0.1 mark 1")
    assert "dev box-i2 table 2" in await lab.run(box, "ip route get 10.20.0.1 mark 2")
    assert "dev box-i src" in await lab.run(box, "ip route get 10.20.0.1 mark 0xf8")
    for mark in (1, 2, 3):
        assert "192.0.2.9 dev box-w src" in await lab.run(box, f"ip route get 192.0.2.9 mark {mark}")


async def by_unset(lab: Machines, box: str) -> None:
    """Set and unset."""
    await lab.agent.set_host(PROXY, box)
    during = await lab.state(box, "box-i")
    assert during["rules"].count("proto 97") == 6
    assert during["nft"].count("hook ingress") == 4
    assert "chain in {\n\t\ttype filter hook prerouting priority mangle" in during["nft"]
    assert "counter" in during["nft"], "the table of somebody else stays"
    await lab.agent.unset_host("box")


def changed() -> HostSettings:
    """The proxy with other routes and sysctls."""
    routes = (RouteSettings("10.10.0.0/16", initial_window=30), RouteSettings("10.10.1.0/24", 1400))
    legs = (replace(PROXY.interfaces[0], routes=routes), *PROXY.interfaces[1:])
    return replace(PROXY, interfaces=legs, sysctls=(*PROXY.sysctls[:2], ("net.ipv4.tcp_ecn", "1")))


async def by_unset_after_a_change(lab: Machines, box: str) -> None:
    """Routes, sysctls and rules were set otherwise meanwhile."""
    await lab.agent.set_host(PROXY, box)
    tables = await lab.run(box, "nft -a list tables")
    await lab.agent.set_host(changed(), box)
    shown = await lab.run(box, "ip route show dev box-w")
    assert re.search(r"10\.10\.0\.0/16 scope link .*initcwnd 30", shown)
    assert re.search(r"10\.10\.1\.0/24 scope link .*mtu 1400", shown)
    held = await lab.agent.read(box, sysctls=["net.ipv4.tcp_ecn", "net.ipv4.tcp_rmem"])
    assert held["sysctls"] == {"net.ipv4.tcp_ecn": "1", "net.ipv4.tcp_rmem": "4096 131072 5000000"}
    assert await lab.run(box, "nft -a list tables") == tables
    drop = PacketRule(INTERFACES, Packets.SYN, verdict=FilterVerdict.DROP)
    await lab.agent.set_host(replace(PROXY, packet_rules=(drop, *PROXY.packet_rules)), box)
    assert "10.10.1.0/24" not in await lab.run(box, "ip route show dev box-w")
    await lab.agent.unset_host("box")


async def by_the_end_of_the_stream(lab: Machines, box: str) -> None:
    """The input of an agent on the machine ends after the request."""
    request = {"id": 1, "op": "set", "host": "box", "netns": None, "settings": to_json(PROXY)}
    said: list[dict[str, Any]] = []
    argv = ["sh", "-c", 'printf "%s\\n" "$1" | "$0" agent', str(find_binary()), json.dumps(request)]
    job = await lab.agent.start_job("agent", argv, netns=box, on_line=said.append)
    assert (await job.wait()).code == 0
    assert said[-1]["ok"], said


async def by_a_failure(lab: Machines, box: str) -> None:
    """A line for the last interface is refused, after the others have settings, and nft has not begun."""
    wrong = replace(TWO_PAIRS.interfaces[3], mtu=70000)
    with pytest.raises(LabError, match="link set dev box-i2 mtu 70000"):
        await lab.agent.set_host(replace(PROXY, interfaces=(*PROXY.interfaces[:3], wrong)), box)


async def by_sigkill(lab: Machines, box: str) -> None:
    """The agent is killed; its guard reads the journal."""
    job, said = await own_agent(lab, box)
    await set_by(job, said, PROXY)
    await lab.run(None, f"kill -KILL $(cat /proc/{job.pid}/task/{job.pid}/children)")
    await job.wait()


async def by_the_next_agent(lab: Machines, box: str) -> None:
    """Agent and guard are killed; the next agent reads the journal when it is claimed."""
    job, said = await own_agent(lab, box)
    await set_by(job, said, PROXY)
    await lab.run(None, f"kill -KILL {job.pid} $(cat /proc/{job.pid}/task/{job.pid}/children)")
    await job.wait()
    assert "proto 97" in await lab.run(box, "ip rule list")
    job, _ = await own_agent(lab, box)
    await job.stop()
    await job.wait()


async def own_agent(lab: Machines, box: str) -> tuple[Job, list[dict[str, Any]]]:
    """An agent as on a machine of its own, claimed; what it says."""
    said: list[dict[str, Any]] = []
    argv = [str(find_binary()), "agent", "--silence", "60", "--no-cgroups"]
    job = await lab.agent.start_job("own-agent", argv, netns=box, config={"op": "beat"}, on_line=said.append)
    await job.send({"id": 1, "op": "claim", "owner": "a test"})
    await eventually(lambda: any(line.get("id") == 1 for line in said), "the machine is claimed")
    assert next(line for line in said if line.get("id") == 1)["ok"], said
    return job, said


async def set_by(job: Job, said: list[dict[str, Any]], settings: HostSettings) -> None:
    """Make settings by an agent of the machine."""
    await job.send({"id": 2, "op": "set", "host": settings.host, "netns": None, "settings": to_json(settings)})
    await eventually(lambda: any(line.get("id") == 2 for line in said), "the settings are made")
    assert next(line for line in said if line.get("id") == 2)["ok"], json.dumps(said)


WAYS = [by_unset, by_unset_after_a_change, by_the_end_of_the_stream, by_a_failure, by_sigkill, by_the_next_agent]


@pytest.mark.parametrize("undo", WAYS)
async def test_nothing_is_left_and_nothing_of_others_is_touched(
    lab: Machines, undo: Callable[[Machines, str], Awaitable[None]]
) -> None:
    """Rules, tables, filters, sysctls of TCP, links: as before, whatever the end. The lock's file is gone, too."""
    await lab.own_run()
    box = await box_of(lab)
    before = {interface: await lab.state(box, interface) for interface in INTERFACES}
    await undo(lab, box)
    after = {interface: await lab.state(box, interface) for interface in INTERFACES}
    for interface, state in before.items():
        for what, text in state.items():
            assert after[interface][what] == text, f"{what} of {interface}"
    assert await lab.run(None, "ls /run") == ""


@pytest.mark.parametrize(
    ("table", "refusal"),
    [(2, "box: routing table 2 is in use: it has a route to 203.0.113.0/24"), (100, "routing table 100 is in use")],
)
async def test_a_routing_table_of_somebody_else_is_refused(lab: Machines, table: int, refusal: str) -> None:
    """Before anything is changed."""
    box = await box_of(lab)
    await lab.run(box, f"ip route add 203.0.113.0/24 dev box-w table {table}")
    before = await lab.state(box, "box-w")
    with pytest.raises(LabError, match=refusal):
        await lab.agent.set_host(PROXY, box)
    assert await lab.state(box, "box-w") == before


@pytest.mark.parametrize("prefix", ["default", "0.0.0.0/0", "10.20.0.1/16", "10.20.0.0/16\nroute delete default"])
async def test_a_route_beyond_the_experiment_is_refused(lab: Machines, prefix: str) -> None:
    """Before anything is changed."""
    box = await box_of(lab)
    await lab.run(box, "ip route add default via 192.0.2.9")
    before = await lab.state(box, "box-i2")
    wrong = replace(TWO_PAIRS.interfaces[3], routes=(RouteSettings(prefix),))
    with pytest.raises(LabError, match=r"route to .* by box-i2 is not an IPv4 prefix of hosts"):
        await lab.agent.set_host(replace(PROXY, interfaces=(*PROXY.interfaces[:3], wrong)), box)
    assert await lab.state(box, "box-i2") == before


async def test_a_journal_of_another_version_is_kept(lab: Machines) -> None:
    """The machine cannot be claimed while settings of an agent that was killed may still be there."""
    box = await lab.add("box")
    await lab.own_run()
    await lab.run(None, "mkdir /run/atoll && echo '{\"hosts\":1}' > /run/atoll/settings.json")
    with pytest.raises(AssertionError, match="restart the machine, or undo them and remove that file"):
        await own_agent(lab, box)
    assert await lab.run(None, "cat /run/atoll/settings.json") == '{"hosts":1}\n'


async def test_a_box_does_not_forward_where_its_program_does(lab: Machines) -> None:
    """Not even on a machine that forwards, whose other interfaces go on."""
    box = await lab.add("box")
    await lab.run(box, "sysctl -qw net.ipv4.ip_forward=1")
    world, _ = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    coder = HostSettings("box", TWO_PAIRS.interfaces[:2], forwarding=False, legs=TWO_PAIRS.legs[:1])
    ping = "ping -c 2 -i 0.05 -W 0.3 10.20.0.1"
    await lab.agent.set_host(replace(coder, forwarding=None), box)
    assert "2 received" in await lab.run(world, ping)
    await lab.agent.unset_host("box")
    await lab.agent.set_host(coder, box)
    assert "0 received" in await lab.run(world, ping, check=False)
    names = ["net.ipv4.ip_forward", "net.ipv4.conf.lo.forwarding", "net.ipv4.conf.box-w.forwarding"]
    assert (await lab.agent.read(box, sysctls=names))["sysctls"] == dict(zip(names, "110", strict=True))
    await lab.agent.unset_host("box")
    assert (await lab.agent.read(box, sysctls=names))["sysctls"] == dict(zip(names, "111", strict=True))

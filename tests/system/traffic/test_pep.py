# SPDX-License-Identifier: Apache-2.0
"""The proxy ``atoll-host pep`` between a world and an island host: addresses, accept modes, every ending, limits."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll_core.plan.plan import JobLimits
from atoll_hosts.job import Job
from tests.guests.pep_peer import ENDINGS, RIGHT
from tests.support.agent_lab import READY_S, eventually, machines
from tests.support.pep_lab import (
    PEER,
    REJECT,
    SETTINGS,
    Proxied,
    behind_another,
    connected,
    lose_packets,
    multiplexed,
    proxied,
    start,
    two_proxies,
)

pytestmark = pytest.mark.lab

SECOND_NS = 1_000_000_000


@pytest.fixture
async def pep(tmp_path: Path) -> AsyncIterator[Proxied]:
    """A box with two pairs of legs, hosts at each, and servers at the first."""
    async with machines(tmp_path) as lab:
        found = await proxied(lab)
        await found.server()
        yield found


async def test_both_hosts_see_each_other_on_both_pairs(pep: Proxied) -> None:
    """Also a client with a privileged port; a megabyte arrives exactly, before the client's half-close."""
    await pep.start()
    await pep.server(1)
    for pair in (0, 1):
        found = json.loads(await pep.client("addresses", pair=pair))
        assert found == [["10.10.0.1", 8001], True, True, "FIN", "10.20.0.1:543"]
    counted = await pep.settled()
    assert counted["connections"] == counted["client_first_ends"] == 2
    assert counted["to_world_bytes"] == 2 * 4 * 251_000


async def test_other_packets_are_routed(pep: Proxied) -> None:
    """ICMP both ways, and errors about datagrams."""
    await pep.start()
    assert "3 received" in await pep.lab.run(pep.island, "ping -c 3 -i 0.05 -W 10 10.10.0.1")
    assert json.loads(await pep.client("datagram")) == "ECONNREFUSED"


async def test_a_client_is_accepted_after_its_server(pep: Proxied) -> None:
    """A refusal is a refusal, an unreachable server is unreachable."""
    await pep.start()
    await pep.lab.run(pep.world, REJECT)
    assert json.loads(await pep.client("attempt", "81")) == "ECONNREFUSED"
    assert json.loads(await pep.client("attempt", "8010")) == "EHOSTUNREACH"
    counted = await pep.settled()
    assert (counted["refused_connections"], counted["unreachable_connections"]) == (1, 1)
    assert counted["connections"] == 0


ONCE = """
import socket

with socket.create_server(("10.10.0.1", 82)) as listener:
    print('{"type":"ready"}', flush=True)
    listener.accept()
"""


async def test_a_client_may_be_accepted_early(pep: Proxied) -> None:
    """Then a refusal is a reset. By what it has learned, the proxy does so for servers that accepted before."""
    await pep.start(mode="early")
    assert "ECONNRESET" in json.loads(await pep.client("attempt", "81")), "before or after connect() returns"
    assert json.loads(await pep.client("addresses"))[3] == "FIN"
    assert (await pep.answer(op="set", id=1, mode="learned"))["ok"]
    assert json.loads(await pep.client("attempt", "81")) == "ECONNREFUSED"
    argv = [sys.executable, "-c", ONCE]
    job = await pep.lab.agent.start_job("once", argv, netns=pep.world)
    await job.ready(READY_S)
    assert json.loads(await pep.client("attempt", "82")) == ["connected", "FIN"]
    await job.wait()
    assert "ECONNRESET" in json.loads(await pep.client("attempt", "82")), "it is learned"
    assert json.loads(await pep.client("attempt", "82")) == "ECONNREFUSED", "and forgotten"
    refused = await pep.answer(op="set", id=2, mode="sometimes")
    assert not refused["ok"]


async def test_resets_are_passed_on_behind_the_data(pep: Proxied) -> None:
    """Of either side."""
    await pep.start()
    assert json.loads(await pep.client("resets")) == [True, "ECONNRESET"]
    assert json.loads(await pep.client("client_resets")) == [[1000, "ECONNRESET"]]
    counted = await pep.settled()
    assert (counted["server_resets"], counted["client_resets"]) == (1, 1)


async def test_half_closed_connections_live_on(pep: Proxied) -> None:
    await pep.start()
    assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]


async def slow_leg(pep: Proxied) -> None:
    """8 Mbit/s towards the island."""
    await pep.lab.run(pep.box, "tc qdisc add dev box-i root tbf rate 8mbit burst 5000 limit 30000")


async def test_a_slow_leg_truncates_nothing(pep: Proxied) -> None:
    """32 downloads of 100,000 bytes whose server closes first and at once."""
    await pep.start()
    await slow_leg(pep)
    assert json.loads(await pep.client("downloads", "32")) == {"whole": 32}
    counted = await pep.settled()
    assert counted["server_first_ends"] == counted["connections"] == 32
    assert counted["to_island_bytes"] == 32 * 100_000
    assert (counted["held_bytes"], counted["buffered_bytes"]) == (0, 0)


async def test_a_thousand_connections_at_once(pep: Proxied) -> None:
    """All arrive whole, and no descriptor is left."""
    job = await pep.start()
    before = await descriptors(pep, job.pid)
    assert json.loads(await pep.client("downloads", "1000")) == {"whole": 1000}
    counted = await pep.settled()
    assert counted["connections"] == counted["server_first_ends"] == 1000
    assert await descriptors(pep, job.pid) == before


async def descriptors(pep: Proxied, pid: int) -> int:
    """Open ones of a process."""
    return len((await pep.lab.run(None, f"ls /proc/{pid}/fd")).splitlines())


async def waiting(pep: Proxied, *words: str) -> tuple[Job, list[str]]:
    """A client with an open connection; the job and its output."""
    argv = [sys.executable, str(PEER), "waiting", "10.10.0.1", *words]
    output: list[str] = []
    name = "-".join(["waiting", *words])
    job = await pep.lab.agent.start_job(name, argv, netns=pep.island, on_output=output.append)
    await job.ready(READY_S)
    return job, output


async def test_a_client_that_does_not_read_holds_up_its_own_server_alone(pep: Proxied) -> None:
    """What is held is bounded by the buffers of two sockets, almost nothing of it in the program."""
    await pep.start()
    argv = [sys.executable, str(PEER), "stalled", "10.10.0.1"]
    stalled = await pep.lab.agent.start_job("stalled", argv, netns=pep.island)
    await stalled.ready(READY_S)
    await asyncio.sleep(1)
    before = await pep.counters()
    assert json.loads(await pep.client("downloads", "20")) == {"whole": 20}
    after = await pep.counters()
    assert after["to_island_bytes"] - before["to_island_bytes"] == 20 * 100_000
    assert 0 < after["held_bytes"] < 50_000_000
    assert after["buffered_bytes"] <= 1 << 16
    await stalled.stop(0, "KILL")
    assert (await pep.settled())["client_resets"] == 1


async def test_a_killed_proxy_leaves_no_connection_hanging(pep: Proxied) -> None:
    """Both peers are reset at once; the next proxy serves on; and nothing of the first is left."""
    killed = await pep.start()
    client, output = await waiting(pep)
    await pep.lab.run(None, f"kill -KILL {killed.pid}")
    await killed.wait()
    await client.wait()
    assert json.loads(output[-1]) == "ECONNRESET"
    assert not await pep.lab.run(pep.box, "ss -Htan")
    await pep.start()
    assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]


async def test_requests_reset_and_list_connections(pep: Proxied) -> None:
    job = await pep.start()
    client, output = await waiting(pep)
    found = (await pep.answer(op="connections", id=3, limit=5))["connections"]
    assert [(one["server"], one["state"], one["to_island_bytes"]) for one in found] == [("10.10.0.1:8005", "open", 5)]
    assert (await pep.answer(op="reset", id=4, pair=1))["connections"] == 0
    assert not (await pep.answer(op="reset", id=5, pair=2))["ok"]
    assert (await pep.answer(op="reset", id=6, pair=0))["connections"] == 1
    await client.wait()
    assert json.loads(output[-1]) == "ECONNRESET"
    mark = await pep.answer(op="mark", id=7)
    assert (mark["connections"], mark["own_resets"]) == (1, 1)
    await job.stop()
    assert (await job.wait()).code == 0
    assert (pep.said[-1]["type"], pep.said[-1]["connections"]) == ("done", 0), "since the mark"


async def test_a_peer_that_vanished_is_noticed(pep: Proxied) -> None:
    """Without data by keepalive, with data by its silence; the other peer is reset."""
    await pep.start(silence_ns=3 * SECOND_NS)
    idle, idle_said = await waiting(pep)
    talking, talking_said = await waiting(pep, "1")
    await pep.lab.run(pep.world, "ip link set w-eth0 down")
    for job, said in ((idle, idle_said), (talking, talking_said)):
        await asyncio.wait_for(job.wait(), 60)
        assert json.loads(said[-1]) == "ECONNRESET"
    assert (await pep.settled())["server_vanished_ends"] == 2


UNANSWERED = (
    "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'"
    " && nft add rule ip t c tcp dport 82 drop"
)


async def test_half_open_connections_are_bounded(pep: Proxied) -> None:
    """Of a flood of first segments to a server that does not answer, so many are pending and the rest is ignored."""
    await pep.start(pending_max=20, handshake_ns=2 * SECOND_NS)
    await pep.lab.run(pep.world, UNANSWERED)
    assert json.loads(await pep.client("flood", "82", "200")) == "sent"
    counted = await pep.counters()
    assert counted["pending_connections"] == 20
    assert counted["ignored_syns"] == 180
    await eventually(lambda: pep.said[-1].get("pending_connections") == 0, "they are given up")
    assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]


async def test_a_server_that_does_not_answer_stops_no_other_one(pep: Proxied) -> None:
    """Of more clients than may be pending, one makes room for each connection to another server."""
    await pep.start(pending_max=20)
    await pep.lab.run(pep.world, UNANSWERED)
    assert json.loads(await pep.client("flood", "82", "200")) == "sent"
    async with asyncio.timeout(60):
        assert json.loads(await pep.client("downloads", "10")) == {"whole": 10}
    counted = await pep.counters()
    evicted = counted["evicted_connections"]
    assert 1 <= evicted <= 10
    assert counted["pending_connections"] == counted["pending_of_a_server"] == 20 - evicted
    assert counted["ignored_syns"] == 180


async def test_half_open_connections_make_room(pep: Proxied) -> None:
    """Clients that never complete their handshakes with servers that accept do not keep others out."""
    await pep.start(pending_max=20)
    assert json.loads(await pep.client("flood", "8004", "200")) == "sent"
    counted = await pep.counters()
    assert counted["pending_connections"] == 20
    assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]
    assert (await pep.counters())["unaccepted_connections"] > 0


async def test_a_burst_of_first_segments_is_not_lost(pep: Proxied) -> None:
    """A thousand arrive while the proxy is off the processor."""
    job = await pep.start()
    await pep.lab.run(pep.world, UNANSWERED)
    await pep.lab.run(None, f"kill -STOP {job.pid}")
    assert json.loads(await pep.client("flood", "82", "1000")) == "sent"
    await pep.lab.run(None, f"kill -CONT {job.pid}")
    await eventually(lambda: pep.said[-1].get("pending_connections") == 1000, "all were seen")


async def test_strangers_cannot_use_it(pep: Proxied) -> None:
    """Neither the rules nor the proxy take packets of a host that is not the experiment's."""
    await pep.start()
    await pep.lab.run(pep.island, "ip address add 10.20.0.99/32 dev i-eth0")
    found = await pep.lab.run(
        pep.island,
        f'{sys.executable} -c \'import socket; socket.create_connection(("10.10.0.1", 8004), 2, ("10.20.0.99", 0))\'',
        check=False,
    )
    assert not found
    counted = await pep.settled()
    assert counted["connections"] == counted["ignored_syns"] == 0


async def test_a_smaller_mtu_is_found_by_the_proxy_and_hidden_from_the_client(tmp_path: Path) -> None:
    """The error about the proxy's segments is applied to its own leg, and is not forwarded."""
    async with machines(tmp_path) as lab:
        pep, _ = await behind_another(lab, 1400)
        await pep.server()
        await pep.start()
        assert json.loads(await pep.client("addresses")) == [["10.10.0.1", 8001], True, True, "FIN", "10.20.0.1:543"]
        seen = [await pep.lab.run(netns, "nstat -asz IcmpInDestUnreachs") for netns in (pep.box, pep.island)]
        errors = [int(text.split()[-2]) for text in seen]
        assert errors[0] > 0
        assert errors[1] == 0


async def test_a_clamped_segment_needs_no_such_error(tmp_path: Path) -> None:
    """The segments of a leg with a largest size fit."""
    async with machines(tmp_path) as lab:
        pep, _ = await behind_another(lab, 1400)
        await pep.server()
        await pep.start(legs={"world": {"mss_bytes": 1348}, "island": {}})
        assert json.loads(await pep.client("addresses"))[1:4] == [True, True, "FIN"]
        assert "IcmpInDestUnreachs              0" in await pep.lab.run(pep.box, "nstat -asz IcmpInDestUnreachs")


@pytest.mark.parametrize("mode", ["after", "early"])
async def test_a_connection_may_pass_two_proxies(tmp_path: Path, mode: str) -> None:
    """Hosts see each other's addresses, resets and refusals through both; the second one tells the first one."""
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        await start(lab, "other", other)
        await pep.start(mode=mode)
        assert json.loads(await pep.client("addresses")) == [["10.10.0.1", 8001], True, True, "FIN", "10.20.0.1:543"]
        assert json.loads(await pep.client("resets")) == [True, "ECONNRESET"]
        refusal = json.loads(await pep.client("attempt", "81"))
        assert ("ECONNREFUSED" if mode == "after" else "ECONNRESET") in refusal
        assert json.loads(await pep.client("downloads", "100")) == {"whole": 100}


@pytest.mark.parametrize("mode", ["after", "early"])
async def test_connections_may_share_one_between_two_proxies(tmp_path: Path, mode: str) -> None:
    """Addresses, data, half-closes, resets and refusals are what they are without it."""
    async with two_proxies(tmp_path, mode=mode) as (pep, _, other):
        assert json.loads(await pep.client("addresses")) == [["10.10.0.1", 8001], True, True, "FIN", "10.20.0.1:543"]
        assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]
        assert json.loads(await pep.client("resets")) == [True, "ECONNRESET"]
        assert json.loads(await pep.client("client_resets")) == [[1000, "ECONNRESET"]]
        refusal = json.loads(await pep.client("attempt", "81"))
        assert ("ECONNREFUSED" if mode == "after" else "ECONNRESET") in refusal
        assert json.loads(await pep.client("downloads", "200")) == {"whole": 200}
        counted = await pep.settled()
        assert counted["multiplexed_connections"] == counted["connections"] >= 205
        assert (counted["server_resets"], counted["client_resets"], counted["refused_connections"]) == (1, 1, 1)
        assert (counted["held_bytes"], counted["buffered_bytes"], counted["multiplex_losses"]) == (0, 0, 0)
        between = await pep.lab.run(other, "ss -Htn 'sport = 1 or dport = 1'")
        assert len(between.splitlines()) == 1, "and no other connection is left"
        assert not await pep.lab.run(other, "ss -Htn state connected exclude time-wait 'sport != 1 and dport != 1'")


@pytest.mark.parametrize("mode", ["after", "early"])
async def test_first_segments_between_two_proxies_may_carry_data(tmp_path: Path, mode: str) -> None:
    """Endings are what they are without it, also where the server speaks first, whatever the far proxy's ``mode``."""
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        for netns in (other, pep.box):
            await lab.run(netns, f"sysctl -qw net.ipv4.tcp_fastopen={0x207}")
        legs = {side: {"world": {}, "island": {}, side: {"fast_open": True}} for side in ("world", "island")}
        await start(lab, "other", other, mode=mode, legs=legs["island"])
        await pep.start(mode="early", legs=legs["world"])
        assert json.loads(await pep.client("addresses")) == [["10.10.0.1", 8001], True, True, "FIN", "10.20.0.1:543"]
        assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]
        assert json.loads(await pep.client("resets")) == [True, "ECONNRESET"]
        assert "ECONNRESET" in json.loads(await pep.client("attempt", "81")), "it says nothing"
        for _ in range(10):  # a client that has a hundred to begin sends later than the 20 ms for which it is awaited
            assert json.loads(await pep.client("downloads", "10")) == {"whole": 10}
        for netns, what in ((pep.box, "Active"), (other, "Passive")):
            carried = await lab.run(netns, f"nstat -asz TcpExtTCPFastOpen{what}")
            assert int(carried.split()[-2]) >= 90, f"of more than 100, most: {carried}"
        client, output = await waiting(pep)
        await pep.lab.run(None, f"kill -KILL {pep.proxy.pid if pep.proxy else 0}")
        await client.wait()
        assert json.loads(output[-1]) == "ECONNRESET"


LATE = (
    "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'"
    " && nft add rule ip t c tcp flags syn quota until 70 bytes drop"
)
"""The first SYN is lost, and repeated after a second."""


@pytest.mark.parametrize("how", ["tcp", "fast open", "multiplexed"])
async def test_what_a_client_sent_before_its_reset_reaches_a_late_server(tmp_path: Path, how: str) -> None:
    """It was accepted early, and is gone when its server answers."""
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        await lab.run(pep.world, LATE)
        given: dict[str, dict[str, Any]] = {side: {"mode": "early"} for side in ("world", "island")}
        for side in ("world", "island"):
            if how == "multiplexed":
                given[side] |= multiplexed(side)
            elif how == "fast open":
                given[side]["legs"] = {"world": {}, "island": {}, side: {"fast_open": True}}
        for netns in (other, pep.box):
            await lab.run(netns, f"sysctl -qw net.ipv4.tcp_fastopen={0x207}")
        await start(lab, "other", other, **given["island"])
        await pep.start(**given["world"])
        if how == "multiplexed":
            await connected(pep)
        assert json.loads(await pep.client("client_resets", "2")) == [[1000, "ECONNRESET"]]
        assert (await pep.settled())["client_resets"] == 1


LOST = (
    "nft add table ip t && nft add chain ip t c '{ type filter hook prerouting priority -300; }'"
    " && nft add rule ip t c tcp sport 1 drop"
)


@pytest.mark.parametrize("side", ["world", "island"])
async def test_an_idle_connection_with_a_small_window_is_renewed(tmp_path: Path, side: str) -> None:
    """By the proxy that connects, or because the other one asks for it; nothing is lost by that."""
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        for netns, leg, to in ((other, "box-i", "10.20.0.0/16"), (pep.box, "box-w", "10.10.0.0/16")):
            await lab.run(netns, f"ip route replace {to} dev {leg} scope link initcwnd 60")
        given = {each: multiplexed(each, window_segments=60 if each == side else 1) for each in ("world", "island")}
        legs = {each: {"congestion_control": "cubic"} for each in ("world", "island")}
        await start(lab, "other", other, legs=legs, **given["island"])
        await pep.start(legs=legs, **given["world"])
        await connected(pep)
        peers = "ss -Htn 'sport = 1' | awk '{print $5}'"
        assert (await lab.run(other, peers)).split() == ["10.20.0.1:1"]
        await lab.run(pep.box, LOST)
        download = asyncio.create_task(pep.client("downloads", "1"))
        await lab.run(pep.box, "sleep 1.5; nft delete table ip t")
        assert json.loads(await download) == {"whole": 1}
        is_successor = f"{peers} | grep -q ':3$'"
        await lab.run(other, f"timeout 20 sh -c {shlex.quote(f'until {is_successor}; do sleep 0.05; done')}")
        assert json.loads(await pep.client("downloads", "50")) == {"whole": 50}
        counted = await pep.settled()
        assert (counted["connections"], counted["multiplexed_connections"], counted["multiplexes"]) == (51, 51, 1)
        assert (counted["multiplex_losses"], counted["own_resets"]) == (0, 0)
        assert (await lab.run(other, peers)).split() == ["10.20.0.1:3"]


async def test_a_stalled_client_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """The stream of a client that does not read gets no more credit; what waits for it is bounded by that."""
    async with two_proxies(tmp_path) as (pep, _, _):
        argv = [sys.executable, str(PEER), "stalled", "10.10.0.1"]
        stalled = await pep.lab.agent.start_job("stalled", argv, netns=pep.island)
        await stalled.ready(READY_S)
        await asyncio.sleep(1)
        assert 0 < (await pep.counters())["buffered_bytes"] <= 4_000_000
        assert json.loads(await pep.client("downloads", "50")) == {"whole": 50}
        await stalled.stop(0, "KILL")
        counted = await pep.settled()
        assert (counted["client_resets"], counted["buffered_bytes"]) == (1, 0)


async def test_streams_share_a_link_equally(tmp_path: Path) -> None:
    """Two transfers beside a client that does not read get a half each, and together most of the link."""
    async with two_proxies(tmp_path) as (pep, _, other):
        await pep.lab.run(other, "tc qdisc add dev box-i root tbf rate 20mbit burst 50000 limit 60000")
        argv = [sys.executable, str(PEER), "stalled", "10.10.0.1"]
        stalled = await pep.lab.agent.start_job("stalled", argv, netns=pep.island)
        await stalled.ready(READY_S)
        await asyncio.sleep(2)  # what it is promised has come
        await pep.lab.agent.start_job("iperf3", ["iperf3", "-s", "-B", "10.10.0.1"], netns=pep.world)
        await pep.lab.run(pep.world, "timeout 10 sh -c 'until ss -Htln sport = 5201 | grep -q .; do sleep 0.05; done'")
        said = json.loads(await pep.lab.run(pep.island, "iperf3 -J -R -P 2 -t 4 -O 1 -c 10.10.0.1"))
        rates = [one["receiver"]["bits_per_second"] for one in said["end"]["streams"]]
        assert min(rates) > 0.85 * max(rates), rates
        assert sum(rates) > 15e6, rates  # on a busy machine, too


ENDS_LATE = """
import socket, struct, time

client = socket.create_connection(("10.10.0.1", 8005))
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
print('{"type":"ready"}', flush=True)
time.sleep(3600)
"""


async def test_frames_for_a_connection_that_has_just_ended_are_ignored(tmp_path: Path) -> None:
    """A proxy finds the reset of an early client and its server's answer at the same time."""
    async with two_proxies(tmp_path, mode="early") as (pep, far, _):
        assert pep.proxy
        await pep.lab.run(None, f"kill -STOP {far.pid}")
        client = await pep.lab.agent.start_job("client", [sys.executable, "-c", ENDS_LATE], netns=pep.island)
        await client.ready(READY_S)
        await pep.counters()
        assert (await pep.counters())["pending_connections"] == 1
        await pep.lab.run(None, f"kill -STOP {pep.proxy.pid}")
        await client.stop(0, "KILL")
        await pep.lab.run(None, f"kill -CONT {far.pid}")
        waits = "ss -Htn '( sport = 1 or dport = 1 )' | awk '$2 > 0' | grep -q ."
        await pep.lab.run(pep.box, f"timeout 10 sh -c {shlex.quote(f'until {waits}; do sleep 0.05; done')}")
        await pep.lab.run(None, f"kill -CONT {pep.proxy.pid}")
        counted = await pep.settled()
        assert (counted["unaccepted_connections"], counted["multiplex_losses"], counted["multiplexes"]) == (1, 0, 1)
        assert json.loads(await pep.client("downloads", "20")) == {"whole": 20}


@pytest.mark.parametrize(("multiplex", "most"), [(False, 100), (True, 199)])
async def test_descriptors_bound_connections(tmp_path: Path, multiplex: bool, most: int) -> None:
    """Two for each, or one where it is multiplexed; first segments beyond that are ignored. A half may be pending."""
    limits = JobLimits(open_files=264)
    async with two_proxies(tmp_path, multiplex=multiplex, limits=limits) as (pep, _, _):
        await pep.lab.run(pep.world, UNANSWERED)
        assert json.loads(await pep.client("flood", "82", "220")) == "sent"
        counted = await pep.counters()
        assert (counted["pending_connections"], counted["ignored_syns"]) == (50, 170)
        argv = [sys.executable, str(PEER), "idle", "10.10.0.1", "220"]
        await pep.lab.agent.start_job("idle", argv, netns=pep.island)
        await eventually(lambda: pep.said[-1].get("ignored_syns", 0) > 170, "one is ignored")
        counted = await pep.counters()
        assert counted["open_connections"] + counted["pending_connections"] == most


async def test_a_proxy_that_exceeds_its_memory_limit_ends_with_that_cause(tmp_path: Path) -> None:
    """Clients that do not read fill it: each stream may bring 4 MB."""
    async with two_proxies(tmp_path, limits=JobLimits(data_bytes=16_000_000)) as (pep, _, _):
        assert pep.proxy
        for number in range(8):
            argv = [sys.executable, str(PEER), "stalled", "10.10.0.1"]
            await pep.lab.agent.start_job(f"stalled-{number}", argv, netns=pep.island)
        async with asyncio.timeout(60):
            ended = await pep.proxy.wait()
        assert str(ended) == "killed: memory limit 16 MB"
        assert re.match(r"memory allocation of \d+ bytes failed", pep.proxy.exit_text()), pep.proxy.exit_text()


async def test_a_proxy_limits_its_memory_by_its_settings(tmp_path: Path) -> None:
    """More connections, more memory."""
    async with two_proxies(tmp_path, connections_max=40_000) as (pep, far, _):
        assert pep.proxy
        shown = "awk '/^Max data size/ { print $4 }'"
        own, others = [int(await pep.lab.run(None, f"{shown} /proc/{job.pid}/limits")) for job in (pep.proxy, far)]
        assert 128e6 < others < 2e9
        assert own - others == 20_000 * 4096


CUT = (
    "nft add table ip t && nft add chain ip t c '{ type filter hook prerouting priority -300; }'"
    " && nft add rule ip t c tcp dport 1 drop"
)


async def test_connections_are_reset_with_the_one_that_carries_them(tmp_path: Path) -> None:
    """It is made again by itself; connections that begin meanwhile are split one by one."""
    async with two_proxies(tmp_path) as (pep, far, other):
        client, output = await waiting(pep)
        await pep.lab.run(other, CUT)
        await pep.lab.run(pep.box, "ss -Ktn 'dport = 1'")
        await client.wait()
        assert json.loads(output[-1]) == "ECONNRESET"
        assert json.loads(await pep.client("half_closed")) == ["hello" * 5, "FIN"]
        counted = await pep.settled()
        assert (counted["multiplex_losses"], counted["own_resets"], counted["multiplexes"]) == (1, 1, 0)
        assert (counted["connections"], counted["multiplexed_connections"]) == (2, 1)
        await pep.lab.run(other, "nft delete table ip t")
        await connected(pep)
        assert json.loads(await pep.client("downloads", "20")) == {"whole": 20}
        assert (await pep.settled())["multiplexed_connections"] == 21
        await pep.lab.run(None, f"kill -KILL {far.pid}")
        await far.wait()
        await start(pep.lab, "again", other, **multiplexed("island"))
        await connected(pep)
        assert json.loads(await pep.client("downloads", "20")) == {"whole": 20}


BETWEEN = {
    "tcp": {"world": {}, "island": {}},
    "multiplexed": {side: multiplexed(side) for side in ("world", "island")},
}


@pytest.mark.parametrize("between", BETWEEN)
async def test_every_ending_is_passed_on_over_a_lossy_link(tmp_path: Path, between: str) -> None:
    """In turn, two hundred at a time: no byte is missing, no ending is another one, and nothing is left."""
    flows = 700
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        await lose_packets(pep, other)
        far = await start(lab, "other", other, silence_ns=4 * SECOND_NS, **BETWEEN[between]["island"])
        near = await pep.start(silence_ns=4 * SECOND_NS, **BETWEEN[between]["world"])
        if between == "multiplexed":
            await connected(pep)
        before = [await descriptors(pep, job.pid) for job in (far, near)]
        assert await pep.endings(flows, 200) == {name: {RIGHT: flows // len(ENDINGS)} for name in ENDINGS}
        counted = await pep.settled()
        assert (counted["buffered_bytes"], counted["own_resets"]) == (0, 0)
        assert [await descriptors(pep, job.pid) for job in (far, near)] == before


async def test_a_proxy_that_does_not_multiplex_is_no_other_end(tmp_path: Path) -> None:
    """Connections are split one by one then, as if nothing had been said."""
    async with machines(tmp_path) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        await start(lab, "other", other, mode="early")
        await pep.start(**multiplexed("world"))
        assert json.loads(await pep.client("downloads", "20")) == {"whole": 20}
        assert (await pep.settled())["multiplexed_connections"] == 0

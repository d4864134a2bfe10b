# SPDX-License-Identifier: Apache-2.0
"""Clients and servers that fall silent are found; what lost packets, large flows and blockages explain is not."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from atoll_analysis import analyse
from atoll_analysis.verdict.silence import FlowLog, PayloadSpan, judge_silences, silences, tries
from atoll_core.experiment.experiment import LinkDirection
from atoll_core.experiment.flow_sizes import published
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import START_NS, begin, experiment, network

pytestmark = pytest.mark.long

NAMES = tuple("123456")
ALL = PayloadSpan(0.6, 59.8)
RTT_S = 0.75
TIMEOUT_S = 3 * RTT_S


@dataclass(frozen=True)
class Run:
    """Six clients with four channels each, six servers, 60 s on a GEO link, all seen to the end."""

    servers: dict[str, PayloadSpan] = field(default_factory=lambda: {f"w{name}": ALL for name in NAMES})
    clients: dict[str, PayloadSpan] = field(default_factory=lambda: {f"i{name}": ALL for name in NAMES})
    channels: dict[str, int] = field(default_factory=lambda: {f"i{name}": 4 for name in NAMES})
    begun: tuple[FlowLog, ...] = ()
    end_s: float = 60.0
    loss: float = 0.002
    idle_s: dict[str, float] = field(default_factory=dict[str, float])

    def found(self) -> tuple[list[str], list[str]]:
        """Hosts that are silent for sure, and those that are noticed."""
        idle_s = dict.fromkeys(self.clients, 0.0) | self.idle_s
        found = silences(
            self.servers, self.clients, self.channels, self.begun, self.end_s, TIMEOUT_S, idle_s, self.loss
        )
        said = judge_silences(found, len(self.clients), self.loss)
        return [each["host"] for each, sure in said if sure], [each["host"] for each, sure in said if not sure]


def flow(client: str, channel: int, server: str, start_s: float, end_s: float = 60.0, **changes: object) -> FlowLog:
    plain = FlowLog(client, channel, server, start_s, end_s, received_bytes=0, failed=False)
    return replace(plain, **changes)  # pyright: ignore[reportArgumentType]


def clients(**others: PayloadSpan) -> dict[str, PayloadSpan]:
    return {**{f"i{name}": ALL for name in NAMES}, **others}


def servers(**others: PayloadSpan) -> dict[str, PayloadSpan]:
    return {**{f"w{name}": ALL for name in NAMES}, **others}


ONE_EACH = {f"i{name}": 1 for name in NAMES}
ENDED = {f"i{name}": PayloadSpan(0.6, 4.0 + int(name)) for name in "23456"}


def test_a_run_in_which_all_were_seen_to_the_end_has_no_silence() -> None:
    assert Run().found() == ([], [])


@pytest.mark.parametrize("loss", [0.002, 0.01, 0.02])
@pytest.mark.parametrize("channels", [1, 4])
def test_five_of_six_clients_that_fell_silent_after_a_few_seconds_are_named(channels: int, loss: float) -> None:
    """With one channel each and more losses none of them is proven alone: they count together."""
    run = Run(clients=clients(**ENDED), channels=dict.fromkeys(ONE_EACH, channels), loss=loss)
    assert run.found() == (["i2", "i3", "i4", "i5", "i6"], [])


def test_a_client_that_began_late_is_named() -> None:
    assert Run(clients=clients(i3=PayloadSpan(40.0, 59.8))).found() == (["i3"], [])


@pytest.mark.parametrize("channels", [1, 2])
def test_a_client_that_was_never_seen_is_named_and_in_a_short_run_noticed(channels: int) -> None:
    run = Run(clients=clients(i3=PayloadSpan(None, None)), channels={**ONE_EACH, "i3": channels})
    assert run.found() == (["i3"], [])
    shown = {name: PayloadSpan(0.6, 4.9) for name in ONE_EACH}
    short = replace(run, clients={**shown, "i3": PayloadSpan(None, None)}, servers={}, end_s=5.0)
    assert short.found() == ([], ["i3"])
    assert replace(short, channels={**ONE_EACH, "i3": 0}).found() == ([], [])


def test_the_only_channel_of_a_lossy_link_is_a_caveat() -> None:
    run = Run(clients=clients(i3=PayloadSpan(0.6, 20.0)), channels=ONE_EACH, loss=0.02)
    assert run.found() == ([], ["i3"])


def test_a_server_that_stopped_is_named_although_all_channels_got_stuck_at_it() -> None:
    begun = tuple(flow(f"i{name}", channel, "w1", 12.0 + channel) for name in NAMES for channel in range(4))
    stuck = dict.fromkeys(ONE_EACH, PayloadSpan(0.6, 34.0))
    others = {f"w{name}": PayloadSpan(0.6, 28.0 + int(name)) for name in NAMES} | {"w1": PayloadSpan(0.6, 10.0)}
    assert Run(servers=others, clients=stuck, begun=begun).found() == (["w1"], [])


def test_a_server_that_nothing_was_asked_of_is_not_silent() -> None:
    """In a closed loop all channels may be in large flows of others."""
    assert Run(servers=servers(w1=PayloadSpan(0.6, 10.0))).found() == ([], [])
    assert Run(servers=servers(w1=PayloadSpan(30.0, 59.0))).found() == ([], [])


def test_a_server_that_refuses_connections_is_silent() -> None:
    begun = tuple(flow(f"i{name}", 0, "w1", t_s, t_s + 0.6, failed=True) for name in NAMES for t_s in (20.0, 40.0))
    waits = (flow("i1", 1, "w1", 12.0), flow("i2", 1, "w1", 12.0), flow("i3", 1, "w1", 12.0))
    assert Run(servers=servers(w1=PayloadSpan(0.6, 10.0)), begun=(*begun, *waits)).found() == (["w1"], [])


def test_a_broken_client_is_no_witness_against_a_server() -> None:
    waits = tuple(flow("i2", channel, "w1", 51.0) for channel in range(4))
    late = Run(servers=servers(w1=PayloadSpan(0.6, 50.5)), clients=clients(i2=PayloadSpan(0.6, 10.0)), begun=waits)
    assert late.found() == (["i2"], [])


def test_nothing_is_asked_of_a_channel_that_pauses() -> None:
    assert Run(clients=clients(i3=PayloadSpan(0.6, 20.0)), idle_s={"i3": 36.0}).found() == ([], [])


def test_pauses_of_one_client_do_not_excuse_another() -> None:
    stopped = clients(i3=PayloadSpan(0.6, 20.0), i4=PayloadSpan(0.6, 20.0))
    assert Run(clients=stopped, idle_s={"i3": 36.0}).found() == (["i4"], [])


def test_that_nothing_arrives_while_pings_do_is_a_silence_of_all() -> None:
    """Where pings end with the flows, the link carried nothing."""
    stuck = dict.fromkeys(ONE_EACH, PayloadSpan(0.6, 30.0))
    assert Run(clients=stuck, servers={}).found() == (list(stuck), [])
    assert Run(clients=stuck, servers={}, end_s=30.5).found() == ([], [])


def test_a_planned_outage_and_what_tcp_waits_after_it_are_no_silence() -> None:
    """Blocked to 30 s, and so silent to 50 s: the tries follow each other twice as far apart."""
    cut = PayloadSpan(0.6, 10.2, ((10.0, 30.0),))
    assert Run(clients=dict.fromkeys(ONE_EACH, cut), servers={}).found() == ([], [])
    others = clients(i3=PayloadSpan(0.6, 10.2, ((10.0, 60.0),)))
    assert Run(clients=others).found() == ([], [])
    long_after = Run(clients=dict.fromkeys(ONE_EACH, cut), servers={}, end_s=600.0)
    assert long_after.found() == (list(ONE_EACH), [])


def test_tries_go_on_as_they_were_timed_from_the_begin_of_a_blockage() -> None:
    assert tries(0.0, 15.0, (), 1.0) == 4
    assert tries(0.0, 14.9, (), 1.0) == 3
    assert tries(0.0, 15.0, ((0.0, 6.0),), 1.0) == 1
    assert tries(8.0, 15.0, ((0.0, 6.0),), 1.0) == 0
    assert tries(20.0, 35.0, ((0.0, 6.0),), 1.0) == 4


@pytest.mark.parametrize(
    ("channels", "rate_bit_s", "duration_s"), [(4, 2e5, 600.0), (4, 2e6, 600.0), (8, 2e6, 600.0), (20, 16e6, 60.0)]
)
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_closed_loops_of_heavy_tailed_flows_raise_no_alarm(
    channels: int, rate_bit_s: float, duration_s: float, loss: float
) -> None:
    """At the level of flows: the published sizes, each try lost as packets are."""
    for seed in range(200):
        assert _simulated(seed, channels, rate_bit_s, duration_s, loss).found()[0] == [], seed


def _simulated(seed: int, channels: int, rate_bit_s: float, duration_s: float, loss: float) -> Run:
    draw, quantile = random.Random(seed).random, published().quantile
    spans: dict[str, list[float]] = {}  # of a host's payload: first and last
    flows: list[tuple[str, int, str, float, float, bool]] = []
    placed = dict.fromkeys(ONE_EACH, 0)
    byte_s = 8 * channels / rate_bit_s
    for channel in range(channels):
        client = f"i{NAMES[channel % len(NAMES)]}"
        placed[client] += 1
        t_s = 0.0
        while t_s < duration_s:
            server, start_s = f"w{NAMES[int(draw() * len(NAMES))]}", t_s
            left_s = quantile(draw()) * byte_s
            first_s = last_s = t_s = t_s + _lost_s(draw, loss) + 2 * RTT_S
            # What is on its way comes in pieces, before each of which tries may be lost.
            while t_s < duration_s:
                last_s = t_s
                if left_s <= 0:
                    break
                piece_s = min(left_s, 1.0)
                left_s -= piece_s + byte_s
                t_s += piece_s + _lost_s(draw, loss)
            received = first_s < duration_s
            if received:
                for host in (client, server):
                    span = spans.setdefault(host, [first_s, last_s])
                    span[:] = min(span[0], first_s), max(span[1], last_s)
            flows.append((client, channel, server, start_s, min(t_s, duration_s), received))
    seen = {host: PayloadSpan(first_s, last_s) for host, (first_s, last_s) in spans.items()}
    nothing = PayloadSpan(None, None)
    return Run(
        servers={f"w{name}": seen.get(f"w{name}", nothing) for name in NAMES},
        clients={name: seen.get(name, nothing) for name, count in placed.items() if count},
        channels=placed,
        begun=tuple(
            flow(client, channel, server, start_s, ended_s, received_bytes=int(received))
            for client, channel, server, start_s, ended_s, received in flows
            for first_s, last_s in [spans.get(server, (math.inf, -math.inf))]
            if start_s < first_s or ended_s > last_s  # those that the analysis takes
        ),
        end_s=duration_s,
        loss=loss,
    )


def _lost_s(draw: Callable[[], float], loss: float) -> float:
    wait_s, lost_s = 1.0, 0.0
    while draw() < 2 * loss:
        lost_s += wait_s
        wait_s *= 2
    return lost_s


def test_a_run_on_a_slow_link_of_which_no_byte_arrived_is_invalid(tmp_path: Path) -> None:
    """Each flow waited for one timeout of 9 s only: none of them proves anything alone."""
    slow = LinkDirection(Rate(64_000), Duration(250_000_000), Size(10_000))
    asked = experiment(links=(replace(experiment().links[0], to_island=slow, to_world=slow),), transfer=None)
    run = begin(tmp_path, asked, network())
    flows = [f"{channel},{channel},10.10.0.1:5001,1000,0,{START_NS},,,{START_NS + 10**10},cut" for channel in range(4)]
    header = "channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome"
    for number in range(1, 6):
        (run.logs / f"flows-i{number}.csv").write_text("\n".join([header, *flows]) + "\n")
    pings = [{"type": "reply", "target": "is", "seq": 0, "sent_ns": START_NS + 9_900_000_000, "rtt_ns": 512_900_000}]
    (run.logs / "ping.out").write_text("".join(json.dumps(line) + "\n" for line in pings))
    summary = analyse(run, find_binary())
    assert summary["flow_tries"] == 20
    assert (
        "no byte arrived in any of 20 flows, although pings were answered; 20 timeouts, and links lost 0.00% of all "
        "packets in both directions: by chance in less than one run of 1,000,000" in summary["reasons"]
    )

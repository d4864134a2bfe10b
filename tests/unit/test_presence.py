# SPDX-License-Identifier: Apache-2.0
"""Clients and servers that fall silent are found; those that chance, few channels or long flows explain are not."""

import random
from typing import Any, cast

import pytest

from atoll.analysis.presence import silences
from atoll.analysis.summary import Summary

NAMES = tuple("123456")


def volume(first_s: float | None, last_s: float | None) -> dict[str, Any]:
    return {"goodput_bytes": 1, "payload_first_s": first_s, "payload_last_s": last_s}


def clients(**others: dict[str, Any]) -> dict[str, Any]:
    return {**{f"i{name}": volume(0.6, 59.8) for name in NAMES}, **others}


def summary(**changes: Any) -> Summary:
    """Six clients with 20 channels, six servers, 60 s on a GEO link, all seen to the end."""
    whole = {
        "duration_s": 60.0,
        "placement": {f"i{name}": 4 if name in "12" else 3 for name in NAMES},
        "clients": clients(),
        "servers": {f"w{name}": volume(0.6, 59.8) for name in NAMES},
        "flows_completed": 400,
        "base_rtt_ms": 500.0,
        "sojourn_bound_ms": 50.0,
        "terrestrial_rtt_ms": {},
        "ping_last_s": 59.9,
    }
    return cast("Summary", {**whole, **changes})


def silent(**changes: Any) -> list[str]:
    return [each.host for each in silences(summary(**changes))]


def test_a_run_in_which_all_were_seen_to_the_end_has_no_silence() -> None:
    assert silent() == []


def test_five_of_six_clients_that_fell_silent_after_a_few_seconds_are_named() -> None:
    """Although the one that is left completes few flows: the rate is that of the channels while they were seen."""
    ended = {f"i{name}": volume(0.6, 4.0 + int(name)) for name in "23456"}
    assert silent(clients=clients(**ended), flows_completed=64) == ["i2", "i3", "i4", "i5", "i6"]


def test_a_client_that_began_late_is_named() -> None:
    (found,) = silences(summary(clients=clients(i3=volume(40.0, 59.8))))
    assert (found.host, found.before, found.at_s) == ("i3", True, 40.0)
    assert found.flows == pytest.approx(39.4 * 3 * 400 / (59.2 * 17 + 19.8 * 3), rel=0.1)


def test_a_server_that_stopped_is_named_although_all_channels_got_stuck_at_it() -> None:
    servers = {f"w{name}": volume(0.6, 28.0 + int(name)) for name in NAMES} | {"w1": volume(0.6, 10.0)}
    stuck = {f"i{name}": volume(0.6, 34.0) for name in NAMES}
    assert silent(servers=servers, clients=stuck, flows_completed=180, ping_last_s=34.0) == ["w1"]


def test_that_nothing_arrives_while_pings_do_is_a_silence_of_all() -> None:
    """Where pings end with the flows, the link carried nothing."""
    stuck = {f"i{name}": volume(0.6, 30.0) for name in NAMES}
    assert silent(clients=stuck, servers={}) == list(stuck)
    assert silent(clients=stuck, servers={}, ping_last_s=30.5) == []


ONE_EACH = {f"i{name}": 1 for name in NAMES}


@pytest.mark.parametrize(
    "changes",
    [
        {"duration_s": 5.0, "flows_completed": 33, "clients": {f"i{name}": volume(0.6, 4.9) for name in NAMES}},
        {"flows_completed": 20},  # long flows
        {"placement": ONE_EACH, "flows_completed": 60},  # few channels
    ],
)
def test_short_runs_few_channels_and_long_flows_are_no_silence(changes: dict[str, Any]) -> None:
    """i3 is not seen behind 2 s in any of them."""
    seen = {**changes.get("clients", clients()), "i3": volume(0.6, 2.0)}
    assert silent(**{**changes, "clients": seen}) == []


def test_what_older_versions_analysed_tells_nothing() -> None:
    assert silent(clients={"i3": {"goodput_bytes": 1}}, servers={}) == []
    assert silent(clients={}, servers={}) == []


def test_random_loads_raise_no_false_alarm() -> None:
    """Flows of random lengths, every fifth of which waits for timeouts: none of 1000 runs is found silent."""
    draw = random.Random(1)
    for _ in range(1000):
        mean_s, duration_s = draw.choice((0.3, 2.0, 10.0)), draw.choice((5.0, 60.0, 120.0))
        placement = {f"i{name}": draw.randint(1, 4) for name in NAMES}
        channels = {name: [_channel(draw, mean_s, duration_s) for _ in range(n)] for name, n in placement.items()}
        seen = {name: volume(0.6, max(last for last, _ in each)) for name, each in channels.items()}
        completed = sum(count for each in channels.values() for _, count in each)
        assert (
            silent(
                placement=placement,
                clients=seen,
                servers={},
                duration_s=duration_s,
                flows_completed=completed,
                ping_last_s=duration_s,
            )
            == []
        )


def _channel(draw: random.Random, mean_s: float, duration_s: float) -> tuple[float, int]:
    """When a channel was last seen, and how many flows it completed."""
    t_s, last_s, completed = 0.6, 0.6, 0
    while True:
        for _ in range(2):  # halves of a flow
            t_s += draw.expovariate(2 / mean_s)
            if t_s >= duration_s:
                return duration_s, completed
            last_s, wait_s = t_s, 1.0
            while draw.random() < (0.1 if wait_s == 1.0 else 0.05):
                t_s += wait_s
                wait_s *= 2
            if t_s >= duration_s:
                return last_s, completed
        completed += 1

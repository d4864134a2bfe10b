# SPDX-License-Identifier: Apache-2.0
"""Probes on a real data plane: they arrive where it is whole, and say in one line where it is not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, QUICK, ROOT, Sandbox

pytestmark = pytest.mark.lab

RTT_NS = 220_000_000

Said = dict[str, Any]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What was said in one lab, brought up once (probed_guest)."""
    with Sandbox(tmp_path_factory.mktemp("probes")) as sandbox:
        guest = ["env", "-C", ROOT, ROOT / ".venv/bin/python", "-m", "tests.guests.probed_guest", QUICK]
        done = sandbox.run(*guest, limit_s=200)
        assert done.returncode == 0, done.stderr
        assert sandbox.traces() == []
    return json.loads(done.stdout)


@pytest.mark.parametrize("protocol", ["icmp", "tcp", "udp", "back"])
def test_probes_of_every_protocol_prove_a_whole_path(said: Said, protocol: str) -> None:
    """Every entry counted, every box and tap saw them, answers took the configured time at least."""
    found = said[protocol]
    assert found["proven"], found["text"]
    assert found["lost"] is None
    assert len(found["rtts_ns"]) == found["sent"] == 5
    assert found["rtt_ns"] == RTT_NS
    assert min(found["rtts_ns"]) > RTT_NS - 200_000  # how much longer on a busy machine, nobody knows
    for station in found["stations"]:
        assert (station["counted"] or 0) >= 5 or station["seen"] == 5, station
    seen = {station["hop"]["name"] for station in found["stations"] if station["seen"] == 5}
    assert {"delay", "tap-w", "sat", "tap-i"} <= seen


def test_times_along_the_way_are_those_of_the_boxes(said: Said) -> None:
    """The link's delay lies between the station before it and the one behind it; nothing arrives before its time."""
    after = {station["hop"]["name"]: station["after_ns"] for station in said["icmp"]["stations"]}
    assert after["tap-w"] - after["delay"] >= 100_000_000, "half of the class's RTT"
    assert after["tap-i"] - after["sat"] >= 10_000_000
    assert min(said["icmp"]["rtts_ns"]) >= after["tap-i"] - after["delay"], "within the round trip"


def test_a_missing_entry_is_where_probes_are_lost(said: Said) -> None:
    """Named by switch, port and the reason it was asked for."""
    found = said["gap"]
    assert not found["proven"]
    expected = (
        "after 'ws -> sat: not delayed' at sw-w1/10: sw-c does not have the entry 'ws -> sat: not delayed' at sw-c/1"
    )
    assert found["lost"] == expected
    assert [s["seen"] for s in found["stations"] if s["hop"]["name"] in ("sat", "i1")] == [0, 0]


def test_a_cut_cable_is_behind_the_box_that_saw_them_last(said: Said) -> None:
    """The box saw them come, the entry behind it counted none."""
    assert said["cut"]["lost"] == "after sat: 'sat -> island: out of the chain' at sw-c/16 did not count them"


def test_a_new_version_is_proven_before_traffic_takes_it(said: Said) -> None:
    """A probe for every entry at the edge, UDP for the chain that carries only that; nothing wrong, nothing said."""
    assert said["whole"] == ""
    assert {"w1 -> i1, datagrams", "i1 -> w2, datagrams", "ws -> i5, main", "is -> w2, main"} <= set(said["probes"])


def test_a_new_version_that_lacks_an_entry_is_found_out(said: Said) -> None:
    """One line: who, through which chain, by which entry, how far it came."""
    assert said["lacking"] == (
        "probe ws -> i5 through chain main, sent by 'ws -> pep-w: not delayed' at sw-w1/10: it was sent 6 times and "
        "did not arrive at i5: last counted by 'ws -> pep-w: not delayed' at sw-c/1; sent on to pep-w; at sw-c/12 no "
        "entry matches it; look at the table of sw-c, by `atoll switches entries sw-c`"
    )


def test_a_wrong_port_is_found_out(said: Said) -> None:
    """Frames come to a switch that expects none."""
    assert re.fullmatch(
        r"probe ws -> i5 through chain main, sent by .*: it was sent 6 times and did not arrive at i5: last counted by "
        r"'pep-w -> sat: chain, to island' at sw-c/12; at sw-w2/24 no entry matches it; look at the table of sw-w2, "
        r"by `atoll switches entries sw-w2`",
        said["wrong"],
    )


def test_a_tap_without_its_copy_is_found_out(said: Said) -> None:
    """Though packets arrive."""
    assert said["blind"].startswith(
        "probe ws -> i5 through chain main, sent by 'ws -> pep-w: not delayed' at sw-w1/10: it arrived at i5, but "
        "did not reach tap-w: "
    )


def test_applying_to_a_dead_box_fails_and_is_undone(said: Said) -> None:
    """A line a path, of the first ten, and the tables are as they were."""
    lines = said["dead"].splitlines()
    assert len(lines) == 12
    assert lines[0] == (
        "probe w1 -> i1 (icmp) through chain main: no answer: last counted by 'pep-w -> sat: chain, to island' at "
        "sw-c/12; sent on to sat; 'sat -> pep-i: chain, to island' at sw-c/16 did not count it; look at sat and the "
        "cable from its sat-i to sw-c/16, by `atoll switches counters sw-c`"
    )
    assert re.fullmatch(r"and \d+ more paths", lines[-2])
    assert "`atoll trace EXPERIMENT w1 i1 --protocol icmp --live`" in lines[-1]
    assert any("through chain datagrams" in line for line in lines)
    assert said["restored"]


def test_the_verb_proves_the_lab_that_is_up(tmp_path: Path) -> None:
    """`atoll trace --live`: a table, exit code 0; another experiment than what stands is refused."""
    with Sandbox(tmp_path) as sandbox:
        none = sandbox.run(ATOLL, "trace", QUICK, "w1", "i1", "--live")
        assert (none.returncode, none.stderr) == (1, "no lab is up; `atoll up LAB` starts one\n")
        up = sandbox.run(ATOLL, "up", QUICK, *ON_RUNTIME, "--json")
        assert up.returncode == 0, up.stderr
        good = sandbox.run(ATOLL, "trace", QUICK, "w1", "i1", "--live", "--probes", "3")
        assert good.returncode == 0, good.stderr + good.stdout
        answered = re.match(
            r"tcp from w1 to i1 takes chain main: proven, 3 of 3 probes answered after ([\d.]+) ", good.stdout
        )
        assert answered, good.stdout
        assert float(answered[1]) >= RTT_NS / 1e6 - 0.2
        answer = sandbox.run(ATOLL, "trace", QUICK, "i1", "w1", "--live", "--json")
        assert json.loads(answer.stdout)["proven"] is True
        other = sandbox.run(ATOLL, "trace", ROOT / "examples/geo.yaml", "w1", "i1", "--live")
        assert other.returncode == 1
        assert "island is up with experiment quick, not experiment geo on" in other.stderr
        assert sandbox.run(ATOLL, "down").returncode == 0

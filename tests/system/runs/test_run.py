# SPDX-License-Identifier: Apache-2.0
"""The main job in real time: a run's only excuse is lateness, and what a lab that stays up does and refuses.

The figures of a run, and what the wire says of them, are exact in virtual time: test_virtual_figures.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from tests.support.sandbox import ATOLL, GEO, ROOT, Sandbox, faults

pytestmark = pytest.mark.lab

MEO = ROOT / "examples" / "meo.yaml"

CONFIGURED_RTT_MS = {"w1": 5, "w2": 20, "w3": 50, "w4": 90, "w5": 140, "w6": 200}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("run")) as box:
        yield box


def shell(sandbox: Sandbox, line: str) -> str:
    """What Mininet's CLI on the running lab answers to a line."""
    return sandbox.run(ATOLL, "shell", input=line + "\n", limit_s=100).stdout


@pytest.mark.figures
def test_a_run_leaves_nothing_but_its_directory_and_its_only_excuse_is_lateness(sandbox: Sandbox) -> None:
    """On a busy machine the emulator may be late, and the run must then say so; nothing else may be wrong."""
    done = sandbox.run(ATOLL, "run", GEO, "--duration", "6 s", "--json", limit_s=150)
    assert done.returncode in (0, 3), done.stderr
    assert sandbox.traces() == []
    summary: dict[str, Any] = json.loads(done.stdout)
    assert faults(summary) == []
    assert (summary["verdict"] == "invalid") == (summary["reasons"] != [])
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"]
    assert 500 <= summary["base_rtt_ms"] <= 520
    for server, rtt in summary["terrestrial_rtt_ms"].items():
        assert rtt["configured"] == CONFIGURED_RTT_MS[server]
    run = Path(summary["run_dir"])
    for name in ("manifest.json", "events.jsonl", "link.jsonl", "metrics.lp.zst", "summary.json", "report.html"):
        assert run.joinpath(name).stat().st_size > 0
    outside = json.loads((run / "manifest.json").read_text())["lost_outside"]
    (counted,) = outside["machines"].values()
    assert counted["on_cables_packets"] == 0, "whatever else this machine dropped"
    assert outside["uncounted"] == {}
    assert outside["ports"] is not None, "the switches' own sockets are looked at, too"
    points = [line.partition(",")[0] for line in read_spool(run / SPOOL)]
    for measurement in ("machine", "agent", "clock", "tcp", "udp", "job", "interface"):  # as the agent tells them
        assert points.count(measurement) >= 4, f"{measurement}: told every second"


class TestLabThatStays:
    """One lab, up with the MEO chain of routed boxes, changed by `apply` and by hand."""

    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def lab(sandbox: Sandbox) -> Iterator[None]:
        up = sandbox.run(ATOLL, "up", MEO)
        assert up.returncode == 0, up.stderr
        yield
        assert sandbox.run(ATOLL, "down").returncode == 0
        sandbox.wait_clean()

    def test_every_routed_box_is_crossed_in_both_directions(self, sandbox: Sandbox) -> None:
        """Four plain routers stand in the chain: every server's ping is answered with a TTL of 64 - 4."""
        for server in CONFIGURED_RTT_MS:
            assert "ttl=60" in shell(sandbox, f"{server} ping -c 1 10.20.0.1"), server

    def test_no_host_reaches_what_no_entry_promises(self, sandbox: Sandbox) -> None:
        """Not even with a route and a neighbour of its own making: no entry takes world hosts to world hosts."""
        shell(sandbox, "w1 ip route add 10.10.0.2 dev w1-eth0")
        shell(sandbox, "w1 ip neigh replace 10.10.0.2 lladdr 02:a7:00:01:00:02 dev w1-eth0")
        assert "1 packets transmitted, 0 received" in shell(sandbox, "w1 ping -c 1 -W 1 10.10.0.2")

    def test_no_switch_forwards_by_itself(self, sandbox: Sandbox) -> None:
        for switch in ("sw-w1", "sw-w2", "sw-c", "sw-i"):
            table = shell(sandbox, f"sh ovs-ofctl -O OpenFlow13 dump-flows {switch}")
            assert "actions=" in table
            for word in ("NORMAL", "FLOOD", "CONTROLLER", "ALL", "mod_dl", "eth_src", "eth_dst"):
                assert word not in table

    def test_a_second_apply_changes_nothing(self, sandbox: Sandbox) -> None:
        assert json.loads(sandbox.run(ATOLL, "apply", MEO, "--json").stdout)["changes"] == []

    def test_an_entry_removed_by_hand_is_put_back(self, sandbox: Sandbox) -> None:
        """The daemon holds the switches at the plan: nobody has to apply it again."""
        entry = "sw-w1 in_port=3,ip,nw_src=10.10.0.3"
        held = shell(sandbox, f"sh ovs-ofctl -O OpenFlow13 dump-flows {entry}").count("actions=")
        assert held > 0
        shell(sandbox, f"sh ovs-ofctl -O OpenFlow13 del-flows {entry}")
        deadline = time.monotonic() + 20
        while shell(sandbox, f"sh ovs-ofctl -O OpenFlow13 dump-flows {entry}").count("actions=") < held:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert " 1 received" in shell(sandbox, "w3 ping -c 1 -W 1 10.20.0.1")
        assert json.loads(sandbox.run(ATOLL, "apply", MEO, "--json").stdout)["changes"] == []

    def test_another_chain_is_a_matter_of_flow_entries(self, sandbox: Sandbox) -> None:
        """From routed boxes to the bare link: the TTL tells that they are left out, the RTT that the link is GEO."""
        assert sandbox.run(ATOLL, "apply", GEO).returncode == 0
        answer = shell(sandbox, "ws ping -c 1 -W 2 10.20.1.1")
        assert "ttl=64" in answer
        rtt = re.search(r"time=([0-9.]+) ms", answer)
        assert rtt is not None
        assert float(rtt.group(1)) >= 500

    def test_no_arp_crosses_the_experiment_network(self, sandbox: Sandbox) -> None:
        shell(sandbox, "w1 ping -c 1 -W 2 10.20.0.1")
        assert "REACHABLE" not in shell(sandbox, "w1 ip neigh")
        assert "PERMANENT" in shell(sandbox, "w1 ip neigh")

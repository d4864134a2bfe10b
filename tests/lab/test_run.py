# SPDX-License-Identifier: Apache-2.0
"""The main job, end to end: a run's figures, and the proof on the wire that they are about what was configured."""

import csv
import json
import re
import subprocess
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.analysis.records import RECORD
from tests.lab.sandbox import ATOLL, ROOT, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.figures, pytest.mark.timeout(240)]

GEO = ROOT / "examples" / "geo.yaml"
MEO = ROOT / "examples" / "meo.yaml"

HOST_BINARY = ROOT / "target" / "release" / "atoll-host"

# Ports of the chain switch, as in emulation/labs/island.yaml.
SAT_PORTS = (15, 16)
PEP_PORTS = {11: "pep-w", 12: "pep-w", 19: "pep-i", 20: "pep-i"}
CODER_PORTS = {13: "coder-w", 14: "coder-w", 17: "coder-i", 18: "coder-i"}

CONFIGURED_RTT_MS = {"w1": 5, "w2": 20, "w3": 50, "w4": 90, "w5": 140, "w6": 200}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("run")) as box:
        yield box


@pytest.fixture(scope="module")
def summary(sandbox: Sandbox) -> dict[str, Any]:
    """The summary of one run of the demo experiment, cut to 20 s."""
    return run_json(sandbox, GEO, "--duration", "20 s")


def run_json(sandbox: Sandbox, *arguments: str | Path) -> dict[str, Any]:
    done = sandbox.run(ATOLL, "run", *arguments, "--json", limit_s=150)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def shell(sandbox: Sandbox, line: str) -> str:
    """What Mininet's CLI on the running lab answers to a line."""
    return sandbox.run(ATOLL, "shell", input=line + "\n", limit_s=30).stdout


def test_a_run_leaves_nothing_but_its_directory(sandbox: Sandbox, summary: dict[str, Any]) -> None:
    assert sandbox.traces() == []
    run = Path(summary["run_dir"])
    for name in ("manifest.json", "events.jsonl", "link.jsonl", "metrics.lp.zst", "summary.json", "report.html"):
        assert run.joinpath(name).stat().st_size > 0
    assert {path.name for path in (run / "captures").iterdir()} == {
        "world.pcap.zst",
        "island.pcap.zst",
        "link-sat.pcap.zst",
    }


def test_the_only_excuse_of_an_invalid_run_is_lateness(summary: dict[str, Any]) -> None:
    """On a busy machine the emulator may be late, and the run must then say so; nothing else may be wrong."""
    others = [reason for reason in summary["reasons"] if "late" not in reason]
    assert others == []
    assert (summary["verdict"] == "valid") == (summary["reasons"] == [])


def test_terrestrial_latency_is_imposed_by_the_network(summary: dict[str, Any]) -> None:
    measured = summary["terrestrial_rtt_ms"]
    assert {server: rtt["configured"] for server, rtt in measured.items()} == CONFIGURED_RTT_MS
    for server, rtt in measured.items():
        assert abs(rtt["measured"] - rtt["configured"]) <= 0.5 + 0.02 * rtt["configured"], server


def test_the_queue_fills_and_the_pings_see_it(summary: dict[str, Any]) -> None:
    assert 98_500 <= summary["queue_max_bytes"] <= 100_000
    assert summary["sojourn_bound_ms"] == pytest.approx(50.0)
    lateness = summary["lateness_max_ms"]
    assert summary["sojourn_max_ms"] == pytest.approx(50.0, abs=5.0 + lateness)
    assert 500 <= summary["base_rtt_ms"] <= 506


def test_the_rate_is_never_exceeded(summary: dict[str, Any]) -> None:
    assert summary["windows_over_rate"] == 0
    assert summary["scheduled_windows_over_rate"] == 0
    assert 0 < summary["goodput_mbit_s"] <= summary["throughput_mbit_s"] <= 16.0


def test_captures_and_the_link_count_the_same_loss_to_the_byte(summary: dict[str, Any]) -> None:
    assert summary["loss_bytes_link"] > 0
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"]


def test_the_wire_shows_every_server_at_both_taps(summary: dict[str, Any], tmp_path: Path) -> None:
    """What a server sends passes the world tap; what of it reaches the island tap passed the world tap before."""
    world, island = (packets_of(summary, name, tmp_path) for name in ("world", "island"))
    for number in range(1, 7):
        server = int(ip_address(f"10.10.0.{number}"))
        sent, arrived = (wire_keys(packets, server) for packets in (world, island))
        assert arrived, f"nothing of w{number} reached the island"
        assert arrived <= sent


def test_no_packet_enters_a_box_outside_the_chain(summary: dict[str, Any]) -> None:
    """The switch's own port counters: into PEPs and coders, which this chain leaves out, it sent nothing."""
    manifest = json.loads((Path(summary["run_dir"]) / "manifest.json").read_text())
    ports = manifest["switch_counters"]["sw-c"]["ports"]
    outside = {name: ports[str(port)]["tx_packets"] for port, name in {**PEP_PORTS, **CODER_PORTS}.items()}
    assert set(outside.values()) == {0}, outside
    assert all(ports[str(port)]["tx_packets"] > 1000 for port in SAT_PORTS)


def packets_of(summary: dict[str, Any], capture: str, directory: Path) -> Any:
    """Packet records of one of the run's captures."""
    out = directory / f"{capture}.bin"
    source = Path(summary["run_dir"]) / "captures" / f"{capture}.pcap.zst"
    subprocess.run([HOST_BINARY, "pcap", "records", source, out, "--side", "10.20.0.0/16"], check=True, timeout=60)
    return np.fromfile(out, RECORD)


def wire_keys(packets: Any, source: int) -> set[tuple[int, ...]]:
    """Enough of each packet from an address to know it again further on; a retransmission is another packet."""
    ours = packets[packets["src"] == source]
    fields = ("dst", "sport", "dport", "seq", "ip_id", "payload_bytes")
    return set(zip(*(ours[name].tolist() for name in fields), strict=True))


def test_flows_complete(summary: dict[str, Any]) -> None:
    assert summary["flows_completed"] > 20
    assert summary["seed"] == 1


def test_the_flows_are_those_the_seed_draws(sandbox: Sandbox, summary: dict[str, Any]) -> None:
    """Server and size of every flow of the run are what `atoll-host flows` prints for its seed."""
    rows = [
        row for path in (Path(summary["run_dir"]) / "logs").glob("flows-*.csv") for row in csv.DictReader(path.open())
    ]
    assert {int(row["channel"]) for row in rows} == set(range(20))
    for channel in (0, 7, 19):
        logged = [row for row in rows if row["channel"] == str(channel)]
        ours = sorted((int(row["flow"]), int(row["size_bytes"])) for row in logged)
        drawn = subprocess.run(
            [
                HOST_BINARY,
                "flows",
                "--seed",
                "1",
                "--channel",
                str(channel),
                "--count",
                str(len(ours)),
                "--servers",
                "6",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        expected = [(int(row["flow"]), int(row["size_bytes"])) for row in csv.DictReader(drawn.splitlines())]
        assert ours == expected


def test_the_report_can_be_made_again_from_raw_data(sandbox: Sandbox, summary: dict[str, Any]) -> None:
    run = Path(summary["run_dir"])
    before = json.loads((run / "summary.json").read_text())
    for derived in ("summary.json", "report.html"):
        run.joinpath(derived).unlink()
    assert sandbox.run(ATOLL, "report", run).returncode == 0
    assert json.loads((run / "summary.json").read_text()) == before


def test_a_run_without_load_measures_the_idle_link(sandbox: Sandbox, tmp_path: Path) -> None:
    """No channels, no transfer: pings alone, all answered, nothing lost."""
    quick = (ROOT / "tests" / "data" / "quick.yaml").read_text()
    lab = ROOT / "emulation" / "labs" / "island.yaml"
    idle = tmp_path / "idle.yaml"
    idle.write_text(quick.replace("channels: 12", "channels: 0").replace("../../emulation/labs/island.yaml", str(lab)))
    summary = run_json(sandbox, idle)
    assert (summary["flows_completed"], summary["ping_lost"], summary["loss_bytes_captures"]) == (0, 0, 0)


class TestLabThatStays:
    """One lab, up with the MEO chain of routed boxes, changed by `apply` and by hand."""

    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def lab(sandbox: Sandbox, summary: dict[str, Any]) -> Iterator[None]:
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
        """The keeper holds the switches at the plan: nobody has to apply it again."""
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

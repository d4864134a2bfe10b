# SPDX-License-Identifier: Apache-2.0
"""Links and delay boxes by the kernel's traffic control, for real: in a User-Mode Linux kernel, which has netem.

One boot serves all tests: tc_guest.py measures frame by frame, then `atoll run --backend tc` runs whole, its switches
on Open vSwitch's kernel datapath. Bounds are wide where a busy machine only ever makes things slower.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import LabError, MachineError
from atoll_emulation.uml.boot import run_in_uml
from atoll_emulation.uml.guest_init import OUTPUT
from atoll_emulation.uml.kernel import find_kernel
from atoll_hosts.binary import find_binary
from tests.guests.tc_guest import CLASSES, DIRECTION, PACKET
from tests.support.sandbox import ATOLL

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

# Without routed boxes: the packaged kernel lacks the nftables family that they take foreign frames by.
LAB = """
name: small
networks: {world: 10.10.0.0/16, island: 10.20.0.0/16}
switches:
  sw: {dpid: 1, driver: ovs}
  sw-c: {dpid: 2, driver: ovs}
trunks:
  - {from: sw/24, to: sw-c/1, rate: 1 Gbit/s}
hosts:
  w1: {role: world-server, ip: 10.10.0.1, port: sw/1}
  ws: {role: world-special, ip: 10.10.1.1, port: sw/2}
  wh: {role: world-whistle, ip: 10.10.1.2, port: sw/3}
  i1: {role: island-client, ip: 10.20.0.1, port: sw-c/2}
  is: {role: island-special, ip: 10.20.1.1, port: sw-c/3}
boxes:
  sat: {kind: link, world: sw-c/15, island: sw-c/16}
delay_boxes:
  delay: {trunk: sw-c/10, rate: 1 Gbit/s, classes: {rtt-50: {vlan: 103, rtt: 50 ms}}}
taps:
  tap-w: {host: cap-w, port: sw-c/21}
  tap-i: {host: cap-i, port: sw-c/22}
"""
EXPERIMENT = """
name: tc
lab: lab.yaml
seed: 1
duration: 3 s
chain: [tap-w, sat, tap-i]
links:
  sat:
    to_island: {rate: 8 Mbit/s, delay: 100 ms, queue: 30 kB}
    to_world: {rate: 2 Mbit/s, delay: 100 ms, queue: 30 kB}
latency: {w1: rtt-50}
traffic: {channels: 10, flow_sizes: published}
ping: {interval: 100 ms}
tcp: {congestion_control: cubic}
"""
SETTING_OUT_MS = 10.0  # a process in a kernel that is itself a process waits for both


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a kernel in which everything was tried."""
    try:
        find_kernel()
    except MachineError as error:
        if os.environ.get("ATOLL_REQUIRE_LAB"):
            raise
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("uml")
    (directory / "lab.yaml").write_text(LAB)
    (directory / "tc.yaml").write_text(EXPERIMENT)
    script = f"""
{sys.executable} -m tests.guests.tc_guest {OUTPUT}/results.json || exit
{ATOLL} check --machine --json > {OUTPUT}/machine.json
{ATOLL} run {OUTPUT}/tc.yaml --backend tc --runs {OUTPUT}/runs --json > {OUTPUT}/summary.json
echo $? > {OUTPUT}/status
"""
    try:
        ended = run_in_uml(["sh", "-c", script], directory, limit_s=200, environment={"ATOLL_HOST": str(find_binary())})
    except LabError as error:
        if "set fp regs failed" in str(error):
            pytest.skip("the packaged User-Mode Linux cannot restore the registers of this processor")
        raise
    assert (directory / "results.json").exists(), ended.console
    return directory


@pytest.fixture(scope="module")
def results(output: Path) -> dict[str, Any]:
    return json.loads((output / "results.json").read_text())


@pytest.fixture(scope="module")
def link(results: dict[str, Any]) -> dict[str, Any]:
    return results["link"]


def test_delay_alone_is_the_configured_one_in_both_directions(link: dict[str, Any]) -> None:
    for times in link["idle_ms"].values():
        assert len(times) == 20
        assert min(times) >= DIRECTION.delay.ms
        assert min(times) < DIRECTION.delay.ms + SETTING_OUT_MS


def test_rate_alone_is_the_configured_one(link: dict[str, Any]) -> None:
    """Less is a kernel that had to wait for the machine; how exact it is, virtual time says (test_virtual_link.py)."""
    rate = link["load"]["rate_bit_s"]
    assert 0.5 * DIRECTION.rate.bit_s < rate < 1.01 * DIRECTION.rate.bit_s
    assert link["load"]["in_order"]


def test_delay_under_load_tops_out_at_delay_and_full_queue(link: dict[str, Any]) -> None:
    """The trap: netem below tbf holds either setting alone, and grows without bound with both."""
    base, full = DIRECTION.delay.ms, 8e3 * DIRECTION.queue.bytes / DIRECTION.rate.bit_s
    packet = 8e3 * PACKET / DIRECTION.rate.bit_s
    assert base + full - 2 * packet < link["load"]["one_way_median_ms"] < base + 1.15 * full + SETTING_OUT_MS


def test_counters_account_for_every_packet_and_byte(link: dict[str, Any]) -> None:
    counted, load = link["load_mark"]["to_island"], link["load"]
    assert (counted["in_packets"], counted["out_packets"]) == (load["sent"], load["arrived"])
    assert counted["dropped_packets"] == counted["dropped_queue_packets"] == load["sent"] - load["arrived"] > 0
    for direction in ("in", "out", "dropped"):
        assert counted[f"{direction}_bytes"] == PACKET * counted[f"{direction}_packets"]
    assert DIRECTION.queue.bytes - PACKET < counted["queue_max_bytes"] <= DIRECTION.queue.bytes
    assert (counted["queue_bytes"], counted["held_packets"], counted["overloaded"]) == (0, 0, False)
    assert link["load_mark"]["to_world"]["in_packets"] == 0
    assert link["idle_mark"]["to_world"]["in_packets"] == link["idle_mark"]["to_world"]["out_packets"] == 20


def test_counters_are_sums_since_the_start(link: dict[str, Any]) -> None:
    last = link["counters"][-1]["to_island"]
    marks = [link[name]["to_island"]["in_bytes"] for name in ("idle_mark", "load_mark")]
    assert last["in_bytes"] == sum(marks)


def test_what_tc_cannot_do_while_it_runs_is_refused_in_words(link: dict[str, Any]) -> None:
    for answer in link["answers"]:
        assert answer["ok"] is False
        assert "--backend engine" in answer["error"]


def test_a_box_that_ends_leaves_the_interfaces_as_they_were(results: dict[str, Any]) -> None:
    assert results["link"]["left"] == results["delay"]["left"] == []
    assert results["link"]["end"] == ""


def test_loss_is_counted_apart_and_jitter_keeps_the_order(results: dict[str, Any]) -> None:
    counted, arrived = results["impaired"]["mark"], results["impaired"]["arrived"]
    # 1000 packets, probability 0.2: five standard deviations are 63.
    assert 137 <= counted["dropped_loss_packets"] <= 263
    assert counted["dropped_queue_packets"] == 0
    assert counted["in_packets"] - counted["dropped_loss_packets"] == counted["out_packets"] == arrived
    assert counted["in_bytes"] == 114 * counted["in_packets"], "Ethernet frames are counted"
    assert results["impaired"]["in_order"]


def test_each_class_of_a_delay_box_has_its_delay(results: dict[str, Any]) -> None:
    delay = results["delay"]
    for vlan, rtt in CLASSES.items():
        times, half = delay["one_way_ms"][str(vlan)], float(rtt.split()[0]) / 2
        assert len(times) == 20
        assert half <= min(times) < half + SETTING_OUT_MS
        counted = delay["mark"]["classes"][str(vlan)]
        assert (counted["in_packets"], counted["out_packets"], counted["out_bytes"]) == (20, 20, 2000)


def test_frames_of_no_class_are_dropped_and_counted(results: dict[str, Any]) -> None:
    assert results["delay"]["stray"] == 0
    assert results["delay"]["mark"]["unknown_vlan_packets"] == 2


def test_a_setting_the_kernel_refuses_is_named_and_nothing_is_left(results: dict[str, Any]) -> None:
    refused = results["refusals"]["unknown"]
    assert (refused["status"], refused["left"]) == (1, [])
    assert "tc refused 'qdisc add dev ifb-to-island" in refused["said"]
    assert refused["said"].count("\n") == 1


def test_a_setting_that_did_not_take_is_found_by_reading_it_back(results: dict[str, Any]) -> None:
    refused = results["refusals"]["other"]
    assert (refused["status"], refused["left"]) == (1, [])
    assert "tbf on 'ifb-to-island': limit is 30000, requested 40000" in refused["said"]


def test_the_machine_says_that_it_has_both_backends(output: Path) -> None:
    machine = json.loads((output / "machine.json").read_text())["machine"]
    assert (machine["link_backends"], machine["datapath"]) == ("engine, tc", "kernel")


def test_an_experiment_runs_whole_on_the_kernel_alone(output: Path) -> None:
    """Every path as configured, and the losses that captures show are those that the kernel counted."""
    assert (output / "status").read_text().strip() in ("0", "3"), (output / "console.log").read_text()
    summary = json.loads((output / "summary.json").read_text())
    assert summary["cut_short"] is None
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"]
    assert summary["drained"]
    rtt = summary["terrestrial_rtt_ms"]["w1"]
    assert rtt["configured"] == 50
    assert abs(rtt["measured"] - 50) <= rtt["tolerance"]
    assert summary["lateness_max_ms"] is None, "the kernel does not measure it"
    (run,) = (output / "runs" / "tc").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    boxes = {job["name"]: job["argv"] for job in manifest["plan"]["jobs"] if job["phase"] == "service"}
    assert boxes == {"link-sat": ["atoll-host", "tc"], "delay-delay": ["atoll-host", "tc"]}
    assert manifest["datapath"] == "kernel"

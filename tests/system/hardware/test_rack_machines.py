# SPDX-License-Identifier: Apache-2.0
"""What differs on real machines, in a rack of namespaces: offloads, cables, clocks, rights; and machines that die.

What a run sets is put back whatever ends it; what is wrong is named, by machine, before packets are missed.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rack import EXPERIMENT, LAB, Rack, rack_of
from tests.support.sandbox import ATOLL, ROOT, wait_for_line

pytestmark = pytest.mark.lab

CLOCK = ROOT / "tests" / "guests" / "clock_ahead.c"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack after first contact; each test leaves its machines as they were, but for the last, which breaks one."""
    with rack_of(LAB, tmp_path_factory.mktemp("rack-machines")) as rack:
        rack.prepare()
        yield rack


def up(rack: Rack, inventory: Path | None = None, *words: str) -> subprocess.CompletedProcess[str]:
    return rack.run(*words, ATOLL, "up", LAB, "--inventory", inventory or rack.inventory)


def start_run(rack: Rack) -> subprocess.Popen[str]:
    process = rack.start(
        ATOLL, "run", EXPERIMENT, "--inventory", rack.inventory, "--runs", rack.directory / "runs", "--no-analysis"
    )
    wait_for_line(process, "measure")
    return process


def offloads(rack: Rack, machine: str) -> dict[str, str]:
    """On or off by feature, of exp0."""
    lines = rack.on(machine, "ethtool", "-k", "exp0").stdout.splitlines()[1:]
    return {name.strip(): said.split()[0] for name, _, said in (line.partition(":") for line in lines)}


MERGING = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload", "tx-checksumming")


def test_offloads_and_mtu_are_set_for_the_run_and_given_back_whatever_ends_it(rack: Rack) -> None:
    """A NIC as it came, one whose owner had changed it and left it down, after `kill -9` of the run and of an agent."""
    changed = "ethtool -K exp0 gro off; ip link set exp0 mtu 1400 down"
    assert rack.on("w1", "sh", "-c", changed).returncode == 0
    try:
        before = rack.states()
        assert (offloads(rack, "w1")["generic-receive-offload"], "mtu 1400" in before["w1"]) == ("off", True)
        assert offloads(rack, "i1")["tcp-segmentation-offload"] == "on", "this test would see nothing"
        for victim in ("run", "agent"):
            process = start_run(rack)
            for machine in ("w1", "i1", "sat"):
                there = offloads(rack, machine)
                assert {name: there[name] for name in MERGING} == dict.fromkeys(MERGING, "off")
            assert "mtu 1500" in rack.on("w1", "ip", "link", "show", "exp0").stdout
            if victim == "run":
                pid = rack.sandbox.find("atoll", "run", "rack.yaml")
                assert pid is not None
                rack.sandbox.kill(pid)
            else:
                agent = next(pid for pid, line in rack.jobs("w1").items() if "--guarded" in line)
                rack.on("w1", "kill", "-9", str(agent))
            for machine in rack.addresses:
                rack.wait_idle(machine, 10)
            process.communicate(timeout=100)
            assert rack.states() == before, victim
    finally:
        rack.on("w1", "sh", "-c", "ethtool -K exp0 gro on; ip link set exp0 mtu 1500")


def test_a_user_without_rights_is_named_with_what_helps(rack: Rack) -> None:
    """Neither root nor by sudo: nothing could be set or captured; by a sudo that asks for a password neither."""
    inventory = rack.directory / "guest.yaml"
    inventory.write_text(rack.inventory_text().replace("tech@10.99.0.14, sudo: true", "guest@10.99.0.14"))
    assert rack.run(ATOLL, "hosts", "install", "i1", "--inventory", inventory).returncode == 0
    answer = rack.run(ATOLL, "hosts", "status", "i1", "--inventory", inventory).stdout
    assert "may not configure interfaces, may not capture" in answer
    refused = up(rack, inventory)
    assert refused.returncode == 1
    lines = refused.stderr.splitlines()
    assert "i1: user 1501 may not configure interfaces; log in as root, or write 'sudo: true'" in lines
    assert "i1: user 1501 may not capture; log in as root, or write 'sudo: true'" in lines
    inventory.write_text(rack.inventory_text().replace("tech@10.99.0.14", "guest@10.99.0.14"))
    refused = up(rack, inventory)
    assert refused.returncode == 1
    assert (
        "i1's agent did not start: the user of guest@10.99.0.14 may not use sudo without a password" in refused.stderr
    )


def test_text_of_a_shell_is_quoted_when_it_comes_before_the_agent_or_instead_of_it(rack: Rack) -> None:
    """Bash reads .bashrc for commands over SSH, too; nologin says why nobody may log in."""
    rack.on("w1", "sh", "-c", "echo 'echo Welcome to w1' >/root/.bashrc")
    try:
        said = up(rack).stderr
    finally:
        rack.on("w1", "rm", "/root/.bashrc")
    assert "the shell there printed 'Welcome to w1'; if ~/.bashrc, ~/.profile or /etc/profile.d does so, " in said
    users = rack.directory / "passwd"
    known = users.read_text()
    inventory = rack.directory / "nologin.yaml"
    inventory.write_text(rack.inventory_text().replace("tech@10.99.0.14, sudo: true", "guest@10.99.0.14"))
    lines = [f"{line.rpartition(':')[0]}:/usr/sbin/nologin" if "1501" in line else line for line in known.splitlines()]
    users.write_text("\n".join([*lines, ""]))
    try:
        said = up(rack, inventory).stderr
    finally:
        users.write_text(known)
    not_available = "the shell there printed 'This account is currently not available.'"
    assert f"i1's agent did not start: exit status 1; {not_available}" in said


def test_a_cable_that_is_out_is_named_and_one_that_is_slow_is_waited_for(rack: Rack) -> None:
    """A NIC that was down takes seconds to agree with the switch: here its port comes up later, or not at all."""
    before = rack.states()
    port = ["ip", "-n", "switches", "link", "set", "sw-w-1"]
    rack.sandbox.run(*port, "down")
    try:
        refused = rack.run(ATOLL, "up", EXPERIMENT, "--inventory", rack.inventory)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1].startswith("w1: exp0 has no carrier; check the cable at both ends")
        plugging = rack.start("sh", "-c", f"sleep 4; {' '.join(port)} up")
        done = rack.run(ATOLL, "up", EXPERIMENT, "--inventory", rack.inventory)
        plugging.wait(10)
        assert done.returncode == 0, done.stderr
        assert rack.run(ATOLL, "down", "--inventory", rack.inventory).returncode == 0
    finally:
        rack.sandbox.run(*port, "up")
    deadline = time.monotonic() + 10  # an interface that was up takes a moment to try its IPv6 address (RFC 4862, 5.4)
    while rack.state("w1") != before["w1"] and time.monotonic() < deadline:
        time.sleep(0.5)
    assert rack.states() == before


def test_settings_that_are_not_undone_are_named_by_down(rack: Rack) -> None:
    """The next agent on that machine undoes them."""
    before = rack.states()
    assert rack.run(ATOLL, "up", EXPERIMENT, "--inventory", rack.inventory).returncode == 0
    tool = rack.on("w1", "sh", "-c", "realpath $(command -v ip)").stdout.strip()
    rack.on("w1", "mount", "--bind", "/bin/false", tool)
    try:
        down = rack.run(ATOLL, "down", "--inventory", rack.inventory)
    finally:
        rack.on("w1", "umount", tool)
    assert down.returncode == 1
    assert down.stderr.startswith("the lab is down, but not everything is undone:\nw1: ")
    assert rack.run(ATOLL, "up", EXPERIMENT, "--inventory", rack.inventory).returncode == 0
    assert rack.run(ATOLL, "down", "--inventory", rack.inventory).returncode == 0
    assert rack.states() == before


def test_a_management_network_inside_the_experiments_is_refused(rack: Rack) -> None:
    """Routes to the experiment network would cut the machines off."""
    lab = rack.directory / "over.yaml"
    lab.write_text(LAB.read_text().replace("10.10.", "10.99."))
    refused = rack.run(ATOLL, "up", lab, "--inventory", rack.inventory)
    assert refused.returncode == 2
    where = "is in the world network 10.99.0.0/16 of the lab"
    for line in (f"controller: 10.99.0.1 {where}", f"w1: 10.99.0.11 {where}"):
        assert line in refused.stderr


def test_clocks_that_differ_by_a_second_are_named_and_a_little_is_allowed_for(rack: Rack, tmp_path: Path) -> None:
    """There is but one clock here: the daemon's programs see it ahead, so all machines are behind."""
    library = tmp_path / "clock_ahead.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, CLOCK], check=True)
    ahead = ["env", f"LD_PRELOAD={library}"]
    refused = up(rack, None, *ahead, "CLOCK_AHEAD_MS=1000")
    assert refused.returncode == 1
    wrong = [line for line in refused.stderr.splitlines() if "its clock is off by -" in line]
    assert len(wrong) == len(rack.addresses), refused.stderr
    assert wrong[0].endswith("at most 20 ms is allowed; run chrony on both machines")
    off_ms = float(wrong[0].partition("off by ")[2].split()[0])
    assert off_ms == pytest.approx(-1000, abs=200)  # by SSH, whose answers a busy machine delays
    pinged = rack.run(*ahead, "CLOCK_AHEAD_MS=5", ATOLL, "hosts", "ping", "w1", "--json", "--inventory", rack.inventory)
    clock = json.loads(pinged.stdout)["machines"]["w1"]
    assert abs(clock["clock_offset_ns"] + 5_000_000) <= clock["clock_bound_ns"]


def test_a_machine_that_cannot_be_reached_is_named_in_bounded_time(rack: Rack) -> None:
    """Its cable out of the management network; one whose sshd hangs. The others answer."""
    rack.unplug("ws")
    sshd = next(
        line.split()[0] for line in rack.on("i1", "ps", "-eo", "pid=,args=").stdout.splitlines() if "sshd -D" in line
    )
    rack.on("i1", "kill", "-STOP", sshd)
    try:
        began = time.monotonic()
        answered = rack.run(ATOLL, "hosts", "ping", "--inventory", rack.inventory)
        assert time.monotonic() - began < 40
    finally:
        rack.on("i1", "kill", "-CONT", sshd)
        rack.plug_in("ws")
    assert answered.returncode == 1
    named = answered.stderr.splitlines()
    assert sorted(line.partition(":")[0] for line in named) == ["i1", "ws"], named
    assert "i1: tech@10.99.0.14 does not answer within 15 s" in named
    assert len(answered.stdout.splitlines()) == len(rack.addresses) - 2


def test_a_machine_that_dies_is_named_and_what_the_others_have_is_collected(rack: Rack) -> None:
    """As by a power cut: everything on it is gone at once. The last test: nobody puts it up again."""
    process = start_run(rack)
    time.sleep(2)  # something has been captured
    rack.power_off("i1")
    said = process.communicate(timeout=100)[1]
    assert process.returncode == 1
    assert "i1's agent " in said
    latest = max((rack.directory / "runs" / "rack").iterdir())
    assert json.loads((latest / "manifest.json").read_text())["outcome"].startswith(
        "failed at step measure: i1's agent"
    )
    answer = [json.loads(line) for line in (latest / "events.jsonl").read_text().splitlines()]
    assert [event["message"].split(":")[0] for event in answer if event["type"] == "not_collected"] == ["i1"]
    assert (latest / "captures" / "world.pcap").stat().st_size > 24
    assert (latest / "captures" / "island.pcap").stat().st_size > 24
    for machine in rack.addresses:
        if machine != "i1":
            rack.wait_idle(machine, 10)
    assert rack.run(ATOLL, "report", latest).returncode == 0
    summary = json.loads((latest / "summary.json").read_text())
    assert summary["verdict"] == "invalid"
    assert "i1's agent" in summary["cut_short"]
    assert summary["captures"]["world"]["decoded"] > 0

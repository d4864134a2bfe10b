# SPDX-License-Identifier: Apache-2.0
"""`--on hardware` in a rack of namespaces: first contact, runs, and every way in which one ends (rack.py)."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rack import EXPERIMENT, LAB, Rack, rack_of
from tests.support.sandbox import ATOLL, ROOT, wait_for_line

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack whose machines nobody has met yet; each test leaves its machines as they were."""
    with rack_of(LAB, tmp_path_factory.mktemp("rack")) as rack:
        yield rack


@pytest.fixture(scope="module")
def met(rack: Rack) -> Rack:
    """The rack after first contact."""
    rack.prepare()
    return rack


def hosts(rack: Rack, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    return rack.run(ATOLL, "hosts", verb, "--inventory", rack.inventory, *words)


def start_run(rack: Rack, *options: str) -> subprocess.Popen[str]:
    where = ["--on", "hardware", "--inventory", rack.inventory, "--runs", rack.directory / "runs"]
    return rack.start(ATOLL, "run", EXPERIMENT, *where, "--no-analysis", *options)


def end(process: subprocess.Popen[str], limit_s: float = 40) -> str:
    """What it says on standard error to its end; AssertionError when it ends well."""
    try:
        _, said = process.communicate(timeout=limit_s)
    finally:
        process.kill()
    assert process.returncode == 1, said
    return said


def outcome(rack: Rack) -> str:
    latest = max((rack.directory / "runs" / "rack").iterdir())
    return json.loads((latest / "manifest.json").read_text())["outcome"]


# First contact: in this order


def test_a_host_that_nobody_has_vouched_for_is_not_trusted(rack: Rack) -> None:
    """Its key is told and nothing else is done; without a person to compare it, nothing is enrolled either."""
    asked = hosts(rack, "ping", "w1")
    assert asked.returncode == 1
    assert "the host key of root@10.99.0.11 is not known (SHA256:" in asked.stderr
    assert "atoll hosts enroll" in asked.stderr
    assert hosts(rack, "enroll", "w1").returncode == 1
    assert not (rack.directory / "known_hosts").exists()


def test_a_host_without_the_program_says_so(rack: Rack) -> None:
    """Keys enrolled for good, the next thing that is missing is named, with its remedy."""
    assert hosts(rack, "enroll", "--yes").returncode == 0
    again = hosts(rack, "enroll")
    assert again.returncode == 0
    assert again.stdout.count("  known") == len(rack.addresses)
    assert "no .local/bin/atoll-host there; `atoll hosts install` installs it" in hosts(rack, "ping", "w1").stderr


def test_installing_twice_sends_nothing_twice(rack: Rack) -> None:
    sent = [json.loads(hosts(rack, "install", "--json").stdout)["machines"] for _ in range(2)]
    assert all(machine["bytes_sent"] > 0 for machine in sent[0].values())
    assert all(machine["bytes_sent"] == 0 for machine in sent[1].values())
    answer = json.loads(hosts(rack, "ping", "--json").stdout)["machines"]
    assert set(answer) == set(rack.addresses)
    assert all(abs(one["clock_offset_ns"]) <= one["clock_bound_ns"] for one in answer.values()), (
        "there is but one clock"
    )


def test_a_changed_host_key_is_refused(met: Rack) -> None:
    known = met.directory / "known_hosts"
    before = known.read_text()
    keys = [line.split() for line in before.splitlines()]
    keys[0][2] = keys[1][2]
    known.write_text("".join(" ".join(words) + "\n" for words in keys))
    try:
        refused = hosts(met, "ping", "w1", "ws")
        assert "w1: the host key of root@10.99.0.11 has changed" in refused.stderr
        assert refused.stdout.startswith("ws "), "the others answer all the same"
        assert "shows SHA256:" in hosts(met, "enroll", "--yes", "w1").stderr, "enrolling does not overrule it"
    finally:
        known.write_text(before)


# Runs and their ends


def test_a_machine_that_cannot_take_part_is_named_before_anything_is_set(met: Rack) -> None:
    before = met.states()
    inventory = met.directory / "wrong.yaml"
    text = met.inventory_text().replace(
        "w1: {ssh: 10.99.0.11, interface: exp0}", "w1: {ssh: 10.99.0.11, interface: eno1}"
    )
    inventory.write_text(
        text.replace("10.99.0.14, sudo: true, interface: exp0", "10.99.0.14, sudo: true, interface: mgmt0")
    )
    refused = met.run(ATOLL, "up", LAB, "--on", "hardware", "--inventory", inventory)
    assert refused.returncode == 1
    assert "w1: no interface eno1; there are: exp0, mgmt0" in refused.stderr
    assert "i1: mgmt0 is the interface of the management network (10.99.0.14)" in refused.stderr
    assert met.states() == before


def test_a_lab_on_hardware_stays_and_goes(met: Rack) -> None:
    """up, status, apply and down; meanwhile nobody else gets the machines, by whatever inventory."""
    before = met.states()
    where = ["--inventory", met.inventory]
    up = met.run(ATOLL, "up", EXPERIMENT, "--on", "hardware", *where)
    assert up.returncode == 0, up.stderr
    assert "small is up; experiment 'rack' applied" in up.stdout
    assert "hosts" not in met.run(ATOLL, "status").stdout, "no lab is emulated here"
    assert f"on the machines of {met.inventory}" in met.run(ATOLL, "status", *where).stdout
    assert "0 changes made" in met.run(ATOLL, "apply", EXPERIMENT, *where).stdout
    assert "in use by" in hosts(met, "status", "w1").stdout
    copied = met.directory / "copied.yaml"
    copied.write_text(met.inventory.read_text())
    other = met.run(ATOLL, "up", LAB, "--on", "hardware", "--inventory", copied)
    assert other.returncode == 1
    assert "w1: this machine is in use by root@" in other.stderr
    assert str(met.inventory) in other.stderr
    assert met.run(ATOLL, "down", *where).returncode == 0
    assert met.states() == before
    assert "; free; ready" in hosts(met, "status", "w1").stdout


def test_kill_of_the_run_leaves_no_job_and_every_setting_undone(met: Rack) -> None:
    """`kill -9` of `atoll run`, then of the daemon of another run: within 2 s nothing of theirs is on any machine."""
    before = met.states()
    for words in (("atoll", "run", "rack.yaml"), ("-m", "atoll_daemon")):
        process = start_run(met)
        wait_for_line(process, "measure")
        assert any("serve" in line for line in met.jobs("w1").values())
        victim = met.sandbox.find(*words)
        assert victim is not None
        met.sandbox.kill(victim)
        time.sleep(2)
        assert {machine: jobs for machine in met.addresses if (jobs := met.jobs(machine))} == {}
        process.communicate(timeout=100)
        assert met.states() == before


def test_kill_of_an_agent_is_named_and_undone(met: Rack) -> None:
    """`kill -9` of one agent: its jobs are gone, what it had set is undone, the run ends and says where."""
    before = met.states()
    process = start_run(met)
    wait_for_line(process, "measure")
    agent = next(pid for pid, line in met.jobs("i1").items() if "--guarded" in line)
    met.on("i1", "kill", "-9", str(agent))
    met.wait_idle("i1", 2)
    assert "i1's agent died (atoll-host: the agent was killed by signal 9; its settings are undone" in end(process)
    assert outcome(met).startswith("failed at step measure: i1's agent died")
    assert met.states() == before


def test_an_agent_and_its_guard_killed_are_undone_by_the_next(met: Rack) -> None:
    before = met.states()
    process = start_run(met)
    wait_for_line(process, "measure")
    agents = [pid for pid, line in met.jobs("i1").items() if "agent --" in line]
    assert len(agents) == 2
    met.on("i1", "kill", "-9", *map(str, agents))
    met.wait_idle("i1", 2)
    assert "i1's agent died" in end(process)
    assert met.state("i1") != before["i1"], "nobody was left to undo it"
    where = ["--inventory", met.inventory]
    assert met.run(ATOLL, "up", LAB, "--on", "hardware", *where).returncode == 0
    assert met.state("i1") == before["i1"]
    assert met.run(ATOLL, "down", *where).returncode == 0


def test_a_closed_connection_ends_its_jobs_at_once(met: Rack) -> None:
    before = met.states()
    process = start_run(met)
    wait_for_line(process, "measure")
    listed = met.on("w1", "ps", "-eo", "pid=,args=").stdout.splitlines()
    sessions = [line.split()[0] for line in listed if "sshd: root" in line]
    met.on("w1", "kill", *sessions)
    met.wait_idle("w1", 2)
    assert "w1's agent died (the connection was" in end(process)
    assert met.states() == before


def test_a_machine_that_falls_silent_is_named_and_lets_everything_go(met: Rack) -> None:
    """The cable of the management network out: both sides notice by heartbeat; what the others have is collected."""
    before = met.states()
    process = start_run(met)
    wait_for_line(process, "measure")
    met.unplug("i1")
    try:
        met.wait_idle("i1", 10)
        said = end(process, 60)
    finally:
        met.plug_in("i1")
    assert "i1's agent has been silent for 8 s" in said
    latest = max((met.directory / "runs" / "rack").iterdir())
    assert (latest / "captures" / "world.pcap").stat().st_size > 24
    answer = [json.loads(line) for line in (latest / "events.jsonl").read_text().splitlines()]
    missing = next(event for event in answer if event["type"] == "not_collected")
    assert missing["message"].startswith("i1: ")
    assert met.states() == before


def test_a_machine_that_hangs_is_named(met: Rack) -> None:
    """Its connection lives and nothing answers: agent and guard stopped, as by a kernel that is stuck."""
    before = met.states()
    process = start_run(met)
    wait_for_line(process, "measure")
    agents = [str(pid) for pid, line in met.jobs("w1").items() if "agent --" in line]
    met.on("w1", "kill", f"-{signal.SIGSTOP}", *agents)
    said = end(process, 60)
    met.on("w1", "kill", f"-{signal.SIGCONT}", *agents)
    assert "w1's agent has been silent for 8 s" in said
    met.wait_idle("w1", 4)
    assert met.states() == before


# Ways to a machine


def test_jump_hosts_and_the_ssh_configuration_are_honoured(met: Rack) -> None:
    """i1 through w1, ws by an alias; a jump host that nobody has vouched for is refused by name."""
    (met.directory / "ssh_config").write_text("Host special\n  HostName 10.99.0.12\n  HostKeyAlias 10.99.0.12\n")
    text = met.inventory_text().replace("ssh: {user", "ssh: {config: ssh_config, user").replace("10.99.0.12", "special")
    inventory = met.directory / "ways.yaml"
    inventory.write_text(text.replace("10.99.0.14, sudo", "10.99.0.14, jump: 10.99.0.11, sudo"))
    answered = met.run(ATOLL, "hosts", "ping", "--inventory", inventory, "i1", "ws")
    assert answered.returncode == 0, answered.stderr
    came_from = met.run(
        ATOLL, "hosts", "exec", "--inventory", inventory, "--host", "i1", "--", "sh", "-c", "echo $SSH_CLIENT"
    )
    assert came_from.stdout.split()[:2] == ["i1", "10.99.0.11"]
    strict = text.replace("10.99.0.14, sudo", "10.99.0.14, jump: 10.99.0.11, sudo").replace(
        "known_hosts: known_hosts", "known_hosts: none"
    )
    inventory.write_text(strict)
    refused = met.run(ATOLL, "hosts", "ping", "--inventory", inventory, "i1")
    assert "i1: jump host 10.99.0.11: the host key of tech@10.99.0.11 is not known" in refused.stderr


@pytest.mark.parametrize(("begun", "break_at", "connections"), [(b"", 0, 1), (b"whole", 0, 1), (b"", 3_000_000, 2)])
def test_a_file_is_fetched_whole_however_far_an_earlier_attempt_came(
    met: Rack, tmp_path: Path, begun: bytes, break_at: int, connections: int
) -> None:
    """From nothing, from a part that is not the file's beginning, and over a connection that breaks in the middle."""
    met.on("cap", "sh", "-c", "seq 2000000 >/root/numbers")
    here = tmp_path / "numbers"
    here.with_name("numbers.part").write_bytes(begun)
    size = str(sum(len(f"{number}\n") for number in range(1, 2_000_001)))
    words = [
        ROOT / "tests" / "guests" / "rack_fetch.py",
        met.inventory,
        "cap",
        "/root/numbers",
        size,
        here,
        str(break_at),
    ]
    fetched = met.run(sys.executable, *words)
    assert fetched.returncode == 0, fetched.stderr
    assert int(fetched.stdout) == connections
    assert here.read_text() == "".join(f"{number}\n" for number in range(1, 2_000_001))
    assert not here.with_name("numbers.part").exists()

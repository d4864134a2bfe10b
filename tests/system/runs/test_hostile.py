# SPDX-License-Identifier: Apache-2.0
"""Conditions a researcher meets: one clear line, a non-zero exit, nothing left, nothing of theirs touched."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.sandbox import ATOLL, NOBODY, QUICK, Sandbox, faults, open_to_others, tools_without, wait_for_line

pytestmark = pytest.mark.lab


# A node of the tun driver that users may open, as on ordinary systems, in the test's own mount namespace only.
OPEN_TUN = (
    "mkdir -p {0} && mount -t tmpfs dev {0} && mknod -m 666 {0}/tun c 10 200 && "
    "mkdir -p /dev/net && mount --bind {0} /dev/net"
)


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    """One line a fault, each said once, with these words; no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_missing_tool_is_named_with_its_remedy(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        path = tools_without(tmp_path / "tools", ["ethtool", "nft"])
        done = sandbox.run("env", f"PATH={path}", ATOLL, "run", QUICK)
        assert_refused(done, "ethtool", "nft", "make setup")
        assert sandbox.traces() == []


def test_no_tun_device(tmp_path: Path) -> None:
    with Sandbox(tmp_path, setup="mkdir -p /dev/net && mount -t tmpfs none /dev/net") as sandbox:
        assert_refused(sandbox.run(ATOLL, "run", QUICK), "/dev/net/tun")
        assert sandbox.traces() == []


def test_neither_root_nor_user_namespaces(tmp_path: Path) -> None:
    """The kernel refuses user namespaces to a chrooted process: a machine that forbids them, for this test alone."""
    open_to_others(tmp_path)
    jail = tmp_path / "jail"
    jail.mkdir()
    with Sandbox(tmp_path, user=NOBODY, jail=jail, setup=f"mount --rbind / {jail}") as sandbox:
        assert_refused(sandbox.run(ATOLL, "run", QUICK), "user namespaces")
        assert sandbox.traces() == []


def test_a_plain_user_runs_the_demo(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    with Sandbox(tmp_path, user=NOBODY, setup=OPEN_TUN.format(tmp_path / "dev")) as sandbox:
        done = sandbox.run(ATOLL, "run", QUICK, "--json", limit_s=120)
        assert done.returncode in (0, 3), done.stderr
        summary = json.loads(done.stdout)
        assert faults(summary) == []
        assert summary["loss_bytes_captures"] == summary["loss_bytes_link"]
        sandbox.wait_clean()


def test_two_runs_at_once(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        first = sandbox.start(ATOLL, "run", QUICK)
        wait_for_line(first, "apply")
        assert_refused(sandbox.run(ATOLL, "run", QUICK), "another run is in progress", "quick")
        _, errors = first.communicate(timeout=100)
        assert first.returncode in (0, 3), errors
        sandbox.wait_clean()


def test_the_name_of_the_lock_is_taken_by_another_program(tmp_path: Path) -> None:
    """The one port that a lab takes outside its namespaces is the daemon's abstract socket."""
    hold = (
        "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0atoll-daemon'); s.listen(); "
        "print('held',flush=True); time.sleep(60)"
    )
    with Sandbox(tmp_path) as sandbox:
        other = sandbox.start("python3", "-c", hold)
        assert other.stdout is not None
        other.stdout.readline()
        assert_refused(sandbox.run(ATOLL, "run", QUICK, limit_s=100), "atoll-daemon", "process")
        other.kill()


def test_the_controllers_port_taken_outside_does_not_matter(tmp_path: Path) -> None:
    """The lab's own network namespace has ports of its own: 6653 taken on the machine disturbs nothing."""
    hold = "import socket,time; s=socket.create_server(('0.0.0.0',6653)); print('held',flush=True); time.sleep(100)"
    with Sandbox(tmp_path) as sandbox:
        other = sandbox.start("python3", "-c", hold)
        assert other.stdout is not None
        other.stdout.readline()
        up = sandbox.run(ATOLL, "up", QUICK)
        assert up.returncode == 0, up.stderr
        assert sandbox.run(ATOLL, "down").returncode == 0
        other.kill()


def test_a_full_disk_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with Sandbox(tmp_path, setup=f"mount -t tmpfs -o size=600k none {small}") as sandbox:
        done = sandbox.run(ATOLL, "run", QUICK, "--duration", "20 s", "--runs", small)
        assert_refused(done, "full")
        sandbox.wait_clean()
        kept = sandbox.run("find", small, "-name", "*.pcap", "-size", "+1k").stdout
        assert kept.strip()


def test_a_users_own_open_vswitch_is_untouched(tmp_path: Path) -> None:
    """A bridge of the user's, in the same network namespace as `atoll run`: same ports and entries before and after."""
    ovs = tmp_path / "ovs"
    ovs.mkdir()
    env = [f"OVS_{name}={ovs}" for name in ("RUNDIR", "DBDIR", "LOGDIR", "SYSCONFDIR")]
    with Sandbox(tmp_path) as sandbox:

        def tool(*argv: str) -> str:
            done = sandbox.run("env", *env, *argv, limit_s=100)
            assert done.returncode == 0, done.stderr
            return done.stdout

        tool("ovsdb-tool", "create", f"{ovs}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        tool(
            "ovsdb-server",
            f"{ovs}/conf.db",
            f"--remote=punix:{ovs}/db.sock",
            f"--pidfile={ovs}/db.pid",
            f"--log-file={ovs}/db.log",
            "--detach",
            "--no-chdir",
        )
        tool(
            "ovs-vswitchd",
            f"unix:{ovs}/db.sock",
            f"--pidfile={ovs}/sw.pid",
            f"--log-file={ovs}/sw.log",
            "--detach",
            "--no-chdir",
        )
        vsctl = ("ovs-vsctl", f"--db=unix:{ovs}/db.sock")
        tool(*vsctl, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        tool("ovs-ofctl", "add-flow", "br0", "priority=7,ip,actions=drop")

        def state() -> tuple[str, list[str], str]:
            flows = tool("ovs-ofctl", "--no-stats", "dump-flows", "br0")
            processes = sorted(line for line in sandbox.processes().values() if "ovs" in line)
            return flows, processes, sandbox.run("ip", "-o", "link").stdout

        before = state()
        assert sandbox.run(ATOLL, "up", QUICK).returncode == 0
        assert sandbox.run(ATOLL, "down").returncode == 0
        assert state() == before

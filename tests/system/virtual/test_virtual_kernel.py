# SPDX-License-Identifier: Apache-2.0
"""The kernel for virtual time keeps time to the nanosecond, repeats itself by its seed, and leaves nothing."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import LabError
from atoll_emulation.this_machine.core_pinning import claimed_core
from atoll_emulation.uml.boot import VirtualClock, run_in_uml, start_in_uml
from atoll_emulation.uml.cache import kernel_status
from atoll_emulation.uml.kernel import find_virtual_kernel
from tests.guests import virtual_guest
from tests.support.sandbox import NOBODY, Sandbox, open_to_others
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual

MS = 10**6


def run(
    command: Sequence[str], output: Path, seed: int = 1, *, limit_s: float = HANGS_S, mb: int = 500
) -> tuple[int, str]:
    clock = VirtualClock(seed)
    return run_in_uml(command, output, limit_s=limit_s, kernel=find_virtual_kernel(), clock=clock, memory_mb=mb)


def found(what: str, output: Path, seed: int = 1) -> dict[str, Any]:
    """What virtual_guest finds inside."""
    status, console = run([sys.executable, "-m", "tests.guests.virtual_guest", what], output, seed)
    assert status == 0, console
    return json.loads(console)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found("clock", tmp_path_factory.mktemp("clock"))


def test_a_sleep_takes_its_time_exactly_and_none_of_ours(clock: dict[str, Any]) -> None:
    """1000 s, longer than a test may take; reading the clock twice takes 512 ns of it."""
    assert clock["slept_ns"] == virtual_guest.SLEEP_S * 10**9 + 512


def test_the_command_begins_once_open_vswitch_can(clock: dict[str, Any]) -> None:
    assert 11_000 * MS < clock["began_ns"] < 11_010 * MS
    assert clock["wall_ns"] - VirtualClock(1).start_ns - clock["began_ns"] - clock["slept_ns"] < MS


def test_the_same_seed_gives_the_same_everything(clock: dict[str, Any], tmp_path: Path) -> None:
    assert found("clock", tmp_path / "another" / "place") == clock


def test_where_the_command_starts_moves_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack that begins elsewhere has other page faults, and everything after them is at another instant."""
    stacks: set[str] = set()
    for length in (1, 80):
        here = tmp_path / ("d" * length)
        here.mkdir()
        monkeypatch.chdir(here)
        _, console = run(
            ["sh", "-c", "readlink /proc/$$/cwd; cut -d' ' -f28 /proc/$$/stat"], tmp_path / f"out-{length}"
        )
        place, stack = console.split()
        assert place == str(here)
        stacks.add(stack)
    assert len(stacks) == 1


def test_another_seed_gives_other_random_numbers_at_the_same_times(clock: dict[str, Any], tmp_path: Path) -> None:
    other = found("clock", tmp_path, seed=2)
    random, same = other.pop("random"), {name: clock[name] for name in clock if name != "random"}
    assert all(mine != theirs for mine, theirs in zip(random, clock["random"], strict=True))
    assert {name: other[name] for name in ("slept_ns", "pids")} == {name: same[name] for name in ("slept_ns", "pids")}


def test_rtts_are_the_configured_ones_to_the_microsecond(tmp_path: Path) -> None:
    """Pings and a bulk transfer through tbf and netem: 250 ms each way and nothing besides.

    TCP cuts the times of sending and of the answer to microseconds each: their difference may be one more.
    """
    path = found("path", tmp_path)
    assert path["pings_ms"] == [500.0] * 4
    assert path["min_rtt_us"] in (500_000, 500_001)


def test_a_look_at_the_clock_takes_256_ns_and_no_stop(tmp_path: Path) -> None:
    """Four million looks take a second of virtual time, and no minute of ours (patches/user-clock.patch).

    Who spins until an instant gets there, and delays another by a tick of the scheduler's at most.
    """
    look = found("look", tmp_path)
    assert look["steps_ns"] == {"monotonic": [256], "real": [256]}
    assert 0 <= look["looked_ns"] - virtual_guest.LOOKS * 256 < MS  # the interpreter asks the kernel for memory, too
    assert look["spun_ns"] - virtual_guest.SPIN_NS < 1000
    assert virtual_guest.SPIN_NS // 2 <= look["slept_ns"] < virtual_guest.SPIN_NS // 2 + 4 * MS


def test_who_yields_lets_others_go_on(tmp_path: Path) -> None:
    """Linux 6.1 spins here for ever; ours is patched (patches/sched-yield.patch)."""
    assert found("yield", tmp_path)["rounds"] < 100


def test_vector_registers_are_the_threads_own(tmp_path: Path) -> None:
    """The kernel puts them back only when they were changed (patches/fp-registers.patch)."""
    program = tmp_path / "vector_registers"
    source = Path(virtual_guest.__file__).with_name("vector_registers.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", program, source], check=True)
    assert run([str(program)], tmp_path)[1] == "0 wrong, interrupted\n"


def test_the_exit_status_is_the_commands(tmp_path: Path) -> None:
    ended = run(["sh", "-c", "echo said; echo written > /out/file; exit 3"], tmp_path)
    assert ended == (3, "said\n")
    assert (tmp_path / "file").read_text() == "written\n"


def test_what_the_kernel_writes_outside_of_the_output_directory_is_lost(tmp_path: Path) -> None:
    assert run(["sh", "-c", f"echo x > {tmp_path}/lost && cat {tmp_path}/lost"], tmp_path / "out") == (0, "x\n")
    assert not (tmp_path / "lost").exists()


# Guests that do not end well


def test_a_guest_that_waits_for_good_is_told_at_once(tmp_path: Path) -> None:
    """Its clock jumps to the limit of a day. The error has its standard error, and its processes."""
    with pytest.raises(LabError) as raised:
        run(["sh", "-c", "mkfifo /tmp/f; echo waiting; echo for an answer >&2; cat /tmp/f; :"], tmp_path)
    said = str(raised.value).splitlines()
    assert "did not end within the virtual-time limit of its User-Mode Linux kernel; its last words:" in said[0]
    assert said[1:3] == ["waiting", "for an answer"]
    assert said[-1].startswith("cat /tmp/f waits in ")
    assert not any("/run/uml" in line for line in said)


def test_a_guest_that_computes_for_good_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"was stopped after 3 s; .*\ncomputing$"):
        run(["sh", "-c", "echo computing; while :; do :; done"], tmp_path, limit_s=3)


def test_a_kernel_that_panics_is_told_by_its_last_lines(tmp_path: Path) -> None:
    """For want of memory, say: rather than have it kill a process that somebody measures."""
    fill = "echo filling; mount -t tmpfs -o size=1g none /mnt; cat /dev/zero > /mnt/file"
    with pytest.raises(LabError, match=r"(?s)kernel ended before .*filling\n.*Kernel panic.*Out of memory") as raised:
        run(["sh", "-c", fill], tmp_path, mb=96)
    assert len(str(raised.value).splitlines()) < 10  # no dump of registers and stack
    assert "Call Trace" in (tmp_path / "console.log").read_text()


@pytest.mark.parametrize("end", ["busybox halt -f", "busybox poweroff -f", "busybox reboot -f"])
def test_a_kernel_that_ends_before_the_command_is_told(tmp_path: Path, end: str) -> None:
    with pytest.raises(LabError, match=r"kernel ended before .*\nbye"):
        run(["sh", "-c", f"echo bye; {end}"], tmp_path)


# However it ends, nothing is left


@pytest.mark.parametrize(
    "victim",
    [("python", "atoll_emulation.uml"), ("unshare",), ("sh -c set -e",), ("/sys/linux", "time-travel")],
    ids=["starter", "unshare", "first process", "kernel"],
)
def test_whoever_is_killed_nothing_is_left(tmp_path: Path, victim: tuple[str, ...]) -> None:
    command = "echo up; sleep 1000000 & while :; do :; done"
    with Sandbox(tmp_path) as sandbox:
        process = sandbox.start(sys.executable, "-m", "atoll_emulation.uml", "--seed", "1", "sh", "-c", command)
        wait_until_up(tmp_path / "out" / "console.log", process)
        sandbox.kill(min(pid for pid, line in sandbox.processes().items() if all(word in line for word in victim)))
        process.communicate(timeout=100)
        assert process.returncode != 0
        sandbox.wait_clean()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "console.log"]


def wait_until_up(console: Path, process: subprocess.Popen[str]) -> None:
    while not console.exists() or "up\n" not in console.read_text():
        assert process.poll() is None
        time.sleep(0.05)


def test_stop_ends_a_running_kernel(tmp_path: Path) -> None:
    spin, kernel = ["sh", "-c", "while :; do :; done"], find_virtual_kernel()
    with (
        claimed_core() as core,
        start_in_uml(spin, tmp_path, kernel=kernel, clock=VirtualClock(1), cpu=core) as running,
    ):
        assert running.wait(0.5) is None
        running.stop()
        with pytest.raises(LabError, match="kernel ended before"):
            running.wait()


def test_the_time_in_which_others_have_the_processor_is_known(tmp_path: Path) -> None:
    """By it a kernel that others starve differs from one that hangs."""
    spin, kernel = ["sh", "-c", "while :; do :; done"], find_virtual_kernel()
    with (
        claimed_core() as core,
        start_in_uml(spin, tmp_path, kernel=kernel, clock=VirtualClock(1), cpu=core) as running,
        subprocess.Popen(["taskset", "--cpu-list", str(core), *spin]) as other,
    ):
        try:
            assert running.wait(3) is None
            before_s = running.waited_s()
            assert running.wait(3) is None
            assert running.waited_s() - before_s > 0.3
        finally:
            other.kill()


# Users that are not root


@pytest.fixture
def cache_for_others(tmp_path: Path) -> str:
    """The cache where another user can read it: root's home is closed. The shell command that puts it there."""
    open_to_others(tmp_path)
    place = tmp_path / "cache" / "atoll" / "kernel"
    place.mkdir(parents=True)
    return f"mount --bind {kernel_status().directory.parent} {place}"


def as_plain_user(sandbox: Sandbox, *command: str) -> subprocess.CompletedProcess[str]:
    cache = f"XDG_CACHE_HOME={sandbox.directory}/cache"
    return sandbox.run("env", cache, sys.executable, "-m", "atoll_emulation.uml", "--seed", "1", *command)


def test_a_plain_user_is_root_inside(tmp_path: Path, cache_for_others: str) -> None:
    with Sandbox(tmp_path, user=NOBODY, setup=cache_for_others) as sandbox:
        done = as_plain_user(sandbox, "sh", "-c", "id -u; ip link add x type dummy && echo > /out/mine")
        assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
        assert (tmp_path / "out" / "mine").stat().st_uid == NOBODY[0]
        sandbox.wait_clean()


def test_without_user_namespaces_there_is_one_clear_line(tmp_path: Path, cache_for_others: str) -> None:
    """The kernel refuses user namespaces to a chrooted process: a machine that forbids them, for this test alone."""
    jail = tmp_path / "jail"
    jail.mkdir()
    setup = f"{cache_for_others} && mount --rbind / {jail}"
    with Sandbox(tmp_path, user=NOBODY, jail=jail, setup=setup) as sandbox:
        done = as_plain_user(sandbox, "true")
        assert done.returncode == 1
        assert done.stderr.startswith("not root, and user namespaces are not allowed here (unshare: ")
        assert "sysctl user.max_user_namespaces=" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        sandbox.wait_clean()

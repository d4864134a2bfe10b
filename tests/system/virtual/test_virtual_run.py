# SPDX-License-Identifier: Apache-2.0
"""`atoll run --on virtual`: exact, repeatable to the byte, and however it ends nothing is left of it.

All of it inside kernels whose time does not depend on this machine's: figures are compared without tolerance for noise.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.reproducibility import compare_runs
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import HIDDEN_KEYS_FILE
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunError
from atoll_core.plan.plan import Backend
from atoll_core.platforms import VIRTUAL
from atoll_emulation.this_machine.core_pinning import claimed_core, usable_cores
from atoll_emulation.uml.cache import kernel_status
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run
from atoll_testbed.virtual.virtual_run import measure_in_kernel
from tests.support.sandbox import ATOLL, NOBODY, QUICK, ROOT, Sandbox, open_to_others, wait_for_line
from tests.support.virtual_runs import HANGS_S, atoll

pytestmark = pytest.mark.virtual

RUN = ("run", QUICK, "--on", "virtual")


def start_run(sandbox: Sandbox) -> subprocess.Popen[str]:
    """A run that would go on for an hour; returns when something has been captured."""
    process = sandbox.start(ATOLL, *RUN, "--duration", "1 h")
    wait_for_line(process, "measure")
    captures = next(sandbox.directory.glob("runs/quick/*")) / "captures"
    while any((captures / f"{name}.pcap").stat().st_size < 10_000 for name in ("world", "island")):
        assert process.poll() is None
        time.sleep(0.05)
    return process


def run_dir_of(directory: Path) -> RunDir:
    return RunDir.open(next(directory.glob("runs/quick/*")))


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--verify-repeat --json` says of an experiment run twice with one seed, on a machine without other runs."""
    with Sandbox(tmp_path_factory.mktemp("twice")) as sandbox:
        done = sandbox.run(ATOLL, *RUN, "--verify-repeat", "--json", limit_s=HANGS_S)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)  # one object and nothing else: no kernel message leaks


def test_a_run_in_virtual_time_is_valid(twice: dict[str, Any]) -> None:
    assert twice["verdict"] == "valid", twice["reasons"]
    assert twice["windows_over_rate"] == 0
    assert any("virtual time" in note for note in twice["notes"])


def test_the_files_of_a_finished_run_are_recorded(twice: dict[str, Any]) -> None:
    run = RunDir(Path(twice["run_dir"]))
    recorded = set(json.loads((run.path / "files.json").read_text())["files"])
    assert {"manifest.json", "events.jsonl", "link.jsonl", "captures/world.pcap.zst", "logs/load-i1.out"} <= recorded
    assert {"tables/flows.parquet", "summary.json"} <= recorded
    assert run.damages(contents=True) == {}


def test_all_clients_begin_at_one_instant(twice: dict[str, Any]) -> None:
    """None before it; the last one later only by what reading the clock costs each of them (256 ns a time)."""
    start = twice["start"]
    assert set(start["hosts"]) == {host for host, channels in twice["placement"].items() if channels}
    assert min(start["hosts"].values()) >= 0
    assert start["spread_ms"] < 0.1
    assert (start["clock_bound_ms"], start["silent"]) == (None, [])


def test_base_rtts_are_the_computed_ones(twice: dict[str, Any]) -> None:
    """Delays alone: a ping fits into the shaper's burst, and everything else takes no time. Within 10 us."""
    checks = [event for event in RunDir.open(Path(twice["run_dir"])).events() if event["type"] == "check"]
    assert {check["src"] for check in checks} >= {"w1", "w2", "w3", "w4", "w5", "w6", "ws"}
    off = {(check["src"], check["dst"]): check["rtt_min_ns"] - check["expected_ns"] for check in checks}
    assert all(0 <= apart <= 10_000 for apart in off.values()), off


def test_two_runs_with_one_seed_are_identical(twice: dict[str, Any]) -> None:
    """Every capture and table by its SHA-256, and the summary."""
    assert twice["repeat"]["identical"]
    names = [file["file"] for file in twice["repeat"]["files"]]
    assert {"captures/world.pcap", "captures/island.pcap", "tables/flows.parquet", "summary.json"} <= set(names)
    assert all(first == second for first, second in (file["sha256"] for file in twice["repeat"]["files"]))


def test_where_a_description_is_and_what_was_given_changes_no_packet(twice: dict[str, Any], tmp_path: Path) -> None:
    """Another path, other lines, options that say what the file says: the manifest tells them, the packets do not."""
    deep = tmp_path / ("deep-" * 20)
    deep.mkdir()
    lines = QUICK.read_text().replace("../../emulation", str(ROOT / "emulation"))
    (deep / "moved.yaml").write_text("#\n" * 300 + lines)
    done = atoll(deep, "run", "moved.yaml", "--on", "virtual", "--set", "traffic.channels=12", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    run_dir = RunDir.open(Path(json.loads(done.stdout)["run_dir"]))
    assert compare_runs(RunDir.open(Path(twice["run_dir"])), run_dir).first_difference is None
    manifest = json.loads((run_dir.path / "manifest.json").read_text())
    assert manifest["experiment"]["file"] == "moved.yaml"
    assert [option for option, _ in manifest["experiment"]["given"]] == ["traffic.channels"]
    assert manifest["experiment"]["chain"]["line"] > 300
    assert manifest["virtual"]["clock"]["seed"] == manifest["seed"]
    assert not (run_dir.path / HIDDEN_KEYS_FILE).exists()


def test_another_seed_makes_another_run(twice: dict[str, Any], tmp_path: Path) -> None:
    """The first difference is named, with what both runs have there."""
    done = atoll(tmp_path, *RUN, "--seed", "2", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    answer = json.loads(done.stdout)
    assert f"estimated wall time in virtual time: {answer['estimated_wall_s']:.0f} s (within a factor" in done.stderr
    comparison = compare_runs(RunDir.open(Path(twice["run_dir"])), RunDir.open(Path(answer["run_dir"])))
    assert not comparison.identical
    assert comparison.first_difference is not None
    assert comparison.first_difference.startswith("captures/island.pcap: packet ")


def test_the_manifest_tells_the_kernel_and_keeps_the_host_apart(twice: dict[str, Any]) -> None:
    manifest = RunDir.open(Path(twice["run_dir"])).manifest()
    assert manifest["place"] == "virtual"
    assert manifest["virtual"]["clock"]["seed"] == manifest["seed"]
    assert manifest["virtual"]["build"] == find_virtual_kernel().executable.parent.name
    assert manifest["kernel"].startswith(manifest["virtual"]["kernel"])
    assert manifest["host"]["kernel"] == os.uname().release
    assert manifest["host"]["wall_s"] >= manifest["host"]["steps_s"]["measure"] > 0


def test_links_delay_boxes_and_switches_are_the_kernels(twice: dict[str, Any]) -> None:
    """And the losses that captures show are those that the kernel counted."""
    manifest = RunDir.open(Path(twice["run_dir"])).manifest()
    boxes = {job["name"]: job["argv"] for job in manifest["plan"]["jobs"] if job["phase"] == "service"}
    assert boxes == {"link-sat": ["atoll-host", "tc"], "delay-delay": ["atoll-host", "tc"]}
    assert manifest["datapath"] == "kernel"
    assert twice["loss_bytes_captures"] == twice["loss_bytes_link"]
    assert twice["drained"]
    assert twice["lateness_max_ms"] is None, "the kernel does not measure it"


def test_two_kernels_at_once_have_a_core_each(twice: dict[str, Any]) -> None:
    cores = {RunDir.open(Path(run)).manifest()["host"]["core"] for run in twice["repeat"]["runs"]}
    assert len(cores) == min(2, usable_cores())


@pytest.mark.parametrize(
    ("what", "number"),
    [(("atoll", "run"), (signal.SIGINT, signal.SIGTERM)), (("atoll", "linux"), (signal.SIGKILL, signal.SIGKILL))],
    ids=("interrupted", "killed"),
)
def test_however_a_run_ends_nothing_is_left_and_captures_are_kept(
    tmp_path: Path, what: tuple[str, str], number: tuple[signal.Signals, signal.Signals]
) -> None:
    """Ctrl-C, SIGTERM, `kill -9` of the program and of the kernel; two at a time."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(end_a_run, (tmp_path / "first", tmp_path / "second"), what, number))


def end_a_run(directory: Path, victim: str, number: signal.Signals) -> None:
    directory.mkdir()
    with Sandbox(directory) as sandbox:
        process = start_run(sandbox)
        pid = sandbox.find(*({"linux": ("linux", "time-travel")}.get(victim, ("atoll", "run", "quick.yaml"))))
        assert pid is not None
        sandbox.kill(pid, number)
        said, errors = process.communicate(timeout=100)
        sandbox.wait_clean()
    assert said == ""
    run_dir = run_dir_of(directory)
    outcome = run_dir.manifest()["outcome"]
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        where = f"the measurements so far are in {run_dir.path}; analyse them with `atoll report {run_dir.path}`"
        assert errors.splitlines()[-1] == f"cancelled; {where}"
        assert outcome == "cancelled at step measure"
    elif victim == "linux":
        assert process.returncode == 1
        assert "kernel ended" in errors
        assert outcome.startswith("failed at step measure: ")
    else:
        assert outcome == "running"
    assert run_dir.manifest()["experiment"]["file"] == str(QUICK)
    assert (run_dir.path / "files.json").exists() is (outcome != "running")
    assert_reportable(run_dir)
    assert run_dir.damages(contents=True) == {}


def test_killed_while_it_analyses_leaves_nothing(tmp_path: Path) -> None:
    """An analysis that would go on for ever, as it is stopped, ends with the program that started it."""
    with Sandbox(tmp_path) as sandbox:
        process = sandbox.start(ATOLL, *RUN)
        wait_for_line(process, "analyse")
        while (analysis := sandbox.find("-m atoll_analysis")) is None:
            assert process.poll() is None
            time.sleep(0.01)
        sandbox.kill(analysis, signal.SIGSTOP)
        program = sandbox.find("atoll", "run", "quick.yaml")
        assert program is not None
        sandbox.kill(program)
        process.communicate(timeout=100)
        sandbox.wait_clean()
    assert run_dir_of(tmp_path).manifest()["outcome"] == "completed"


def assert_reportable(run_dir: RunDir) -> None:
    """What was captured until then can be analysed."""
    done = atoll(run_dir.path, "report", run_dir.path, "--json")
    assert done.returncode == 0, done.stderr
    captures = json.loads(done.stdout)["captures"]
    assert captures["world"]["decoded"] > 0
    assert captures["island"]["decoded"] > 0


async def test_cancelled_while_modules_are_compiled_a_run_is_not_left_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does it in an installation's first run, before there is a kernel."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text("answer = 42\n")
    monkeypatch.setattr("atoll_testbed.virtual.virtual_run.module_folders", lambda: {package})
    request = RunRequest(*load_experiment(QUICK), VIRTUAL, RunOptions(Backend.TC))
    run_dir = create_run(tmp_path, request, time.time_ns())

    def cancel(line: dict[str, Any]) -> None:
        assert line["text"] == "compiling 1 Python module once"
        raise asyncio.CancelledError

    with claimed_core() as core, pytest.raises(asyncio.CancelledError):
        await measure_in_kernel(run_dir, request, find_virtual_kernel(), core, cancel)
    assert run_dir.manifest()["outcome"] == "cancelled at step boot"


async def test_a_kernel_that_stands_still_is_given_up(tmp_path: Path) -> None:
    """One that computes for ever says nothing more; here it is stopped instead."""
    request = RunRequest(*load_experiment(QUICK), VIRTUAL, RunOptions(Backend.TC))
    run_dir = create_run(tmp_path, request, time.time_ns())

    def stop_kernel(line: dict[str, Any]) -> None:
        if line.get("text", "").startswith("namespaces"):
            os.kill(kernel_of(os.getpid()), signal.SIGSTOP)

    with (
        claimed_core() as core,
        pytest.raises(RunError, match=r"the virtual kernel made no progress for 8 s at step boot; it printed nothing"),
    ):
        await measure_in_kernel(run_dir, request, find_virtual_kernel(), core, stop_kernel, stuck_s=8)
    assert run_dir.manifest()["outcome"].startswith("failed at step boot: the virtual kernel made no progress")
    with pytest.raises(StopIteration):
        kernel_of(os.getpid())


def kernel_of(pid: int) -> int:
    """The process of the kernel among the descendants of ``pid``; StopIteration without one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(int, children):
        if Path(f"/proc/{child}/comm").read_text() == "linux\n":
            return child
    return next(kernel_of(int(child)) for child in children)


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    """Inside the kernel the disk is full, too; what was written before is kept."""
    (tmp_path / "runs").mkdir()
    with Sandbox(tmp_path, setup=f"mount -t tmpfs -o size=2m tmpfs {tmp_path}/runs") as sandbox:
        done = sandbox.run(ATOLL, *RUN, "--duration", "1 h", limit_s=HANGS_S)
        kept = sandbox.run("sh", "-c", "ls runs/quick/*/captures").stdout
        sandbox.wait_clean()
    assert done.returncode == 1
    assert done.stdout == ""
    assert "disk full" in done.stderr.splitlines()[-2]
    assert "/out/" not in done.stderr
    assert "world.pcap" in kept


def test_a_plain_user_gets_the_same_packets(twice: dict[str, Any], tmp_path: Path) -> None:
    """No root, no tun device, another working directory, an installation that was never run: identical to root's.

    The directory is the user's.
    """
    open_to_others(tmp_path)
    setup = f"{offer_kernels(tmp_path)} && {without_bytecode(tmp_path)} && mount -t tmpfs none /dev/net"
    with Sandbox(tmp_path, user=NOBODY, setup=setup) as sandbox:
        done = sandbox.run("env", f"XDG_CACHE_HOME={tmp_path}/cache", ATOLL, *RUN, "--json")
        sandbox.wait_clean()
    assert done.returncode == 0, done.stderr
    run_dir = RunDir.open(Path(json.loads(done.stdout)["run_dir"]))
    assert run_dir.path.stat().st_uid == NOBODY[0]
    assert compare_runs(RunDir.open(Path(twice["run_dir"])), run_dir).first_difference is None


def test_without_user_namespaces_a_plain_user_is_told_so_in_one_line(tmp_path: Path) -> None:
    """The kernel refuses user namespaces to a chrooted process: a machine that forbids them, for this test alone."""
    open_to_others(tmp_path)
    jail = tmp_path / "jail"
    jail.mkdir()
    setup = f"{offer_kernels(tmp_path)} && mount --rbind / {jail}"
    with Sandbox(tmp_path, user=NOBODY, jail=jail, setup=setup) as sandbox:
        done = sandbox.run("env", f"XDG_CACHE_HOME={tmp_path}/cache", ATOLL, *RUN)
    assert done.returncode == 1
    assert "user namespaces are not allowed here" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def without_bytecode(directory: Path) -> str:
    """The shell command that gives our main package to the user, without what Python has compiled of it so far."""
    (directory / "hidden").mkdir()
    packages = ROOT / "controller"
    layers = f"lowerdir={packages},upperdir={directory}/hidden/upper,workdir={directory}/hidden/work"
    return (
        f"mount -t tmpfs none {directory}/hidden && mkdir {directory}/hidden/upper {directory}/hidden/work && "
        f"mount -t overlay overlay -o {layers} {packages} && "
        f"find {packages} -name __pycache__ -prune -exec rm -r {{}} + && chown -R {NOBODY[0]}:{NOBODY[1]} {packages}"
    )


def offer_kernels(directory: Path) -> str:
    """The shell command that shows this user's kernels in a cache that other users may read, too."""
    cache = directory / "cache" / "atoll" / "kernel"
    cache.mkdir(parents=True)
    return f"mount --bind {kernel_status().directory.parent} {cache}"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ("run", QUICK, "--on", "virtual", "--keep"),
            "--keep: a lab in virtual time exists for one run only; use --on mininet",
        ),
        (
            ("up", QUICK, "--on", "virtual"),
            "up --on virtual: a lab in virtual time exists for one run only;",
        ),
        (("run", QUICK, "--verify-repeat"), "--verify-repeat: runs on mininet are not repeatable"),
        (("run", QUICK, "--on", "moon"), "--on moon: unknown platform; known platforms: mininet, virtual"),
    ],
    ids=("keep", "up", "real time", "elsewhere"),
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, words: tuple[str | Path, ...], answer: str) -> None:
    done = atoll(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(answer)
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_without_a_kernel_the_remedy_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [ATOLL, *RUN],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "ATOLL_SHARED_KERNELS": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "atoll kernel build" in done.stderr
    assert not (tmp_path / "runs").exists()

# SPDX-License-Identifier: Apache-2.0
"""The request of a run is in its directory, whole: what is read there is what was asked for."""

import json
import subprocess
from dataclasses import replace
from importlib import metadata
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunDirError
from atoll_core.plan.plan import Backend
from atoll_core.platforms import HARDWARE, MININET, PLATFORMS, VIRTUAL
from atoll_testbed.run import run_request
from atoll_testbed.run.run_request import (
    RunOptions,
    RunRequest,
    create_run,
    installed_version,
    plan_run,
    read_request,
    revision,
)
from atoll_testbed.virtual.virtual_run import inside_manifest, stuck_timeout_s

_UDP = "udp={rate: 1 Mbit/s, receivers: clients}"


@pytest.mark.parametrize(
    ("platform", "options"),
    [(MININET, RunOptions()), (VIRTUAL, RunOptions(Backend.TC, metrics=False, full_matrix=True))],
)
def test_a_request_is_read_as_it_was_made(project: Path, tmp_path: Path, platform: str, options: RunOptions) -> None:
    """By every platform the same way, with settings and scheduled changes resolved."""
    network, experiment = load_experiment(project / "examples/switching.yaml", ["seed=9", _UDP])
    request = RunRequest(network, experiment, platform, options)
    run_dir = create_run(tmp_path, request, 0)
    assert read_request(RunDir.open(run_dir.path)) == request
    manifest = run_dir.manifest()
    assert (manifest["place"], manifest["seed"]) == (platform, 9)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_jobs_of_hosts_with_in_band_control_are_quiet_on_hardware_alone(project: Path, platform: str) -> None:
    network, experiment = load_experiment(project / "tests/data/rack-in-band.yaml")
    of_server = {"w1": IPv4Address("192.168.10.11")}
    hosts = tuple(replace(host, control=of_server.get(host.name, host.control)) for host in network.hosts)
    clients = {"load-i1", "load-i2"}
    for lab, expected in ((network, clients), (replace(network, hosts=hosts), {*clients, "serve-w1"})):
        planned = plan_run(RunRequest(lab, experiment, platform)).plan
        quiet = {job.name for job in planned.jobs if job.config and job.config.get("quiet")}
        assert quiet == (expected if platform == HARDWARE else set())


def test_requests_of_one_experiment_are_one_request_inside_a_virtual_kernel(project: Path, tmp_path: Path) -> None:
    """Wherever the description is, on whichever lines, and whatever was given that it says as well."""
    text = (project / "tests/data/quick.yaml").read_text().replace("../../emulation", str(project / "emulation"))
    moved = tmp_path / "moved.yaml"
    moved.write_text("#\n" * 300 + text)
    inside = []
    for file, given in ((project / "tests/data/quick.yaml", ()), (moved, ("traffic.channels=12",))):
        run_dir = create_run(tmp_path, RunRequest(*load_experiment(file, given), VIRTUAL, RunOptions(Backend.TC)), 0)
        run_dir.update_manifest({"virtual": {"stale_modules": len(inside)}})
        run_dir.hide_from_guest(inside_manifest(run_dir.manifest()))
        inside.append((run_dir.path / "manifest.json").read_text().replace(run_dir.name, "NAME"))
        assert plan_run(read_request(RunDir.open(run_dir.path, in_guest=True)))
    assert inside[0] == inside[1]


def test_a_directory_of_an_older_version_has_the_default_options(project: Path, tmp_path: Path) -> None:
    run_dir = create_run(tmp_path, RunRequest(*load_experiment(project / "examples/geo.yaml"), MININET), 0)
    old = {key: part for key, part in run_dir.manifest().items() if key not in ("metrics", "full_matrix", "place")}
    (run_dir.path / "manifest.json").write_text(json.dumps(old))
    assert read_request(RunDir.open(run_dir.path)).options == RunOptions()


def test_a_directory_without_a_request_is_refused(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "geo", 0)
    run_dir.update_manifest({"backend": "engine"})
    with pytest.raises(RunDirError, match="has no complete run request: 'network'"):
        read_request(run_dir)


def test_a_package_installed_inside_of_other_work_has_a_version_and_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert revision()
    file = tmp_path / "run_request.py"
    file.write_text("")
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m1"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(run_request, "__file__", str(file))
    assert revision() is None
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    assert revision()
    assert installed_version() == f"version {metadata.version('atoll')}"


def test_the_revision_of_a_modified_tree_has_a_hash_of_the_changes_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "testbed/atoll_testbed/run_request.py"
    file.parent.mkdir(parents=True)
    file.write_text("one = 1\n")
    notes = tmp_path / "notes.md"
    notes.write_text("a\n")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm1"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(run_request, "__file__", str(file))
    clean = revision()
    assert clean is not None
    assert "+" not in clean
    notes.write_text("b\n")
    (file.parent / ".run_request.py.swp").write_bytes(b"an editor's")
    (file.parent / ".#run_request.py").symlink_to("nowhere")
    assert revision() == f"{clean}+", "what makes runs is as it was"
    found: list[str | None] = []
    for name, content in (("run_request.py", "one = 2\n"), ("run_request.py", "one = 3\n"), ("new.py", "two = 2\n")):
        (file.parent / name).write_text(content)
        found += [revision(), revision()]
    assert found[::2] == found[1::2]
    assert len(set(found)) == 3
    assert all(str(each).startswith(f"{clean}+") and len(str(each)) == len(clean) + 9 for each in found)


def test_a_kernel_in_which_many_channels_connect_at_once_is_not_taken_to_hang() -> None:
    assert stuck_timeout_s(0) == 120
    assert stuck_timeout_s(100_000) == 1120

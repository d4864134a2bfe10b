# SPDX-License-Identifier: Apache-2.0
"""The request of a run: a resolved experiment, and how it is measured; and its plan.

A run begins with a run directory that contains its request. The daemon runs it, or a process inside a virtual kernel,
which has access to this directory only.
"""

import hashlib
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.change_schedule import Scheduled, plan_schedule
from atoll_controller.planner.planner import make_plan
from atoll_controller.planner.traffic_jobs import with_quiet_jobs
from atoll_core.clone import built_revision
from atoll_core.codec import from_json, to_json
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend, Plan
from atoll_core.plan.tc_settings import timer_slack
from atoll_core.platforms import HARDWARE


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that a run's measurements depend on.

    ``metrics``: record metrics. ``full_matrix``: ping every pair of hosts in the configuration test.
    """

    backend: Backend = Backend.ENGINE
    metrics: bool = True
    full_matrix: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """An experiment to run on a platform."""

    network: Network
    experiment: Experiment
    platform: str
    options: RunOptions = RunOptions()


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run with the plan that it begins with, and its scheduled changes."""

    request: RunRequest
    plan: Plan
    schedule: tuple[Scheduled, ...]


def plan_run(request: RunRequest) -> PlannedRun:
    """Plan a run. Raises PlanError or DescriptionError if it, or a change, cannot be carried out."""
    network, experiment = request.network, request.experiment
    backend, slack = request.options.backend, timer_slack(request.platform)
    plan = make_plan(network, experiment, backend, slack=slack)
    if request.platform == HARDWARE:
        plan = with_quiet_jobs(plan, network)
    return PlannedRun(request, plan, plan_schedule(network, experiment, plan, backend, slack))


def create_run(runs: Path, request: RunRequest, now_ns: int) -> RunDir:
    """Create a run directory below ``runs`` with the request in its manifest. Raises RunError.

    ``now_ns``: CLOCK_REALTIME, ns since 1970, for the directory's name.
    """
    run_dir = RunDir.create(runs, request.experiment.name, now_ns)
    run_dir.update_manifest(
        {
            "name": run_dir.path.name,
            "place": request.platform,
            "backend": request.options.backend,
            "metrics": request.options.metrics,
            "full_matrix": request.options.full_matrix,
            "seed": request.experiment.seed,
            "experiment": to_json(request.experiment),
            "network": to_json(request.network),
            "revision": revision(),
        }
    )
    return run_dir


def read_request(run_dir: RunDir) -> RunRequest:
    """Read the request written by :func:`create_run`. Raises RunDirError if the manifest has none.

    A manifest of an older version may have no platform and no options; their defaults hold then.
    """
    manifest: dict[str, Any] = run_dir.manifest()
    try:
        options = RunOptions(
            Backend(manifest["backend"]), manifest.get("metrics", True), manifest.get("full_matrix", False)
        )
        network = from_json(Network, manifest["network"])
        experiment = from_json(Experiment, manifest["experiment"])
        return RunRequest(network, experiment, str(manifest.get("place", "")), options)
    except (KeyError, TypeError, ValueError) as error:
        raise RunDirError(f"{run_dir.path}: manifest.json has no complete run request: {error}") from error


_PACKAGES = (":(top,glob)*/atoll_*/**", ":(top,glob)api/atoll/**")  # git pathspecs; Rust programs have their own hash


def revision() -> str | None:
    """The git revision of the clone, or of the wheel's build; None in other installations."""
    return built_revision() or clone_revision(Path(__file__))


def clone_revision(file: Path) -> str | None:
    """The git revision of the clone that a file belongs to; None if git does not know the file.

    Of a modified work tree with +, and with a hash of the changes if packages are changed: ``0123456789ab+89abcdef``.
    """
    try:
        _git(file.parent, "ls-files", "--error-unmatch", file.name)  # a package installed inside of other work has none
        version = _git(file.parent, "describe", "--always", "--dirty=+", "--abbrev=12")
        changes_hash = _changes_hash(file.parent)
        return f"{version.removesuffix('+')}+{changes_hash}" if changes_hash else version or None
    except (OSError, subprocess.SubprocessError):
        return None


def _changes_hash(folder: Path) -> str:
    """The beginning of the SHA-256 of all changed files of packages, new ones included; empty without any.

    An editor's own files (swap files, backups, locks) are no changes.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    changed = _git(top, "diff", "HEAD", "--name-only", "-z", "--", *_PACKAGES)
    added = _git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *_PACKAGES)
    digest, is_changed = hashlib.sha256(), False
    for name in sorted({*changed.split("\0"), *added.split("\0")} - {""}):
        if name.rpartition("/")[2].startswith((".", "#")) or name.endswith("~"):
            continue
        try:
            content = (top / name).read_bytes()
        except OSError:  # deleted, or another repository in its folder
            content = b""
        digest.update(name.encode(errors="surrogateescape") + b"\0" + hashlib.sha256(content).digest())
        is_changed = True
    return digest.hexdigest()[:8] if is_changed else ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, errors="surrogateescape", check=True, timeout=60
    ).stdout.strip()


def installed_version() -> str | None:
    """The version of the installed package; None if there is none."""
    try:
        return f"version {metadata.version('atoll')}"
    except metadata.PackageNotFoundError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""The request of a run in the manifest of its directory.

A run begins with a run directory that contains its request. The daemon runs it, or a process inside a virtual kernel,
which has access to this directory only.
"""

import subprocess
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_core.codec import from_json, to_json
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend


def create_run(
    runs: Path,
    network: Network,
    experiment: Experiment,
    backend: Backend,
    place: str,
    now_ns: int,
    *,
    metrics: bool = True,
    full_matrix: bool = False,
) -> RunDir:
    """Create a run directory below ``runs`` with the request in its manifest. Raises RunError.

    ``now_ns``: CLOCK_REALTIME, ns since 1970, for the directory's name. ``metrics``: record metrics. ``full_matrix``:
    ping every pair of hosts in the configuration test.
    """
    run_dir = RunDir.create(runs, experiment.name, now_ns)
    run_dir.update_manifest(
        {
            "name": run_dir.path.name,
            "place": place,
            "backend": backend,
            "metrics": metrics,
            "full_matrix": full_matrix,
            "seed": experiment.seed,
            "experiment": to_json(experiment),
            "network": to_json(network),
            "revision": _revision(),
        }
    )
    return run_dir


def read_request(run_dir: RunDir) -> tuple[Network, Experiment, Backend]:
    """Read the request written by :func:`create_run`. Raises RunDirError if the manifest has none."""
    manifest: dict[str, Any] = run_dir.manifest()
    try:
        network = from_json(Network, manifest["network"])
        experiment = from_json(Experiment, manifest["experiment"])
        return network, experiment, Backend(manifest["backend"])
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{run_dir.path}: manifest.json has no complete run request: {error}"
        raise RunDirError(msg) from error


def _revision() -> str | None:
    """The project's git revision, with + if the work tree is modified; None outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None

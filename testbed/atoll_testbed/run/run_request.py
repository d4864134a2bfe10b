# SPDX-License-Identifier: Apache-2.0
"""What a run is asked to do, as its manifest says it from the first moment on.

A run begins with a run directory that holds its request. Whoever has the directory can run it: the daemon, or a
process inside a virtual kernel that sees nothing of the outside but this directory.
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
    """A new run directory below ``runs`` with its request in the manifest. Raises RunError.

    ``now_ns``: CLOCK_REALTIME, ns since 1970; it names the directory. ``metrics``: whether points are to be spooled.
    ``full_matrix``: whether the configuration test pings every pair of hosts.
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
    """What :func:`create_run` wrote. Raises RunDirError when the manifest holds no request."""
    manifest: dict[str, Any] = run_dir.manifest()
    try:
        network = from_json(Network, manifest["network"])
        experiment = from_json(Experiment, manifest["experiment"])
        return network, experiment, Backend(manifest["backend"])
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{run_dir.path}: manifest.json has no complete run request: {error}"
        raise RunDirError(msg) from error


def _revision() -> str | None:
    """The project's git revision, with + when the work tree differs; None outside a checkout."""
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

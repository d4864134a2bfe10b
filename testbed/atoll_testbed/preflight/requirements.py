# SPDX-License-Identifier: Apache-2.0
"""Requirements of runs and labs that are checked before anything is started, by commands and by the daemon.

The machines of a lab of real ones have programs, kernels and a /run of their own: nothing of them is checked here.
"""

import os
import tempfile
from pathlib import Path

from atoll_analysis.run_directory.atomic_files import directory_errors
from atoll_controller.planner.description_warnings import memory_warnings
from atoll_controller.planner.job_plan import jobs
from atoll_core.errors import Diagnostic, MachineError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL
from atoll_core.units import Size
from atoll_emulation.mininet_lab.namespaces import is_hidden_in_lab
from atoll_emulation.this_machine.box_programs import require_programs
from atoll_emulation.this_machine.congestion_controls import local_controls, require_controls, virtual_controls
from atoll_emulation.this_machine.host_requirements import free_memory, missing_for_tc, require_machine
from atoll_testbed.run.run_request import PlannedRun, RunRequest, plan_run


def require_runnable(request: RunRequest, runs: Path) -> PlannedRun:
    """Check a run with directories below ``runs``, and plan it. It may take seconds.

    Raises PlanError or DescriptionError for a request that cannot be carried out, UsageError for a directory in which
    runs cannot be made, MachineError if this machine is not able to.
    """
    require_writable(runs, request.experiment.name)
    planned = plan_run(request)
    if request.platform == MININET and is_hidden_in_lab(runs):
        reason = "the lab has its own /run, so captures cannot be written there"
        raise PlanError(f"{runs}: {reason}; name another directory")
    require_tcp_settings(request.experiment, request.platform)
    require_platform_programs(request.network, request.experiment, request.platform)
    return planned


def require_applicable(network: Network, experiment: Experiment, platform: str, backend: Backend) -> None:
    """Check an experiment's programs, and that the backend can emulate its links. Raises as `require_runnable`."""
    require_platform_programs(network, experiment, platform)
    if backend is Backend.TC:
        jobs(network, experiment, backend)  # raises for links that tc cannot emulate


def require_platform_programs(network: Network, experiment: Experiment, platform: str) -> None:
    """Check that the platform's machines have the programs of boxes. Raises as `require_runnable`."""
    if platform != HARDWARE:
        require_programs(network, experiment)


def require_tcp_settings(experiment: Experiment, platform: str) -> None:
    """Check that the platform's kernel can have the experiment's TCP settings. Raises as `require_runnable`."""
    if platform == MININET:
        if not experiment.tcp.hystart:
            reason = "it is one value for all programs of this machine, and a lab that is killed would leave it off"
            raise PlanError(f"tcp: hystart: false is not for --on mininet: {reason}; use --on virtual or --on hardware")
        require_controls(experiment, local_controls(), virtual_controls())
    elif platform == VIRTUAL:
        require_controls(experiment, virtual_controls())


def require_machine_for(platform: str, backend: Backend) -> None:
    """Raise MachineError if this machine cannot have a lab of this platform, with links emulated by ``backend``."""
    if platform != MININET:
        return
    require_machine()  # completes PATH, also for the next
    if backend is Backend.TC and (missing := missing_for_tc()):
        raise MachineError("\n".join(missing))


def require_memory(experiment: Experiment, needed: Size) -> tuple[Diagnostic, ...]:
    """Warnings if the memory needed is not free. Raises MachineError if less than half of it is."""
    free = free_memory()
    warnings = memory_warnings(experiment, needed, free)
    if needed.bytes > 2 * free.bytes:
        raise MachineError("\n".join(map(str, warnings)))
    return warnings


def max_parallel_runs(experiment: Experiment, needed: Size) -> int:
    """The number of runs at a time for which there is free memory, each of which needs so much: at least one.

    Raises as `require_memory`.
    """
    require_memory(experiment, needed)
    return max(1, free_memory().bytes // needed.bytes)


def require_writable(runs: Path, experiment: str) -> None:
    """Raise UsageError if run directories of an experiment cannot be made in ``runs``, before a lab is brought up.

    Makes and removes a directory: permissions do not say what file systems such as /proc allow.
    """
    folder = Path(os.path.realpath(runs / experiment))  # Path.resolve raises RuntimeError for a loop of links
    with directory_errors(str(runs)):
        existing = next(path for path in (folder, *folder.parents) if _exists(path))
        with tempfile.TemporaryDirectory(dir=existing):
            pass


def _exists(path: Path) -> bool:
    """Whether a path exists. Raises OSError for one that cannot, such as one with a name that is too long."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""One attempt at a point: ``python -m atoll_studies.sweeping.worker STUDY POINT``.

A process of its own for each: it ends, with all that it started, when the sweep does, however that ends. Exit code 0:
an attempt was added to the study's directory, whatever its outcome; otherwise the reason is on standard error. 75: the
run did not begin, and may be tried again.
"""

import asyncio
import contextlib
import hashlib
import platform
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_core.codec import from_json
from atoll_core.description.loader import DescriptionFile
from atoll_core.errors import AtollError, InterruptedByUserError, RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.platforms import VIRTUAL, LabTarget
from atoll_emulation.this_machine.core_pinning import claimed_core
from atoll_emulation.uml.kernel import UmlKernel, find_virtual_kernel
from atoll_hosts.binary import find_binary
from atoll_studies.points import program_files
from atoll_studies.study_directory import FAILED, Attempt, NoAttemptError, Provenance, StudyDirectory, is_disk_full
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_request import RunRequest, create_run, installed_version, revision
from atoll_testbed.virtual.virtual_run import measure_in_kernel

_CHANGED = "changed during the sweep; --resume continues with the changed file"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def provenance(where: str, kernel: UmlKernel | None, inventory: Path | None = None) -> Provenance:
    """What makes the attempts of this process. ``kernel``: in virtual time. ``inventory``: of real machines.

    Raises RunError if the inventory or atoll-host cannot be read, MachineError without atoll-host.
    """
    software, program = revision() or installed_version(), _hash(find_binary())
    if kernel is None:
        machines = _hash(inventory) if inventory else None
        return Provenance(software, where, platform.release(), inventory=machines, host_program=program)
    build = kernel.executable.parent.name
    return Provenance(software, where, kernel.release, kernel.mode, build, host_program=program)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None


class _Worker:
    def __init__(self, directory: StudyDirectory, point: dict[str, Any]) -> None:
        self._directory = directory
        self._point = point
        self._id: str = point["id"]
        self._request = from_json(RunRequest, point["request"])
        self._platform = self._request.platform
        self._study = directory.study()
        self._inventory = Path(self._study["inventory"]) if self._study["inventory"] else None
        self._working = directory.working / self._id
        self._run: RunDir | None = None

    async def attempt(self) -> None:
        """Make one attempt. Raises NoAttemptError if the run did not begin, AtollError if it could not be added."""
        began = time.monotonic()
        self.discard()
        kernel = find_virtual_kernel() if self._platform == VIRTUAL else None
        origin = provenance(self._platform, kernel, self._inventory)
        required = self._study["provenance"] and Provenance(**self._study["provenance"])
        if required is not None and origin != required:
            raise RunError(
                f"atoll, its kernel or the inventory was changed during the sweep, from {required} to {origin}; "
                "continue with `--resume --mix` (results then say so), or choose another directory for a new study"
            )
        self._require_programs()
        outcome, message = FAILED, ""
        try:
            summary = await (self._run_live() if kernel is None else self._run_virtual(kernel))
            outcome, message = summary["verdict"], "; ".join(summary["reasons"] or summary.get("caveats", ()))
        except AtollError as error:
            if isinstance(error, RunError) and is_disk_full(error):
                raise
            if self._run is None:
                raise NoAttemptError(str(error)) from error
            message = str(error)
        wall_s = time.monotonic() - began
        if self._run is None:
            raise RunError("the run has no directory")
        self._require_programs()
        self._require_descriptions(self._run)
        directory = self._run.path
        attempt_path = self._directory.free_path(self._id, directory.name)
        if outcome != FAILED:
            self._run.write_summary({**self._run.summary(), "run_dir": str(attempt_path)})
        self._directory.add_attempt(directory, self._id, Attempt(attempt_path, outcome, message, wall_s, origin))
        self.discard()

    def _require_programs(self) -> None:
        """Raise RunError if a file of a box's program differs from when the sweep began. New ones are output."""
        digests = dict(program_files(self._request.network))
        if changed := [name for name, digest in self._point["programs"].items() if digests.get(name) != digest]:
            folder = Path(self._request.network.file).parent
            raise RunError(f"{folder / changed[0]}: {_CHANGED}")

    def _require_descriptions(self, run: RunDir) -> None:
        """Raise RunError if the daemon, which reads them again, found other descriptions than the sweep did.

        On real machines the lab has their interfaces, too, so that only the experiment is compared.
        """
        manifest, request = run.manifest(), self._request
        if from_json(Experiment, manifest["experiment"]) != request.experiment:
            raise RunError(f"{request.experiment.file}: {_CHANGED}")
        if self._inventory is None and from_json(Network, manifest["network"]) != request.network:
            raise RunError(f"{request.network.file}: {_CHANGED}")

    async def _run_virtual(self, kernel: UmlKernel) -> dict[str, Any]:
        run = self._run = create_run(self._working, self._request, time.time_ns())
        with claimed_core() as core:
            await measure_in_kernel(run, self._request, kernel, core, lambda _: None)
        return await compress_and_analyse(run)

    async def _run_live(self) -> dict[str, Any]:
        """Run on the lab that is up, else on one of its own, which is taken down afterwards; returns the summary."""
        from atoll_studies.sweeping.live_attempt import run_on_daemon

        def on_line(line: dict[str, Any]) -> None:
            if line["type"] == "run":
                self._run = RunDir.open(Path(line["run_dir"]))

        target = LabTarget(self._platform, self._inventory)
        description = self._point["description"]
        file = DescriptionFile.read(Path(description["file"]), description["settings"])
        return await run_on_daemon(target, file, self._request.options, self._working, on_line)

    def discard(self) -> None:
        """Remove what is left in the folder in which the attempt is made."""
        shutil.rmtree(self._working, ignore_errors=True)


async def _main(study: Path, point: str) -> int:
    directory = StudyDirectory(study)
    try:
        worker = _Worker(directory, directory.point(point))
        task = asyncio.create_task(worker.attempt())
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            worker.discard()
            return InterruptedByUserError.exit_code
    except AtollError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(Path(sys.argv[1]), sys.argv[2])))

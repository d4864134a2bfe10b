# SPDX-License-Identifier: Apache-2.0
"""An attempt on a worker of a cluster: its inputs come as bytes, and it goes back as an archive with its hash.

Workers share no files with the sweep, nor with each other. They have atoll installed, and a virtual kernel.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.errors import RunError
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.pool import last_lines

_LAB_FILE = "lab.yaml"  # in the folder of the files of programs


Inputs = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, bytes]]
"""study.json, point.json, and files of programs of boxes by their paths in the folder of the lab: all that an attempt
depends on, but for the software of the worker."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of an attempt: its directory as an archive; or none, with exit code and message of its process."""

    archive: bytes
    sha256: str
    exit_code: int
    message: str


def read_inputs(directory: StudyDirectory, identity: str) -> Inputs:
    """The inputs of a point of a study's directory. Raises RunDirError, RunError."""
    point = directory.point(identity)
    folder = Path(point["request"]["network"]["file"]).parent
    try:
        files = {name: (folder / name).read_bytes() for name in point["programs"]}
    except OSError as error:
        raise RunError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return directory.study(), point, files


def make_attempt(inputs: Inputs, parent: Path) -> AttemptResult:
    """Make an attempt in a folder of its own, which is removed."""
    study, point, files = inputs
    with tempfile.TemporaryDirectory(prefix="attempt-", dir=parent) as folder:
        root = Path(folder)
        for name, content in files.items():
            path = root / "lab" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        (root / "lab").mkdir(exist_ok=True)
        network = {**point["request"]["network"], "file": str(root / "lab" / _LAB_FILE)}
        point = {**point, "request": {**point["request"], "network": network}}
        directory = StudyDirectory(root / "study")
        identity = str(point["id"])
        directory.point_path(identity).mkdir(parents=True)
        (directory.path / "study.json").write_text(json.dumps(study))
        (directory.point_path(identity) / "point.json").write_text(json.dumps(point))
        process = subprocess.run(
            # It dies with the thread of the worker that waits for it.
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *(sys.executable, "-m", "atoll_studies.sweeping.worker", str(directory.path), identity),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        attempts = [attempt.path for attempt in directory.attempts(identity)]
        archive = _pack(attempts[0]) if attempts else b""
        exit_code = 0 if attempts else process.returncode  # the attempt is whole, whatever its process did afterwards
        return AttemptResult(archive, hashlib.sha256(archive).hexdigest(), exit_code, last_lines(process.stderr))


def unpack(result: AttemptResult, folder: Path) -> Path:
    """Unpack an attempt in ``folder``; returns its directory. Raises RunError if it is not what the worker packed."""
    if hashlib.sha256(result.archive).hexdigest() != result.sha256:
        raise RunError("an attempt was damaged on its way from the worker: its SHA-256 differs")
    try:
        with tarfile.open(fileobj=io.BytesIO(result.archive)) as archive:
            for entry in archive:
                path = Path(entry.name)
                if not (entry.isfile() or entry.isdir()) or path.is_absolute() or ".." in path.parts:
                    raise RunError(
                        f"the archive of an attempt contains {entry.name!r}, a link, device or path outside the run"
                    )
                archive.extract(entry, folder)
    except (tarfile.TarError, OSError) as error:
        raise RunError(f"an attempt could not be unpacked in {folder}: {error}") from None
    (directory,) = folder.iterdir()
    return directory


def _pack(directory: Path) -> bytes:
    """The archive of a directory. Captures and tables are compressed already."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(directory, directory.name)
    return buffer.getvalue()

# SPDX-License-Identifier: Apache-2.0
"""The directory of a study, which is its only state. Layout: docs/contracts.md.

    study.json                          the study as it was last swept
    points/ID/point.json                what the point asks for; rewritten if its files moved
    points/ID/20260102T030405Z-1/       an attempt: a run directory, and attempt.json
    working/                            attempts that are being made

An attempt appears in its point's directory when it is complete, by one rename. Everything in ``working`` is of a sweep
that goes on, or was killed.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import directory_errors, replace_text, write_errors
from atoll_analysis.run_directory.directory import read_error_text
from atoll_analysis.verdict.findings import Verdict
from atoll_core.errors import AtollError, RunDirError, RunError, UsageError
from atoll_studies.points import Point
from atoll_studies.statistics.sign_tests import Primary
from atoll_studies.study import StudyDescription

FORMAT = 1
FAILED = "failed"
"""The outcome of an attempt that has no verdict, as it did not come to its end."""

_STUDY_KEYS = {"name": str, "factors": dict, "baseline": dict, "figures": list, "configurations": list, "points": list}

USABLE_OUTCOMES = frozenset({Verdict.VALID.value, Verdict.CAVEATS.value})


class NoAttemptError(AtollError):
    """A run did not begin, so that no attempt was added. Another try may succeed."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


@dataclass(frozen=True, slots=True)
class Provenance:
    """What made an attempt. Runs of different provenance may differ for reasons that are no factor's."""

    revision: str | None  # of atoll's clone, else its version; None: unknown
    platform: str
    kernel: str  # release: of the virtual kernel, else of the machine
    mode: str | None = None  # of the virtual kernel
    build: str | None = None  # its directory, named after the recipe
    inventory: str | None = None  # the beginning of the SHA-256 of its file, on real machines
    host_program: str | None = None  # the beginning of the SHA-256 of atoll-host; None: made by an older version

    @classmethod
    def of_run(cls, manifest: Mapping[str, Any]) -> "Provenance":
        """As the manifest of a run has it."""
        virtual: Mapping[str, Any] = manifest.get("virtual", {})
        kernel = virtual.get("kernel", manifest.get("kernel", ""))
        return cls(
            manifest.get("revision"), manifest.get("place", ""), kernel, virtual.get("mode"), virtual.get("build")
        )

    def __str__(self) -> str:
        kernel = f"Linux {self.kernel or 'of unknown release'}"
        kernel += f" ({self.mode}, {self.build})" if self.build else ""
        machines = f", inventory {self.inventory}" if self.inventory else ""
        program = f", atoll-host {self.host_program}" if self.host_program else ""
        program = f"atoll {self.revision or 'of unknown revision'}{program}"
        return f"{program} on {self.platform or 'an unknown platform'}, {kernel}{machines}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A completed attempt."""

    path: Path
    outcome: str  # a verdict, or FAILED
    message: str  # why it is not valid, or its caveats
    wall_s: float
    provenance: Provenance

    @property
    def is_usable(self) -> bool:
        """Whether its figures count."""
        return self.outcome in USABLE_OUTCOMES


class StudyDirectory:
    """Reads and writes the directory of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def working(self) -> Path:
        """Where attempts are made."""
        return self.path / "working"

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the directory for a sweep, which makes it if needed. Raises UsageError while another sweep has it."""
        with directory_errors(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it with the process
            except OSError:
                raise UsageError(f"{self.path}: another sweep uses this directory; wait until it has ended") from None
            yield
        finally:
            os.close(lock)

    def clear_working(self) -> None:
        """Remove attempts that a killed sweep left. Call it under the lock."""
        shutil.rmtree(self.working, ignore_errors=True)

    def study(self) -> dict[str, Any]:
        """study.json. Raises RunDirError."""
        path = self.path / "study.json"
        study = _read_json(path, f"{self.path}: not the directory of a study (no study.json)")
        keys = " and ".join(key for key, kind in _STUDY_KEYS.items() if not isinstance(study.get(key), kind))
        if keys:
            raise RunDirError(
                f"{path}: damaged: {keys} cannot be read; remove this file, then --resume writes it again"
            )
        return study

    def write(
        self,
        study: StudyDescription,
        points: Iterable[Point],
        origin: Provenance | None = None,
        inventory: Path | None = None,
    ) -> None:
        """Replace study.json, and point.json of points that are new, or whose files moved. Raises RunError.

        ``origin``: that attempts must have from now on; None: any. ``inventory``: of a lab of real machines.
        """
        points = list(points)
        for point in points:
            path, text = self.point_path(point.id) / "point.json", json.dumps(point.to_json()) + "\n"
            with write_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                unchanged = path.exists() and path.read_bytes() == text.encode()
            if not unchanged:
                replace_text(path, text)
        content = {
            "format": FORMAT,
            "name": study.name,
            "experiment": str(study.experiment.absolute()),
            "platform": study.platform,
            "backend": study.backend.value,
            "factors": study.level_names,
            "baseline": dict(study.baseline),
            "figures": list(study.figures),
            "warm_up": study.warm_up,
            "attempts": study.attempts,
            "stop": study.stop and asdict(study.stop),
            "search": study.search and asdict(study.search),
            "control": study.control and asdict(study.control),
            "primary": study.primary and asdict(self._dated(study.primary)),
            "published": [asdict(published) for published in study.published],
            "provenance": origin and asdict(origin),
            "inventory": str(inventory.absolute()) if inventory else None,
            "configurations": [study.levels_by_factor(each) for each in study.configurations],
            "points": [{"id": point.id, "configuration": point.configuration, "seed": point.seed} for point in points],
        }
        replace_text(self.path / "study.json", json.dumps(content, indent=1) + "\n")

    def _dated(self, primary: Primary) -> Primary:
        """The primary figure with the number of attempts that were complete when it was named first."""
        earlier = self.study().get("primary") if (self.path / "study.json").exists() else None
        if earlier and replace(Primary(**earlier), runs_before=0) == primary:
            return Primary(**earlier)
        return replace(primary, runs_before=len([*self.path.glob("points/*/*/attempt.json")]))

    def point_path(self, identity: str) -> Path:
        """The directory of a point."""
        return self.path / "points" / identity

    def point(self, identity: str) -> dict[str, Any]:
        """point.json. Raises RunDirError."""
        path = self.point_path(identity) / "point.json"
        return _read_json(path, f"{path}: there is no such file")

    def attempts(self, identity: str) -> list[Attempt]:
        """The completed attempts at a point, in the order of their beginning."""
        return [self.attempt_in(path.parent) for path in sorted(self.point_path(identity).glob("*/attempt.json"))]

    def attempt_in(self, path: Path) -> Attempt:
        """The completed attempt in a directory; with damaged files it has failed. Raises RunDirError."""
        file = path / "attempt.json"
        content = _read_json(file, f"{file}: there is no such file")
        try:
            origin = Provenance(**content["provenance"])
            attempt = Attempt(path, content["outcome"], content["message"], float(content["wall_s"]), origin)
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirError(f"{file}: damaged ({error!r}); remove {path}") from None
        if damages := RunDir(path).damages():
            return replace(attempt, outcome=FAILED, message="; ".join(damages.values()))
        return attempt

    def free_path(self, identity: str, name: str) -> Path:
        """The path of an attempt that is added: the name of its run, or the next one that is free."""
        stamp, _, number = name.rpartition("-")
        count = int(number)
        while (path := self.point_path(identity) / f"{stamp}-{count}").exists():
            count += 1
        return path

    def count_attempts(self) -> int:
        """The number of completed attempts at all points, those that are no longer of the study too."""
        return sum(1 for _ in self.path.glob("points/*/*/attempt.json"))

    def add_attempt(self, directory: Path, identity: str, attempt: Attempt) -> Path:
        """Add a completed attempt, made at ``directory``, to a point; returns its path. Raises RunError."""
        content = {
            "format": FORMAT,
            "point": identity,
            "outcome": attempt.outcome,
            "message": attempt.message,
            "wall_s": round(attempt.wall_s, 3),
            "provenance": asdict(attempt.provenance),
        }
        replace_text(directory / "attempt.json", json.dumps(content, indent=1) + "\n")
        with write_errors(attempt.path):
            _flush(directory)
            directory.rename(attempt.path)
            _sync(attempt.path.parent)
        return attempt.path


def is_study(path: Path) -> bool:
    """Whether a path is the directory of a study."""
    return (path / "study.json").is_file()


def point_of(run: Path) -> tuple[str, str] | None:
    """The name of the study that a run is of, and the levels of its configuration; None if they cannot be read."""
    run = run.absolute()
    for folder in filter(is_study, run.parents):
        study = StudyDirectory(folder)
        with contextlib.suppress(RunDirError, LookupError, TypeError, AttributeError):  # not of a point, or damaged
            identity = run.relative_to(folder).parts[1]  # points/ID/RUN, or working/ID/EXPERIMENT/RUN
            return study.study()["name"], ", ".join(study.point(identity)["levels"].values())
    return None


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirError(missing) from None
    except (OSError, ValueError) as error:
        raise RunDirError(f"{path}: {read_error_text(error)}") from None
    if not isinstance(content, dict) or cast("Mapping[str, Any]", content).get("format", 0) not in range(FORMAT + 1):
        raise RunDirError(f"{path}: written by a newer version of atoll; use that version")
    return cast("dict[str, Any]", content)


def _flush(directory: Path) -> None:
    """Have the kernel write the files of an attempt before its rename, so that a power cut leaves none without them."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                _sync(path)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_disk_full(error: RunError) -> bool:
    """Whether an error means that nothing more can be written."""
    return str(error).startswith(("disk full", "disk quota"))

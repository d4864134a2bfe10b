# SPDX-License-Identifier: Apache-2.0
"""The points of a study: their identity and their order."""

import contextlib
import hashlib
import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from atoll_core.codec import to_json
from atoll_core.errors import PlanError, shown
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.units import Duration, Rate, Size
from atoll_studies.study import Configuration, StudyDescription
from atoll_testbed.run.run_request import RunOptions, RunRequest

_ID_DIGITS = 16  # of a SHA-256


@dataclass(frozen=True, slots=True)
class Point:
    """One run that a study asks for. Equal requests have equal ids, wherever their descriptions are."""

    id: str
    configuration: int  # of the study's
    levels: Mapping[str, str]  # by factor
    repetition: int  # from 0
    seed: int
    request: Mapping[str, Any]  # a RunRequest, in JSON
    description: Path
    settings: tuple[str, ...]  # that turn the description into the request's experiment
    programs: Mapping[str, str]  # files that programs of boxes name, with the SHA-256 of their contents

    @property
    def label(self) -> str:
        """Its levels and its seed."""
        return ", ".join((*self.levels.values(), f"seed {self.seed}"))

    def to_json(self) -> dict[str, Any]:
        """The content of point.json."""
        return {
            "format": 1,
            "id": self.id,
            "levels": dict(self.levels),
            "repetition": self.repetition,
            "seed": self.seed,
            "description": {"file": str(self.description.absolute()), "settings": list(self.settings)},
            "programs": dict(self.programs),
            "request": dict(self.request),
        }


def make_points(study: StudyDescription) -> list[Point]:
    """All points in the order in which they are run: block by block, a block being one repetition of everything.

    Raises PlanError if two configurations are the same experiment.

    Within a block the order is random, of the study's ``order_seed``: a disturbance of the machine meets no
    configuration more than others. Points added by more repetitions come after those that were there.
    """
    points: list[Point] = []
    requests = [_Request.of(study, configuration) for configuration in study.configurations]
    by_digest: dict[str, Configuration] = {}
    for configuration, request in zip(study.configurations, requests, strict=True):
        if (earlier := by_digest.setdefault(request.digest, configuration)) is not configuration:
            levels = f"{shown(earlier.label)} and {shown(configuration.label)}"
            raise PlanError(f"study {study.name}: levels {levels} are the same experiment; remove one of them")
    for repetition, seed in enumerate(study.seeds):
        block = [
            Point(
                id=request.identity(seed),
                configuration=number,
                levels=study.levels_by_factor(configuration),
                repetition=repetition,
                seed=seed,
                request=request.with_seed(seed),
                description=study.experiment,
                settings=(*configuration.settings, f"seed={seed}"),
                programs=request.programs,
            )
            for number, (configuration, request) in enumerate(zip(study.configurations, requests, strict=True))
            if configuration.repetitions is None or repetition < configuration.repetitions
        ]
        random.Random(f"{study.order_seed}/{repetition}").shuffle(block)  # noqa: S311 - an order, not a secret
        points += block
    return points


@dataclass(frozen=True, slots=True)
class _Request:
    """The request of a configuration without its seed."""

    digest: str
    content: Mapping[str, Any]
    programs: Mapping[str, str]

    @classmethod
    def of(cls, study: StudyDescription, configuration: Configuration) -> "_Request":
        network, experiment = configuration.network, replace(configuration.experiment, seed=0)
        request = run_request(network, experiment, study.backend, study.platform)
        programs = dict(sorted(program_files(network)))
        digest = hashlib.sha256(json.dumps([_compared_json(request), programs], sort_keys=True).encode()).hexdigest()
        return cls(digest, to_json(request), programs)

    def identity(self, seed: int) -> str:
        """The id of a point. The seeds of a study differ, so that seeds that are put in front of others keep them."""
        return hashlib.sha256(f"{self.digest} {seed}".encode()).hexdigest()[:_ID_DIGITS]

    def with_seed(self, seed: int) -> dict[str, Any]:
        return {**self.content, "experiment": {**self.content["experiment"], "seed": seed}}


def run_request(network: Network, experiment: Experiment, backend: Backend, platform: str) -> RunRequest:
    """The request of a run. All that makes points and attempts knows requests by this."""
    network = replace(network, file=os.path.abspath(network.file))  # noqa: PTH100 (Path.absolute keeps `..`)
    experiment = replace(experiment, file=os.path.abspath(experiment.file))  # noqa: PTH100
    return RunRequest(network, experiment, platform, RunOptions(backend))


def _compared_json(value: Any) -> Any:
    """The JSON of a value, of its compared fields only: paths of files are no part of a request.

    Contents of traces and flow sizes are. A field with the value that it has in data made before the field existed is
    left out, so that a field that is added to a class changes no id.
    """
    if is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, (Rate, Duration, Size, BoxKind)):
            return to_json(value)
        compared = {f.name: (getattr(value, f.name), _default(f)) for f in fields(value) if f.compare}
        values = {name: _compared_json(value) for name, (value, default) in compared.items() if value != default}
        return {"kind": type(value).__name__, **values}
    if isinstance(value, (list, tuple)):
        return [_compared_json(item) for item in cast("tuple[Any, ...]", value)]
    return to_json(value)


def _default(field: Field[Any]) -> Any:
    """The value of a field that is absent, as ``from_json`` reads it; MISSING if it may not be."""
    return field.metadata.get("unrecorded", field.default)


_SEPARATORS = re.compile(r"[\s='\",;:|&<>(){}`]+")  # in a word of a command: an option's value, or a shell's script


def program_files(network: Network) -> Iterator[tuple[str, str]]:
    """The files in the lab's folder that commands of boxes name, with the SHA-256 of their contents.

    A name may be a word of a command, an option's value (``--file=NAME``) or a part of a shell's script. Of a folder
    all files count. Files that such a file reads by itself do not count.
    """
    folder = Path(os.path.abspath(network.file)).parent  # noqa: PTH100 (Path.absolute keeps `..`)
    words = {
        part
        for box in network.boxes
        if (program := box.program)
        for word in (*program.start, *program.stop, *program.report)
        for part in (word, *_SEPARATORS.split(word))
    }
    for path in sorted({path for word in words for path in _files_named(folder, word)}):
        with contextlib.suppress(OSError):  # what cannot be read is used by no program of this user
            yield str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()


def _files_named(folder: Path, word: str) -> list[Path]:
    """The files within a folder that a word names: one, or all of a folder below it."""
    try:
        path = Path(os.path.abspath(folder / word))  # noqa: PTH100
        if path == folder or not path.is_relative_to(folder):
            return []
        if path.is_dir():
            return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # an argument that is no name of a file
        return []

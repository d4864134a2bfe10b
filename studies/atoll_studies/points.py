# SPDX-License-Identifier: Apache-2.0
"""The points of a study: their identity and their order."""

import hashlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from atoll_core.codec import to_json
from atoll_core.errors import PlanError, shown
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_studies.study import Configuration, Study
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
            "request": dict(self.request),
        }


def make_points(study: Study) -> list[Point]:
    """All points in the order in which they are run: block by block, a block being one repetition of everything.

    Raises PlanError if two configurations are the same experiment.

    Within a block the order is random, of the study's ``order_seed``: a disturbance of the machine meets no
    configuration more than others. Points added by more repetitions come after those that were there.
    """
    points: list[Point] = []
    requests = [_Request.of(study, each) for each in study.configurations]
    asked: dict[str, Configuration] = {}  # by digest
    for configuration, request in zip(study.configurations, requests, strict=True):
        if (same := asked.setdefault(request.digest, configuration)) is not configuration:
            levels = f"{shown(same.label)} and {shown(configuration.label)}"
            raise PlanError(f"study {study.name}: levels {levels} are the same experiment; remove one of them")
    for repetition, seed in enumerate(study.seeds):
        block = [
            Point(
                id=request.identity(seed, repetition),
                configuration=number,
                levels=dict(zip((factor.name for factor in study.factors), configuration.levels, strict=True)),
                repetition=repetition,
                seed=seed,
                request=request.with_seed(seed),
                description=study.experiment,
                settings=(*configuration.settings, f"seed={seed}"),
            )
            for number, (configuration, request) in enumerate(zip(study.configurations, requests, strict=True))
        ]
        random.Random(f"{study.order_seed}/{repetition}").shuffle(block)  # noqa: S311 - an order, not a secret
        points += block
    return points


@dataclass(frozen=True, slots=True)
class _Request:
    """The request of a configuration without its seed."""

    digest: str
    content: Mapping[str, Any]

    @classmethod
    def of(cls, study: Study, configuration: Configuration) -> "_Request":
        network, experiment = configuration.network, replace(configuration.experiment, seed=0)
        request = run_request(network, experiment, study.backend, study.platform)
        asked = [_compared(request), list(program_files(network))]
        return cls(hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest(), to_json(request))

    def identity(self, seed: int, repetition: int) -> str:
        return hashlib.sha256(f"{self.digest} {seed} {repetition}".encode()).hexdigest()[:_ID_DIGITS]

    def with_seed(self, seed: int) -> dict[str, Any]:
        return {**self.content, "experiment": {**self.content["experiment"], "seed": seed}}


def run_request(network: Network, experiment: Experiment, backend: Backend, platform: str) -> RunRequest:
    """The request of a run. All that makes points and attempts knows requests by this."""
    network = replace(network, file=os.path.abspath(network.file))  # noqa: PTH100 (Path.absolute keeps `..`)
    experiment = replace(experiment, file=os.path.abspath(experiment.file))  # noqa: PTH100
    return RunRequest(network, experiment, platform, RunOptions(backend))


def _compared(thing: Any) -> Any:
    """The JSON of a value, of its compared fields only: places of files are no part of what is asked for.

    Contents of traces and flow sizes are.
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        if hasattr(thing, "UNITS") or hasattr(type(thing), "named"):
            return to_json(thing)
        held = {each.name: _compared(getattr(thing, each.name)) for each in fields(thing) if each.compare}
        return {"kind": type(thing).__name__, **held}
    if isinstance(thing, (list, tuple)):
        return [_compared(each) for each in cast("tuple[Any, ...]", thing)]
    return to_json(thing)


def program_files(network: Network) -> Iterator[tuple[str, str]]:
    """The files that programs of boxes name in the folder of the lab, with the SHA-256 of their contents."""
    folder = Path(network.file).parent
    for box in network.boxes:
        program = box.program
        for word in (*program.start, *program.stop, *program.report) if program else ():
            path = folder / word
            try:
                if not Path(word).is_absolute() and path.is_file():
                    yield word, hashlib.sha256(path.read_bytes()).hexdigest()
            except (OSError, ValueError):  # an argument that is no name of a file
                continue

# SPDX-License-Identifier: Apache-2.0
"""Runs as they can be watched again: which there are below a directory, what happened in each, its points.

Only reads run directories, those of runs that are still being made included, in virtual time too. Everything here waits
for the disk: call it from a thread.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import RUNNING
from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail
from atoll_core.errors import AtollError, RunDirError
from atoll_core.experiment.experiment import Experiment
from atoll_core.metrics.line_protocol import Point
from atoll_core.metrics.metrics_schema import COMMON_TAGS
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.lab_view import picture
from atoll_daemon.replays.raw_log_reader import COUNTED, UnspooledTail
from atoll_testbed.metrics.metric_points import FIGURES_OF_CHECKS
from atoll_testbed.run.run_request import read_request
from atoll_testbed.virtual.guest_main import PROGRESS

MOST_LISTED = 200
"""Of more runs than these the latest are listed; the others can be asked for by their names."""

ABANDONED_S = 120.0
"""A run that says it is going on but has written nothing for so long was killed: links write every 100 ms, and one in
virtual time is given up after the same time."""

_NO_EVENTS = FIGURES_OF_CHECKS - {"terrestrial", "base_rtt"}  # of which there is one for each pair of hosts, say

Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """A run in short. ``began_t_ns``: by the wall clock; ``verdict`` None: not analysed (yet).

    ``outcome``: the manifest's; a run that was killed is ``finished``, although that says that it is running.
    """

    id: str
    experiment: str
    place: str
    began_t_ns: int
    duration_s: float
    verdict: str | None
    reasons: list[str]
    caveats: list[str]
    outcome: str
    finished: bool

    def told(self) -> Told:
        """As answers have it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Facts:
    """The few things of a manifest that are asked for again and again. ``started_ns``: by the run's own clock."""

    experiment: str
    place: str
    outcome: str
    metrics: bool
    duration_s: float
    started_ns: int
    host_started_ns: int

    @classmethod
    def of(cls, manifest: Told, path: Path) -> "_Facts":
        """Raises RunDirError while the manifest does not say what is to be run, as in the first moment of a run."""
        try:
            experiment: Told = manifest["experiment"]
            host: Told = manifest.get("host") or {}
            started_ns = int(manifest.get("started_ns", 0))
            return cls(
                experiment=str(experiment["name"]),
                place=str(manifest.get("place", "")),
                outcome=str(manifest.get("outcome", "")),
                metrics=bool(manifest.get("metrics", True)),
                duration_s=int(experiment["duration"]) / 1e9,
                started_ns=started_ns,
                host_started_ns=int(host.get("started_ns", started_ns)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunDirError(f"{path}: manifest.json does not say what to run: {error}") from None


class Replay:
    """One run directory that can be watched. Its methods raise RunDirError when it is damaged."""

    def __init__(self, path: Path) -> None:
        self._dir = RunDir.open(path)
        self._facts: tuple[tuple[int, int], _Facts] | None = None

    @property
    def id(self) -> str:
        """Experiment and name of the run, as the tag ``run`` of its points has them."""
        return f"{self._read_facts().experiment}-{self._dir.name}"

    @property
    def head(self) -> Head:
        """The run in short."""
        facts = self._read_facts()
        verdict, reasons, caveats = self._judged()
        return Head(
            id=self.id,
            experiment=facts.experiment,
            place=facts.place,
            began_t_ns=_stamp_ns(self._dir.name) or facts.host_started_ns,
            duration_s=facts.duration_s,
            verdict=verdict,
            reasons=reasons,
            caveats=caveats,
            outcome=facts.outcome,
            finished=not self.growing(),
        )

    @property
    def metrics(self) -> bool:
        """Whether it was to spool metrics; of one that was not, points are what links, delay boxes and events make."""
        return self._read_facts().metrics

    def growing(self) -> bool:
        """Whether the run is still being written."""
        if self._read_facts().outcome != RUNNING:
            return False
        files = ("manifest.json", "events.jsonl", COUNTED, SPOOL, PROGRESS)
        latest_ns = max(_state(self._dir.path / file)[0] for file in files)
        return latest_ns / 1e9 > time.time() - ABANDONED_S

    def whole(self) -> Told:
        """All but the points: the run in short, pictures, events, and the instants between which it was made."""
        network, experiment, _ = read_request(self._dir)
        head, lines = self.head, self._dir.events()
        facts = self._read_facts()
        began_ns = facts.started_ns
        try:
            events, versions = _as_told(lines, experiment)
            window = next((line for line in lines if line["type"] == "window"), None)
            within = {
                "from_ns": lines[0]["t_ns"] if lines else began_ns,
                "to_ns": lines[-1]["t_ns"] if lines else began_ns,
                "window": window and {"start_ns": window["start_ns"], "end_ns": window["end_ns"]},
                "metrics": facts.metrics,
            }
        except (IndexError, KeyError) as error:
            raise RunDirError(f"{self._dir.path}: events.jsonl is damaged: {error!r}") from None
        pictures = [{"from_ns": at_ns, "picture": picture(network, version, head.place)} for at_ns, version in versions]
        return {**head.told(), **within, "picture": pictures[0]["picture"], "pictures": pictures, "events": events}

    def tail(self) -> SpoolTail | UnspooledTail | None:
        """The run's points from its beginning; None when it has none (yet)."""
        if not self.metrics:
            within = [self._dir.path / name for name in (COUNTED, "events.jsonl")]
            return UnspooledTail(self._dir.path, read_request(self._dir)[0]) if all(map(Path.exists, within)) else None
        path = self._dir.path / SPOOL
        return SpoolTail(path) if path.exists() else None

    def message(
        self, frame: bytes, from_ns: int, to_ns: int, measurements: frozenset[str] = frozenset()
    ) -> Told | None:
        """The points of a frame of the spool that lie from one instant to the other, as a ``points`` sample.

        ``measurements``: only of these, if any are named. None when there are none. Raises RunDirError for a damaged
        frame.
        """
        try:
            points = _points(frame, from_ns, to_ns, measurements)
        except ValueError as error:
            raise RunDirError(f"{self._dir.path / SPOOL}: damaged: {error}") from None
        if not points:
            return None
        latest_ns = max(point[3] for point in points)
        return {"type": "points", "t_ns": latest_ns, "run": self.id, "points": points}

    def _read_facts(self) -> "_Facts":
        """What is kept of the manifest, read again when that has changed: it has the tables of a whole laboratory."""
        state = _state(self._dir.path / "manifest.json")
        if self._facts is None or self._facts[0] != state:
            self._facts = (state, _Facts.of(self._dir.manifest(), self._dir.path))
        return self._facts[1]

    def _judged(self) -> tuple[str | None, list[str], list[str]]:
        """Its verdict, the reasons why it is invalid, and the caveats."""
        try:
            summary = self._dir.summary()
            reasons, caveats = ([str(text) for text in summary.get(key, ())] for key in ("reasons", "caveats"))
            return str(summary["verdict"]), reasons, caveats
        except (AtollError, json.JSONDecodeError, KeyError, OSError):
            return None, [], []


class Replays:
    """All runs below a directory, ``runs/<experiment>/<run>``, and those from elsewhere that were added."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._added: frozenset[Path] = frozenset()  # replaced, never changed: others may be looking through it
        self._known: dict[Path, Replay] = {}

    def add(self, run: Path) -> None:
        """Have a run directory among them, wherever it is."""
        self._added |= {run.resolve()}

    def listed(self) -> list[Told]:
        """The runs in short, the latest one first; what is no run, or of a newer format, is passed over."""
        heads: dict[str, Head] = {}
        for path in self._paths()[:MOST_LISTED]:
            try:
                head = self._replay(path).head
            except RunDirError:
                continue
            heads.setdefault(head.id, head)
        return [head.told() for head in sorted(heads.values(), key=lambda head: head.began_t_ns, reverse=True)]

    def find(self, name: str) -> Replay:
        """The run of that id. Raises RequestError (404)."""
        paths = self._paths()
        likely = [path for path in paths if name.endswith(path.name)]  # but for those that were renamed
        for path in [*likely, *paths[:MOST_LISTED]]:
            try:
                replay = self._replay(path)
                if replay.id == name:
                    return replay
            except RunDirError:
                continue
        msg = f"there is no run {name!r} to be replayed; GET /v1/replays has those there are"
        raise RequestError(404, msg, exit_code=1)

    def _paths(self) -> list[Path]:
        """Every directory with a manifest, by name, which is when it was made: the latest one first."""
        found = {path.parent for path in self._runs.glob("*/*/manifest.json")}
        return sorted(found | self._added, key=lambda path: path.name, reverse=True)

    def _replay(self, path: Path) -> Replay:
        if path not in self._known:
            self._known[path] = Replay(path)
        return self._known[path]


def _as_told(lines: Sequence[Told], experiment: Experiment) -> tuple[list[Told], list[tuple[int, Experiment]]]:
    """The run's events as the daemon tells events, and from when on each version of the experiment stood.

    Of the test before the run only the latencies found are told, ends of steps are no events, and whatever was applied
    says what stands.
    """
    events: list[Told] = []
    versions = [(lines[0]["t_ns"] if lines else 0, experiment.steered(experiment.versions[0]))]

    def add(line: Told, **fields: Any) -> None:
        events.append({**line, **fields, "seq": len(events) + 1})

    def stands(t_ns: int, version: Experiment, **fields: Any) -> None:
        hops = list(version.chain.hops)
        add({"type": "applied", "t_ns": t_ns, "experiment": version.name, "chain": hops, **fields})

    for line in lines:
        match line:
            case {"type": "step", "state": "begin"}:
                add({key: told for key, told in line.items() if key != "state"})
            case {"type": "step", "state": "end"} | {"type": "window"}:
                pass
            case {"type": "applied"}:
                stands(line["t_ns"], versions[0][1], changes=line["changes"])
            case {"type": "change", "state": "end", "change": int(number)}:
                add(line)
                versions.append((line["t_ns"], experiment.steered(experiment.versions[number])))
                stands(line["t_ns"], versions[-1][1])
            case {"type": kind} if kind not in _NO_EVENTS:
                add(line)
            case _:
                pass
    return events, versions


def _points(frame: bytes, from_ns: int, to_ns: int, measurements: frozenset[str]) -> list[list[Any]]:
    """Points of some lines as JSON, without the tags that all of a run have. Raises ValueError."""
    found: list[list[Any]] = []
    begins = tuple(f"{name}," for name in measurements) or ""  # all points of a run have tags
    for line in _lines(frame):
        if line.startswith(begins) and from_ns <= int(line.rpartition(" ")[2]) < to_ns:
            point = Point.parse(line)
            tags = {name: tag for name, tag in point.tags.items() if name not in COMMON_TAGS}
            told = replace(point, tags=tags).to_json()
            found += [] if told is None else [told]
    return found


def _lines(frame: bytes) -> Iterator[str]:
    yield from frame.decode(errors="replace").removesuffix("\n").split("\n")


def _stamp_ns(name: str) -> int | None:
    """The instant in the name of a run directory, by the wall clock; None if it was renamed."""
    try:
        return int(datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 10**9
    except ValueError:
        return None


def _state(path: Path) -> tuple[int, int]:
    """When a file was last changed (ns since 1970), and which one it is: zeros while there is none.

    A clock that ticks each 4 ms cannot tell two replacements apart, the file's number can.
    """
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino

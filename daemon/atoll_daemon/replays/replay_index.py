# SPDX-License-Identifier: Apache-2.0
"""Replays: the runs below a directory, with their events and metric points.

Only reads run directories, including those of runs in progress, also in virtual time. All functions wait for the disk:
call them from a thread.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COUNTERS_FILE, RUNNING
from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail
from atoll_analysis.run_directory.migrations import migrated_event
from atoll_core.errors import AtollError, RunDirError
from atoll_core.events.events import with_text
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.metrics.metrics_schema import COMMON_TAGS
from atoll_daemon.http.api_models import ReplaySummary
from atoll_daemon.http.experiment_bodies import picture
from atoll_daemon.http.http_errors import RequestError
from atoll_testbed.metrics.metric_points import FIGURES_OF_CHECKS, box_kinds, box_points, class_names, event_point
from atoll_testbed.run.run_request import read_request

MOST_LISTED = 200
"""Only the latest runs are listed; older ones can be requested by their ids."""

_OMITTED_EVENTS = FIGURES_OF_CHECKS - {"terrestrial", "base_rtt"}  # left out: there may be one for each pair of hosts

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _ManifestFacts:
    """The parts of a manifest that are used often. ``started_ns``: by the run's clock."""

    experiment: str
    place: str
    outcome: str
    metrics: bool
    duration_s: float
    started_ns: int
    host_started_ns: int

    @classmethod
    def of(cls, manifest: JsonObject, path: Path) -> "_ManifestFacts":
        """Raises RunDirError if the manifest has no experiment yet, as in the first moment of a run."""
        try:
            experiment: JsonObject = manifest["experiment"]
            host: JsonObject = manifest.get("host") or {}
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
            raise RunDirError(f"{path}: manifest.json has no complete run request: {error}") from None


class Replay:
    """One run directory that can be replayed. Its methods raise RunDirError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self._dir = RunDir.open(path)
        self._facts: tuple[tuple[int, int], _ManifestFacts] | None = None

    @property
    def id(self) -> str:
        """Experiment and name of the run, which are the tag ``run`` of its points."""
        return f"{self._read_facts().experiment}-{self._dir.name}"

    @property
    def summary(self) -> ReplaySummary:
        """A summary of the run."""
        facts = self._read_facts()
        verdict, reasons, caveats = self._verdict()
        return ReplaySummary(
            id=self.id,
            experiment=facts.experiment,
            place=facts.place,
            began_t_ns=_start_ns_of_name(self._dir.name) or facts.host_started_ns,
            duration_s=facts.duration_s,
            verdict=verdict,
            reasons=reasons,
            caveats=caveats,
            outcome=facts.outcome,
            finished=not self.is_growing(),
        )

    @property
    def metrics(self) -> bool:
        """Whether metrics were recorded; else the points are made from counters and events."""
        return self._read_facts().metrics

    def is_growing(self) -> bool:
        """Whether the run is still being written."""
        return self._read_facts().outcome == RUNNING and self._dir.was_written_recently()

    def details(self) -> JsonObject:
        """The run without its points: summary, pictures, events, and the times of its start and end.

        The last event of a run that was analysed is its verdict: no event in the directory, as analyses are repeated.
        """
        request = read_request(self._dir)
        summary, lines = self.summary, self._dir.events()
        facts = self._read_facts()
        start_ns = facts.started_ns
        try:
            events, versions = _daemon_events(lines, request.experiment)
            window = next((line for line in lines if line["type"] == "window"), None)
            times = {
                "from_ns": lines[0]["t_ns"] if lines else start_ns,
                "to_ns": lines[-1]["t_ns"] if lines else start_ns,
                "window": window and {"start_ns": window["start_ns"], "end_ns": window["end_ns"]},
                "metrics": facts.metrics,
            }
        except (IndexError, KeyError) as error:
            text = f"has no {error}" if isinstance(error, KeyError) else "is a change that the experiment does not have"
            file = self._dir.path / _EVENTS_FILE
            raise RunDirError(f"{file}: an event {text}; the run cannot be replayed") from None
        run = summary.model_dump()
        if summary.verdict is not None:
            verdict = {key: run[key] for key in ("verdict", "reasons", "caveats")}
            events.append(with_text({"type": "verdict", "t_ns": times["to_ns"], **verdict, "seq": len(events) + 1}))
        pictures = [
            {"from_ns": t_ns, "picture": picture(request.network, version, summary.place)} for t_ns, version in versions
        ]
        return {**run, **times, "picture": pictures[0]["picture"], "pictures": pictures, "events": events}

    def tail(self) -> "SpoolTail | RawLogTail | None":
        """A reader of the run's points from the first one on; None if there are none yet."""
        run = self._dir.path
        if self.metrics:
            return SpoolTail(run / SPOOL) if (run / SPOOL).exists() else None
        has_logs = (run / COUNTERS_FILE).exists() and (run / _EVENTS_FILE).exists()
        return RawLogTail(run, read_request(self._dir).network) if has_logs else None

    def points_sample(
        self, frame: bytes, from_ns: int, to_ns: int, measurements: frozenset[str] = frozenset()
    ) -> JsonObject | None:
        """The points of a frame of the spool between two times as a ``points`` sample; None if there are none.

        ``measurements``: only these; empty: all. Raises RunDirError for a damaged frame.
        """
        try:
            points = _points_json(frame, from_ns, to_ns, measurements)
        except ValueError as error:
            raise RunDirError(f"{self._dir.path / SPOOL}: damaged: {error}") from None
        if not points:
            return None
        latest_ns = max(point[3] for point in points)
        return {"type": "points", "t_ns": latest_ns, "run": self.id, "points": points}

    def _read_facts(self) -> "_ManifestFacts":
        """Parts of the manifest, read again only if it has changed: it contains the tables of the whole lab."""
        state = _file_state(self._dir.path / "manifest.json")
        if self._facts is None or self._facts[0] != state:
            self._facts = (state, _ManifestFacts.of(self._dir.manifest(), self._dir.path))
        return self._facts[1]

    def _verdict(self) -> tuple[str | None, list[str], list[str]]:
        """The verdict, the reasons why the run is invalid, and the caveats."""
        try:
            summary = self._dir.summary()
            reasons, caveats = ([str(text) for text in summary.get(key, ())] for key in ("reasons", "caveats"))
            return str(summary["verdict"]), reasons, caveats
        except (AtollError, json.JSONDecodeError, KeyError, OSError):
            return None, [], []


class Replays:
    """All runs below a directory (``runs/<experiment>/<run>``), and runs in other places that were added."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._added: frozenset[Path] = frozenset()  # replaced, never modified: other threads may be reading it
        self._replays: dict[Path, Replay] = {}

    def add(self, run: Path) -> None:
        """Add a run directory, in any place."""
        self._added |= {run.resolve()}

    def summaries(self) -> list[JsonObject]:
        """Summaries of the runs, latest first; other directories and runs of a newer format are skipped."""
        summaries: dict[str, ReplaySummary] = {}
        for path in self._paths()[:MOST_LISTED]:
            try:
                summary = self._replay(path).summary
            except RunDirError:
                continue
            summaries.setdefault(summary.id, summary)
        return [run.model_dump() for run in sorted(summaries.values(), key=lambda run: run.began_t_ns, reverse=True)]

    def find(self, name: str) -> Replay:
        """The run with an id. Raises RequestError (404)."""
        paths = self._paths()
        candidates = [path for path in paths if name.endswith(path.name)]  # directories may have been renamed
        for path in [*candidates, *paths[:MOST_LISTED]]:
            try:
                replay = self._replay(path)
                if replay.id == name:
                    return replay
            except RunDirError:
                continue
        raise RequestError(404, f"there is no run {name!r} to replay; GET /v1/replays lists the runs", exit_code=1)

    def _paths(self) -> list[Path]:
        """All directories with a manifest, sorted by name, which begins with the time: latest first."""
        run_dirs = {path.parent for path in self._runs.glob("*/*/manifest.json")}
        return sorted(run_dirs | self._added, key=lambda path: path.name, reverse=True)

    def _replay(self, path: Path) -> Replay:
        if path not in self._replays:
            self._replays[path] = Replay(path)
        return self._replays[path]


def _daemon_events(
    lines: Sequence[JsonObject], experiment: Experiment
) -> tuple[list[JsonObject], list[tuple[int, Experiment]]]:
    """The run's events in the form of the daemon's, and each version of the experiment with its start.

    Of the test before the run only measured latencies are included. Ends of steps are left out. `applied` events get
    the experiment and its chain.
    """
    events: list[JsonObject] = []
    versions = [(lines[0]["t_ns"] if lines else 0, experiment.states[0])]

    def add(line: JsonObject, **fields: Any) -> None:
        events.append(with_text({**line, **fields, "seq": len(events) + 1}))

    def add_applied(t_ns: int, version: Experiment, **fields: Any) -> None:
        hops = list(version.chain.hops)
        add({"type": "applied", "t_ns": t_ns, "experiment": version.name, "chain": hops, **fields})

    for line in lines:
        match line:
            case {"type": "step", "state": "begin"}:
                add({key: part for key, part in line.items() if key != "state"})
            case {"type": "step", "state": "end"} | {"type": "window"}:
                pass
            case {"type": "applied"}:
                add_applied(line["t_ns"], versions[0][1], changes=line["changes"])
            case {"type": "change", "state": "end", "change": int(number)}:
                add(line)
                versions.append((line["t_ns"], experiment.states[number]))
                add_applied(line["t_ns"], versions[-1][1])
            case {"type": kind} if kind not in _OMITTED_EVENTS:
                add(line)
            case _:
                pass
    return events, versions


def _points_json(frame: bytes, from_ns: int, to_ns: int, measurements: frozenset[str]) -> list[list[Any]]:
    """Points of a frame as JSON, without the tags that all points of a run have. Raises ValueError."""
    points: list[list[Any]] = []
    prefixes = tuple(f"{name}," for name in measurements) or ""  # all points of a run have tags
    for line in frame.decode(errors="replace").removesuffix("\n").split("\n"):
        if line.startswith(prefixes) and from_ns <= int(line.rpartition(" ")[2]) < to_ns:
            point = MetricPoint.parse(line)
            tags = {name: tag for name, tag in point.tags.items() if name not in COMMON_TAGS}
            encoded = replace(point, tags=tags).to_json()
            points += [] if encoded is None else [encoded]
    return points


def _start_ns_of_name(name: str) -> int | None:
    """The time in the name of a run directory, by the wall clock; None if it was renamed."""
    try:
        return int(datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 10**9
    except ValueError:
        return None


def _file_state(path: Path) -> tuple[int, int]:
    """Modification time (ns since 1970) and inode of a file; zeros if there is none.

    The inode distinguishes two replacements within a tick of the clock (4 ms).
    """
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


_EVENTS_FILE = "events.jsonl"
_READ_BYTES = 1 << 18  # at a time: about twenty seconds of a link's counters

_Line = dict[str, Any]
_PointsOf = Callable[[_Line], Iterator[MetricPoint]]


class RawLogTail:
    """Reads a run's counters and events as line protocol, also while the files grow, as SpoolTail reads a spool."""

    def __init__(self, run: Path, network: Network) -> None:
        """Raises RunDirError if the run has no counters."""
        classes = class_names(network)
        self._run = run
        # Events first: a client that resumes after the last counters has received all earlier events.
        sources: tuple[tuple[str, _PointsOf], ...] = (
            (_EVENTS_FILE, _event_points),
            (COUNTERS_FILE, partial(_counter_points, classes, box_kinds(network))),
        )
        self._files: list[tuple[IO[bytes], _PointsOf]] = []
        try:
            for name, points_of in sources:
                self._files.append(((run / name).open("rb"), points_of))
        except OSError as error:
            self.close()
            raise RunDirError(f"{error.filename}: cannot read counters or events: {error.strerror}") from None

    def close(self) -> None:
        """Close the files."""
        for file, _ in self._files:
            file.close()

    def frames(self) -> Iterator[bytes]:
        """Points of the complete lines that were not read before. Raises RunDirError if they are damaged."""
        for file, points_of in self._files:
            while lines := _complete_lines(file):
                try:
                    points = [point.line()[0] for line in lines for point in points_of(json.loads(line))]
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise RunDirError(
                        f"{file.name}: a line of this file is damaged: {_error_text(error)}; the run cannot be replayed"
                    ) from None
                if frame := "".join(f"{line}\n" for line in points if line is not None):
                    yield frame.encode()


def _error_text(error: Exception) -> str:
    return f"key {error} is missing" if isinstance(error, KeyError) else str(error)


def _counter_points(classes: dict[int, str], kinds: dict[str, BoxKind], line: _Line) -> Iterator[MetricPoint]:
    return box_points(line["box"], line, classes, kinds) if line["type"] == "counters" else iter(())


def _event_points(line: _Line) -> Iterator[MetricPoint]:
    kind = str(line["type"])
    if kind not in FIGURES_OF_CHECKS:
        yield event_point(kind, int(line["t_ns"]), migrated_event(line))


def _complete_lines(file: IO[bytes]) -> list[bytes]:
    """The next complete lines."""
    lines = file.readlines(_READ_BYTES)
    if lines and not lines[-1].endswith(b"\n"):
        file.seek(-len(lines.pop()), 1)
    return lines

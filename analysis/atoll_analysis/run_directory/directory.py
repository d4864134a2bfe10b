# SPDX-License-Identifier: Apache-2.0
"""The directory of one run, with all of its data. Layout: docs/contracts.md.

Raw data (manifest, events, captures, logs, metrics) is only added to; derived data can be rebuilt.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory.atomic_files import Appender, replace_text, replacing, write_errors
from atoll_analysis.run_directory.file_record import HAS_RECORD, damages, is_derived, update_checksums, write_checksums
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_analysis.run_directory.migrations import FORMAT, migrated, migrated_event
from atoll_core.errors import Diagnostic, RunDirError, RunError

RUNNING = "running"
COMPLETED = "completed"
"""The manifest's ``outcome``, besides "cancelled at step <step>" and "failed at step <step>: <why>".

A run that was killed says "running" forever.
"""


# Level 1 takes a capture of 69 MB to a fifth in 0.2 s; level 3 takes twice as long and makes nothing smaller of it.
_ZSTD_LEVEL = 1


COUNTERS_FILE = "link.jsonl"
"""Lines of links and delay boxes."""

PROGRESS_FILE = "logs/progress.jsonl"
"""Progress of a run in virtual time: lines as a daemon would stream them (docs/contracts.md)."""

HIDDEN_KEYS_FILE = "outside.json"
"""Of a run in progress in a virtual kernel: what the manifest says outside, where the file inside says less."""

ABANDONED_S = 120.0
"""A run that is `running` but has written nothing for this time was killed: links write every 100 ms, and a run in
virtual time is aborted after the same time."""

_GROWING_FILES = ("manifest.json", "events.jsonl", COUNTERS_FILE, SPOOL, PROGRESS_FILE)


class RunDir:
    """One run's directory. Make it with :meth:`create` or :meth:`open`.

    ``in_guest``: seen by the process inside a virtual kernel, whose manifest is the file alone.
    """

    def __init__(self, path: Path, *, in_guest: bool = False) -> None:
        self.path = path
        self._in_guest = in_guest
        self.name = path.name
        """The name of the run; a directory seen under another name (in a virtual kernel) keeps it."""
        self._events: Appender | None = None

    @classmethod
    def create(cls, base: Path, experiment: str, now_ns: int) -> "RunDir":
        """Make ``base/<experiment>/<UTC time>-<n>/`` and its folders; n numbers runs of the same second.

        ``now_ns``: CLOCK_REALTIME, ns since 1970. Raises RunError when it cannot be made.
        """
        parent = base / experiment
        stamp = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        with write_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            path = _make_next_directory(parent, stamp)
            for folder in ("captures", "logs"):
                (path / folder).mkdir()
        run = cls(path)
        run.write_manifest({"outcome": RUNNING})
        return run

    @classmethod
    def open(cls, path: Path, *, in_guest: bool = False, allow_damaged: bool = False) -> "RunDir":
        """The run at ``path``. Raises RunDirError when it is not one, or of a newer format.

        Also raised, with a line for each file, if files are missing or have changed, unless ``allow_damaged``.
        """
        run = cls(path, in_guest=in_guest)
        if not allow_damaged and (damage_lines := run.damages()):
            raise RunDirError("\n".join(damage_lines.values()))
        run.name = str(run.manifest().get("name", path.name))
        return run

    @property
    def captures(self) -> Path:
        """Folder of the captures."""
        return self.path / "captures"

    @property
    def logs(self) -> Path:
        """Folder of the jobs' output."""
        return self.path / "logs"

    @property
    def tables(self) -> Path:
        """Folder of the derived Parquet tables."""
        return self.path / "tables"

    def capture(self, name: str) -> Path | None:
        """The file of one capture, compressed or not yet; None when there is none.

        An uncompressed one comes first: it is the original of a compression that was interrupted.
        """
        paths = (self.captures / f"{name}{suffix}" for suffix in (".pcap", ".pcap.zst"))
        return next((path for path in paths if path.exists()), None)

    def write_checksums(self) -> None:
        """Record each file of the run, which has ended, so that damages are noticed. Raises RunError."""
        self.update_manifest({HAS_RECORD: True})
        write_checksums(self.path)

    def damages(self, *, contents: bool = False) -> dict[Path, str]:
        """A line for each recorded file that is missing or has changed; see :func:`damages` there for ``contents``."""
        restore, rebuild = "copy it from a whole copy of the run", f"`atoll report {self.path}` makes it again"
        return {
            self.path / file: f"{self.path / file} {damage}; {rebuild if is_derived(file) else restore}"
            for file, damage in damages(self.path, contents=contents).items()
        }

    def was_written_recently(self) -> bool:
        """Whether a file that a run in progress writes to was written within ``ABANDONED_S``."""
        latest_s = max(_modified_s(self.path / file) for file in _GROWING_FILES)
        return latest_s > time.time() - ABANDONED_S

    def compress_captures(self) -> None:
        """Turn every captures/*.pcap into *.pcap.zst; a capture cut by a kill stays as usable as it was.

        Raises RunError (disk full, say): the captures that did not fit are left uncompressed.
        """
        captures = sorted(self.captures.glob("*.pcap"))
        with ThreadPoolExecutor(max_workers=2) as pool:  # zstandard leaves the interpreter's lock to others meanwhile
            for capture, compressed in zip(captures, pool.map(_compress, captures), strict=True):
                update_checksums(self.path, *([str(path.relative_to(self.path))] for path in (compressed, capture)))
                capture.unlink(missing_ok=True)  # another report of the same run may have been as fast

    # Manifest

    def manifest(self) -> dict[str, Any]:
        """The manifest in the current format. Raises RunDirError."""
        path = self.path / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            if mistake := _description_mistake(self.path):
                raise RunDirError(str(mistake)) from None
            reason = "not a run directory (no manifest.json)" if self.path.exists() else "there is no such directory"
            raise RunDirError(f"{self.path}: {reason}; one of a run looks like runs/geo/20260102T030405Z-1") from None
        except (OSError, ValueError) as error:
            raise RunDirError(f"{path}: {read_error_text(error)}") from error
        if not isinstance(manifest, dict):
            raise RunDirError(f"{path}: has no JSON object, so it is not a run's manifest")
        manifest = migrated(cast("dict[str, Any]", manifest), self.path)
        return manifest if self._in_guest else manifest | self._hidden_keys()

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest at once; readers see the old one or the new one. Raises RunError."""
        replace_text(self.path / "manifest.json", json.dumps({"format": FORMAT, **manifest}, indent=1) + "\n")

    def update_manifest(self, changed: Mapping[str, Any]) -> None:
        """Replace some keys of the manifest, at once. Raises RunError."""
        self.write_manifest({**self.manifest(), **changed})
        update_checksums(self.path, ["manifest.json"])

    def hide_from_guest(self, shown: Mapping[str, Any]) -> None:
        """Replace some keys of the manifest by what a process inside a virtual kernel is to read; None: a missing key.

        :meth:`manifest` returns what they were, until :meth:`restore_manifest`. Raises RunError.
        """
        manifest = self.manifest()
        replace_text(self.path / HIDDEN_KEYS_FILE, json.dumps({key: manifest[key] for key in shown}) + "\n")
        self.write_manifest({key: value for key, value in {**manifest, **shown}.items() if value is not None})

    def restore_manifest(self, changed: Mapping[str, Any]) -> None:
        """Give the file the whole manifest again, with some keys replaced. Raises RunError."""
        self.update_manifest(changed)
        (self.path / HIDDEN_KEYS_FILE).unlink(missing_ok=True)

    def _hidden_keys(self) -> dict[str, Any]:
        path = self.path / HIDDEN_KEYS_FILE
        try:
            return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise RunDirError(f"{path}: {read_error_text(error)}") from error

    # Events

    def append_event(self, kind: str, /, t_ns: int, **fields: Any) -> None:
        """Append one line to events.jsonl; the kernel has it on return. Raises RunError, leaving whole lines."""
        if self._events is None:
            self._events = Appender(self.path / "events.jsonl")
        line = json.dumps({"t_ns": t_ns, "type": kind, **fields}, separators=(",", ":"))
        self._events.append(line.encode() + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """Every event so far, in the order written and in this version's words."""
        return [migrated_event(event) for event in read_json_lines(self.path / "events.jsonl")]

    def close(self) -> None:
        """Close the event file."""
        if self._events is not None:
            self._events.close()
            self._events = None

    # Derived files

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace summary.json at once. Raises RunError."""
        replace_text(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")
        update_checksums(self.path, ["summary.json"])

    def summary(self) -> dict[str, Any]:
        """The summary that the analysis wrote. Raises RunError if there is none."""
        path = self.path / "summary.json"
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            msg = f"{self.path}: not analysed yet (no summary.json); `atoll report {self.path}` analyses it"
            raise RunError(msg) from None
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: {read_error_text(error)}; `atoll report {self.path}` makes it again") from None
        if not isinstance(summary, dict) or not summary:
            raise RunError(f"{path}: not a run's summary; `atoll report {self.path}` makes it again")
        return cast("dict[str, Any]", summary)


class ManifestWriter:
    """The only writer of a run's manifest during the run. It keeps each key's text and encodes changed keys only.

    The plan of a thousand hosts makes the manifest 30 MB. Reading, encoding and writing that takes a second, which must
    not block the daemon's event loop. The file is as :meth:`RunDir.write_manifest` writes it.
    """

    def __init__(self, run: RunDir) -> None:
        self._path = run.path / "manifest.json"
        self._texts = _texts({"format": FORMAT, **run.manifest()})
        self._lock = threading.Lock()

    async def update(self, changed: Mapping[str, Any]) -> None:
        """As :meth:`write`, in a thread. A write that has begun is completed when this is cancelled."""
        await asyncio.to_thread(self.write, changed)

    def write(self, changed: Mapping[str, Any]) -> None:
        """Set some keys, at once: readers see the old manifest or the new one. Raises RunError; it is the old one then.

        It takes long for a large laboratory, once the plan is in it.
        """
        texts = _texts(changed)
        with self._lock:
            texts = self._texts | texts
            replace_text(self._path, "{\n" + ",\n".join(texts.values()) + "\n}\n")
            self._texts = texts


def _texts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Each key with what it holds, as ``json.dumps`` with an indent of 1 writes it in an object."""
    return {key: json.dumps({key: value}, indent=1)[2:-2] for key, value in manifest.items()}


def read_error_text(error: OSError | ValueError) -> str:
    """Why a JSON file cannot be read, in the words that follow its path."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return f"is damaged (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else "is damaged"


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line; none when it does not exist.

    Other lines are ignored: a kill may have cut the last one, and tools print other text.
    """
    try:
        lines = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    with lines:
        for line in lines:
            try:
                message = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(message, dict):
                yield cast("dict[str, Any]", message)


def _modified_s(path: Path) -> float:
    """When a file was modified, in s since 1970; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns / 1e9
    except OSError:
        return 0.0


def _description_mistake(path: Path) -> Diagnostic | None:
    """The mistake that a path is the file of a description."""
    from atoll_core.description.file_kinds import kind_mistake  # imports pydantic and ruamel.yaml
    from atoll_core.description.yaml_document import read_document

    return kind_mistake(read_document(path), "a run directory")


def _make_next_directory(parent: Path, stamp: str) -> Path:
    number = 1
    while True:
        path = parent / f"{stamp}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _compress(capture: Path) -> Path:
    """Make ``x.pcap.zst`` of ``x.pcap``; returns its path. Raises RunError."""
    import zstandard

    compressed = capture.with_name(f"{capture.name}.zst")
    with replacing(compressed) as temporary, capture.open("rb") as source, temporary.open("wb") as sink:
        zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).copy_stream(source, sink)
    return compressed

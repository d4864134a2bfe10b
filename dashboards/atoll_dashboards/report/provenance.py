# SPDX-License-Identifier: Apache-2.0
"""Settings and origin of a run's results, as rows of the report."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.experiment.setting_texts import part_text, parts, settings_table, version_differences
from atoll_core.lab.network import Network
from atoll_core.plural import counted

Row = tuple[str, str]

_ELSEWHERE = ("name", "seed", "changes")  # parts that are no rows of settings


def in_one_line(experiment: Experiment) -> str:
    """The experiment in a sentence without a verb."""
    parts = [_short(link) for link in experiment.links]
    parts.append(counted(experiment.traffic.channels, "channel"))
    if experiment.transfer is not None:
        parts.append(f"a transfer of {experiment.transfer.size}")
    parts.append(str(experiment.duration))
    return ", ".join(parts)


def settings(experiment: Experiment, network: Network) -> list[Row]:
    """The settings of the experiment, a row for each part of its description and for each of its changes."""
    described = parts(settings_table("", [experiment.described(network)]))
    rows = [(part, part_text(part, each)) for part, each in described.items() if part not in _ELSEWHERE]
    for number, (before, after) in enumerate(pairwise(experiment.versions), start=1):
        rows.append((f"change {number}", f"at {after.at}: {'; '.join(version_differences(before, after))}"))
    return rows


def origin(manifest: Mapping[str, Any]) -> list[Row]:
    """When and by what the run was made, with which outcome; what the manifest does not know is left out."""
    host: Mapping[str, Any] = manifest.get("host", {})  # of a run in virtual time, whose own clock has no date
    started = host.get("started_ns", manifest.get("started_ns"))
    return [
        *_known(
            ("started", _instant(started) if isinstance(started, int) else None),
            ("outcome", manifest.get("outcome")),
            ("seed", manifest.get("seed")),
        ),
        *platform(manifest),
        *_known(("host", f"kernel {host['kernel']}, {host['wall_s']:.1f} s of wall time" if host else None)),
        *program(manifest),
        *_known(("plan (SHA-256)", manifest.get("plan_sha256")), ("format", manifest.get("format"))),
    ]


def platform(manifest: Mapping[str, Any]) -> list[Row]:
    """The platform of a run and its software but atoll."""
    virtual = manifest.get("virtual", {})
    return _known(
        ("place", manifest.get("place")),
        ("backend", manifest.get("backend")),
        ("switches", _joined("Open vSwitch", manifest.get("ovs"), manifest.get("datapath"), "datapath")),
        ("kernel", manifest.get("kernel")),
        ("CPUs", manifest.get("cpus")),
        ("kernel's mode", virtual.get("mode")),
        ("kernel built as", virtual.get("build")),
    )


def program(manifest: Mapping[str, Any]) -> list[Row]:
    """The revision of atoll that made a run, and whether it recorded metrics."""
    metrics = {True: "taken", False: "none"}.get(manifest.get("metrics", None))
    return _known(("revision", manifest.get("revision")), ("metrics", metrics))


def _known(*rows: tuple[str, object]) -> list[Row]:
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _short(link: Link) -> str:
    down = link.to_island
    return f"{link.box}: {down.rate}, {down.delay} one way, queue {down.queue}"


def _instant(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _joined(before: str, version: object, datapath: object, after: str) -> str | None:
    return f"{before} {version}, {datapath} {after}" if version else None

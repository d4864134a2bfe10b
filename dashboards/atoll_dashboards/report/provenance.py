# SPDX-License-Identifier: Apache-2.0
"""Settings and origin of a run's results, as rows of the report."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import group_by_part, part_text, settings_table, version_differences
from atoll_core.experiment.traffic import UPLOADS_ONLY
from atoll_core.lab.network import Network
from atoll_core.plural import counted

Row = tuple[str, str]

_UNLISTED_PARTS = ("name", "seed", "changes")  # parts that are no rows of settings


def one_line_summary(experiment: Experiment) -> str:
    """The experiment in a sentence without a verb."""
    is_to_world = experiment.flow_directions == UPLOADS_ONLY
    links = ((link.box, link.to_world if is_to_world else link.to_island) for link in experiment.links)
    parts = [f"{box}: {direction.rate}, {direction.delay} one way, queue {direction.queue}" for box, direction in links]
    parts.append(counted(experiment.traffic.total_channels, "channel"))
    for transfer in experiment.all_transfers:
        every = f" every {transfer.every}" if transfer.every else ""
        parts.append(f"a transfer of {transfer.size}{every}")
    return ", ".join([*parts, str(experiment.duration)])


def settings(experiment: Experiment, network: Network) -> list[Row]:
    """The settings of the experiment, a row for each part of its description and for each of its changes."""
    described = group_by_part(settings_table("", [experiment.described(network)]))
    rows = [(part, part_text(part, setting)) for part, setting in described.items() if part not in _UNLISTED_PARTS]
    for number, (before, after) in enumerate(pairwise(experiment.versions), start=1):
        rows.append((f"change {number}", f"at {after.at}: {'; '.join(version_differences(before, after))}"))
    return rows


def origin(manifest: Mapping[str, Any]) -> list[Row]:
    """The time, outcome, platform and program of a run, as far as the manifest has them."""
    host: Mapping[str, Any] = manifest.get("host", {})  # of a run in virtual time, whose own clock has no date
    started_ns = host.get("started_ns", manifest.get("started_ns"))
    started = datetime.fromtimestamp(started_ns // 10**9, UTC) if isinstance(started_ns, int) else None
    return [
        *_non_empty_rows(
            ("started", started and f"{started:%Y-%m-%d %H:%M:%S} UTC"),
            ("outcome", manifest.get("outcome")),
            ("seed", manifest.get("seed")),
        ),
        *platform(manifest),
        *_non_empty_rows(("host", f"kernel {host['kernel']}, {host['wall_s']:.1f} s of wall time" if host else None)),
        *program(manifest),
        *_non_empty_rows(("plan (SHA-256)", manifest.get("plan_sha256")), ("format", manifest.get("format"))),
    ]


def platform(manifest: Mapping[str, Any]) -> list[Row]:
    """The platform of a run and its software except atoll."""
    virtual, version = manifest.get("virtual", {}), manifest.get("ovs")
    return _non_empty_rows(
        ("place", manifest.get("place")),
        ("backend", manifest.get("backend")),
        ("switches", f"Open vSwitch {version}, {manifest.get('datapath')} datapath" if version else None),
        ("kernel", manifest.get("kernel")),
        ("CPUs", manifest.get("cpus")),
        ("kernel's mode", virtual.get("mode")),
        ("kernel built as", virtual.get("build")),
    )


def program(manifest: Mapping[str, Any]) -> list[Row]:
    """The revision of atoll that made a run, and whether it recorded metrics."""
    metrics = {True: "taken", False: "none"}.get(manifest.get("metrics", None))
    return _non_empty_rows(("revision", manifest.get("revision")), ("metrics", metrics))


def _non_empty_rows(*rows: tuple[str, object]) -> list[Row]:
    return [(name, str(value)) for name, value in rows if value not in (None, "")]

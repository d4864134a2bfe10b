# SPDX-License-Identifier: Apache-2.0
"""Every setting of every description is shown exactly once: among those that are alike, or among those that are not."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_studies.results.similarity import Likeness, likeness

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "examples").glob("*.yaml"))

ELSEWHERE = ("name", "lab", "seed", "chain", "branches")
"""Settings that are shown among the origins."""

AS_LISTS = ("changes",)
"""Settings whose parts are numbered."""

OTHERS = {
    "duration": "77 s",
    "links.sat.to_island.rate": "7 Mbit/s",
    "links.sat.to_island.delay": "33 ms",
    "links.sat.to_island.loss": "1.5 %",
    "links.sat.to_world.queue": "77 kB",
    "links.sat.to_world.reorder": "true",
    "links.sat.counts": "ethernet",
    "latency.w1": "rtt-90",
    "traffic.channels": "13",
    "traffic.flow_sizes": "2 MB",
    "transfer.size": "3 MB",
    "transfer.start": "3 s",
    "ping.interval": "70 ms",
    "tcp.buffer_max": "9 MB",
    "tcp.ecn": "true",
    "captures.snap": "120 B",
    "limits.stall": "6 ms",
    "limits.failed_flows": "20 %",
}
"""Settings of ``--set`` and values that no shipped experiment has."""


@cache
def manifest(path: Path, *given: str) -> dict[str, Any]:
    """What a run of the experiment with these settings records."""
    network, experiment = load_experiment(path, given)
    return {"network": to_json(network), "experiment": to_json(experiment)}


@cache
def written(path: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def keys(described: Any, key: str = "") -> Iterator[str]:
    """The keys of a description that have values, as ``--set`` has them."""
    if isinstance(described, dict):
        for name, part in described.items():
            yield from keys(part, f"{key}.{name}" if key else str(name))
    else:
        yield key


def shown(key: str, rows: list[str]) -> bool:
    """Whether this setting is shown once: in its own row, in that of a thing that it is a part of, or in its parts'."""
    parts = key.split(".")
    count = sum(rows.count(".".join(parts[:length])) for length in range(1, len(parts) + 1))
    return count == 1 or (count == 0 and any(row.startswith(f"{key}.") for row in rows))


def holds(found: Likeness, paths: list[Path]) -> None:
    rows = [each.key for each in found.described]
    origins = [name for name, _ in found.origins]
    assert len(set(rows)) == len(rows)
    assert {"experiment", "lab", "seed", "chain"} <= set(origins)
    for path in paths:
        for key in keys(written(path)):
            part = key.partition(".")[0]
            if part in AS_LISTS:
                assert any(f"{row}.".startswith(f"{part}.") for row in rows), part
            elif part not in ELSEWHERE:
                assert shown(key, rows), key
    labs = {(path.parent / written(path)["lab"]).resolve() for path in paths}
    for lab in labs if len(labs) > 1 else ():  # the origin has one that all share
        for kind in ("switches", "hosts", "boxes"):
            for name in written(lab)[kind]:
                assert any(f"{row}.".startswith(f"lab.{kind}.{name}.") for row in rows), name


@given(st.lists(st.sampled_from(SHIPPED), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
@example(SHIPPED)
def test_shipped_experiments_are_shown_whole(paths: list[Path]) -> None:
    """However different they are: other laboratories, no transfer and one, changes and none."""
    holds(likeness([manifest(path) for path in paths]), paths)


@given(st.sampled_from(SHIPPED), st.sets(st.sampled_from(sorted(OTHERS)), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
@example(ROOT / "examples/geo.yaml", set(OTHERS))
def test_what_was_set_is_unlike_with_its_value_and_nothing_else_is(path: Path, names: set[str]) -> None:
    try:
        other = manifest(path, *(f"{name}={OTHERS[name]}" for name in sorted(names)))
    except DescriptionError:
        assume(False)
        return
    found = likeness([manifest(path), other])
    holds(found, [path])
    unlike = {each.key: each.texts[1] for each in found.described if not each.alike}
    assert {re.sub(r"^changes\.\d+\.", "", key) for key in unlike} == {_row(name, unlike) for name in names}
    for name in names & unlike.keys():
        assert unlike[name] == OTHERS[name]


def _row(name: str, rows: dict[str, str]) -> str:
    """The row of a setting: that of the whole thing where only one of the experiments has it."""
    whole = name.partition(".")[0]
    return whole if whole in rows else name


@pytest.mark.parametrize(
    ("place", "value", "row"),
    [
        (("hosts", "w1", "ip"), "10.10.0.99", "lab.hosts.w1.address"),
        (("trunks", 0, "rate"), "100 Mbit/s", "lab.trunks.sw-w1/24-sw-c/1.rate"),
        (("delay_boxes", "delay", "classes", "rtt-5", "rtt"), "6 ms", "lab.delay_boxes.delay.classes.rtt-5.rtt"),
    ],
)
def test_what_was_changed_in_the_lab_is_unlike_and_nothing_else_is(
    place: tuple[Any, ...], value: str, row: str, tmp_path: Path
) -> None:
    geo = ROOT / "examples/geo.yaml"
    yaml = YAML(pure=True)  # that keeps the order, by which MAC addresses are given
    lab = yaml.load((geo.parent / written(geo)["lab"]).read_text(encoding="utf-8"))
    at = lab
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    yaml.dump(lab, tmp_path / "lab.yaml")
    yaml.dump({**written(geo), "lab": "lab.yaml"}, tmp_path / "geo.yaml")
    found = likeness([manifest(geo), manifest(tmp_path / "geo.yaml")])
    assert {each.key: each.texts[1] for each in found.described if not each.alike} == {row: value}

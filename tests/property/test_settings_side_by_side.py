# SPDX-License-Identifier: Apache-2.0
"""Every setting of every description is shown exactly once: among those that are alike, or among those that are not."""

import json
import re
import shutil
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
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import settings_table
from atoll_core.lab.network import Network
from atoll_studies.results.similarity import Similarity, similarity

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "examples").glob("*.yaml"))

ELSEWHERE = ("name", "lab", "seed", "chain", "branches")
"""Settings that are shown among the origins."""

AS_LISTS = ("changes",)
"""Settings whose parts are no settings."""

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
    "traffic.flow_sizes": "4 MB",
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


def holds(found: Similarity, paths: list[Path]) -> None:
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
    holds(similarity([manifest(path) for path in paths]), paths)


@given(st.sampled_from(SHIPPED), st.sets(st.sampled_from(sorted(OTHERS)), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
@example(ROOT / "examples/geo.yaml", set(OTHERS))
def test_what_was_set_is_unlike_with_its_value_and_nothing_else_is(path: Path, names: set[str]) -> None:
    try:
        other = manifest(path, *(f"{name}={OTHERS[name]}" for name in sorted(names)))
    except DescriptionError:
        assume(False)
        return
    found = similarity([manifest(path), other])
    holds(found, [path])
    unlike = {each.key: each.texts[1] for each in found.described if not each.alike}
    followed = {key for key in unlike if key.startswith("traffic.groups.") and f"traffic.{key.split('.')[3]}" in names}
    assert unlike.keys() - followed == {_row(name, unlike) for name in names}
    for name in names & unlike.keys():
        assert unlike[name] == OTHERS[name]


def _row(name: str, rows: dict[str, str]) -> str:
    """The row of a setting: that of the whole thing where only one of the experiments has it."""
    whole = name.partition(".")[0]
    return whole if whole in rows else name


@pytest.mark.parametrize(
    ("place", "value", "row"),
    [
        (("hosts", "w1", "ip"), "10.10.0.99", "lab.hosts.w1.ip"),
        (("trunks", 0, "rate"), "100 Mbit/s", "lab.trunks"),
        (("taps", "tap-w", "direction"), "to_island", "lab.taps.tap-w.direction"),
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
    found = similarity([manifest(geo), manifest(tmp_path / "geo.yaml")])
    unlike = {each.key: each.texts[1] for each in found.described if not each.alike}
    assert list(unlike) == [row]
    assert value in unlike[row]


def rows_of(network: Network, experiment: Experiment) -> tuple[str, ...]:
    """Every setting of a description and of its lab, as --set takes it."""
    own, lab = settings_table("", [experiment.described(network)]), settings_table("lab", [network.described])
    return tuple(f"{each.key}={each.texts[0]}" for each in (*own, *lab))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_rows_of_settings_are_what_set_takes(path: Path) -> None:
    described = load_experiment(path)
    assert load_experiment(path, rows_of(*described)) == described


RICH = {path.stem: path for path in (ROOT / "tests/data/rich-settings").glob("*.txt")}
"""Settings of shipped experiments, one a line, so that they have every key of experiments and labs."""


def rich(folder: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    """A shipped experiment next to the files that its settings name, and these settings."""
    if not folder.joinpath("traces").exists():
        shutil.copytree(ROOT / "examples/traces", folder / "traces")
        (folder / "traces/sizes.csv").write_text("size_bytes\n300\n2000\n")
        (folder / "traces/lost.txt").write_text("0\n1\n")
    path, text = folder / f"{name}.yaml", (ROOT / f"examples/{name}.yaml").read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?m)^lab: ", f"lab: {ROOT}/examples/", text), encoding="utf-8")
    return path, tuple(RICH[name].read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", RICH)
def test_every_row_alone_changes_nothing_and_all_rows_make_the_description(name: str, tmp_path: Path) -> None:
    path, given = rich(tmp_path, name)
    described = load_experiment(path, given)
    plain = set(rows_of(*load_experiment(path)))
    rows = rows_of(*described)
    assert load_experiment(path, rows) == described
    for row in rows:
        if row not in plain:
            assert load_experiment(path, (*given, row)) == described, row


def test_every_key_of_a_description_is_in_a_row(tmp_path: Path) -> None:
    rows = [row for name in RICH for row in rows_of(*load_experiment(*rich(tmp_path, name)))]
    keys = {key for row in rows for key in (*row.partition("=")[0].split("."), *re.findall(r"(\w+): ", row))}
    known = {key for file in ("experiment", "lab") for key in properties(json.loads(schema(file)))}
    assert known - keys == set()


def schema(name: str) -> str:
    return (ROOT / f"core/atoll_core/schemas/{name}.schema.json").read_text(encoding="utf-8")


def properties(schema: Any) -> Iterator[str]:
    """The keys that a JSON Schema describes."""
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    yield from schema.get("properties", ()) if isinstance(schema, dict) else ()
    for part in parts:
        yield from properties(part)

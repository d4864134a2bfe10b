# SPDX-License-Identifier: Apache-2.0
"""Points: known by what they depend on, in an order that is random within a repetition."""

import shutil
from dataclasses import field, make_dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Bernoulli, LossPoint
from atoll_studies.points import Point, _compared_json, make_points
from atoll_studies.study import load_study
from tests.support.sandbox import QUICK, ROOT

STUDY = """name: study
experiment: quick.yaml
factors: {traffic.channels: [5, 6, 7, 8]}
repetitions: 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study with an experiment and a lab of its own."""
    place = tmp_path / "here"
    place.mkdir()
    shutil.copy(ROOT / "emulation/labs/island.yaml", place)
    (place / "quick.yaml").write_text(QUICK.read_text().replace("../../emulation/labs/", ""))
    (place / "study.yaml").write_text(STUDY)
    return place


def points(folder: Path) -> list[Point]:
    return make_points(load_study(folder / "study.yaml"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_point_is_known_wherever_its_files_are_and_whatever_comments_they_have(folder: Path) -> None:
    before = points(folder)
    assert len({each.id for each in before}) == 12
    moved = folder.parent / "there"
    folder.rename(moved)
    edit(moved / "quick.yaml", "duration: 2 s", "# a comment\nduration: 2000 ms")
    assert [each.id for each in points(moved)] == [each.id for each in before]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("quick.yaml", "duration: 2 s", "duration: 3 s"),
        ("quick.yaml", "delay: 10 ms, queue", "delay: 11 ms, queue"),
        ("study.yaml", "experiment:", "backend: engine\nexperiment:"),
        ("study.yaml", "experiment:", "platform: mininet\nexperiment:"),
    ],
)
def test_a_point_is_another_one_if_what_it_asks_for_differs(folder: Path, file: str, old: str, new: str) -> None:
    before = {each.id for each in points(folder)}
    edit(folder / file, old, new)
    assert before.isdisjoint(each.id for each in points(folder))


def test_levels_that_are_the_same_experiment_are_refused(folder: Path) -> None:
    edit(folder / "study.yaml", "traffic.channels: [5, 6, 7, 8]", "duration: [2 s, 3 s, 2000 ms]")
    with pytest.raises(PlanError, match="levels '2 s' and '2000 ms' are the same experiment"):
        points(folder)


class Way(StrEnum):
    """An Enum of a field that is added."""

    OLD = "old"
    NEW = "new"


def test_a_field_that_is_added_to_a_class_changes_no_id_until_it_is_used() -> None:
    was = make_dataclass("Loss", [("probability", float)], frozen=True)
    before = _compared_json(was(0.5))
    limit = ("limit", int | None, None)
    way = ("way", Way, field(default=Way.NEW, metadata={"unrecorded": Way.OLD}))
    now = make_dataclass("Loss", [("probability", float), limit, way], frozen=True)
    assert _compared_json(now(0.5, way=Way.OLD)) == before
    assert _compared_json(now(0.5)) != before  # what data without the field do not mean
    assert _compared_json(now(0.5, limit=0, way=Way.OLD)) != before
    assert _compared_json(Bernoulli(0.5)) != _compared_json(Bernoulli(0.5, LossPoint.BEFORE))


def with_program(folder: Path, start: str) -> None:
    """Add a box with a program to the lab."""
    relay = "  relay:\n    kind: program\n    forwarding: routed\n    world: sw-c/30\n    island: sw-c/31\n"
    edit(folder / "island.yaml", "delay_boxes:", relay + f"    program: {{start: {start}}}\n\ndelay_boxes:")


def test_contents_of_traces_and_programs_count(folder: Path) -> None:
    trace = folder / "rain.csv"
    trace.write_text("t_s,rate_bit_s\n0,16000000\n1,8000000\n")
    edit(folder / "quick.yaml", "to_island: {rate: 16 Mbit/s,", "to_island: {trace: rain.csv, rate: 16 Mbit/s,")
    with_program(folder, "[python3, relay.py]")
    program = folder / "relay.py"
    program.write_text("print(1)\n")
    found = [points(folder)[0].id]
    trace.write_text("t_s,rate_bit_s\n0,16000000\n1,9000000\n")
    found.append(points(folder)[0].id)
    program.write_text("print(2)\n")
    found.append(points(folder)[0].id)
    assert len(set(found)) == 3


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("[python3, relay.py]", "relay.py"),
        ("[./relay.py]", "relay.py"),
        ("[relay, --config=conf/relay.json]", "conf/relay.json"),
        ("[sh, -c, \"cd . && exec python3 'relay.py' >/dev/null; true\"]", "relay.py"),
        ("[python3, -m, relay, conf]", "conf/deep/more.json"),
    ],
)
def test_files_are_found_in_words_options_scripts_and_folders(folder: Path, start: str, name: str) -> None:
    with_program(folder, start)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("1")
    (folder / "other.py").write_text("1")
    (before,) = {tuple(each.programs.items()) for each in points(folder)}
    assert [file for file, _ in before] == [name]
    (folder / name).write_text("2")
    (after,) = {tuple(each.programs.items()) for each in points(folder)}
    assert after != before


def test_repetitions_and_levels_that_are_added_keep_the_points_that_were_there(folder: Path) -> None:
    before = points(folder)
    edit(folder / "study.yaml", "repetitions: 3", "repetitions: 5")
    assert [each.id for each in points(folder)][:12] == [each.id for each in before]
    edit(folder / "study.yaml", "[5, 6, 7, 8]", "[5, 6, 7, 8, 9]")
    assert {each.id for each in before} < {each.id for each in points(folder)}


def test_seeds_that_are_put_before_others_keep_their_points(folder: Path) -> None:
    edit(folder / "study.yaml", "repetitions: 3", "seeds: [2]")
    before = {each.id for each in points(folder)}
    edit(folder / "study.yaml", "seeds: [2]", "seeds: [1, 2]")
    assert {each.id for each in points(folder) if each.seed == 2} == before


def test_a_block_is_one_repetition_of_everything_in_an_order_of_its_own(folder: Path) -> None:
    before = points(folder)
    blocks = [before[at : at + 4] for at in (0, 4, 8)]
    assert [{each.seed for each in block} for block in blocks] == [{1}, {2}, {3}]
    assert all({each.configuration for each in block} == {0, 1, 2, 3} for block in blocks)
    orders = {tuple(each.configuration for each in block) for block in blocks}
    assert len(orders) > 1
    assert [each.id for each in points(folder)] == [each.id for each in before]
    edit(folder / "study.yaml", "repetitions:", "order_seed: 2\nrepetitions:")
    again = points(folder)
    assert {each.id for each in again} == {each.id for each in before}
    assert [each.id for each in again] != [each.id for each in before]


def test_a_repeated_setting_and_the_request_agree(folder: Path) -> None:
    for point in points(folder):
        assert point.request["experiment"]["seed"] == point.seed
        assert point.settings[-1] == f"seed={point.seed}"
        assert point.request["experiment"]["traffic"]["channels"] == int(point.levels["traffic.channels"])

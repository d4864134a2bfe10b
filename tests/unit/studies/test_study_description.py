# SPDX-License-Identifier: Apache-2.0
"""study.yaml: what it means, and its mistakes with file and line, all at once."""

from pathlib import Path

import pytest

from atoll_core.description.overrides import override
from atoll_core.description.yaml_document import compose_document
from atoll_core.errors import DescriptionError
from atoll_core.plan.plan import Backend
from atoll_studies.points import make_points
from atoll_studies.results.result_tables import reserved_columns
from atoll_studies.study import StudyDescription, load_study, setting_argument
from tests.support.sandbox import QUICK, ROOT

FIRST = f"name: study\nexperiment: {QUICK}\n"


def study(folder: Path, text: str) -> StudyDescription:
    path = folder / "study.yaml"
    path.write_text(FIRST + text)
    return load_study(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        study(folder, text)
    return [f"{one.line}: {one.message}" for one in refused.value.mistakes]


def test_all_levels_are_combined_and_share_the_seeds(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        "set: {duration: 3 s}\nfactors:\n  tcp.congestion_control: [cubic, reno]\n"
        "  load: {light: {traffic.channels: 5}, heavy: {traffic.channels: 50, ping.interval: 50 ms}}\nrepetitions: 3\n",
    )
    assert [each.levels for each in found.configurations] == [
        ("cubic", "light"),
        ("cubic", "heavy"),
        ("reno", "light"),
        ("reno", "heavy"),
    ]
    last = found.configurations[-1]
    assert last.settings == (
        "duration=3 s",
        "tcp.congestion_control=reno",
        "traffic.channels=50",
        "ping.interval=50 ms",
    )
    assert (last.experiment.traffic.channels, last.experiment.duration.s) == (50, 3)
    assert found.seeds == (1, 2, 3)
    assert found.baseline == (("tcp.congestion_control", "cubic"),)
    assert (found.platform, found.backend) == ("virtual", Backend.TC)


def test_a_study_without_factors_is_one_configuration(tmp_path: Path) -> None:
    found = study(tmp_path, "seeds: [7, 3]\nplatform: mininet\n")
    assert [each.levels for each in found.configurations] == [()]
    assert (found.seeds, found.backend, found.baseline) == ((7, 3), Backend.ENGINE, ())


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    form = """factors:
  tcp.congestion_control: [cubic, cubic]
  load:
    light: 5
platfrom: virtual
"""
    assert [line.partition(":")[0] for line in mistakes(tmp_path, form)] == ["4", "5", "7"]
    meaning = """factors:
  tcp.congestion_control: [cubic, cubit]
repetitions: 6
seeds: [1, 1]
figures: [gootput]
set: {seed: 4}
"""
    assert [line.partition(":")[0] for line in mistakes(tmp_path, meaning)] == ["4", "5", "6", "7", "8"]


def test_a_setting_that_the_experiment_refuses_is_reported_at_its_level(tmp_path: Path) -> None:
    text = """factors:
  links.sat.to_island.queue: [30 kB, 1 B]
  load:
    light: {traffic.channels: many}
    heavy: {trafic.channels: 3}
"""
    form = mistakes(tmp_path, text)
    assert [line.partition(":")[0] for line in form] == ["6", "7"]
    assert "did you mean 'traffic'" in form[1]
    (meaning,) = mistakes(tmp_path, text.replace("many", "2").replace("trafic", "traffic"))
    assert meaning.startswith("4:")
    assert "at least 1500 B" in meaning


def test_levels_that_only_contradict_each_other_are_reported_by_their_names(tmp_path: Path) -> None:
    text = """factors:
  run: {base: {}, long: {duration: 20 s}, short: {duration: 3 s}}
  transfer: [{size: 1 MB, start: 1 s}, {size: 1 MB, start: 5 s}]
set: {duration: 30 s}
"""
    (line,) = mistakes(tmp_path, text)
    assert line.startswith("3: short, ")
    assert "start: 5 s is not before the end" in line


def test_a_key_belongs_to_one_factor(tmp_path: Path) -> None:
    text = """factors:
  tcp.congestion_control: [cubic, reno]
  load:
    light: {traffic.channels: 5}
    heavy: {traffic.channels: 50, tcp: {congestion_control: bbr}}
  traffic.channels: [7, 8]
"""
    assert mistakes(tmp_path, text) == [
        (
            "7: factors 'tcp.congestion_control' and 'load' overlap: one sets tcp, the other "
            "tcp.congestion_control; keep one of them"
        ),
        "8: factors 'load' and 'traffic.channels' both set traffic.channels; keep one of them",
    ]


def test_a_common_setting_that_no_run_has_is_refused(tmp_path: Path) -> None:
    text = "set: {duration: 3 s, traffic.channels: 9}\nfactors:\n  duration: [2 s, 4 s]\n"
    text += "  load: {usual: {}, heavy: {traffic.channels: 50}}\n"
    assert mistakes(tmp_path, text) == ["3: factor 'duration' replaces duration in all runs; remove it here"]


def test_a_factor_is_not_named_as_a_column_of_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(FIRST + "factors:\n  kernel: {light: {traffic.channels: 5}, heavy: {traffic.channels: 50}}\n")
    with pytest.raises(DescriptionError, match=r"study.yaml:4: the tables have columns .*figure, .*verdict"):
        load_study(path, reserved_columns())


def test_the_last_seed_is_within_its_bound(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(QUICK.read_text().replace("../../", f"{ROOT}/"))
    last = "experiment: quick.yaml\nname: study\nset: {}\nrepetitions: "
    (tmp_path / "quick.yaml").write_text((tmp_path / "quick.yaml").read_text() + f"\nseed: {2**63 - 2}\n")
    (tmp_path / "study.yaml").write_text(f"{last}2\n")
    assert load_study(tmp_path / "study.yaml").seeds[-1] == 2**63 - 1
    (tmp_path / "study.yaml").write_text(f"{last}3\n")
    with pytest.raises(DescriptionError, match=r"study.yaml:4: seeds from \d+ on exceed"):
        load_study(tmp_path / "study.yaml")


def test_levels_that_are_right_in_every_combination_need_not_be_right_alone(tmp_path: Path) -> None:
    text = "factors:\n  duration: [20 s, 30 s]\n  transfer: [{size: 1 MB, start: 5 s}]\n"
    assert len(study(tmp_path, text).configurations) == 2


def test_a_baseline_names_factors_and_levels(tmp_path: Path) -> None:
    factors = "factors: {traffic.channels: [5, 50]}\n"
    assert study(tmp_path, f"{factors}baseline: {{traffic.channels: 50}}\n").baseline == (("traffic.channels", "50"),)
    (level,) = mistakes(tmp_path, f"{factors}baseline: {{traffic.channels: 7}}\n")
    (factor,) = mistakes(tmp_path, f"{factors}baseline: {{trafic.channels: 5}}\n")
    assert level.startswith("4: unknown level the number 7")
    assert "did you mean 'traffic.channels'" in factor


def test_mistakes_of_the_experiment_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(QUICK.read_text().replace("duration: 2 s", "duration: 2 hours of fun"))
    for name, line in (("broken.yaml", 5), ("none.yaml", 0)):
        (tmp_path / "study.yaml").write_text(
            f"name: study\nexperiment: {name}\nfactors: {{traffic.channels: [5, 6]}}\n"
        )
        with pytest.raises(DescriptionError) as refused:
            load_study(tmp_path / "study.yaml")
        assert (Path(refused.value.mistakes[0].file).name, refused.value.mistakes[0].line) == (name, line)


@pytest.mark.parametrize("value", ["cubic", "16 Mbit/s", "off", "1", "a: b", "# no", 5, 0.5, True, None, [1, "x"], {}])
def test_a_setting_is_read_back_as_it_was(value: object) -> None:
    document = compose_document("name: x\n", "x")
    tree = override(document, [setting_argument("given", value)]).tree
    assert tree is not None
    assert tree["given"] == value


def test_mistakes_of_a_study_in_its_experiment_and_in_settings_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(
        QUICK.read_text().replace("../../", f"{ROOT}/").replace("duration: 2 s", "duration: 2 hours of fun")
    )
    (tmp_path / "study.yaml").write_text(
        """name: study
experiment: broken.yaml
seeds: [1, 1]
set: {seed: 4}
factors:
  traffic.channels: [5, 6]
  load: {light: {ping.interval: often}}
  name: [a, b]
baseline: {traffic.channels: 5, lod: light}
figures: [gootput]
"""
    )
    with pytest.raises(DescriptionError) as refused:
        load_study(tmp_path / "study.yaml")
    found = [(Path(one.file).name, one.line) for one in refused.value.mistakes]
    assert found == [("broken.yaml", 6), *(("study.yaml", line) for line in (3, 4, 7, 8, 9, 10))]


def test_figures_to_the_world_are_of_runs_with_uploads(tmp_path: Path) -> None:
    text = "figures: [goodput to the world]\n"
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.endswith("'goodput to the world' is of runs with uploads, and there are none; write 'goodput'")
    assert study(tmp_path, f"set: {{transfer: {{size: 1 MB, start: 0 s, direction: upload}}}}\n{text}")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("transfer time of codet", "unknown transfer 'codet'; did you mean 'coded'? known transfers: coded, plain"),
        ("transfer time", "transfer time is that of a single transfer; write 'transfer time of coded'; transfers:"),
    ],
)
def test_figures_are_of_transfers_that_runs_have(tmp_path: Path, figure: str, message: str) -> None:
    one = "{size: 1 MB, start: 0 s}"
    text = f"set: {{transfers: {{coded: {one}, plain: {one}}}}}\n"
    for key in (
        f"figures: [goodput, {figure}]",
        f"primary: {{figure: {figure}}}",
        f"stop: {{figure: {figure}, half_width: 5 %, max: 12}}",
        f"published: [{{figure: {figure}, value: 41 s, source: a paper}}]",
    ):
        (mistake,) = mistakes(tmp_path, text + key + "\n")
        assert mistake.startswith(f"4: {message}")
        assert study(tmp_path, (text + key + "\n").replace(figure, "transfer time of plain"))
    single = f"set: {{transfers: {{coded: {one}}}}}\nfigures: [transfer time, transfer time of coded]\n"
    assert study(tmp_path, single)


def test_too_many_runs_hide_no_level_that_is_refused(tmp_path: Path) -> None:
    text = "repetitions: 1000\nfactors:\n  traffic.channels: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, many]\n"
    text += "  ping.interval: [10 ms, 20 ms, 30 ms, 40 ms, 50 ms, 60 ms, 70 ms, 80 ms, 90 ms, often]\n"
    found = mistakes(tmp_path, text)
    assert [line.partition(":")[0] for line in found] == ["4", "5", "6"]
    assert "110000 runs are too many" in found[0]


def test_the_shipped_studies_are_right() -> None:
    files = sorted((ROOT / "examples" / "studies").glob("*.yaml"))
    assert files
    for file in files:
        assert load_study(file).configurations


def test_keys_of_the_lab_and_labs_are_factors(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    island = ROOT / "emulation/labs/island.yaml"
    other.write_text(island.read_text().replace("name: island", "name: other"))
    (tmp_path / "study.yaml").write_text(
        f"name: study\nexperiment: {QUICK}\nfactors:\n"
        f"  lab: [{island}, {other}]\n  lab.delay_boxes.delay.rate: [100 Mbit/s, 1 Gbit/s]\n"
    )
    study = load_study(tmp_path / "study.yaml")
    assert [(each.network.name, each.network.delay_boxes[0].rate.bit_s // 10**6) for each in study.configurations] == [
        ("island", 100),
        ("island", 1000),
        ("other", 100),
        ("other", 1000),
    ]
    points = make_points(study)
    assert len({point.id for point in points}) == 4
    assert {setting for point in points for setting in point.settings if setting.startswith("lab.")} == {
        "lab.delay_boxes.delay.rate=100 Mbit/s",
        "lab.delay_boxes.delay.rate=1 Gbit/s",
    }


def test_a_mistake_in_a_key_of_the_lab_has_the_line_of_its_level(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "factors:\n  lab.delay_boxes.delay.rate:\n    - 1 Gbit/s\n    - fast\n")
    assert [line.partition(":")[0] for line in found] == ["6"]
    assert "delay box 'delay': rate" in found[0]


def test_the_goodput_of_downloads_settles_no_warm_up_of_uploads(tmp_path: Path) -> None:
    uploads = "set: {traffic: {channels: 5, direction: upload}, transfer: null}\nwarm_up: mser-5\nrepetitions: 2\n"
    assert mistakes(tmp_path, uploads) == [
        "4: mser-5 is by the goodput of downloads, and there are none; write a duration"
    ]

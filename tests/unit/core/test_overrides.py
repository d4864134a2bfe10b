# SPDX-License-Identifier: Apache-2.0
"""``--set KEY=VALUE`` stands in place of what the description says, under the same rules."""

from pathlib import Path

import pytest

from atoll_core.description.loader import load_experiment
from atoll_core.description.raw_experiment import RawTcp
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.experiment.experiment import Bernoulli, Codel, Jitter, JitterShape, LossPoint
from atoll_core.experiment.traffic import SizeMeaning
from atoll_core.units import Duration, Rate, Size


@pytest.fixture(scope="module")
def geo(project) -> Path:
    return project / "examples/geo.yaml"


def test_later_settings_win_and_what_is_not_set_stays(geo):
    experiment = load_experiment(geo, ["tcp.congestion_control=bbr", "tcp.congestion_control = hybla"])[1]
    assert experiment.tcp.congestion_control == "hybla"
    assert experiment.tcp.buffer_max == Size(16_000_000)
    assert experiment.transfer == load_experiment(geo)[1].transfer


def test_values_are_yaml_and_missing_mappings_are_made(geo):
    settings = [
        "links.sat.to_island={rate: 8 Mbit/s, delay: 250 ms, queue: 30 kB, loss: 1 %}",
        "links.sat.to_island.rate=32 Mbit/s",
        "links.sat.to_world.aqm.codel.target=20 ms",
        "transfer=",
        "traffic.channels=7",
    ]
    experiment = load_experiment(geo, settings)[1]
    way = experiment.link("sat").to_island
    assert (way.rate, way.queue, way.loss) == (Rate(32_000_000), Size(30_000), Bernoulli(0.01))
    assert isinstance(experiment.link("sat").to_world.aqm, Codel)
    assert (experiment.transfer, experiment.traffic.channels) == (None, 7)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("tcp.control=bbr", f"tcp: unknown key 'control'; known keys: {', '.join(sorted(RawTcp.model_fields))}"),
        ("seed=-1", "seed: the number -1 is not a whole number from 0 to 9223372036854775807"),
        ("trafic.channels=5", "unknown key 'trafic'; did you mean 'traffic'? known keys: "),
        ("chain=[sta]", "chain hop 1: unknown box or tap 'sta'; did you mean 'sat'? known boxes and taps: "),
    ],
)
def test_a_mistake_in_a_setting_names_it_and_no_line_of_the_file(geo, monkeypatch, project, setting, answer):
    monkeypatch.chdir(project)
    with pytest.raises(DescriptionError) as refused:
        load_experiment(Path("examples/geo.yaml"), [setting])
    assert str(refused.value.mistakes[0]).startswith(f"examples/geo.yaml: --set {setting!r}: {answer}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["duration=9000 ms"], "transfer: start: 10 s is not before the end at 9000 ms"),
        (["changes=[{at: 90 s, traffic: {channels: 3}}]"], "change 1: at: 90 s is not before the end at 60 s"),
        (
            ["changes=[{at: 40000 ms, chain: [sat]}, {at: 0.5 min, chain: [tap-w, sat]}]"],
            "change 2: at: 0.5 min is not after change 1 at 40000 ms",
        ),
        (["traffic.pro_rate=1000 B", "traffic.flow_sizes=500 B"], "pro_rate: 1000 B exceeds the largest flow, 500 B"),
        (["traffic={channels: 1, pro_rate: 0.1 kB, flow_sizes: {counts: ip}}"], "pro_rate: 0.1 kB is smaller than"),
        (["links.sat.to_island.jitter=300000 us"], "jitter: 300000 us exceeds the delay; write at most 250 ms"),
        (["links.sat.to_island.queue=1000 B"], "queue: 1000 B is too small"),
        (["lab.delay_boxes.delay.classes.rtt-5.jitter=10000 us"], "jitter: 10000 us exceeds the delay each way"),
        (["lab.delay_boxes.delay.rate=1000 kbit/s"], "the trunk of delay box 'delay' (1000 kbit/s, "),
        (
            ["lab.switches.sw-c={dpid: 3, driver: procurve-v2, twin: {lag_min: 4000 ms, lag_max: 3000 ms}}"],
            "lag_min: 4000 ms is above lag_max, 3000 ms",
        ),
    ],
)
def test_messages_quote_values_as_they_are_written(geo, settings, message):
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, settings)
    assert message in str(refused.value)


def test_a_setting_may_lead_through_a_short_form_which_becomes_the_mapping_it_stands_for(geo):
    settings = [
        "traffic.flow_sizes=10 kB",
        "traffic.flow_sizes.counts=ip",
        "links.sat.to_world.jitter=5 ms",
        "links.sat.to_world.jitter.distribution=normal",
        "links.sat.to_island.loss=1 %",
        "links.sat.to_island.loss.where=before",
        "links.sat.to_island.aqm=codel",
        "links.sat.to_island.aqm.codel.interval=600 ms",
        "links.sat.to_world.aqm=drop-tail",
        "links.sat.to_world.aqm.codel.interval=700 ms",
    ]
    experiment = load_experiment(geo, settings)[1]
    assert (experiment.traffic.sizes_count, experiment.traffic.flow_sizes) == (SizeMeaning.IP, "10 kB")
    link = experiment.link("sat")
    assert link.to_world.jitter == Jitter(JitterShape.NORMAL, Duration(5_000_000), 0.0)
    assert link.to_island.loss == Bernoulli(0.01, LossPoint.BEFORE)
    assert link.to_island.aqm == Codel(Duration(5_000_000), Duration(600_000_000))
    assert link.to_world.aqm == Codel(Duration(5_000_000), Duration(700_000_000))


def test_an_entry_of_a_list_is_set_by_its_number(project: Path) -> None:
    """From 0; a mistake names the setting."""
    busy = project / "examples/busy-hour.yaml"
    before, after = (load_experiment(busy, each)[1] for each in ([], ["changes.0.at=1500 ms"]))
    assert after.versions[1].at == Duration.parse("1500 ms")
    assert [each.at for each in after.versions[2:]] == [each.at for each in before.versions[2:]]
    assert load_experiment(project / "examples/geo.yaml", ["chain.1=sat"])[1].chain.hops == ("tap-w", "sat", "tap-i")
    with pytest.raises(DescriptionError) as error:
        load_experiment(busy, ["changes.0.at=never"])
    (mistake,) = error.value.mistakes
    assert str(mistake).startswith(
        f"{mistake.file}: --set 'changes.0.at=never': change 1: at: 'never' is not a duration"
    )


@pytest.mark.parametrize("number", ["7", "-1", "first"])
def test_an_entry_that_a_list_does_not_have_is_refused_with_its_numbers(geo: Path, number: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_experiment(geo, [f"chain.{number}=sat"])
    assert str(refused.value) == (
        f"--set 'chain.{number}=sat': there is no entry '{number}' in this list; its entries are 0 to 2"
    )


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("tcp", "--set 'tcp': write KEY=VALUE as in the description, such as 'tcp.congestion_control=hybla'"),
        ("=3", "--set '=3': write KEY=VALUE as in the description, such as 'tcp.congestion_control=hybla'"),
        ("chain=[sat", "--set 'chain=[sat': not valid YAML: "),
        ("seed=1\nname: x", "--set 'seed=1\\nname: x': more than one thing"),
        ("seed.x=1", "--set 'seed.x=1': seed is the number 1 and has no keys; set seed as a whole"),
        ("lab.name.x=1", "--set 'lab.name.x=1': lab.name is 'island' and has no keys; set lab.name as a whole"),
    ],
)
def test_a_setting_that_cannot_be_read_is_told_in_one_line(geo, setting, answer):
    with pytest.raises(PlanError) as refused:
        load_experiment(geo, [setting])
    assert str(refused.value).startswith(answer)
    assert "\n" not in str(refused.value)


def test_a_lab_where_an_experiment_is_wanted_is_one_mistake(project):
    with pytest.raises(DescriptionError) as refused:
        load_experiment(project / "emulation/labs/island.yaml")
    (mistake,) = refused.value.mistakes
    assert mistake.message.startswith("is a lab, but an experiment is needed")


@pytest.mark.parametrize("setting", ["links.sta.to_island.loss=1%", "links.sta.to_world={}"])
def test_a_part_of_a_link_that_is_not_there_names_those_that_are(geo, setting):
    with pytest.raises(PlanError) as refused:
        load_experiment(geo, [setting])
    assert str(refused.value) == (f"--set '{setting}': there is no link 'sta'; did you mean 'sat'? known links: sat")


def test_of_several_settings_the_one_that_is_wrong_is_named(geo):
    """The last one of a place, the nearest around it; what the file says keeps its line."""
    settings = ["transfer.size=7", "transfer={size: 1 MB, start: soon}", "transfer.tool=wget", "seed=2"]
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, settings)
    assert [str(mistake).partition(": ")[2].partition("; ")[0] for mistake in refused.value.mistakes] == [
        "--set 'transfer.tool=wget': transfer: tool: unknown tool 'wget'",
        "--set 'transfer={size: 1 MB, start: soon}': transfer: start: 'soon' is not a duration",
    ]


def test_a_mistake_in_what_was_set_names_no_line_0(geo):
    chains = "[{at: 3 s, chain: [tap-w, sat]}, {at: 2 s, chain: [sat, tap-i]}]"
    with pytest.raises(DescriptionError) as error:
        load_experiment(geo, [f"changes={chains}"])
    assert "2 s is not after change 1 at 3 s; list changes in order of time" in str(error.value)
    alike = "{one: {carries: {protocol: udp}, chain: [sat]}, two: {carries: {protocol: udp}, chain: [tap-w, sat]}}"
    with pytest.raises(DescriptionError) as error:
        load_experiment(geo, [f"branches={alike}"])
    assert "branch 'one' carries the same traffic; merge" in str(error.value)


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("chain=[tap-w]", "link 'sat': 'sat' is not in the chain; "),
        ("links.sat.to_island.rate=2 Gbit/s", "link 'sat': the trunk of delay box 'delay' (1 Gbit/s, "),
    ],
)
def test_a_mistake_elsewhere_that_a_setting_causes_names_the_setting(geo, setting, what):
    """The line where it is noticed is right without the setting."""
    with pytest.raises(DescriptionError) as error:
        load_experiment(geo, ["seed=2", setting])
    assert all(mistake.line == 0 for mistake in error.value.mistakes)
    causes = f"--set 'seed=2', --set '{setting}': "
    assert any(mistake.message.startswith(f"{causes}{what}") for mistake in error.value.mistakes), str(error.value)


def test_a_mistake_that_is_there_without_settings_keeps_its_line(tmp_path, project):
    file = tmp_path / "e.yaml"
    lab = project / "emulation/labs/island.yaml"
    text = (project / "examples/geo.yaml").read_text().replace("../emulation/labs/island.yaml", str(lab))
    file.write_text(text.replace("chain: [tap-w, sat, tap-i]", "chain: [tap-w, tap-i]"))
    with pytest.raises(DescriptionError) as error:
        load_experiment(file, ["seed=2"])
    assert [mistake.line > 0 for mistake in error.value.mistakes] == [True]


def test_settings_of_the_lab_are_put_into_its_description(geo):
    network, experiment = load_experiment(geo, ["lab.delay_boxes.delay.rate=300 Mbit/s", "seed=3"])
    assert [box.rate for box in network.delay_boxes] == [Rate(300_000_000)]
    assert experiment.seed == 3
    assert load_experiment(geo)[0] != network
    named = load_experiment(geo, ["lab.boxes.sat.world.interface=to-world"])[0]  # the file has switch/number alone
    assert named.box("sat").world.name == "to-world"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("lab.delay_boxes.delay.rat=1 Gbit/s", "delay box 'delay': unknown key 'rat'; did you mean 'rate'?"),
        ("lab.delay_boxes.delay.rate=fast", "delay box 'delay': rate: "),
        ("lab.delai_boxes=", "unknown key 'delai_boxes'; did you mean 'delay_boxes'?"),
    ],
)
def test_a_mistake_in_a_setting_of_the_lab_names_it_and_the_file_of_the_lab(geo, setting, told):
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, [setting])
    (mistake,) = refused.value.mistakes
    assert mistake.line == 0
    assert mistake.file.endswith("emulation/labs/island.yaml")
    assert mistake.message.startswith(f"--set {setting!r}: {told}")


def test_a_mistake_that_involves_a_setting_of_the_lab_names_no_line_of_the_file(geo):
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, ["lab.delay_boxes.delay.rate=10 Mbit/s"])
    assert "(10 Mbit/s, " in str(refused.value)
    assert "island.yaml) is too slow" in str(refused.value)
    with pytest.raises(DescriptionError, match=r"already taken by host 'w1': ip; give each host its own"):
        load_experiment(geo, ["lab.hosts.w1.ip=10.10.0.2"])


def test_a_setting_of_a_machine_that_the_lab_does_not_have_is_refused(geo):
    with pytest.raises(PlanError, match="there is no delay box 'dely'; did you mean 'delay'"):
        load_experiment(geo, ["lab.delay_boxes.dely.rate=1 Gbit/s"])


def test_the_lab_of_an_experiment_is_a_setting_and_so_are_keys_of_that_lab(geo, project, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text((project / "emulation/labs/island.yaml").read_text().replace("name: ", "name: other-"))
    network = load_experiment(geo, [f"lab={other}", "lab.delay_boxes.delay.rate=300 Mbit/s"])[0]
    assert network.name.startswith("other-")
    assert network.delay_boxes[0].rate == Rate(300_000_000)


def test_a_mistake_of_the_file_that_a_setting_uncovers_keeps_its_line(project, tmp_path):
    """Without the setting there is a mistake of form, which hides those of meaning."""
    text = (project / "examples/geo.yaml").read_text(encoding="utf-8").replace("../emulation", f"{project}/emulation")
    wrong = text.replace("duration: 60 s", "duration: long").replace("[tap-w, sat, tap-i]", "[tap-w, sta, tap-i]")
    (tmp_path / "e.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(DescriptionError) as refused:
        load_experiment(tmp_path / "e.yaml", ["duration=20 s"])
    mistakes = refused.value.mistakes
    line = wrong[: wrong.index("chain:")].count("\n") + 1
    assert {mistake.line for mistake in mistakes} == {line}
    assert mistakes[0].message.startswith("chain hop 2: unknown box or tap 'sta'")

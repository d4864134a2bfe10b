# SPDX-License-Identifier: Apache-2.0
"""Clients with a load of their own: what groups inherit, what is refused, and the jobs and plan that follow."""

from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.job_plan import jobs
from atoll_controller.planner.plan_text import plan_text
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import settings_tree, version_differences
from atoll_core.lab.network import Network

CODED, PLAIN = "coded: {clients: [i1, i2, i3]}", "plain: {clients: [i5, i4], channels: 40, flow_sizes: 10 kB}"


@pytest.fixture
def load(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Loads an experiment with these groups, from line 7 on, and changes, from line 12 on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "island.yaml").write_text((project / "emulation/labs/island.yaml").read_text())

    def load_load(*groups: str, traffic: str = "channels: 10", changes: tuple[str, ...] = (), settings=()):
        lines = [
            *("name: grouped", "lab: island.yaml", "duration: 60 s", "chain: [tap-w, sat, tap-i]"),
            *(f"traffic: {{{traffic},", "  groups: {", "    " + ",\n    ".join(groups) if groups else "", "  }}"),
            "links: {sat: {to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}}",
            *(["changes:", *(f"  - {change}" for change in changes)] if changes else []),
        ]
        Path("e.yaml").write_text("\n".join(lines) + "\n")
        return load_experiment(Path("e.yaml"), settings)

    return load_load


def configs(described: tuple[Network, Experiment]) -> dict[str, dict[str, Any]]:
    """The configuration of each client's job."""
    return {job.host: job.config for job in jobs(*described) if job.config and job.name.startswith("load-")}


def test_a_group_has_its_channels_and_sizes_and_inherits_the_rest(load) -> None:
    described = load(CODED, PLAIN, traffic="channels: 10, flow_sizes: 5 kB, think_time: 1 s, timeout: 30 s")
    clients = configs(described)
    assert {host: config["channels"][:2] for host, config in clients.items()} == {
        "i1": [100_000, 100_003],
        "i2": [100_001, 100_004],
        "i3": [100_002, 100_005],
        "i4": [400_000, 400_002],
        "i5": [400_001, 400_003],
        "i6": [0, 1],
    }
    assert [len(clients[host]["channels"]) for host in ("i1", "i2", "i3", "i4", "i5", "i6")] == [4, 3, 3, 20, 20, 10]
    sizes = {host: config["flow_sizes"] for host, config in clients.items()}
    assert sizes["i1"] == sizes["i6"] != sizes["i4"] == sizes["i5"]
    assert {str(config["pace"]) for config in clients.values()} == {"{'kind': 'constant', 'mean_ns': 1000000000}"}
    assert {config["silence_ns"] for config in clients.values()} == {30 * 10**9}
    (server, *_) = [job for job in jobs(*described) if job.name.startswith("serve-")]
    assert server.limits.open_files == 2 * 60 + 64
    assert described[1].max_channels == 60
    assert from_json(Experiment, to_json(described[1])) == described[1]


def test_the_plan_shows_channels_by_group(load) -> None:
    described = load(CODED, PLAIN)
    assert plan_text(make_plan(*described)).split("\n\n")[3].splitlines() == [
        "Channels: 60, allocated to 6 island clients by capacity within their groups",
        "  coded  4        i1      capacity 1",
        "  coded  3 each   i2, i3  capacity 1",
        "  plain  20 each  i4, i5  capacity 1",
        "  rest   10       i6      capacity 1",
    ]
    tree = settings_tree(described[1], described[0])["traffic"]
    assert tree["groups"]["plain"]["clients"] == "[i4, i5]"
    assert (tree["channels"], tree["groups"]["coded"]["channels"]) == ("10", "10")


def test_draws_of_a_group_do_not_depend_on_other_groups_and_without_groups_nothing_is_new(load) -> None:
    groups = load(CODED, PLAIN), load(CODED, PLAIN.replace("40", "7"), traffic="channels: 3")
    assert [configs(each)["i1"]["channels"][0] for each in groups] == [100_000] * 2
    (config, *_) = configs(load(traffic="channels: 10")).values()
    assert config["channels"] == [0, 6]


def test_draws_do_not_depend_on_the_order_of_groups(load) -> None:
    assert configs(load(CODED, PLAIN)) == configs(load(PLAIN, CODED))


def test_a_group_without_channels_because_those_of_traffic_change_needs_some_in_an_open_loop(load) -> None:
    with pytest.raises(DescriptionError) as refused:
        load("open: {clients: [i1], flows_per_s: 8}", changes=("{at: 10 s, traffic: {channels: 0}}",))
    (found,) = refused.value.mistakes
    answer = "flows_per_s of group 'open' begins flows, and 0 channels have none; keep at least 1 channel"
    assert str(found) == f"e.yaml:11: change 1: traffic: channels: {answer}"


def test_an_open_loop_is_that_of_a_group_and_excludes_a_think_time(load) -> None:
    open_loop = "open: {clients: [i1, i2], channels: 4, flows_per_s: 8}"
    described = load(open_loop, "none: {clients: [i3], think_time: null}", traffic="channels: 6, think_time: 1 s")
    clients = configs(described)
    assert clients["i1"]["pace"] == {"kind": "poisson", "mean_ns": 500_000_000}
    assert "pace" not in clients["i3"]
    assert clients["i6"]["pace"]["kind"] == "constant"
    limits = {job.host: job.limits.open_files for job in jobs(*described) if job.name.startswith(("load-", "serve-"))}
    assert limits["i1"] is limits["w1"] is None
    assert limits["i6"] == 2 + 64


def test_the_load_of_all_groups_is_compared_with_the_link(load) -> None:
    flows = "channels: 4, flow_sizes: 1 MB, flows_per_s: 4"
    groups = [f"{name}: {{clients: [i{number}], {flows}}}" for number, name in enumerate(("one", "two"), 1)]
    (found,) = [str(each) for each in description_warnings(*load(*groups)) if "flows a second" in each.message]
    flows = "4 flows a second of 1 MB in the mean of group"
    assert found.startswith(f"e.yaml:7: traffic: group 'one': flows_per_s: {flows} 'one' and {flows} 'two' ask")


def test_channels_of_traffic_that_no_client_has_are_doubted(load) -> None:
    everyone = "all: {clients: [i1, i2, i3, i4, i5, i6], channels: 4}"

    def doubts(*groups: str, traffic: str = "channels: 10") -> list[str]:
        found = description_warnings(*load(*groups, traffic=traffic))
        return [str(each) for each in found if "no effect" in each.message]

    (doubt,) = doubts(everyone)
    assert doubt.startswith("e.yaml:5: traffic: channels: 10 has no effect, as each client is in a group with channels")
    assert doubts(everyone, traffic="channels: 0") == doubts(CODED, PLAIN) == []
    with pytest.raises(DescriptionError, match="change 1: traffic: no client's load changes, as each is in a group"):
        load(everyone, changes=("{at: 10 s, traffic: {channels: 12}}",))


def test_a_group_can_be_set_by_the_command_line(load) -> None:
    described = load(CODED, settings=("traffic.groups.coded.channels=12",))
    assert len(configs(described)["i1"]["channels"]) == 4
    with pytest.raises(DescriptionError) as refused:
        load(CODED, settings=("traffic.groups.coded.clients=[i9]",))
    (mistake,) = refused.value.mistakes
    assert str(mistake).startswith("e.yaml: --set 'traffic.groups.coded.clients=[i9]': traffic: group 'coded': clients")


def test_groups_change_during_a_run_and_follow_the_keys_that_they_do_not_have(load) -> None:
    described = load(
        CODED,
        PLAIN,
        changes=("{at: 10 s, traffic: {channels: 12}}", "{at: 20 s, traffic: {groups: {plain: {channels: 2}}}}"),
    )
    clients = configs(described)
    assert clients["i2"]["changes"] == [{"after_ns": 10**10, "channels": [100_001, 100_004, 100_007, 100_010]}]
    assert clients["i4"]["changes"] == [{"after_ns": 2 * 10**10, "channels": [400_000]}]
    first, second, third = described[1].versions
    assert list(version_differences(first, second)) == [
        "traffic.channels 12 instead of 10",
        "traffic.groups.coded.channels 12 instead of 10",
    ]
    assert list(version_differences(second, third)) == ["traffic.groups.plain.channels 2 instead of 40"]
    assert third.change_from(second)["traffic"] == {"groups": {"plain": {"channels": 2}}}
    assert described[1].max_channels == 12 + 12 + 40


@pytest.mark.parametrize(
    ("group", "answer"),
    [
        ("plain: {clients: [i3, i4]}", "traffic: group 'plain': clients: 'i3' is in group 'coded', too; a client has"),
        ("plain: {clients: [i44]}", "traffic: group 'plain': clients: unknown island client 'i44'; "),
        ("plain: {clients: []}", "traffic: group 'plain': clients: the group has no clients; name at least one"),
        ("plain: {channels: 4}", "traffic: group 'plain': clients is missing; add 'clients: [i1, i2]'"),
        ("rest: {clients: [i4]}", "traffic: group 'rest': this is the name of the clients in no group; choose"),
        ("plain: {clients: [i4], port: 1}", "traffic: group 'plain': port is a setting of the servers, which all"),
        ("plain: {clients: [i4], chanels: 1}", "traffic: group 'plain': unknown key 'chanels'; did you mean"),
        ("plain: {clients: [i4], channels: 0, flows_per_s: 1}", "traffic: group 'plain': flows_per_s starts flows on"),
        ("plain: {clients: [i4], think_time: 1 s, flows_per_s: 1}", "traffic: group 'plain': think_time and"),
        ("plain: {clients: [i4], pro_rate: 1 MB, flow_sizes: 1 kB}", "traffic: group 'plain': pro_rate: 1 MB exceeds"),
        ("plain: {clients: [i4], flow_sizes: none.csv}", "traffic: group 'plain': flow_sizes: none.csv: "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_group_is_one_line_with_its_place(load, group: str, answer: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load(CODED, group)
    (found,) = refused.value.mistakes
    assert str(found).startswith(f"e.yaml:8: {answer}")


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("{groups: {plane: {channels: 3}}}", "traffic: group 'plane': no group 'plane' exists at the start; did"),
        ("{groups: {plain: {flows_per_s: 3}}}", "traffic: group 'plain': flows_per_s: the load is a closed loop;"),
        ("{groups: {plain: {clients: [i6]}}}", "traffic: group 'plain': unknown key 'clients'; "),
        ("{groups: {plain: {channels: 40}}}", "this change has no effect"),
        ("{groups: {plain: {flow_sizes: none.csv}}}", "traffic: group 'plain': flow_sizes: none.csv: "),
    ],
)  # fmt: skip
def test_a_mistake_in_the_change_of_a_group_is_one_line(load, change: str, answer: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load(CODED, PLAIN, changes=(f"{{at: 10 s, traffic: {change}}}",))
    (found,) = refused.value.mistakes
    assert str(found).startswith(f"e.yaml:12: change 1: {answer}")

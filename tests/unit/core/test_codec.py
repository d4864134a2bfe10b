# SPDX-License-Identifier: Apache-2.0
"""The codec: every model value survives JSON, and what is no such value is refused."""

import json
from ipaddress import IPv4Network

import pytest

from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Bernoulli, Experiment, LossPoint, TcpSettings
from atoll_core.experiment.flow_sizes import fixed
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll_core.plan.plan import JobSpec, Phase, RouteSettings
from atoll_core.plan.tag_layout import Direction, GapTag
from atoll_core.units import Rate, Size

ENTRY = FlowEntry(
    "sw-c",
    1000,
    Match(in_port=3, vlan=Vlan.UNTAGGED, ipv4_src=IPv4Network("10.10.0.1/32")),
    (PopVlan(), PushVlan(101), Output(10)),
    cookie=0xA7 << 56,
    why="w1 -> island",
)


def through_text(thing):
    return json.loads(json.dumps(to_json(thing)))


@pytest.mark.parametrize("name", ["geo", "meo"])
def test_a_shipped_experiment_and_its_network_survive_json(project, name):
    network, experiment = load_experiment(project / f"examples/{name}.yaml")
    assert from_json(Network, through_text(network)) == network
    assert from_json(Experiment, through_text(experiment)) == experiment


def test_routes_of_runs_recorded_before_they_had_an_mtu_are_read():
    """They were the prefixes alone."""
    assert from_json(RouteSettings, "10.20.0.0/16") == RouteSettings("10.20.0.0/16")
    with pytest.raises(TypeError):
        from_json(RouteSettings, 10)


@pytest.mark.parametrize("vlan", [None, 101, Vlan.UNTAGGED])
def test_a_flow_entry_survives_json_with_every_kind_of_vlan_match(vlan):
    entry = FlowEntry(ENTRY.switch, ENTRY.priority, Match(3, vlan), ENTRY.actions, ENTRY.cookie, ENTRY.why)
    assert from_json(FlowEntry, through_text(entry)) == entry


def test_actions_carry_their_kind():
    assert through_text(ENTRY)["actions"] == [
        {"kind": "PopVlan"},
        {"kind": "PushVlan", "vlan": 101},
        {"kind": "Output", "port": 10},
    ]


def test_a_field_called_kind_is_no_tag():
    traffic = Traffic(12, "5 kB", 5001, sizes=fixed("5 kB", 5000), flows_per_s=20.0)
    assert from_json(Traffic, json.loads(json.dumps(to_json(traffic)))) == traffic


def test_a_job_keeps_its_configuration_and_its_absent_fields():
    job = JobSpec("ping", "ws", Phase.PING, ("atoll-host", "ping"), {"count": None, "targets": [{"name": "i1"}]})
    assert from_json(JobSpec, through_text(job)) == job


def test_quantities_are_integers_of_their_smallest_unit():
    assert to_json((Rate(16), Size(5))) == [16, 5]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ecn": "false"}, TypeError),  # bool("false") would be true
        ({"ecn": 1}, TypeError),
        ({"congestion_control": 5}, TypeError),
        ({"buffer_max": "16 MB"}, TypeError),
        ({"buffer_max": True}, TypeError),
        ({"buffer_max": None}, TypeError),
    ],
)
def test_a_value_of_another_type_is_refused(change, error):
    right = to_json(TcpSettings("cubic", ecn=False, buffer_max=Size(5)))
    with pytest.raises(error):
        from_json(TcpSettings, right | change)


@pytest.mark.parametrize("missing", ["congestion_control", "ecn", "buffer_max"])
def test_a_missing_field_is_refused(missing):
    right = to_json(TcpSettings("cubic", ecn=False, buffer_max=Size(5)))
    del right[missing]
    with pytest.raises(TypeError):
        from_json(TcpSettings, right)


@pytest.mark.parametrize("action", [{"kind": "SetField"}, {"kind": "PushVlan"}, {"kind": "PushVlan", "vlan": "101"}])
def test_an_unknown_or_incomplete_action_is_refused(action):
    with pytest.raises(TypeError):
        from_json(FlowEntry, through_text(ENTRY) | {"actions": [action]})


def test_losses_recorded_before_they_said_where_were_before_the_queue():
    """Runs of that time lost packets there; such a run does not become another when it is read again."""
    recorded = {"kind": "Bernoulli", "probability": 0.01}
    assert from_json(Bernoulli, recorded) == Bernoulli(0.01, LossPoint.BEFORE)
    assert from_json(Bernoulli, to_json(Bernoulli(0.01))) == Bernoulli(0.01, LossPoint.AFTER)


def test_tags_of_older_plans_are_read() -> None:
    """Their directions had a hyphen."""
    tag = GapTag("main", Direction.TO_ISLAND, 1, 102)
    assert through_text(tag)["direction"] == "to_island"
    assert from_json(GapTag, through_text(tag) | {"direction": "to-island"}) == tag
    with pytest.raises(ValueError, match="sideways"):
        from_json(GapTag, through_text(tag) | {"direction": "sideways"})

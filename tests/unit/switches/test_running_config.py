# SPDX-License-Identifier: Apache-2.0
"""The configuration that a switch runs, compared with the one that the lab needs."""

import re
from pathlib import Path

import pytest

from atoll_core.errors import PlanError
from atoll_switches.running_config import config_differences


@pytest.fixture
def wanted(project: Path) -> str:
    """The configuration of a ProCurve of the rendered lab."""
    return (project / "switch-configs/rendered/sw-c.conf").read_text()


RUNNING = """
Running configuration:

; J9576A Configuration Editor; Created on release #KA.15.15.0006
hostname "switch in rack 3"
module 1 type j9576y
no cdp run
snmp-server community "public" unrestricted
openflow
   controller-id 1 ip 192.0.2.10 port 6653 controller-interface vlan 1
   instance aggregate
      controller-id 1
      version 1.3 only
      max-backoff-interval 10
      enable
      exit
   enable
   exit
no lldp run
vlan 1
   name "DEFAULT_VLAN"
   no untagged 1-3,13-18,21-22
   untagged 4-12,19-20,23-24
   ip address dhcp-bootp
   exit
vlan 2
   name "EXPERIMENT"
   untagged 1-3,13-18,21-22
   no ip address
   exit
vlan 101
   name "ATOLL-101"
   tagged 1-2
   no ip address
   exit
vlan 102
   name "ATOLL-102"
   tagged 1,2
   no ip address
   exit
"""


def differences(wanted: str, running: str) -> list[str]:
    return [str(each) for each in config_differences(wanted, running)]


def test_names_defaults_and_what_is_not_the_labs_are_no_differences(wanted: str) -> None:
    """Spanning tree off and fail-secure are not in a running configuration; port lists are compared port by port."""
    assert differences(wanted, RUNNING) == []


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("no lldp run\n", "", ["+ no lldp run"]),
        ("no cdp run\n", "no cdp run\nspanning-tree\n", ["+ no spanning-tree", "- spanning-tree"]),
        ("tagged 1,2\n", "tagged 1\n", ["+ vlan 102: tagged 2"]),
        ("tagged 1-2\n", "tagged 1-2,7\n", ["- vlan 101: tagged 7"]),
        ("   untagged 4-12", "   tagged 13\n   untagged 4-12", ["- vlan 1: tagged 13"]),
        (
            "version 1.3 only",
            "version 1.0",
            ["+ openflow / instance aggregate: version 1.3 only", "- openflow / instance aggregate: version 1.0"],
        ),
        (
            "ip 192.0.2.10 port",
            "ip 192.0.2.99 port",
            [
                "+ openflow: controller-id 1 ip 192.0.2.10 port 6653 controller-interface vlan 1",
                "- openflow: controller-id 1 ip 192.0.2.99 port 6653 controller-interface vlan 1",
            ],
        ),
        (
            "      enable\n",
            "      enable\n      connection-interruption-mode fail-standalone\n",
            [
                "+ openflow / instance aggregate: connection-interruption-mode fail-secure",
                "- openflow / instance aggregate: connection-interruption-mode fail-standalone",
            ],
        ),
    ],
)
def test_a_difference_is_told_with_its_context(wanted: str, was: str, now: str, expected: list[str]) -> None:
    assert was in RUNNING
    assert sorted(differences(wanted, RUNNING.replace(was, now, 1))) == sorted(expected)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("interface 3\n   disable\n   exit\n", ["- interface 3: disable"]),
        (
            'interface 2-4\n   name "uplink"\n   speed-duplex 10-half\n   exit\n',
            ["- interface 2: speed-duplex 10-half", "- interface 3: speed-duplex 10-half"],
        ),
        ('interface 3\n   ip access-group "guard" in\n   exit\n', ['- interface 3: ip access-group "guard" in']),
        ("aaa port-access authenticator 3,5\n", ["- aaa port-access authenticator 3,5"]),
        ("aaa port-access mac-based 1-2\n", ["- aaa port-access mac-based 1-2"]),
        ("port-security 13 learn-mode static\n", ["- port-security 13 learn-mode static"]),
        ("trunk 3-4 trk1 trunk\n", ["- trunk 3-4 trk1 trunk"]),
        ("spanning-tree enable\n", ["+ no spanning-tree", "- spanning-tree"]),
        ("vlan 7\n   untagged Trk1,3\n   exit\n", ["- vlan 7: untagged 3"]),
    ],
)
def test_a_setting_that_keeps_a_port_of_the_lab_from_working_is_a_difference(
    wanted: str, added: str, expected: list[str]
) -> None:
    assert differences(wanted, RUNNING + added) == expected


@pytest.mark.parametrize(
    "added",
    [
        "interface 4\n   disable\n   speed-duplex 10-half\n   exit\n",
        'interface 3\n   name "to w1"\n   speed-duplex auto\n   no power-over-ethernet\n   exit\n',
        "aaa port-access authenticator 4-12\naaa port-access authenticator active\n",
        "trunk 23-24 trk1 trunk\nvlan 9\n   tagged Trk1-Trk3,A1\n   exit\n",
        "spanning-tree 4 admin-edge-port\nmax-vlans 16\nsnmp-server host 192.0.2.3\n",
        "vlan 1\n   tagged A1-A2\n   exit\n",
    ],
)
def test_settings_of_other_ports_and_trunks_are_no_differences(wanted: str, added: str) -> None:
    assert differences(wanted, RUNNING + added) == []


def test_a_text_as_people_save_it_is_read(wanted: str) -> None:
    """With the prompt and the pager of a session, wrapped at any column, and with the ports of a stack."""
    session = "sw-c# show running-config\n" + RUNNING.replace(
        "no lldp run", "\x1b[24;1H-- MORE --, next page: Space, next line: Enter, quit: Control-C\x1b[2Kno lldp run"
    )
    assert differences(wanted, session + "\nsw-c(config)# exit\nsw-c#\n") == []
    for split in ("1-3,13-1", "1-3,", "1-3,13-18,21-2"):
        wrapped = RUNNING.replace(f"   untagged {split}", f"   untagged {split}\n").replace(
            "\n\n   no ip", "\n   no ip"
        )
        assert wrapped != RUNNING
        assert differences(wanted, wrapped) == []
    stack = RUNNING.replace("untagged 1-3,13-18,21-22", "untagged 1/1-1/3,1/13-1/18,1/21-1/22")
    assert differences(wanted, stack.replace("tagged 1-2\n", "tagged 1/1-1/2\n")) == []


def test_an_empty_switch_lacks_everything(wanted: str) -> None:
    """Each VLAN, and OpenFlow with its instance."""
    found = differences(wanted, "vlan 1\n   name DEFAULT_VLAN\n   exit\n")
    assert "+ vlan 101" in found
    assert "+ openflow: instance aggregate" in found
    assert not [line for line in found if line.startswith("-")]


def stacked(running: str) -> str:
    """The same switch as the first member of a stack of two, whose second one has two modules."""
    named = re.sub(r"(?<=tagged )[\d,-]+", lambda ports: re.sub(r"\d+", r"1/\g<0>", ports[0]), running)
    members = 'stacking\n   member 1 type "J9576A" mac-address 1cc1de-4d48c0\n   member 2 type "J9574A"\n   exit\n'
    return named.replace("no cdp run\n", f"{members}no cdp run\n") + "interface 2/13\n   disable\n   exit\n"


def test_members_of_a_stack_without_ports_of_the_lab_are_no_differences(wanted: str) -> None:
    running = stacked(RUNNING)
    assert "untagged 1/1-1/3,1/13-1/18,1/21-1/22" in running
    assert differences(wanted, running) == []
    others = running.replace("untagged 1/4-1/12", "untagged 1/4-1/12,2/1-2/48,2/A1-2/A2,2/B1")
    assert others != running
    assert differences(wanted, others) == []


@pytest.mark.parametrize(
    ("ports", "expected"),
    [("2/1-2/3,2/7", ["2/1-2/3,2/7"]), ("A1", ["A1"]), ("2/B1,1/A1-1/A2", ["1/A1-1/A2", "2/B1"])],
)
def test_other_ports_in_a_vlan_of_the_lab_are_differences_by_their_names(
    wanted: str, ports: str, expected: list[str]
) -> None:
    running = stacked(RUNNING).replace("untagged 1/1-1/3", f"untagged {ports},1/1-1/3")
    assert differences(wanted, running) == [f"- vlan 2: untagged {each}" for each in expected]


def test_another_text_is_refused(wanted: str) -> None:
    with pytest.raises(PlanError, match="this is not what `show running-config`"):
        config_differences(wanted, "hello\n")


@pytest.mark.parametrize(("ports", "first"), [("A1-A3", "A1"), ("1/1-1/3,2/1", "2/1"), ("1/1-1/3,1/A1", "1/A1")])
def test_a_port_that_may_be_one_of_the_lab_is_refused(wanted: str, ports: str, first: str) -> None:
    with pytest.raises(
        PlanError, match=rf"^vlan 2: .* of port {first}, which may be port \d+ of the lab, .*port-statistics`"
    ):
        config_differences(wanted, f"vlan 2\n   untagged {ports}\n   exit\n")

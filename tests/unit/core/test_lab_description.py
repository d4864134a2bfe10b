# SPDX-License-Identifier: Apache-2.0
"""lab.yaml: what the shipped lab resolves to, and the exact message for every kind of mistake."""

# ruff: noqa: E501, ISC004 (the table of mistakes reads best with a message on a line)

import re
from dataclasses import fields
from ipaddress import IPv4Address, IPv4Network

import pytest

from atoll_core.description.loader import load_lab
from atoll_core.errors import DescriptionError
from atoll_core.lab.box_kind import LINK
from atoll_core.lab.network import Control, HostRole, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.twin import TwinSettings
from atoll_core.units import Duration, Rate


@pytest.fixture(scope="module")
def text(project):
    return (project / "emulation/labs/island.yaml").read_text(encoding="utf-8")


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads a text as lab.yaml of the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str) -> Network:
        (tmp_path / "lab.yaml").write_text(text, encoding="utf-8")
        return load_lab(tmp_path / "lab.yaml")

    return load_text


def mistakes_of(load, text: str) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        load(text)
    return str(refused.value).splitlines()


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} must stand in the lab exactly once"
        text = text.replace(old, new)
    return text


def line_of(text: str, words: str) -> int:
    assert text.count(words) == 1, f"{words!r} must stand in the edited lab exactly once"
    return text[: text.index(words)].count("\n") + 1


def test_the_shipped_lab_is_what_the_issue_asks_for(load, text):
    network = load(text)
    assert network.name == "island"
    assert network.file == "lab.yaml"
    assert (network.world, network.island) == (IPv4Network("10.10.0.0/16"), IPv4Network("10.20.0.0/16"))
    assert [switch.dpid for switch in network.switches] == [1, 2, 3, 4]
    assert len(network.with_role(HostRole.WORLD_SERVER)) == len(network.with_role(HostRole.ISLAND_CLIENT)) == 6
    assert [delay.rtt.ms for delay in network.delay_boxes[0].classes] == [5, 20, 50, 90, 140, 200]
    assert [box.name for box in network.boxes] == ["pep-w", "coder-w", "sat", "coder-i", "pep-i"]
    assert [box.name for box in network.boxes if box.kind is LINK] == ["sat"]
    assert network.host("w4").address == IPv4Address("10.10.0.4")
    assert network.trunks[0].rate == Rate(10**9)
    assert network.delay_boxes[0].classes[0].jitter == Duration(0)


def test_interfaces_are_named_after_their_machine(load, text):
    machines = load(text).machines
    names = {name: [interface.name for interface in found] for name, found in machines.items()}
    assert names["w1"] == ["w1-eth0"]
    assert names["sat"] == ["sat-w", "sat-i"]
    assert names["delay"] == ["delay-t"]
    assert names["cap-w"] == ["cap-w-tap-w"]


def test_default_mac_addresses_follow_from_the_port_and_never_collide(load, text):
    interfaces = [interface for found in load(text).machines.values() for interface in found]
    macs = [interface.mac for interface in interfaces]
    assert len(set(macs)) == len(macs)
    assert all(mac.startswith("02:a7:") for mac in macs)  # locally administered, unicast
    assert load(text).host("w2").interface.mac == "02:a7:00:01:00:02"  # first switch, port 2


def test_mac_addresses_and_interface_names_may_be_given(load, text):
    network = load(
        edited(
            text,
            ("ip: 10.10.0.1, port: sw-w1/1}", "ip: 10.10.0.1, port: sw-w1/1, mac: '02:00:00:00:00:0A', interface: eth7}"),
            ("world: sw-c/15, island: sw-c/16", "world: {port: sw-c/15, mac: '02:00:00:00:00:0b'}, island: {port: sw-c/16, interface: sat0}"),
            ("trunk: sw-c/10", "trunk: sw-c/10\n    mac: '02:00:00:00:00:0c'\n    interface: trunk0"),
            ("host: cap-w, port: sw-c/21", "host: cap-w, port: sw-c/21, mac: '02:00:00:00:00:0d', interface: eth1"),
        )
    )  # fmt: skip
    assert (network.host("w1").interface.mac, network.host("w1").interface.name) == ("02:00:00:00:00:0a", "eth7")
    assert (network.box("sat").world.mac, network.box("sat").island.name) == ("02:00:00:00:00:0b", "sat0")
    assert network.box("sat").world.attached == PortRef("sw-c", 15)
    assert (network.delay_boxes[0].trunk.mac, network.delay_boxes[0].trunk.name) == ("02:00:00:00:00:0c", "trunk0")
    assert (network.tap("tap-w").interface.mac, network.tap("tap-w").interface.name) == ("02:00:00:00:00:0d", "eth1")


def test_taps_may_share_a_capture_host(load, text):
    network = load(edited(text, ("host: cap-i,", "host: cap-w,")))
    assert [interface.name for interface in network.machines["cap-w"]] == ["cap-w-tap-w", "cap-w-tap-i"]


def test_a_lab_needs_no_trunks_boxes_delay_boxes_or_taps(load):
    network = load(
        "name: tiny\nnetworks: {world: 10.1.0.0/24, island: 10.2.0.0/24}\nswitches: {s: {dpid: 1, driver: "
        "ovs}}\nhosts: {}\n"
    )
    assert all(
        getattr(network, field.name) == ()
        for field in fields(network)
        if field.name.endswith(("s", "es")) and field.name != "switches"
    )


BEHIND = (
    ("hosts:\n", "learning_switches:\n  lan: {uplink: sw-i/20, rate: 1 Gbit/s}\n\nhosts:\n"),
    ("port: sw-i/1}", "port: lan/1}"),
    ("port: sw-i/2}", "port: lan/2}"),
)


def test_hosts_behind_a_learning_switch_share_its_uplink(load, text):
    network = load(edited(text, *BEHIND))
    i1, i2, i3 = (network.host(name).interface for name in ("i1", "i2", "i3"))
    assert (i1.attached, i1.behind, i1.cable_end) == (PortRef("sw-i", 20), PortRef("lan", 1), PortRef("lan", 1))
    assert (i2.attached, i2.behind) == (PortRef("sw-i", 20), PortRef("lan", 2))
    assert (i3.behind, i3.cable_end) == (None, PortRef("sw-i", 3))
    assert (i1.mac, i2.mac) == ("02:a7:00:05:00:01", "02:a7:00:05:00:02")  # behind the fourth switch
    assert [host.name for host in network.hosts_behind("lan")] == ["i1", "i2"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("port: sw-w1/1}", "port: lan/9}"), "host 'i1': port: host 'w1' of the other end is behind 'lan', too; frames between hosts behind one learning switch pass no OpenFlow switch, so no chain would carry them; use another one"),
        (("port: sw-i/3}", "port: lan/2}"), "host 'i3': port: port lan/2 is already taken by host 'i2': port (line 33); free is lan/3"),
        (("port: sw-i/3}", "port: sw-i/20}"), "host 'i3': port: port sw-i/20 is already taken by learning switch 'lan': uplink (line 21); free is sw-i/1"),
        (("port: sw-i/3}", "port: lam/3}"), "host 'i3': port: unknown switch 'lam'; did you mean 'lan'? known switches: sw-w1, sw-w2, sw-c, sw-i, lan"),
        (("island: sw-c/16", "island: lan/9"), "box 'sat': island: port: 'lan' is a learning switch; only hosts can be attached to it; name a port of an OpenFlow switch"),
        (("port: sw-c/22", "port: lan/9"), "tap 'tap-i': port: 'lan' is a learning switch; only hosts can be attached to it; name a port of an OpenFlow switch"),
        (("port: sw-c/22", "cable: lan/1"), "tap 'tap-i': cable: 'lan' is a learning switch; only hosts can be attached to it; name a port of an OpenFlow switch"),
        (("to: sw-c/3", "to: lan/24"), "trunk 3: to: 'lan' is a learning switch; only hosts can be attached to it; name a port of an OpenFlow switch"),
        (("uplink: sw-i/20", "uplink: lan/20"), "learning switch 'lan': uplink: 'lan' is a learning switch; only hosts can be attached to it; name a port of an OpenFlow switch"),
    ],
)  # fmt: skip
def test_what_is_no_place_for_a_learning_switch_is_refused(load, text, edit, message):
    assert [line.partition(": ")[2] for line in mistakes_of(load, edited(edited(text, *BEHIND), edit))] == [message]


IN_BAND = (
    ("hosts:\n", "control: {network: 192.168.10.0/24, port: sw-c/40}\n\nhosts:\n"),
    ("port: sw-i/1}", "port: sw-i/1, control: 192.168.10.31}"),
)


def test_hosts_with_one_interface_have_a_control_address(load, text):
    network = load(edited(text, *IN_BAND))
    assert network.control == Control(IPv4Network("192.168.10.0/24"), PortRef("sw-c", 40), arp=True)
    assert [(host.name, str(host.control)) for host in network.in_band_hosts] == [("i1", "192.168.10.31")]
    assert load(edited(text, *IN_BAND, ("port: sw-c/40}", "port: sw-c/40, arp: false}"))).control.arp is False


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("control: {network: 192.168.10.0/24, port: sw-c/40}", ""), "host 'i1': control: the lab has no in-band control; add a section 'control: {network: 192.168.10.0/24, port: SWITCH/PORT}'"),
        (("192.168.10.31", "192.168.11.31"), "host 'i1': control: 192.168.11.31 is outside the control network 192.168.10.0/24; choose one inside, such as 192.168.10.1"),
        (("port: sw-i/10}", "port: sw-i/10, control: 192.168.10.37}"), "host 'is': control: results of the island-special would pass the network while it is measured; give it a second interface for control, and remove this key"),
        (("192.168.10.31", "192.168.10.255"), "host 'i1': control: 192.168.10.255 is the network's own or its broadcast address; choose another of 192.168.10.0/24"),
        (("port: sw-i/2}", "port: sw-i/2, control: 192.168.10.31}"), "host 'i2': control: address 192.168.10.31 is already taken by host 'i1': control (line 31); give each host its own"),
        (("192.168.10.0/24", "10.0.0.0/8"), "control: network: 10.0.0.0/8 overlaps the world network 10.10.0.0/16; choose a network of its own"),
        (("192.168.10.0/24", "192.168.10.31/32"), "control: network: hosts take all addresses of 192.168.10.31/32, and the machine that runs atoll needs one; choose a larger network"),
        (("sw-c/40", "sw-c/16"), "control: port: port sw-c/16 is already taken by box 'sat': island: port (line 42); free is sw-c/4"),
        (("sw-c/40", "sw-x/40"), "control: port: unknown switch 'sw-x'; did you mean 'sw-c'? known switches: sw-w1, sw-w2, sw-c, sw-i"),
        (("  i3: {", "  control: {"), "host 'control': this name is that of the machine that runs atoll; choose another one"),
    ],
)  # fmt: skip
def test_what_is_no_in_band_control_is_refused(load, text, edit, message):
    assert message in [line.partition(": ")[2] for line in mistakes_of(load, edited(edited(text, *IN_BAND), edit))]


@pytest.mark.parametrize(("network", "fits"), [("192.168.10.32/29", True), ("192.168.10.32/30", False)])
def test_the_control_network_has_an_address_for_the_machine_that_runs_atoll(load, text, network, fits):
    """Of the four addresses of a /30, two are usable."""
    hosts = (("192.168.10.31", "192.168.10.33"), ("port: sw-i/2}", "port: sw-i/2, control: 192.168.10.34}"))
    described = edited(edited(text, *IN_BAND), ("192.168.10.0/24", network), *hosts)
    if fits:
        assert len(load(described).in_band_hosts) == 2
    else:
        (line,) = mistakes_of(load, described)
        assert line.endswith(
            f"hosts take all addresses of {network}, and the machine that runs atoll needs one; choose a larger network"
        )


def test_anchors_and_merge_keys_work(load, text):
    network = load(
        edited(
            text,
            ("w1: {role: world-server,", "w1: &server {role: world-server,"),
            (
                "w2: {role: world-server, ip: 10.10.0.2, port: sw-w1/2}",
                "w2: {<<: *server, ip: 10.10.0.2, port: sw-w1/2}",
            ),
        )
    )
    assert network.host("w2").role is HostRole.WORLD_SERVER


# What is replaced, by what, words on the line of the mistake, and the message; @words@ stands for the line of words.
MISTAKES = [
    # -- capacities
    (
        "ip: 10.20.0.1,", "capacity: 0, ip: 10.20.0.1,", "capacity: 0",
        "host 'i1': capacity: the number 0 is not a capacity; write a number above 0 and up to 1000000, such as 1 "
        "or 0.5",
    ),
    (
        "ip: 10.20.0.1,", "capacity: '4', ip: 10.20.0.1,", "capacity: '4'",
        "host 'i1': capacity: '4' is not a capacity; write a number above 0 and up to 1000000, such as 1 or 0.5",
    ),
    ("ip: 10.10.0.1,", "capacity: 2, ip: 10.10.0.1,", "capacity: 2", "host 'w1': capacity: only island clients have channels; remove it"),
    # -- taken twice
    (
        "ip: 10.10.0.2,", "ip: 10.10.0.1 ,", "ip: 10.10.0.1 ,",
        "host 'w2': ip: address 10.10.0.1 is already taken by host 'w1': ip (line @w1: {role@); give each host its own",
    ),
    (
        "port: sw-w1/2}", "port: sw-w1/1 }", "port: sw-w1/1 }",
        "host 'w2': port: port sw-w1/1 is already taken by host 'w1': port (line @w1: {role@); free is sw-w1/2",
    ),
    (
        "world: sw-c/15", "world: sw-c/3 ", "world: sw-c/3 ",
        "box 'sat': world: port: port sw-c/3 is already taken by trunk 3: to (line @sw-i/24@); free is sw-c/4",
    ),
    (
        "sw-i: {dpid: 4,", "sw-i: {dpid: 3,", "sw-i: {dpid: 3,",
        "switch 'sw-i': dpid: datapath id 3 is already taken by switch 'sw-c': dpid (line @sw-c: {dpid@); give each "
        "switch its own",
    ),
    (
        "rtt-20: {vlan: 102,", "rtt-20: {vlan: 101,", "rtt-20: {vlan: 101,",
        "delay box 'delay': class 'rtt-20': vlan: VLAN id 101 is already taken by "
        "delay box 'delay': class 'rtt-5': vlan (line @rtt-5: {vlan@); give each class its own",
    ),
    (
        "  pep-i: {kind", "  sw-c: {kind", "  sw-c: {kind",
        "box 'sw-c': line @sw-c: {dpid@ already gives this name to a switch; rename one",
    ),
    (
        "tap-w: {host: cap-w,", "tap-w: {host: sat,", "tap-w: {host: sat,",
        "tap 'tap-w': host: box 'sat' (line @sat: {kind@) has this name; give the capture host one of its own",
    ),
    (
        "  pep-i: {kind", "  emulation: {kind", "  emulation: {kind",
        "box 'emulation': the machine of an emulated lab is called 'emulation' in every run; choose another name",
    ),
    (
        "tap-w: {host: cap-w,", "tap-w: {host: emulation,", "tap-w: {host: emulation,",
        "tap 'tap-w': host: the machine of an emulated lab is called 'emulation' in every run; choose another name",
    ),
    (
        "  w2: {role", "  w1: {role: world-server}\n  w2: {role", "w1: {role: world-server}",
        "key 'w1' is here twice, first at line @w1: {role: world-server, ip@; keep one of them",
    ),
    (
        "wh: {role: world-whistle,", "wh: {role: world-special,", "wh: {role: world-special,",
        "host 'wh': role: host 'ws' (line @ws: {role@) already is the world-special; a lab has only one",
    ),
    # -- unknown names
    (
        "port: sw-w1/1}", "port: sw-w7/1}", "port: sw-w7/1}",
        "host 'w1': port: unknown switch 'sw-w7'; known switches: sw-w1, sw-w2, sw-c, sw-i",
    ),
    (
        "trunk: sw-c/10", "trunk: chain/10", "trunk: chain/10",
        "delay box 'delay': trunk: unknown switch 'chain'; known switches: sw-w1, sw-w2, sw-c, sw-i",
    ),
    ("sw-i: {dpid: 4, driver: ovs}", "sw-i: {dpid: 4, driver: ovz}", "ovz", "switch 'sw-i': driver: unknown driver 'ovz'; did you mean 'ovs'? known drivers: ovs, procurve-v1, procurve-v2, procurve-v3"),
    (
        "w1: {role: world-server,", "w1: {role: world-serve,", "world-serve,",
        "host 'w1': role: unknown role 'world-serve'; did you mean 'world-server'? "
        "known roles: world-server, world-special, world-whistle, island-client, island-special",
    ),
    ("sat: {kind: link", "sat: {kind: linc", "linc", "box 'sat': kind: unknown kind 'linc'; did you mean 'link'? known kinds: link, router, program, external, coder, pep"),
    ("ip: 10.10.0.1,", "ipp: 10.10.0.1,", "ipp", "host 'w1': unknown key 'ipp'; did you mean 'ip'? known keys: capacity, control, interface, ip, mac, mtu, port, role"),
    (
        "\nhosts:", "\nhost:  # misspelt", "# misspelt",
        "unknown key 'host'; did you mean 'hosts'? known keys: boxes, control, delay_boxes, hosts, learning_switches, name, networks, switches, "
        "taps, trunks",
    ),
    # -- addresses
    (
        "ip: 10.10.0.1,", "ip: 10.20.0.77,", "10.20.0.77",
        "host 'w1': ip: 10.20.0.77 is outside the world network 10.10.0.0/16; choose one inside, such as 10.10.0.1",
    ),
    (
        "ip: 10.20.0.1,", "ip: 10.20.255.255,", "10.20.255.255",
        "host 'i1': ip: 10.20.255.255 is the network's own or its broadcast address; choose another of 10.20.0.0/16",
    ),
    ("ip: 10.10.0.1,", "ip: 10.10.0.256,", "0.256", "host 'w1': ip: '10.10.0.256' is not an IPv4 address; write four numbers from 0 to 255, such as '10.10.0.1'"),
    ("ip: 10.10.0.1,", "ip: 224.0.0.1,", "224", "host 'w1': ip: '224.0.0.1' is multicast or reserved; choose an address that a host can have, such as '10.10.0.1'"),
    ("ip: 10.10.0.1,", "ip: 10.1,", "10.1,", "host 'w1': ip: the number 10.1 is not an IPv4 address, such as '10.10.0.1'; put it in quotes"),
    (
        "island: 10.20.0.0/16", "island: 10.0.0.0/8", "10.0.0.0/8",
        "networks: island: 10.0.0.0/8 overlaps the world's 10.10.0.0/16; choose networks that do not",
    ),
    ("world: 10.10.0.0/16", "world: 10.10.0.1/16", "0.1/16", "networks: world: '10.10.0.1/16' has host bits set; write '10.10.0.0/16'"),
    ("world: 10.10.0.0/16", "world: everything", "everything", "networks: world: 'everything' is not an IPv4 network; write address/prefix length, such as '10.10.0.0/16'"),
    # -- ports, numbers, quantities
    ("port: sw-w1/1}", "port: sw-w1}", "sw-w1}", "host 'w1': port: 'sw-w1' is not a switch port; write switch/number, such as 'sw-w1/1'"),
    ("port: sw-w1/1}", "port: sw-w1/65280}", "65280", "host 'w1': port: 'sw-w1/65280': OpenFlow ports have numbers from 1 to 65279"),
    ("port: sw-w1/1}", "port: 1}", "port: 1}", "host 'w1': port: the number 1 is not a switch port, such as 'sw-w1/1'; put it in quotes"),
    ("rtt-5: {vlan: 101,", "rtt-5: {vlan: 4095,", "4095", "delay box 'delay': class 'rtt-5': vlan: the number 4095 is not a whole number from 1 to 4094"),
    ("sw-i: {dpid: 4,", "sw-i: {dpid: true,", "true", "switch 'sw-i': dpid: true is not a whole number from 1 to 18446744073709551615"),
    ("sw-i: {dpid: 4,", "sw-i: {dpid: .nan,", "nan", "switch 'sw-i': dpid: the number nan is not a whole number from 1 to 18446744073709551615"),
    (
        "to: sw-c/1, rate: 1 Gbit/s", "to: sw-c/1, rate: 1 Gbps", "Gbps",
        "trunk 1: rate: '1 Gbps' is not a rate; did you mean 1 Gbit/s?",
    ),
    ("to: sw-c/1, rate: 1 Gbit/s", "to: sw-c/1, rate: 0 bit/s", "0 bit/s", "trunk 1: rate: '0 bit/s' is too small; it must be at least 1 kbit/s"),
    ("rtt: 5 ms", "rtt: 2 h", "2 h", "delay box 'delay': class 'rtt-5': rtt: '2 h' is too large; it must be at most 60 s"),
    ("rtt: 5 ms", "rtt: 5 ms, jitter: 3 ms", "jitter", "delay box 'delay': class 'rtt-5': jitter: 3 ms exceeds the delay each way; at most half the rtt: 2.5 ms"),
    # -- names and interfaces
    ("  w1: {", "  W1: {", "W1", "host 'W1': 'W1' is not a name; write a small letter, then small letters, digits and '-' (at most 63 in all)"),
    ("name: island", "name: 7", "name: 7", "name: the number 7 is not a name, such as 'sw-1'; put it in quotes"),
    (
        "  w1: {", "  world-server-1: {", "world-server-1",
        "host 'world-server-1': its interface would be named 'world-server-1-eth0', longer than 15 characters; "
        "shorten the name, or add 'interface: ...'",
    ),
    (
        "port: sw-w1/1}", "port: sw-w1/1, interface: Ethernet}", "Ethernet",
        "host 'w1': interface: 'Ethernet' is not an interface name; write 1 to 15 small letters, digits, '-', '.'",
    ),
    ("port: sw-w1/1}", "port: sw-w1/1, mac: '02:00'}", "'02:00'", "host 'w1': mac: '02:00' is not a MAC address; write six bytes such as '02:00:00:00:00:01'"),
    (
        "port: sw-w1/1}", "port: sw-w1/1, mac: '01:00:5e:00:00:01'}", "01:00:5e",
        "host 'w1': mac: '01:00:5e:00:00:01' is a group (multicast) MAC address; make its first byte even, such as "
        "'02'",
    ),
    ("port: sw-w1/1}", "port: sw-w1/1, mac: '00:00:00:00:00:00'}", "'00:00", "host 'w1': mac: '00:00:00:00:00:00' is no machine's address; write six bytes such as '02:00:00:00:00:01'"),
    ("port: sw-w1/1}", "port: sw-w1/1, mtu: 575}", "mtu", "host 'w1': mtu: the number 575 is not a whole number from 576 to 9216"),
    ("port: sw-w1/1}", "port: sw-w1/1, interface: all}", "interface: all", "host 'w1': interface: 'all' is the system's own word; choose a name such as 'eth0'"),
    ("port: sw-w1/1}", "port: sw-w1/1, interface: default}", "interface: default", "host 'w1': interface: 'default' is the system's own word; choose a name such as 'eth0'"),
    ("port: sw-w1/1}", "port: sw-w1/1, interface: lo}", "interface: lo", "host 'w1': interface: 'lo' is the system's own word; choose a name such as 'eth0'"),
    (
        "hosts:\n", "learning_switches:\n  lo: {uplink: sw-i/20, rate: 1 Gbit/s}\nhosts:\n", "lo: {uplink",
        "learning switch 'lo': its bridge would have this name, which is the system's own word; rename it",
    ),
    (
        "hosts:\n", "learning_switches:\n  sw-c: {uplink: sw-i/20, rate: 1 Gbit/s}\nhosts:\n", "sw-c: {uplink",
        "learning switch 'sw-c': line @sw-c: {dpid@ already gives this name to a switch; rename one",
    ),
    (
        "port: sw-w1/1}", "port: sw-w1/1, mac: '02:a7:00:01:00:02'}", "02:a7",
        "host 'w1': mac: 02:a7:00:01:00:02 is the default of host 'w2'; choose another or leave it out",
    ),
    (
        "world: sw-c/15, island: sw-c/16", "world: sw-c/15, island: {port: sw-c/16, interface: sat-w}", "interface: sat-w",
        "box 'sat': island: interface: sat's interface sat-w is already taken by box 'sat': world: interface (line "
        "@world: sw-c/15@); give it another name",
    ),
    # -- wiring
    (
        "  - {from: sw-i/24, to: sw-c/3, rate: 1 Gbit/s}\n", "", "sw-i: {dpid",
        "switch 'sw-i': no trunk connects it with the rest of the lab, so i1, i2, i3, i4, i5, i6, is cannot be "
        "reached; "
        "add one such as {from: sw-i/7, to: sw-c/3, rate: 1 Gbit/s}",
    ),
    ("from: sw-i/24, to: sw-c/3", "from: sw-c/30, to: sw-c/3", "sw-c/30", "trunk 3: both ends are on 'sw-c'; a trunk connects two switches"),
    # -- shapes
    ("port: sw-w1/1}", "port: [sw-w1/1]}", "[sw-w1", "host 'w1': port: a list is not a switch port, such as 'sw-w1/4'"),
    ("port: sw-w1/1}", "port: }", "port: }", "host 'w1': port: nothing is not a switch port, such as 'sw-w1/1'"),
    (", port: sw-w1/1}", "}", "10.10.0.1}", "host 'w1': port is missing; add 'port: sw-w1/1'"),
    ("role: world-special, ip", "rol: world-special, ip", "rol:", "host 'ws': unknown key 'rol'; did you mean 'role'? known keys: capacity, control, interface, ip, mac, mtu, port, role"),
    ("name: island\n", "", "networks:", "name is missing; add 'name: island'"),
    ("name: island\n", "name: island\nlinks: {}\n", "links", "unknown key 'links'; known keys: boxes, control, delay_boxes, hosts, learning_switches, name, networks, switches, taps, trunks"),
    ("name: island\n", "name: !secret island\n", "!secret", "tag !secret has no meaning here; remove it"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "where", "message"), MISTAKES, ids=[message for *_, message in MISTAKES])
def test_a_mistake_is_told_once_with_its_line_and_its_remedy(load, text, old, new, where, message):
    wrong = edited(text, (old, new))
    message = re.sub("@([^@]+)@", lambda words: str(line_of(wrong, words[1])), message)
    assert mistakes_of(load, wrong) == [f"lab.yaml:{line_of(wrong, where)}: {message}"]


OTHER_LAB = """\
name: other
networks: {world: 10.10.0.0/16, island: 10.20.0.0/16}
switches: {main: {dpid: 1, driver: ovs}, side: {dpid: 2, driver: ovs}}
trunks: [{from: main/1, to: side/1, rate: 1 Gbit/s}]
hosts: {a: {role: world-server, ip: 10.10.0.1, port: main/2}}
"""


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("boxes: {p: {kind: link, island: side/2}}", "box 'p': world is missing; add 'world: main/3'"),
        ("delay_boxes: {d: {rate: 1 Gbit/s, classes: {}}}", "delay box 'd': trunk is missing; add 'trunk: main/3'"),
        (
            "boxes: {p: {kind: router, world: main/3, island: side/2, spare: 1}}",
            "box 'p': spare: expected keys, such as 'spare: {world: main/4, island: main/5}'; found the number 1",
        ),
        (
            "boxes: 7",
            "boxes: expected keys, such as 'boxes: {sat: {kind: link, world: main/3, island: main/4}}'; found the number 7",
        ),
        (
            "delay_boxes: 7",
            "delay_boxes: expected keys, such as 'delay_boxes: "
            "{delay: {trunk: main/3, rate: 1 Gbit/s, classes: {rtt-20: {vlan: 102, rtt: 20 ms}}}}'; found the number 7",
        ),
        (
            "taps: {t: {host: cap, port: sid/2, cable: 5}}",
            "tap 't': cable: the number 5 is not a switch port, such as 'main/3'; put it in quotes",
        ),
        (
            "taps: {t: {host: cap, port: side}}",
            "tap 't': port: 'side' is not a switch port; write switch/number, such as 'side/2'",
        ),
    ],
)
def test_a_suggestion_names_free_ports_of_this_labs_switches(load, section, said):
    assert said in [mistake.partition(": ")[2] for mistake in mistakes_of(load, f"{OTHER_LAB}{section}\n")]


@pytest.mark.parametrize(
    ("mtus", "mistake"),
    [
        (
            ("mtu: 1400", "mtu: 1400", ""),
            "an MTU of 1400, and its delay box has one of 1500; write one mtu for the box",
        ),
        (
            ("mtu: 1400", "mtu: 1500", "mtu: 1400"),
            "an MTU of 1400, and its delay box has one of 1500; write one mtu for the box",
        ),
        (("mtu: 1544", "", ""), "an MTU of 1500, and its delay box has one of 1544; write one mtu for the box"),
        (("", "", "mtu: 1544"), ""),
        (("mtu: 1400", "mtu: 1400", "mtu: 1400"), ""),
    ],
)
def test_the_legs_of_a_delay_box_have_one_mtu(load, mtus, mistake):
    """Its program forwards frames between any of them. A trunk, too, is a leg."""
    world, island, box = (f", {mtu}" if mtu else "" for mtu in mtus)
    text = f"""{OTHER_LAB}
delay_boxes:
  d:
    trunk: main/7
    rate: 1 Gbit/s{box.replace(", ", chr(10) + "    ")}
    classes:
      rtt-5: {{rtt: 5 ms, vlan: 105}}
      rtt-9: {{rtt: 9 ms, world: {{port: main/5{world}}}, island: {{port: main/6{island}}}}}
"""
    if mistake:
        line = text[: text.index("rtt-9")].count("\n") + 1
        assert mistakes_of(load, text) == [f"lab.yaml:{line}: delay box 'd': class 'rtt-9': {mistake}"]
    else:
        load(text)


def test_an_example_of_a_trunk_connects_two_switches_of_this_lab(load):
    wrong = OTHER_LAB.replace("trunks: [{from: main/1, to: side/1, rate: 1 Gbit/s}]", "trunks: 7")
    assert mistakes_of(load, wrong) == [
        "lab.yaml:4: trunks: expected a list, such as 'trunks: [{from: main/1, to: side/1, rate: 1 Gbit/s}]'; "
        "found the number 7"
    ]


def test_all_mistakes_of_form_come_at_once_and_then_all_of_meaning_in_the_order_of_the_file(load, text):
    form = (
        ("world: 10.10.0.0/16", "world: 10.10.0.0"),
        ("sw-w2: {dpid: 2, driver: ovs}", "sw-w2: {dpid: 1, driver: nvs}"),
        ("to: sw-c/1, rate: 1 Gbit/s", "to: sw-c/1, rate: fast"),
        ("role: island-special", "role: island-specialist"),
    )
    meaning = (
        ("sw-w2: {dpid: 2,", "sw-w2: {dpid: 1,"),
        ("ip: 10.10.0.2,", "ip: 10.10.0.3 ,"),
        ("sat: {kind: link, world: sw-c/15", "sat: {kind: link, world: sw-d/15"),
        ("vlan: 106", "vlan: 105"),
    )
    for wrong, words in (
        (edited(text, *form, *meaning[1:]), ["10.10.0.0\n", "nvs", "fast", "island-specialist"]),
        (edited(text, *meaning), ["sw-w2: {dpid: 1,", "10.10.0.3,", "sw-d", "rtt-200"]),
    ):
        lines = [int(mistake.split(":")[1]) for mistake in mistakes_of(load, wrong)]
        assert lines == [line_of(wrong, word) for word in words]


def test_what_could_not_be_read_causes_no_further_mistakes(load, text):
    """Nothing is said of the ports of a switch that is there but wrong, nor of the role a host would have had."""
    wrong = edited(text, ("sw-c: {dpid: 3, driver: ovs}", "sw-c: {dpid: three, driver: ovs}"), ("10.10.0.1,", "10.10,"))
    assert [mistake.split(": ", 1)[1] for mistake in mistakes_of(load, wrong)] == [
        "switch 'sw-c': dpid: 'three' is not a whole number from 1 to 18446744073709551615",
        "host 'w1': ip: the number 10.1 is not an IPv4 address, such as '10.10.0.1'; put it in quotes",
    ]


def test_a_class_with_one_port_is_one_mistake(load, text):
    """Its port is used: a splitter may be in its cable, and no remedy proposes it."""
    wrong = edited(
        text,
        ("rtt-5: {vlan: 101,", "rtt-5: {world: sw-c/4,"),
        ("host: cap-i, port: sw-c/22", "host: cap-i, cable: sw-c/4"),
        ("world: sw-c/15,", "world: sw-c/3,"),
    )
    assert [mistake.split(": ", 1)[1] for mistake in mistakes_of(load, wrong)] == [
        f"box 'sat': world: port: port sw-c/3 is already taken by trunk 3: to (line {line_of(wrong, 'sw-i/24')}); "
        "free is sw-c/5",
        "delay box 'delay': class 'rtt-5': write either vlan (a tag on the trunk), or world and island (two ports of "
        "its own)",
    ]


def test_a_mac_address_given_twice_is_a_mistake_whatever_its_letters(load, text):
    wrong = edited(
        text,
        ("ip: 10.10.0.1, port: sw-w1/1}", "ip: 10.10.0.1, port: sw-w1/1, mac: '0a:00:00:00:00:0b'}"),
        ("world: sw-c/15,", "world: {port: sw-c/15, mac: '0A:00:00:00:00:0B'},"),
    )
    first = line_of(wrong, "'0a:00")
    assert mistakes_of(load, wrong) == [
        f"lab.yaml:{line_of(wrong, '0A:00')}: box 'sat': world: mac: MAC address 0a:00:00:00:00:0b is already taken by "
        f"host 'w1': mac (line {first}); give each interface its own, or leave it out"
    ]


def test_a_class_and_its_vlan_belong_to_one_delay_box(load, text):
    second = "  delay-2:\n    trunk: sw-c/23\n    rate: 1 Gbit/s\n    classes: {rtt-5: {vlan: 106, rtt: 5 ms}}\n\ntaps:"
    wrong = edited(text, ("\ntaps:", second))
    here, there = line_of(wrong, "classes: {rtt-5"), line_of(wrong, "rtt-200")
    assert mistakes_of(load, wrong) == [
        f"lab.yaml:{here}: delay box 'delay-2': class 'rtt-5': class rtt-5 is already taken by "
        f"delay box 'delay': class 'rtt-5' (line {line_of(wrong, 'rtt-5: {vlan: 101')}); choose another name",
        f"lab.yaml:{here}: delay box 'delay-2': class 'rtt-5': vlan: VLAN id 106 is already taken by "
        f"delay box 'delay': class 'rtt-200': vlan (line {there}); give each class its own",
    ]


def test_a_switch_name_is_short_enough_for_an_interface(load):
    name = "switch-of-island"
    assert mistakes_of(
        load,
        f"name: tiny\nnetworks: {{world: 10.1.0.0/24, island: 10.2.0.0/24}}\nhosts: {{}}\nswitches:\n  {name}: "
        f"{{dpid: 1, driver: ovs}}",
    ) == [f"lab.yaml:5: switch '{name}': the name is longer than 15 characters, an interface's most; shorten it"]


def test_a_lab_in_several_parts_names_the_smaller_ones_and_what_is_lost_with_them(load, text):
    wrong = edited(
        text,
        ("  - {from: sw-w2/24, to: sw-c/2, rate: 1 Gbit/s}\n", ""),
        ("  - {from: sw-i/24, to: sw-c/3, rate: 1 Gbit/s}\n", ""),
        ("island: sw-c/16}", "island: sw-i/16}"),
    )
    answer = mistakes_of(load, wrong)
    assert [mistake.split(" cannot")[0].split(", so ")[1] for mistake in answer] == [
        "w4, w5, w6, wh",
        "i1, i2, i3, i4, i5, i6, is, sat",
    ]


def test_any_order_of_sections_gives_the_same_network(load, text):
    sections = re.split(r"\n(?=[a-z_]+:)", text)
    assert load("\n".join([sections[0], *sorted(sections[1:], reverse=True)]) + "\n") == load(text)


def test_a_twin_is_as_in_the_profile_or_has_settings(load, text):
    """`true`, or the keys that differ; a switch without the key has none."""
    network = load(
        edited(
            text,
            ("sw-w1: {dpid: 1, driver: ovs}", "sw-w1: {dpid: 1, driver: procurve-v2, twin: true}"),
            (
                "sw-c: {dpid: 3, driver: ovs}",
                "sw-c: {dpid: 3, driver: procurve-v1, twin: {lag_max: 5 s, refuses: false}}",
            ),
        )
    )
    assert [switch.twin for switch in network.switches] == [
        TwinSettings(),
        None,
        TwinSettings(lag_max=Duration.parse("5 s"), refuses=False),
        None,
    ]


@pytest.mark.parametrize(
    ("switch", "mistake"),
    [
        (
            "driver: ovs, twin: true",
            "driver ovs has no twin; drivers that have one: procurve-v1, procurve-v2, procurve-v3",
        ),
        ("driver: procurve-v2, twin: {lag_min: 2 s, lag_max: 1 s}", "2 s is above lag_max, 1 s"),
        ("driver: procurve-v2, twin: {lag: 2 s}", "unknown key 'lag'"),
        ("driver: procurve-v2, twin: {flow_mods_per_s: -1}", "-1 is not a whole number from 0"),
    ],
)
def test_a_twin_that_cannot_be_is_refused(load, text, switch, mistake):
    (line,) = mistakes_of(load, edited(text, ("sw-c: {dpid: 3, driver: ovs}", f"sw-c: {{dpid: 3, {switch}}}")))
    assert line.startswith("lab.yaml:12: ")
    assert mistake in line

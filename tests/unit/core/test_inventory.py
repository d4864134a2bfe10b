# SPDX-License-Identifier: Apache-2.0
"""Inventories: what they must say of a lab, and the lab as it stands in a rack."""

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from atoll_cli.commands.check import check
from atoll_cli.commands.selection import lab_target, network_on
from atoll_core.codec import from_json, to_json
from atoll_core.description.json_schema import SCHEMAS
from atoll_core.description.loader import load_lab
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.errors import DescriptionError, UsageError
from atoll_core.lab.inventory import Inventory, apply_inventory, interface_slots, split_target
from atoll_core.lab.network import Network
from atoll_core.platforms import VIRTUAL
from tests.unit.core.test_json_schema import schema

RIGHT = """
controller: {address: 192.168.100.1}
ssh: {user: root, known_hosts: known_hosts, jump: gate}
machines:
  w1: {ssh: 10.0.0.11, interface: eth1}
  ws: {ssh: lab@10.0.0.12:2222, interface: {name: eth1, mac: "02:00:00:00:00:12"}, jump: other, sudo: true}
  wh: {ssh: whistle, interface: eth1}
  i1: {ssh: 10.0.0.14, interface: eth1}
  is: {ssh: 10.0.0.15, interface: eth1}
  pep: {ssh: 10.0.0.16, interfaces: {world: eth1, island: eth2}}
  sat: {ssh: 10.0.0.17, interfaces: {world: eth1, island: eth2}}
  cap: {ssh: 10.0.0.18, interfaces: {tap-w: eth1, tap-i: eth2}}
switches:
  sw-w: {dpid: 0x77}
"""


@pytest.fixture
def lab(project: Path) -> Network:
    return load_lab(project / "tests/data/rack-lab.yaml")


def read(tmp_path: Path, text: str, lab: Network | None) -> Inventory:
    (tmp_path / "rack.yaml").write_text(text)
    return load_inventory(tmp_path / "rack.yaml", lab)


def mistakes(tmp_path: Path, text: str, lab: Network | None) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        read(tmp_path, text, lab)
    return [f"{one.line}: {one.message}" for one in refused.value.mistakes]


def test_what_a_machine_does_not_say_is_as_for_all(tmp_path: Path, lab: Network) -> None:
    inventory = read(tmp_path, RIGHT, lab)
    assert (inventory.address, inventory.port) == (IPv4Address("192.168.100.1"), 6653)
    first, second = inventory.machine("w1").access, inventory.machine("ws").access
    assert (first.user, first.host, first.port, first.jump, first.sudo) == ("root", "10.0.0.11", None, "gate", False)
    assert (second.user, second.host, second.port, second.jump) == ("lab", "10.0.0.12", 2222, "other")
    assert second.sudo
    assert first.known_hosts == str(tmp_path / "known_hosts")
    assert from_json(Inventory, to_json(inventory)) == inventory


def test_the_lab_stands_with_real_names_and_addresses(tmp_path: Path, lab: Network) -> None:
    inventory = read(tmp_path, RIGHT, lab)
    macs = {(machine, slot): f"06:00:00:00:{number:02x}:{place:02x}" for number, (machine, named) in
            enumerate(interface_slots(lab).items()) for place, slot in enumerate(named)}  # fmt: skip
    here = apply_inventory(lab, inventory, macs)
    assert here.host("w1").interface.name == "eth1"
    assert here.host("w1").interface.mac == macs["w1", "interface"]
    assert (here.box("sat").world.name, here.box("sat").island.name) == ("eth1", "eth2")
    assert here.tap("tap-i").interface.mac == macs["cap", "tap-i"]
    assert [switch.dpid for switch in here.switches] == [0x77, 2]
    assert here.host("w1").interface.attached == lab.host("w1").interface.attached, "cables are lab.yaml's"


def test_a_host_with_in_band_control_is_reached_by_its_control_address(tmp_path: Path, lab: Network) -> None:
    in_band = {"i1": IPv4Address("10.0.0.14"), "w1": IPv4Address("10.0.0.77")}
    hosts = tuple(replace(host, control=in_band.get(host.name)) for host in lab.hosts)
    with pytest.raises(DescriptionError) as refused:
        read(tmp_path, RIGHT, replace(lab, hosts=hosts))
    (line,) = str(refused.value).splitlines()
    assert line.endswith("w1: its 'control' in lab.yaml is 10.0.0.77, and this is 10.0.0.11; correct one of them")


def test_a_rack_has_capacities_of_its_own(tmp_path: Path, lab: Network) -> None:
    """What the inventory says goes before lab.yaml, which holds where it says nothing."""
    declared = replace(lab, hosts=tuple(replace(h, capacity=3.0) if h.name == "i1" else h for h in lab.hosts))
    assert apply_inventory(declared, read(tmp_path, RIGHT, declared), {}).host("i1").capacity == 3.0
    stronger = RIGHT.replace("i1: {", "i1: {capacity: 0.5, ")
    assert apply_inventory(declared, read(tmp_path, stronger, declared), {}).host("i1").capacity == 0.5


def test_a_plan_for_a_rack_has_its_names_and_capacities(tmp_path: Path, lab: Network, project: Path) -> None:
    """`atoll plan --inventory`: nothing is reached for it. An inventory means hardware and nothing else."""
    read(tmp_path, RIGHT.replace("i1: {", "i1: {capacity: 7, "), lab)
    network = network_on(lab_target(tmp_path / "rack.yaml", planning_only=True), lab)
    assert (network.host("i1").interface.name, network.host("i1").capacity) == ("eth1", 7.0)
    with pytest.raises(UsageError, match="--inventory needs --on hardware, not --on virtual"):
        lab_target(tmp_path / "rack.yaml", VIRTUAL)


def test_without_asking_the_machines_their_addresses_are_the_inventorys(tmp_path: Path, lab: Network) -> None:
    """Or else, as a plan on paper has nothing better, those of lab.yaml."""
    here = apply_inventory(lab, read(tmp_path, RIGHT, lab), {})
    assert here.host("ws").interface.mac == "02:00:00:00:00:12"
    assert here.host("w1").interface.mac == lab.host("w1").interface.mac


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (("w1: {ssh: 10.0.0.11, interface: eth1}", ""), "machine 'w1' of lab small is missing"),
        (("w1: {", "w9: {ssh: 10.0.0.99, interface: eth1}\n  w1: {"), "5: unknown machine 'w9' in lab small"),
        (("10.0.0.14", "10.0.0.11"), "8: i1 and w1 are both root@10.0.0.11; each machine has one role in the lab"),
        (("world: eth1, island: eth2", "world: eth1, island: eth1"), "10: pep: the same interface is used twice"),
        (("{world: eth1, island: eth2}", "{world: eth1}"), "10: pep: no interface for island; write 'pep: {ssh"),
        (("interfaces: {tap-w: eth1, tap-i: eth2}", "interface: eth1"), "12: cap: no interface for tap-i, tap-w"),
        (("dpid: 0x77", "dpid: 2"), "datapath id 2 is both sw-w's and sw-i's"),
        (("sw-w:", "sw-x:"), "14: unknown switch 'sw-x' in lab small; did you mean 'sw-w'?"),
        (
            ("lab@10.0.0.12:2222", "lab@10.0.0.12 -p 2222"),
            "6: machine 'ws': ssh: 'lab@10.0.0.12 -p 2222' is not an SSH",
        ),
        (("interface: eth1}\n  is", "interface: eth1/0}\n  is"), "8: machine 'i1': interface: name: 'eth1/0' is not"),
        (("i1: {", "i1: {capacity: -1, "), "8: machine 'i1': capacity: the number -1 is not a capacity"),
        (("w1: {", "w1: {capacity: 2, "), "5: w1: only island clients have channels; remove it"),
        (("controller: {address: 192.168.100.1}", ""), "controller is missing; add 'controller: {address: 192"),
        (
            ("10.0.0.12:2222", "10.0.0.12:70000"),
            "6: machine 'ws': ssh: 'lab@10.0.0.12:70000' is not an SSH target [user@]host[:port], port 1 to 65535",
        ),
        (("10.0.0.12:2222", "10.0.0.12:0"), "6: machine 'ws': ssh: 'lab@10.0.0.12:0' is not an SSH target"),
        (("jump: gate}", "jump: 'gate:65536'}"), "3: ssh: jump: 'gate:65536' is not an SSH target"),
        (
            ("i1: {ssh: 10.0.0.14, interface: eth1", "i1: {ssh: 10.0.0.14, interface: lo"),
            "8: machine 'i1': interface: ",
        ),
        (
            ("interface: {name: eth1,", "interface: {name: all,"),
            "6: machine 'ws': interface: name: 'all' is not the name of an interface, such as 'eth1'",
        ),
        (
            ("address: 192.168.100.1", "address: 10.10.0.1"),
            "2: controller: 10.10.0.1 is in the world network 10.10.0.0/16 of the lab; write its address on the",
        ),
        (("10.0.0.14", "10.20.0.14"), "8: i1: 10.20.0.14 is in the island network 10.20.0.0/16 of the lab; write its"),
        (("jump: other", "jump: lab@10.20.0.9"), "6: ws: 10.20.0.9 is in the island network 10.20.0.0/16 of the lab;"),
        (("jump: gate", "jump: 10.10.9.9"), "3: ssh: 10.10.9.9 is in the world network 10.10.0.0/16 of the lab; write"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, lab: Network, wrong: tuple[str, str], answer: str) -> None:
    assert wrong[0] in RIGHT
    found = mistakes(tmp_path, RIGHT.replace(*wrong, 1), lab)
    assert any(answer in mistake for mistake in found), found


def test_all_mistakes_are_told_at_once(tmp_path: Path, lab: Network) -> None:
    text = RIGHT.replace("10.0.0.14", "10.0.0.11").replace("dpid: 0x77", "dpid: 2").replace("sw-w:", "sw-i:")
    assert len(mistakes(tmp_path, text.replace("island: eth2}}\n  sat", "island: eth1}}\n  sat"), lab)) == 2


def test_the_shipped_inventory_is_right_and_names_its_schema(project: Path) -> None:
    file = project / "examples/rack/inventory.yaml"
    text = file.read_text(encoding="utf-8")
    assert "inventory.schema.json" in SCHEMAS
    jsonschema.validate(YAML(typ="safe", pure=True).load(text), schema("inventory.schema.json"))
    load_inventory(file, load_lab(project / "emulation/labs/island.yaml"))
    assert (file.parent / text.partition("$schema=")[2].splitlines()[0]).resolve().is_file()


@pytest.mark.parametrize(
    ("text", "parts"),
    [("h", (None, "h", None)), ("u@h:22", ("u", "h", 22)), ("a@b@h", ("a@b", "h", None)), ("h:1", (None, "h", 1))],
)
def test_targets_are_split_as_ssh_does(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert split_target(text) == parts


def test_check_holds_an_inventory_against_the_labs_of_the_files(project: Path, capsys: pytest.CaptureFixture) -> None:
    inventory = project / "examples/rack/inventory.yaml"
    assert check([project / "examples/geo.yaml"], as_json=False, inventory=inventory) == 0
    assert "inventory for lab island: 23 machines, controller at 192.168.100.1" in capsys.readouterr().out
    assert check([project / "tests/data/rack.yaml"], as_json=False, inventory=inventory) == 2
    assert "machine 'pep' of lab small is missing" in capsys.readouterr().err

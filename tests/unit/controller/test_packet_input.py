# SPDX-License-Identifier: Apache-2.0
"""``atoll trace --packet``: packets as layers, as hexadecimal digits and in capture files."""

import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.utils import wrpcap

from atoll_cli.commands.trace import print_packet_trace
from atoll_controller.tracing.packet_input import read_packet
from atoll_controller.tracing.table_model import Frame
from atoll_core.errors import MachineError, UsageError

WORLD, ISLAND = IPv4Address("10.10.1.1"), IPv4Address("10.20.1.1")
UDP_FRAME = Frame(WORLD, ISLAND, None, 17)
PACKET = IP(src=str(WORLD), dst=str(ISLAND)) / UDP(dport=53)
TAGGED = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / Dot1Q(vlan=7) / PACKET


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('IP(src="10.10.1.1", dst="10.20.1.1")/UDP(dport=53)', UDP_FRAME),
        ("IP()/UDP(dport='domain')/Raw(load=b'question')", UDP_FRAME),
        ("IP(dst='10.20.1.9')/TCP(flags='S')", Frame(WORLD, IPv4Address("10.20.1.9"), None, 6)),
        ("IP()/ICMP()", Frame(WORLD, ISLAND, None, 1)),
        ("IP(proto=47)", Frame(WORLD, ISLAND, None, 47)),
        ("Ether()/Dot1Q(vlan=7)/IP()/UDP()", replace(UDP_FRAME, vlan=7)),
        ("Dot1Q(vlan=7)/IP()/UDP()", replace(UDP_FRAME, vlan=7)),
    ],
)
def test_layers_are_a_packet_and_take_missing_addresses_from_the_hosts(text: str, frame: Frame) -> None:
    assert read_packet(text, WORLD, ISLAND) == frame


def test_hexadecimal_digits_are_a_frame_or_an_ip_packet() -> None:
    """With blanks, colons or a 0x; hosts do not change the addresses that are there."""
    assert read_packet(bytes(PACKET).hex(), ISLAND, WORLD) == UDP_FRAME
    assert read_packet(bytes(PACKET).hex(" ", 2)) == UDP_FRAME
    assert read_packet("0x" + bytes(TAGGED).hex()) == replace(UDP_FRAME, vlan=7)
    assert read_packet(bytes(TAGGED).hex(":")) == replace(UDP_FRAME, vlan=7)


def test_a_capture_file_has_one_packet(tmp_path: Path) -> None:
    """With an Ethernet header or without one."""
    file = tmp_path / "one.pcap"
    for packet, frame in ((TAGGED, replace(UDP_FRAME, vlan=7)), (PACKET, UDP_FRAME)):
        wrpcap(str(file), [packet])
        assert read_packet(str(file)) == frame
    for packets, wrong in (([TAGGED, TAGGED], "has several packets"), ([], "has no packet")):
        wrpcap(str(file), packets, linktype=1)
        with pytest.raises(UsageError, match=f"^--packet: {file} {wrong}"):
            read_packet(str(file))
    file.write_text("name: geo\n")
    with pytest.raises(UsageError, match=f"^--packet: {file} cannot be read as a capture file: "):
        read_packet(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("IP(", "'IP(' is no packet; give layers, such as IP("),
        ("", "'' is no packet; give layers"),
        ("w1", "w1 is no layer; give layers"),
        ("IP()*UDP()", "IP() * UDP() is no layer; give layers"),
        ("IPv6()", "no layer 'IPv6'; did you mean 'IP'? known layers: Ether, "),
        ("IP(dts=1)", "IP has no field 'dts'; did you mean "),
        ("IP(**{'ttl': 1})", "IP takes its values by name, such as IP(version=...)"),
        ("IP('x')", "IP takes its values by name"),
        ("IP(ttl=999)", "IP: While building field 'ttl'"),
        ("/".join(["IP()"] * 600), "600 layers: too many; give at most 32"),
        ("Dot1Q(vlan=5000)/IP()", "Dot1Q: vlan=5000 is not possible; the packet would have vlan=904"),
        ("IP(version=6)/UDP()", "this is not an IPv4 packet"),
        ("IP(dst='example.org')", "IP: dst='example.org' is not an IPv4 address"),
        ("IP()/ICMP(gw='example.org')", "ICMP: gw='example.org' is not an IPv4 address"),
        ("IP()/UDP(dport='nothing')", "UDP: unknown name 'nothing'"),
        ("UDP()", "this is not an IPv4 packet with at most one VLAN tag"),
        ("Dot1Q()/Dot1Q()/IP()", "this is not an IPv4 packet with at most one VLAN tag"),
        ("4500", "2 bytes are no Ethernet frame"),
        (bytes(Ether() / ARP()).hex(), "this is not an IPv4 packet with at most one VLAN tag"),
    ],
)
def test_what_is_no_packet_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_packet(text, WORLD, ISLAND)
    assert str(refusal.value).startswith(f"--packet: {message}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "value", ["open('{}', 'w')", "[open('{}', 'w')][0]", "f\"{{open('{}', 'w')}}\"", "dst", "[1, 2]", "True"]
)
def test_values_are_never_evaluated(value: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(UsageError, match=r"is neither a number nor a text in quotes$"):
        read_packet(f"IP(ttl={value.format(made)})", WORLD, ISLAND)
    assert not made.exists()


@pytest.mark.parametrize("field", ["src", "dst"])
def test_addresses_are_never_guessed(field: str) -> None:
    """Scapy would take them from the routes of this machine."""
    with pytest.raises(UsageError, match=f"^--packet: IP has no {field}; give {field}=..., or the host$"):
        read_packet("IP()", *((None, ISLAND) if field == "src" else (WORLD, None)))


def test_a_missing_scapy_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scapy.layers.inet", None)
    with pytest.raises(MachineError, match=r"^--packet needs Scapy; `pip install 'atoll\[scapy\]'` installs it$"):
        read_packet("IP()", WORLD, ISLAND)


def test_no_other_command_loads_scapy() -> None:
    """It takes a quarter of a second, and is under another licence."""
    loaded = "import sys; import atoll_cli.main, atoll_cli.commands.trace; print('scapy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "False\n"
    )


@pytest.fixture
def geo(project: Path) -> Path:
    """An experiment: ``ws`` has 10.10.1.1, ``is`` 10.20.1.1."""
    return project / "examples" / "geo.yaml"


def test_a_packet_is_traced_from_the_host_that_has_its_source(geo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_packet_trace(geo, 'IP(src="10.20.1.1", dst="10.10.1.1", proto=47)', None, None, as_json=False) == 0
    assert capsys.readouterr().out.startswith("IP protocol 47 from is to ws takes chain main: one way at least 250 ms")
    assert print_packet_trace(geo, "IP()/UDP(dport=53)", "w1", "i1", as_json=False) == 0
    assert capsys.readouterr().out.startswith("udp from w1 to i1 takes chain main: one way at least 252.5 ms")


def test_a_packet_with_strange_addresses_or_a_tag_shows_where_it_ends(
    geo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_packet_trace(geo, 'IP(dst="9.9.9.9")/TCP()', "w1", None, as_json=False) == 1
    assert "tcp from w1 to 9.9.9.9 takes chain main: it does not arrive at 9.9.9.9" in capsys.readouterr().out
    assert print_packet_trace(geo, "Dot1Q(vlan=7)/IP()/TCP()", "w1", "i1", as_json=False) == 1
    assert "drop  VLAN 7  drop  no entry matches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ((None, None), "--packet is from 1.2.3.4, which no host has; name the host that sends it as SRC"),
        (("w1", "i2"), "--packet is for 10.20.1.1, which is not the address of i2; leave i2 out"),
    ],
)
def test_hosts_that_do_not_fit_a_packet(geo: Path, hosts: tuple[str | None, str | None], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        print_packet_trace(geo, 'IP(src="1.2.3.4", dst="10.20.1.1")', *hosts, as_json=False)
    assert str(refusal.value) == message

# SPDX-License-Identifier: Apache-2.0
"""docs/contracts.md, "flows and pcap": records as the decoder writes them are records as the analysis reads them."""

import os
import subprocess
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import numpy as np
import pytest
import zstandard
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, wrpcap

from atoll_analysis.tables.packet_records import RECORD, decode
from atoll_core.errors import RunError
from atoll_hosts.binary import find_binary

WORLD, ISLAND = "10.10.0.1", "10.20.0.2"
ISLAND_SIDE = IPv4Network("10.20.0.0/16")


def frames() -> list[Packet]:
    """A frame of every kind that a capture of the lab may hold, one second apart."""
    data = Ether() / IP(src=WORLD, dst=ISLAND, id=77) / TCP(sport=5001, dport=40000, seq=2**32 - 50, ack=9, flags="PA")
    packets = [
        data / Raw(bytes(100)),
        data / Raw(bytes(100)),
        Ether() / IP(src=ISLAND, dst=WORLD) / TCP(sport=40000, dport=5001, flags="A", window=123),
        Ether() / ARP(),
        Ether() / Dot1Q(vlan=101) / IP(src=WORLD, dst=ISLAND) / UDP(sport=1, dport=2) / Raw(bytes(9)),
        Ether() / IP(src=WORLD, dst=ISLAND) / ICMP(type=8, id=4711, seq=3) / Raw(bytes(56)),
    ]
    for second, packet in enumerate(packets):
        packet.time = 1_600_000_000 + second
    return packets


def test_records_read_as_they_were_written(tmp_path: Path) -> None:
    """Every field of the layout, through the zstd compression that captures are kept in."""
    plain, packed, out = tmp_path / "a.pcap", tmp_path / "a.pcap.zst", tmp_path / "a.bin"
    wrpcap(str(plain), frames(), nano=True)
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    done = decode(packed, out, ISLAND_SIDE, find_binary())
    assert (done.packets, done.other_frames, done.truncated) == (5, 1, False)
    records = np.fromfile(out, RECORD)
    held = {name: records[name].tolist() for name in records.dtype.names or () if name != "reserved"}
    world, island = int(IPv4Address(WORLD)), int(IPv4Address(ISLAND))
    assert held == {
        "t_ns": [(1_600_000_000 + second) * 10**9 for second in (0, 1, 2, 4, 5)],
        "src": [world, world, island, world, world],
        "dst": [island, island, world, island, island],
        "ip_bytes": [140, 140, 40, 37, 84],
        "payload_bytes": [100, 100, 0, 9, 56],
        "new_payload_bytes": [100, 0, 0, 0, 0],
        "seq": [2**32 - 50, 2**32 - 50, 0, 0, 0],
        "ack": [9, 9, 0, 0, 0],
        "flow": [0, 0, 0, 1, 2],
        "window": [8192, 8192, 123, 0, 0],
        "sport": [5001, 5001, 40000, 1, 4711],
        "dport": [40000, 40000, 5001, 2, 3],
        "ip_id": [77, 77, 1, 1, 1],
        "vlan": [0, 0, 0, 101, 0],
        "proto": [6, 6, 6, 17, 1],
        "tcp_flags": [24, 24, 16, 0, 0],
        "to_island": [1, 1, 0, 1, 1],
        "icmp_type": [0, 0, 0, 0, 8],
    }
    assert all(record[-8:].tobytes() == bytes(8) for record in np.split(np.frombuffer(out.read_bytes(), "u1"), 5))


def test_packets_of_in_band_control_are_left_out_in_both_directions(tmp_path: Path) -> None:
    """A tap in a cable of control captures them; those of the experiment and ARP are as without them."""
    plain, out = tmp_path / "a.pcap", tmp_path / "a.bin"
    ends = {"src": "192.168.10.1", "dst": "192.168.10.31"}
    control = [
        Ether() / IP(**ends) / TCP(sport=40001, dport=22) / Raw(bytes(9)),
        Ether() / IP(src=ends["dst"], dst=ends["src"]) / TCP(sport=22, dport=40001),
        Ether() / ARP(psrc=ends["dst"], pdst=ends["src"]),
    ]
    experiment = frames()
    wrpcap(str(plain), [control[0], *experiment, *control[1:]], nano=True)
    for without, packets, others in ((None, 7, 2), (IPv4Network("192.168.10.0/24"), 5, 4)):
        done = decode(plain, out, ISLAND_SIDE, find_binary(), control_network=without)
        assert (done.packets, done.other_frames) == (packets, others)
        assert len(np.fromfile(out, RECORD)) == packets
    world, island = int(IPv4Address(WORLD)), int(IPv4Address(ISLAND))
    ends = {(int(record["src"]), int(record["dst"])) for record in np.fromfile(out, RECORD)}
    assert ends == {(world, island), (island, world)}


def test_a_capture_cut_in_its_last_frame_is_read_to_there(tmp_path: Path) -> None:
    """The figure that the verdict needs is `truncated`."""
    plain, out = tmp_path / "a.pcap", tmp_path / "a.bin"
    wrpcap(str(plain), frames())
    plain.write_bytes(plain.read_bytes()[:-10])
    done = decode(plain, out, ISLAND_SIDE, find_binary())
    assert (done.packets, done.truncated) == (4, True)
    assert len(np.fromfile(out, RECORD)) == 4


def test_a_decoder_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    """It waits for the rest of a pipe, in which more has been written than the pipe and the decoder's buffer hold."""
    whole, pipe, out = tmp_path / "a.pcap", tmp_path / "pipe", tmp_path / "out.bin"
    wrpcap(str(whole), frames())
    content = whole.read_bytes()
    os.mkfifo(pipe)
    with subprocess.Popen([find_binary(), "pcap", "records", pipe, out]) as decoder, pipe.open("wb") as end:
        end.write(content + content[24:] * 10_000)
        end.flush()
        decoder.kill()
        decoder.wait()
    assert sorted(tmp_path.iterdir()) == [whole, pipe]


def test_pcapng_gives_the_records_of_pcap(tmp_path: Path) -> None:
    pcap, pcapng = tmp_path / "a.pcap", tmp_path / "a.pcapng"
    wrpcap(str(pcap), frames())
    writer = PcapNgWriter(str(pcapng))
    writer.write(frames())
    writer.close()
    for capture in (pcap, pcapng):
        decode(capture, capture.with_suffix(f"{capture.suffix}.bin"), ISLAND_SIDE, find_binary())
    assert (tmp_path / "a.pcapng.bin").read_bytes() == (tmp_path / "a.pcap.bin").read_bytes()


def test_what_is_no_capture_is_refused_on_one_line(tmp_path: Path) -> None:
    """Nothing is written."""
    capture, out = tmp_path / "a.pcap", tmp_path / "a.bin"
    capture.write_text("text")
    with pytest.raises(RunError, match="is not a capture file"):
        decode(capture, out, ISLAND_SIDE, find_binary())
    assert not out.exists()
    refused = subprocess.run([find_binary(), "pcap", "records"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "Usage: atoll-host pcap records <IN> [OUT.bin]" in refused.stderr

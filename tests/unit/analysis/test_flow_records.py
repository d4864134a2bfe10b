# SPDX-License-Identifier: Apache-2.0
"""Flow records of other programs become flow sizes; real output of the real programs (tests/data/flow-records/make)."""

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from atoll_analysis.importers.flow_records import FlowFilter, Format, import_flows
from atoll_core.errors import DescriptionError
from atoll_hosts.binary import find_binary
from tests.support.sandbox import ATOLL

RECORDS = Path(__file__).parents[2] / "data" / "flow-records"
ISLAND = FlowFilter(IPv4Network("10.20.0.0/16"), "tcp")
# Two hosts fetched 100, 100, 1000, 1000, 5000, 20000 bytes each; with 20 bytes of IPv4 and 32 of TCP in each packet,
# 40 of TCP in that with SYN.
DOWNLOADS = Counter({368: 4, 1268: 4, 5268: 2, 20268: 2})
REQUESTS = Counter({276: 12})  # 8 bytes each

FILES = {
    "nfdump.csv": Format.NFDUMP,
    "argus.csv": Format.ARGUS,
    "conn.log": Format.ZEEK,
    "sample.pcap": Format.PCAP,
}


@pytest.mark.parametrize(("name", "form"), FILES.items())
def test_downloads_have_their_sizes_whoever_recorded_them(name: str, form: Format) -> None:
    found = import_flows(RECORDS / name, None, ISLAND, find_binary)
    assert (found.file_format, found.counts, found.damaged) == (form, DOWNLOADS, 0)
    assert import_flows(RECORDS / name, form, FlowFilter(None, "tcp"), find_binary).counts == DOWNLOADS + REQUESTS


@pytest.mark.parametrize("name", FILES)
def test_datagrams_are_flows_too(name: str) -> None:
    """Three of 400 bytes from one port to each host: some recorders make one flow of them, some three."""
    counts = import_flows(RECORDS / name, None, FlowFilter(ISLAND.to, "udp"), find_binary).counts
    assert sum(size * count for size, count in counts.items()) == 6 * 428


def test_zeek_logs_may_be_json_and_zipped(tmp_path: Path) -> None:
    lines = (RECORDS / "conn.log").read_text().splitlines()
    names = next(line for line in lines if line.startswith("#fields")).split("\t")[1:]
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines if not line.startswith("#")]
    for row in rows:
        row |= {name: int(row[name]) for name in ("orig_ip_bytes", "resp_ip_bytes")}
    (tmp_path / "conn.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert import_flows(tmp_path / "conn.json", None, ISLAND, find_binary).counts == DOWNLOADS
    (tmp_path / "conn.log.gz").write_bytes(gzip.compress((RECORDS / "conn.log").read_bytes()))
    assert import_flows(tmp_path / "conn.log.gz", None, ISLAND, find_binary).counts == DOWNLOADS


@pytest.mark.parametrize("name", ["nfdump.csv", "argus.csv", "conn.log"])
def test_damaged_records_are_left_out_and_told(name: str, tmp_path: Path) -> None:
    lines = (RECORDS / name).read_text().splitlines()
    wanted = next(
        number for number, line in enumerate(lines) if "10.20.0.1" in line and "5001" in line and "#" not in line
    )
    lines[wanted] = lines[wanted][:40]
    (tmp_path / name).write_text("\n".join(lines))
    found = import_flows(tmp_path / name, None, FlowFilter(None, "tcp"), find_binary)
    assert found.damaged == 1
    assert found.first_damage.startswith(f"{tmp_path / name}:{wanted + 1}: ")
    assert "cells where the header names" in found.first_damage
    assert found.counts.total() in (22, 23)  # of one direction or of both


def test_the_header_of_nfdump_since_1_7_5_is_read() -> None:
    found = import_flows(RECORDS / "nfdump-1.7.5.csv", None, FlowFilter(IPv4Network("10.20.0.0/16")), find_binary)
    assert (found.file_format, found.counts, found.excluded, found.damaged) == (
        Format.NFDUMP,
        Counter([14230, 180]),
        1,
        0,
    )


def test_a_damaged_gzip_is_one_line() -> None:
    path = RECORDS / "zeek-damaged.log.gz"
    with pytest.raises(DescriptionError) as refused:
        import_flows(path, None, FlowFilter(), find_binary)
    assert re.fullmatch(rf"{path}(:\d+: after this line|:) the compressed file is damaged; .*", str(refused.value))


@pytest.mark.parametrize("name", ["nfdump.csv", "argus.csv", "conn.log"])
def test_a_cut_gzip_is_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    packed = gzip.compress((RECORDS / name).read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DescriptionError, match=rf"^{path}.*the compressed file is damaged; copy or export it again$"):
        import_flows(path, None, FlowFilter(), find_binary)


def test_a_cut_gzip_of_a_capture_is_read_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "sample.pcap.gz"
    packed = gzip.compress((RECORDS / "sample.pcap").read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    assert [*import_flows(path, None, FlowFilter(), find_binary).warnings] == [
        "the capture ends in the middle of a packet, which was left out"
    ]


@pytest.mark.parametrize("name", FILES)
def test_files_may_be_compressed_or_come_through_a_pipe(name: str, tmp_path: Path) -> None:
    content = (RECORDS / name).read_bytes()
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    assert import_flows(tmp_path / f"{name}.gz", None, ISLAND, find_binary).counts == DOWNLOADS
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    assert import_flows(tmp_path / "pipe", None, ISLAND, find_binary).counts == DOWNLOADS
    writer.join()


@pytest.mark.parametrize("name", ["nfdump.csv", "argus.csv", "conn.log"])
def test_files_one_after_the_other_and_a_byte_order_mark_are_read(name: str, tmp_path: Path) -> None:
    text = (RECORDS / name).read_text()
    other = text.replace("10.20.0.", "10.20.1.")
    (tmp_path / name).write_text(f"\ufeff{text}{other}", encoding="utf-8")
    found = import_flows(tmp_path / name, None, ISLAND, find_binary)
    assert (found.counts, found.damaged) == (DOWNLOADS + DOWNLOADS, 0)


def test_a_zeek_header_within_a_log_names_the_columns_from_there(tmp_path: Path) -> None:
    lines = (RECORDS / "conn.log").read_text().splitlines()
    (tmp_path / "conn.log").write_text(
        "\n".join([*lines, *("\t".join([line.split("\t")[0], "x", *line.split("\t")[1:]]) for line in lines)])
    )
    found = import_flows(tmp_path / "conn.log", None, ISLAND, find_binary)
    assert (found.counts, found.damaged) == (DOWNLOADS + DOWNLOADS, 0)


def argus_records(capture: Path, folder: Path) -> str:
    argus = shutil.which("argus", path="/usr/sbin:/usr/bin") or ""
    subprocess.run([argus, "-r", str(capture), "-w", str(folder / "argus")], capture_output=True, check=True)
    return str(folder / "argus")


def argus_csv(program: str, records: str) -> bytes:
    columns = "proto,saddr,sport,daddr,dport,stime,ltime,spkts,dpkts,sbytes,dbytes,state"
    argv = [program, "-u", "-n", "-c", ",", "-r", records, "-s", columns, "-", "ip"]
    return subprocess.run(argv, capture_output=True, check=True).stdout


def connection(begin_s: float, client: str, port: int, packets: int, size: int) -> Iterator[Packet]:
    """A download from 198.51.100.7 with a packet each second."""
    up, down = ({"src": client, "dst": "198.51.100.7"}, {"src": "198.51.100.7", "dst": client})

    def packet(at_s: float, addresses: dict[str, str], flags: str, seq: int, size: int = 0) -> Packet:
        sport, dport = (port, 443) if addresses is up else (443, port)
        made = (
            Ether()
            / IP(**addresses)
            / TCP(sport=sport, dport=dport, flags=flags, seq=seq + 100_000 * round(begin_s))
            / Raw(bytes(size))
        )
        made.time = 1_700_000_000 + begin_s + at_s
        return made

    yield packet(0, up, "S", 0)
    yield packet(0.1, down, "SA", 0)
    for number in range(packets):
        yield packet(number + 0.2, down, "PA", 1 + number * size, size)
        yield packet(number + 0.3, up, "A", 1)
    yield packet(packets, down, "FA", 1 + packets * size)
    yield packet(packets + 0.1, up, "FA", 1)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of a flow of ten minutes, of short ones, and of datagrams."""
    packets = [
        *connection(0, "10.20.0.1", 40001, 600, 500),
        *connection(5, "10.20.0.1", 40002, 3, 700),
        *connection(7, "10.20.0.2", 40003, 90, 300),
    ]
    for second in range(3):
        made = Ether() / IP(src="198.51.100.9", dst="10.20.0.2") / UDP(sport=53, dport=5555) / Raw(bytes(200))
        made.time = 1_700_000_050 + second
        packets.append(made)
    other = Ether() / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=1, dport=2) / Raw(bytes(50))
    other.time = 1_700_000_060
    path = tmp_path_factory.mktemp("traffic") / "traffic.pcap"
    wrpcap(str(path), sorted([*packets, other], key=lambda packet: packet.time))
    return path


def download(packets: int, size: int) -> int:
    """IP bytes of a connection to its client."""
    return packets * (40 + size) + 2 * 40


TO_ISLAND = Counter([download(600, 500), download(3, 700), download(90, 300), 3 * 228])


def test_a_capture_has_whole_flows(traffic: Path) -> None:
    assert import_flows(traffic, None, FlowFilter(ISLAND.to), find_binary).counts == TO_ISLAND


@pytest.mark.skipif(not shutil.which("nfpcapd"), reason="nfdump is not here (apt install nfdump)")
@pytest.mark.parametrize("aggregated", [[], ["-a"]], ids=["active timeout", "aggregated"])
def test_nfdump_and_its_newer_header_have_the_flows_of_the_capture(
    traffic: Path, aggregated: list[str], tmp_path: Path
) -> None:
    (tmp_path / "flows").mkdir()
    subprocess.run(["nfpcapd", "-r", str(traffic), "-w", str(tmp_path / "flows")], capture_output=True, check=True)
    argv = ["nfdump", "-R", str(tmp_path / "flows"), *aggregated, "-o", "csv"]
    text = subprocess.run(argv, capture_output=True, check=True, text=True).stdout
    table = [line.split(",") for line in text.partition("Summary")[0].splitlines()]
    place = {name: number for number, name in enumerate(table[0])}
    names = "firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort,packets,bytes,flows"
    rows = [
        [row[place[name]] for name in ("ts", "td", "pr", "sa", "sp", "da", "dp", "ipkt", "ibyt")] for row in table[1:]
    ]
    newer = "\n".join([names, *(",".join([*row, "1"]) for row in rows)])
    for header, csv in (("old", text), ("new", newer)):
        (tmp_path / f"{header}.csv").write_text(csv)
        found = import_flows(tmp_path / f"{header}.csv", None, FlowFilter(ISLAND.to), find_binary)
        assert (found.counts, found.damaged) == (TO_ISLAND, 0)
        assert (found.joined > 0) == (not aggregated)


@pytest.mark.skipif(
    not shutil.which("argus", path="/usr/sbin:/usr/bin") or not shutil.which("ra"), reason="no Argus here"
)
@pytest.mark.parametrize("program", ["ra", "racluster"])
def test_argus_has_the_flows_of_the_capture(traffic: Path, program: str, tmp_path: Path) -> None:
    records = argus_records(traffic, tmp_path)
    (tmp_path / "now.csv").write_bytes(argus_csv(program, records))
    found = import_flows(tmp_path / "now.csv", None, FlowFilter(ISLAND.to), find_binary)
    assert (found.counts, found.damaged) == (TO_ISLAND, 0)
    assert (found.joined > 100) == (program == "ra")


@dataclass
class ZeekConnection:
    """A connection as Zeek keeps it: two endpoints, the packets and IP bytes of each, and whether each has ended."""

    protocol: str
    ends: tuple[tuple[str, int], tuple[str, int]]  # the originator first
    begin_s: float
    last_s: float
    packets: list[int] = field(default_factory=lambda: [0, 0])
    ip_bytes: list[int] = field(default_factory=lambda: [0, 0])
    closed: set[int] = field(default_factory=set[int])


def zeek_log(capture: Path) -> str:
    """The conn.log of a capture, not by Zeek, which is in none of the package sources, but by its documentation.

    A record is a connection of any length in both directions, `base/protocols/conn/main.zeek`. It begins with its
    first packet, whose sender is the originator, and ends after a FIN of each side, or when it is idle for
    `tcp_inactivity_timeout` (5 min) or `udp_inactivity_timeout` (1 min), `base/init-bare.zeek`. `orig_ip_bytes` and
    `resp_ip_bytes` are the lengths of IP packets. Connections of IPv6 are logged, too.
    """
    idle_s = {"tcp": 300.0, "udp": 60.0}
    live: dict[object, ZeekConnection] = {}
    logged: list[ZeekConnection] = []
    for packet in rdpcap(str(capture)):
        ip = packet[IP] if IP in packet else packet[IPv6]
        protocol, at_s = "tcp" if TCP in packet else "udp", float(packet.time)
        here, there = (ip.src, ip.payload.sport), (ip.dst, ip.payload.dport)
        key = (protocol, frozenset((here, there)))
        known = live.get(key)
        if known is None or (len(known.closed) == 2 and ip.payload.flags.S) or at_s > known.last_s + idle_s[protocol]:
            known = live[key] = ZeekConnection(protocol, (here, there), at_s, at_s)
            logged.append(known)
        side = known.ends.index(here)
        known.last_s = at_s
        known.packets[side] += 1
        known.ip_bytes[side] += len(ip)
        if protocol == "tcp" and ip.payload.flags.F:
            known.closed.add(side)
    names = (
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto duration orig_pkts orig_ip_bytes resp_pkts resp_ip_bytes"
    )
    lines = ["#separator \\x09", "#path\tconn", "\t".join(["#fields", *names.split()])]
    for number, each in enumerate(logged):
        ends = (str(part) for end in each.ends for part in end)
        counts = (str(part) for pair in zip(each.packets, each.ip_bytes, strict=True) for part in pair)
        times = f"{each.begin_s:.6f}", f"{each.last_s - each.begin_s:.6f}"
        lines.append("\t".join([times[0], f"C{number}", *ends, each.protocol, times[1], *counts]))
    return "\n".join([*lines, "#close\t2023-11-14-22-25-00\n"])


def test_a_log_by_the_rules_of_zeek_has_the_flows_of_the_capture(traffic: Path, tmp_path: Path) -> None:
    """Flows of both directions are those of the capture itself."""
    log = tmp_path / "conn.log"
    log.write_text(zeek_log(traffic))
    found = import_flows(log, None, FlowFilter(ISLAND.to), find_binary)
    assert (found.file_format, found.counts, found.damaged) == (Format.ZEEK, TO_ISLAND, 0)
    everything = import_flows(traffic, None, FlowFilter(), find_binary)
    assert import_flows(log, None, FlowFilter(), find_binary).counts == everything.counts


@pytest.mark.skipif(
    not shutil.which("argus", path="/usr/sbin:/usr/bin") or not shutil.which("ra"), reason="no Argus here"
)
def test_connections_on_ports_that_were_used_before_are_flows_of_their_own(tmp_path: Path) -> None:
    """In a capture, in records of `ra` and in a log of Zeek; `racluster` adds them up."""
    packets = [*connection(0, "10.20.0.1", 40002, 3, 700), *connection(15, "10.20.0.1", 40002, 4, 700)]
    wrpcap(str(tmp_path / "a.pcap"), sorted(packets, key=lambda packet: packet.time))
    (tmp_path / "ra.csv").write_bytes(argus_csv("ra", argus_records(tmp_path / "a.pcap", tmp_path)))
    (tmp_path / "conn.log").write_text(zeek_log(tmp_path / "a.pcap"))
    for name in ("a.pcap", "ra.csv", "conn.log"):
        counts = import_flows(tmp_path / name, None, FlowFilter(ISLAND.to), find_binary).counts
        assert counts == Counter([download(3, 700), download(4, 700)])


RECORD = "2026-11-21 16:{},{},TCP,1.2.3.4,1,10.20.0.1,2,{},{}"


@pytest.mark.parametrize(
    ("records", "sizes"),
    [
        ([("00:00", 300, "....S.", 5), ("05:01", 300, "......", 6), ("10:02", 9, ".....F", 7)], [18]),
        ([("05:01", 300, "......", 6), ("00:00", 300, "....S.", 5)], [11]),  # in any order
        ([("00:00", 1, "....SF", 5), ("00:02", 1, "....SF", 6)], [5, 6]),  # another connection
        ([("00:00", 1, "......", 5), ("01:30", 1, "......", 6)], [5, 6]),  # idle for longer than exporters wait
        ([("00:00", 1, "..R...", 5), ("00:02", 1, "......", 6)], [5, 6]),  # ended
    ],
)
def test_records_that_continue_a_flow_are_joined(
    records: list[tuple[str, int, str, int]], sizes: list[int], tmp_path: Path
) -> None:
    lines = [RECORD.format(begin, lasts, flags, size) for begin, lasts, flags, size in records]
    (tmp_path / "a.csv").write_text("\n".join(["ts,td,pr,sa,sp,da,dp,flg,ibyt", *lines]))
    found = import_flows(tmp_path / "a.csv", None, FlowFilter(), find_binary)
    assert (found.counts, found.joined) == (Counter(sizes), len(records) - len(sizes))


def test_fragments_of_a_datagram_are_of_its_flow(tmp_path: Path) -> None:
    datagrams = [
        IP(src="198.51.100.9", dst="10.20.0.1", id=number) / UDP(sport=53, dport=5556) / Raw(bytes(3000))
        for number in (7, 8)
    ]
    frames = [Ether() / part for datagram in datagrams for part in fragment(datagram, fragsize=1400)]
    wrpcap(str(tmp_path / "a.pcap"), frames)
    found = import_flows(tmp_path / "a.pcap", None, FlowFilter(), find_binary)
    assert found.counts == Counter([2 * (3 * 20 + 8 + 3000)])


def test_a_capture_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "cut.pcap").write_bytes((RECORDS / "sample.pcap").read_bytes()[:-30])
    found = import_flows(tmp_path / "cut.pcap", None, ISLAND, find_binary)
    assert found.truncated
    assert found.counts == DOWNLOADS


OLD = "ts,td,pr,sa,sp,da,dp,ibyt\n"  # nfdump's names before 1.7.5
AT = "2026-11-21 16:13:24,0.5"
ARGUS_CLOCK = (
    "Proto,SrcAddr,Sport,DstAddr,Dport,StartTime,LastTime,SrcPkts,DstPkts,SrcBytes,DstBytes",
    "tcp,10.20.0.1,36733,10.20.0.2,5001,16:13:24.564406,16:13:24.567967,5,5,346,438",
)

REFUSED = [
    ("", None, ":1: its first line has no known format; name the format: --format, one of nfdump, argus, zeek, pcap"),
    (
        "a,b\n1,2\n",
        None,
        ":1: its first line has no known format; name the format: --format, one of nfdump, argus, zeek, pcap",
    ),
    ("a,b\n1,2\n", Format.NFDUMP, ":1: there is no column firstSeen; export with: nfdump -r FILE -o csv (without -q)"),
    (OLD, None, ": has no flow to import: no record"),
    (
        f"{OLD}{AT},TCP,1.2.3.4,1,5.6.7.8,2,9\n",
        None,
        ": has no flow to import: none of its flows is of IPv4 and matches --to and --protocol",
    ),
    (
        f"{OLD}{AT},TCP,1.2.3.4,1,10.20.0.1,2,many\n",
        None,
        ":2: has no flow to import: ibyt is 'many', not a whole number",
    ),
    (f"{OLD}{AT},TCP,1.2.3.4,1,::1,2,9\n", None, ": has no flow to import: none of its flows is of IPv4 and matches"),
    (f"{OLD}{AT},TCP,1.2.3.4,1,x.y,2,9\n", None, ":2: has no flow to import: 'x.y' does not appear to be an IPv4 or"),
    (
        f"{OLD}1.1.2026,1,TCP,1.2.3.4,1,10.20.0.1,2,9\n",
        None,
        "ts is '1.1.2026'; write a time such as 2025-06-27 19:30:01.100",
    ),
    ("pr,sa,da,ibyt\nTCP,1.2.3.4,5.6.7.8,9\n", None, ":1: there is no column firstSeen; export with: nfdump -r FILE"),
    (
        "Proto,SrcAddr,DstAddr,SrcPkts,DstPkts,SrcBytes,DstBytes\n",
        None,
        ":1: there is no column Sport; export with: ra",
    ),
    ("\n".join(ARGUS_CLOCK), None, "'16:13:24.564406' is no time in seconds; export with: ra -u -n -c ,"),
    (f"{OLD}{'x' * 200_000}\n", None, ":2: has no flow to import: 1 cells where the header names 8 columns"),
    (f"{OLD}{AT},TCP,1.2.3.4,1,{'x' * 200_000},2,9\n", None, "2: has no flow to import: 'xxx"),
    ("x" * 200_000, None, ":1: its first line has no known format"),
    ("#separator \\x09\n#path conn\n", None, "there is no line '#fields'; a conn.log begins with such lines"),
    ('{"ts": 1}\n', None, "has no flow to import: a column is missing"),
    ("\n\r\r\n", None, "has no IPv4 packets of the selected flows"),
]


@pytest.mark.parametrize(("text", "form", "message"), REFUSED, ids=[message[-60:] for *_, message in REFUSED])
def test_what_holds_nothing_is_refused_in_one_line(
    text: str, form: Format | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(text.encode())
    with pytest.raises(DescriptionError) as refused:
        import_flows(path, form, ISLAND, find_binary)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_capture_of_another_link_type_is_bad_input(tmp_path: Path) -> None:
    """113: Linux cooked, of `tcpdump -i any`."""
    cooked = tmp_path / "cooked.pcap"
    cooked.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 113))
    with pytest.raises(DescriptionError, match="has link type 113, not Ethernet; capture on one interface"):
        import_flows(cooked, None, ISLAND, find_binary)


def test_the_verb_writes_a_distribution_that_an_experiment_reads_and_draws_it(tmp_path: Path) -> None:
    argv = [ATOLL, "distributions", "import", str(RECORDS / "argus.csv"), "--to", "10.20.0.0/16", "--protocol", "tcp"]
    argv += ["--out", "sizes.csv", "--plot", "sizes.png"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "format: argus, records: 16, flows: 12, left out: 16, damaged: 0" in done.stdout
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "sizes.csv").read_text()
    assert text.splitlines() == [
        "# made by: atoll distributions import argus.csv --format argus --to 10.20.0.0/16 --protocol tcp",
        "size_bytes,count",
        *(f"{size},{count}" for size, count in sorted(DOWNLOADS.items())),
    ]
    shown = subprocess.run(
        [ATOLL, "distributions", "show", "sizes.csv", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["quantiles"]["0.5"] == 1268


@pytest.mark.skipif(not shutil.which("nfpcapd"), reason="nfdump is not here (apt install nfdump)")
def test_what_nfdump_makes_of_the_capture_today_is_read_as_the_committed_file(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    capture = str(RECORDS / "sample.pcap")
    subprocess.run(["nfpcapd", "-r", capture, "-w", str(tmp_path / "flows")], capture_output=True, check=True)
    text = subprocess.run(
        ["nfdump", "-R", str(tmp_path / "flows"), "-o", "csv"], capture_output=True, check=True
    ).stdout
    (tmp_path / "now.csv").write_bytes(text)
    assert import_flows(tmp_path / "now.csv", None, ISLAND, find_binary).counts == DOWNLOADS


@pytest.mark.skipif(
    not shutil.which("argus", path="/usr/sbin:/usr/bin") or not shutil.which("ra"), reason="no Argus here"
)
def test_what_argus_makes_of_the_capture_today_is_read_as_the_committed_file(tmp_path: Path) -> None:
    (tmp_path / "now.csv").write_bytes(argus_csv("ra", argus_records(RECORDS / "sample.pcap", tmp_path)))
    assert import_flows(tmp_path / "now.csv", None, ISLAND, find_binary).counts == DOWNLOADS

# SPDX-License-Identifier: Apache-2.0
"""Flow records of other programs become flow sizes; real output of the real programs (tests/data/flow-records/make)."""

import gzip
import json
import shutil
import struct
import subprocess
from collections import Counter
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from atoll_analysis.importers.flow_records import Form, Wanted, import_flows
from atoll_core.errors import DescriptionError
from atoll_hosts.binary import find_binary
from tests.support.sandbox import ATOLL

RECORDS = Path(__file__).parents[2] / "data" / "flow-records"
ISLAND = Wanted(IPv4Network("10.20.0.0/16"), "tcp")
# Two hosts fetched 100, 100, 1000, 1000, 5000, 20000 bytes each; with 20 bytes of IPv4 and 32 of TCP in each packet,
# 40 of TCP in that with SYN.
DOWNLOADS = Counter({368: 4, 1268: 4, 5268: 2, 20268: 2})
REQUESTS = Counter({276: 12})  # 8 bytes each

FILES = {
    "nfdump.csv": Form.NFDUMP,
    "argus.csv": Form.ARGUS,
    "conn.log": Form.ZEEK,
    "sample.pcap": Form.PCAP,
}


@pytest.mark.parametrize(("name", "form"), FILES.items())
def test_downloads_have_their_sizes_whoever_recorded_them(name: str, form: Form) -> None:
    found = import_flows(RECORDS / name, None, ISLAND, find_binary)
    assert (found.form, found.counts, found.damaged) == (form, DOWNLOADS, 0)
    assert import_flows(RECORDS / name, form, Wanted(None, "tcp"), find_binary).counts == DOWNLOADS + REQUESTS


@pytest.mark.parametrize("name", FILES)
def test_datagrams_are_flows_too(name: str) -> None:
    """Three of 400 bytes from one port to each host: some recorders make one flow of them, some three."""
    counts = import_flows(RECORDS / name, None, Wanted(ISLAND.to, "udp"), find_binary).counts
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
    found = import_flows(tmp_path / name, None, Wanted(None, "tcp"), find_binary)
    assert found.damaged == 1
    assert found.first_damage.startswith(f"{tmp_path / name}:{wanted + 1}: ")
    assert "cells where the header names" in found.first_damage
    assert found.counts.total() in (22, 23)  # of one direction or of both


def test_a_capture_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "cut.pcap").write_bytes((RECORDS / "sample.pcap").read_bytes()[:-30])
    found = import_flows(tmp_path / "cut.pcap", None, ISLAND, find_binary)
    assert found.truncated
    assert found.counts == DOWNLOADS


REFUSED = [
    ("", None, ":1: its first line has no known format; name the format: --format, one of nfdump, argus, zeek, pcap"),
    (
        "a,b\n1,2\n",
        None,
        ":1: its first line has no known format; name the format: --format, one of nfdump, argus, zeek, pcap",
    ),
    ("a,b\n1,2\n", Form.NFDUMP, ":1: there is no column pr; export with: nfdump -r FILE -o csv (without -q)"),
    ("pr,sa,da,ibyt\n", None, ": has no flow to import: no record"),
    (
        "pr,sa,da,ibyt\nTCP,1.2.3.4,5.6.7.8,9\n",
        None,
        ": has no flow to import: none of its flows matches --to and --protocol",
    ),
    (
        "pr,sa,da,ibyt\nTCP,1.2.3.4,10.20.0.1,many\n",
        None,
        ":3: has no flow to import: 'many' is not a number of bytes or packets",
    ),
    ("pr,sa,da,ibyt\nTCP,1.2.3.4,::1,9\n", None, "(an IPv4 address)"),
    ("#separator \\x09\n#path conn\n", None, "there is no line '#fields'; a conn.log begins with such lines"),
    ('{"ts": 1}\n', None, "has no flow to import: a column is missing"),
    ("\n\r\r\n", None, "is pcapng; make pcap of it: editcap -F pcap records.csv records.pcap"),
]


@pytest.mark.parametrize(("text", "form", "message"), REFUSED, ids=[message[-60:] for *_, message in REFUSED])
def test_what_holds_nothing_is_refused_in_one_line(text: str, form: Form | None, message: str, tmp_path: Path) -> None:
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
    assert "format: argus, records: 18, flows: 12, left out: 16, damaged: 0" in done.stdout
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
    records = str(tmp_path / "argus")
    argus = shutil.which("argus", path="/usr/sbin:/usr/bin") or ""
    subprocess.run([argus, "-r", str(RECORDS / "sample.pcap"), "-w", records], capture_output=True, check=True)
    columns = "proto,saddr,daddr,spkts,dpkts,sbytes,dbytes"
    text = subprocess.run(["ra", "-n", "-c", ",", "-r", records, "-s", columns], capture_output=True, check=True).stdout
    (tmp_path / "now.csv").write_bytes(text)
    assert import_flows(tmp_path / "now.csv", None, ISLAND, find_binary).counts == DOWNLOADS

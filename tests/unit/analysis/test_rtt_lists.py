# SPDX-License-Identifier: Apache-2.0
"""RTTs of real servers become the latencies of a few world servers."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from atoll_analysis.importers.rtt_lists import partitions, read_rtts, server_rtts
from atoll_core.description.loader import load_experiment
from tests.support.sandbox import ATOLL

# iputils 20221126: ping -c 3 localhost; ping -n -c 2 127.0.0.2; one that nobody answers; -f of busybox's kind
PING = """\
PING localhost (127.0.0.1) 56(84) bytes of data.
64 bytes from localhost (127.0.0.1): icmp_seq=1 ttl=64 time=0.021 ms
64 bytes from localhost (127.0.0.1): icmp_seq=2 ttl=64 time=0.049 ms
64 bytes from localhost (127.0.0.1): icmp_seq=3 ttl=64 time=0.035 ms

--- localhost ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 2041ms
rtt min/avg/max/mdev = 0.021/0.035/0.049/0.011 ms
PING 127.0.0.2 (127.0.0.2) 56(84) bytes of data.
64 bytes from 127.0.0.2: icmp_seq=1 ttl=64 time=12.5 ms
64 bytes from 127.0.0.2: icmp_seq=2 ttl=64 time=13.5 ms

--- 127.0.0.2 ping statistics ---
2 packets transmitted, 2 received, 0% packet loss, time 1001ms
rtt min/avg/max/mdev = 12.500/13.000/13.500/0.500 ms
PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.
From 10.0.0.1 icmp_seq=1 Destination Host Unreachable
no answer yet for icmp_seq=2

--- 192.0.2.1 ping statistics ---
2 packets transmitted, 0 received, +1 errors, 100% packet loss, time 1023ms
"""


def test_of_each_target_that_ping_reached_the_median_counts() -> None:
    found = read_rtts([("pings.txt", PING)])
    assert found.mistakes == ()
    assert found.sorted_ms() == (0.035, 13.0)


def test_what_ping_prints_today_is_read() -> None:
    try:
        done = subprocess.run(
            ["ping", "-c", "3", "-i", "0.01", "127.0.0.1"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("ping does not run here")
    found = read_rtts([("now", done.stdout)])
    assert found.mistakes == ()
    assert len(found.sorted_ms()) == 1


@pytest.mark.parametrize(
    "text",
    ["1.5\n2\n\n# a remark\n30\n", "rtt_ms\n30\n1.5\n2\n", "target,rtt_ms\na,1\na,1.5\na,9\nb,30\nc,2\n"],
    ids=["numbers", "numbers under a name", "targets"],
)
def test_lists_of_rtts_are_read(text: str) -> None:
    found = read_rtts([("rtts.csv", text)])
    assert (found.sorted_ms(), found.mistakes) == ((1.5, 2.0, 30.0), ())


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("\ufeff1.5\n2\n", (1.5, 2.0)),
        ("2001:db8::1,1.5\n2001:db8::2,2\n2001:db8::1,2.5\n", (2.0, 2.0)),
        ('"a, a city",1.5\n"b","2"\n', (1.5, 2.0)),
        ("ziel;rtt_ms\na;23,1\na;25,1\nb;7\n", (7.0, 24.1)),  # a spreadsheet of a locale with decimal commas
        ("time,host,rtt_ms\n10:00,a,1\n11:00,a,2\n10:00,b,9\n", (1.5, 9.0)),
        ("rtt_ms,target\n1,a\n2,a\n9,b\n", (1.5, 9.0)),
        ("target,rtt_ms\n23,1\n23,2\n7.5,9\n", (1.5, 9.0)),  # numbers are names where the header says so
        ("vlan,rtt_ms\n23,1\n23,2\n", (1.5,)),
        ("time,ip,rtt_ms\n1700000000.5,4,2\n", (2.0,)),
        ("# of today\n\ntime,server,rtt,ttl\n10:00,a,1,64\n", (1.0,)),
    ],
)
def test_columns_are_those_that_the_header_names(text: str, ms: tuple[float, ...]) -> None:
    found = read_rtts([("rtts.csv", text)])
    assert (found.sorted_ms(), found.mistakes) == (ms, ())


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "23,1\n",
            ":1: '23,1' is ambiguous: with a decimal comma write 23.1, or name the columns in ",
        ),
        ("ziel,zeit\n23,1\n", ":2: '23,1' is ambiguous: "),
        ("1,23.1\n", ":1: '1,23.1' is ambiguous: "),
        ("1700000000.5,23.1\n", ":1: '1700000000.5,23.1' is ambiguous: "),
        ("a,20.0,23.1\n", ":1: 'a,20.0,23.1' has 3 columns; name them in a first line, such as time,target,rtt_ms"),
        (
            "time,target,rtt_ms\n1,a,timeout\n",
            ":2: '1,a,timeout' has 'timeout' as RTT; write milliseconds, such as 612.3, or remove the line",
        ),
        ("time,host,jitter\n1,a,2\n", ":1: 'time,host,jitter' names 3 columns, none of them rtt_ms; "),
        ("rtt_ms,time,city\n2,1,a\n", ":1: 'rtt_ms,time,city' names 3 columns, none of them target; "),
        ("target,rtt_ms\na,b,2\n", ":2: 'a,b,2' has 3 columns, but the first line names 2"),
        ("2026-11-28 10:00:00,23.1\n", ":1: '2026-11-28 10:00:00,23.1' begins with a time, not with a target; "),
        ("10:00,23.1\n", ":1: '10:00,23.1' begins with a time, not with a target; "),
        ("target,rtt_s\na,0.02\n", ":1: 'target,rtt_s' names another unit; RTTs are in milliseconds, column rtt_ms"),
        ("target,rtt (us)\na,20000\n", ":1: 'target,rtt (us)' names another unit; "),
        ("a;b;23,1\n", ":1: 'a;b;23,1' has 3 columns; "),
    ],
)
def test_a_line_that_may_be_misread_is_refused(text: str, mistake: str) -> None:
    found = read_rtts([("rtts.csv", text)])
    assert found.sorted_ms() == ()
    assert str(found.mistakes[0]).startswith(f"rtts.csv{mistake}")


REPLIES = """\
64 bytes from 2001:db8::1: icmp_seq=1 ttl=55 time=20.5 ms
64 bytes from ns.example.net (2001:db8::2): icmp_seq=1 ttl=55 time=30.5 ms
[1764324000.123456] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=55 time=40 ms
2026-11-28 10:00:00 PING 192.0.2.2 (192.0.2.2) 56(84) bytes of data.
2026-11-28 10:00:00 64 bytes from 192.0.2.2: icmp_seq=1 ttl=55 time=50 ms
2026-11-28 10:00:09 --- 192.0.2.2 ping statistics ---
PING 192.0.2.3 (192.0.2.3) 56(84) Bytes Daten.
64 Bytes von 192.0.2.3: icmp_seq=1 ttl=55 Zeit=60,5 ms
64 Bytes von server (192.0.2.4): icmp_seq=1 ttl=55 Zeit=70,5 ms
--- 192.0.2.3 ping-Statistik ---
2 Pakete übertragen, 2 empfangen, 0% Paketverlust, Zeit 1001ms
64 octets de 192.0.2.5 : icmp_seq=1 ttl=55 temps=80,5 ms
2 paquets transmis, 2 reçus, 0% packet loss, time 1001ms
64 bytes from 192.0.2.6: seq=0 ttl=64 time=90.050 ms
"""


def test_replies_of_ping_in_other_locales_of_ipv6_and_with_dates_are_read() -> None:
    found = read_rtts([("pings.txt", REPLIES)])
    assert found.mistakes == ()
    assert found.sorted_ms() == (20.5, 30.5, 40.0, 50.0, 60.5, 70.5, 80.5, 90.05)


def test_what_is_no_rtt_is_told_with_its_line() -> None:
    found = read_rtts([("a.txt", "1\n2 ms\n"), ("b.txt", "5\n\nfar\n-3\n")])
    what = "neither output of ping nor an RTT in milliseconds; write 612.3 or TARGET,612.3"
    assert [str(mistake) for mistake in found.mistakes] == [
        f"a.txt:2: '2 ms' is {what}",
        f"b.txt:3: 'far' is {what}",
        f"b.txt:4: '-3' is {what}",
    ]


def test_partitions_have_equal_counts_and_servers_their_medians() -> None:
    assert [len(part) for part in partitions(tuple(range(20)), 6)] == [3, 3, 4, 3, 3, 4]
    assert server_rtts((1, 2, 3, 10, 20, 30, 100, 150, 300), 3) == [2, 20, 150]
    assert server_rtts((1, 3), 1) == [2]


def test_the_verb_makes_latency_classes_that_a_lab_and_an_experiment_take(tmp_path: Path, project: Path) -> None:
    draw = random.Random(1)
    rtts = [draw.lognormvariate(4.3, 0.8) for _ in range(600)]
    (tmp_path / "rtts.txt").write_text("".join(f"{rtt:.3f}\n" for rtt in rtts))
    argv = [ATOLL, "latencies", "import", "rtts.txt", "--servers", "6", "--out", "latencies.yaml", "--plot", "rtts.png"]
    done = subprocess.run([*argv, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    ordered = sorted(round(rtt, 3) for rtt in rtts)
    assert answer["rtt_ms"]["w1"] == pytest.approx((ordered[49] + ordered[50]) / 2)
    assert (tmp_path / "rtts.png").read_bytes().startswith(b"\x89PNG")

    made = (tmp_path / "latencies.yaml").read_text()
    classes, latency = made.partition("classes:\n")[2].split("\n\n# in experiment.yaml\n")
    lab = (project / "emulation" / "labs" / "island.yaml").read_text()
    begin = lab.index("    classes:\n") + len("    classes:\n")
    end = lab.index("\n\n", begin)
    indented = "".join(f"    {line}\n" for line in classes.splitlines())
    (tmp_path / "lab.yaml").write_text(lab[:begin] + indented.rstrip("\n") + lab[end:])
    geo = (project / "examples" / "geo.yaml").read_text()
    begin, end = geo.index("latency:\n"), geo.index("\n\n", geo.index("latency:\n"))
    (tmp_path / "e.yaml").write_text(
        geo[:begin].replace("../emulation/labs/island.yaml", "lab.yaml") + latency.rstrip("\n") + geo[end:]
    )
    _, experiment = load_experiment(tmp_path / "e.yaml")
    assert dict(experiment.latency) == {f"w{number}": f"rtt-w{number}" for number in range(1, 7)}


def test_few_targets_are_warned_of_and_fewer_than_servers_refused(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("".join(f"{rtt}\n" for rtt in range(1, 13)))
    argv = [ATOLL, "latencies", "import", "few.txt", "--out", "l.yaml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == "12 targets are 2.0 per server; with fewer than 20 targets a median depends on single ones\n"
    done = subprocess.run([*argv, "--servers", "13"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "few.txt: has RTTs of 12 targets; 13 servers need at least 13\n"


def test_classes_beyond_the_last_vlan_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rtts.txt").write_text("".join(f"{rtt}\n" for rtt in range(1, 101)))
    argv = [ATOLL, "latencies", "import", "rtts.txt", "--out", "l.yaml", "--servers", "100", "--first-vlan"]
    done = subprocess.run([*argv, "3996"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "l.yaml").exists()) == (2, False)
    assert done.stderr == "--first-vlan: 100 classes from 3996 on end at VLAN id 4095; write at most 3995\n"
    subprocess.run([*argv, "3995"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "vlan: 4094," in (tmp_path / "l.yaml").read_text()


@pytest.mark.parametrize("text", ["seq,rtt\n1,52\n2,48\n", "rtt_ms,loss\n52,0\n48,0\n", "time,rtt_ms\n17.5,52\n"])
def test_a_column_that_names_no_targets_is_not_read_as_targets(text: str) -> None:
    assert read_rtts([("rtts.csv", text)]).mistakes


# fping 5.1: -C 3 -q, of which the last one got no answer; -c 1; -e. scamper 20211212: -O text; -O json.
FPING = """\
198.51.100.1 : 23.1 - 24.5
198.51.100.9 : - - -
198.51.100.2 : [0], 64 bytes, 31.5 ms (31.5 avg, 0% loss)
198.51.100.2 : [1], timed out (31.5 avg, 50% loss)

198.51.100.2 : xmt/rcv/%loss = 2/1/50%, min/avg/max = 31.5/31.5/31.5
198.51.100.3 is alive (40.25 ms)
198.51.100.4 is unreachable
[1795986839.23] 198.51.100.2 : [2], 64 bytes, 31.5 ms (31.5 avg, 33% loss)
ICMP Time Exceeded from 203.0.113.1 for ICMP Echo sent to 198.51.100.4
198.51.100.2 : duplicate for [0], 64 bytes, 31.7 ms
"""
SCAMPER = """\
ping 192.0.2.2 to 198.51.100.1: 84 byte packets
84 bytes from 198.51.100.1, seq=0 ttl=64 time=23.1 ms
84 bytes from 198.51.100.1, seq=1 ttl=64 time=24.5 ms
--- 198.51.100.1 ping statistics ---
2 packets transmitted, 2 packets received, 0% packet loss
round-trip min/avg/max/stddev = 23.100/23.800/24.500/0.700 ms
"""


def scamper_object(target: str, *replies: tuple[str, float]) -> str:
    responses = [{"from": sender, "seq": 0, "reply_ttl": 64, "rtt": rtt, "icmp_type": 0} for sender, rtt in replies]
    return json.dumps({"type": "ping", "version": "0.4", "src": "192.0.2.2", "dst": target, "responses": responses})


def test_fping_and_scamper_are_read() -> None:
    objects = [
        '{"type":"cycle-start", "list_name":"default", "id":0}',
        scamper_object("198.51.100.5", ("198.51.100.5", 55.0), ("203.0.113.1", 2.0)),
        scamper_object("198.51.100.6"),
    ]
    rtts = read_rtts([("fping", FPING), ("scamper", SCAMPER), ("scamper.json", "\n".join(objects))])
    assert rtts.mistakes == ()
    assert rtts.by_target == {
        "198.51.100.1": pytest.approx(23.8),
        "198.51.100.2": 31.5,
        "198.51.100.3": 40.25,
        "198.51.100.5": 55.0,
    }


def test_a_damaged_object_of_scamper_is_one_line() -> None:
    [mistake] = read_rtts([("s.json", scamper_object("198.51.100.5")[:40])]).mistakes
    assert mistake.line == 1
    assert "scamper -O json" in mistake.message


def test_servers_are_drawn_by_their_bytes_and_weigh_so(tmp_path: Path) -> None:
    """One address sends 90 % of the bytes; unweighted it is one of two targets, weighted nine tenths of the servers."""
    header = "ts,td,pr,sa,sp,da,dp,ibyt\n"
    row = "2025-06-27 19:30:01.100,1.0,TCP,{},443,10.20.0.1,4000,{}\n"
    inside = row.replace("{},443", "10.20.0.9,443").format(10**9)
    rows = row.format("198.51.100.1", 900_000) + row.format("198.51.100.2", 100_000) + inside
    (tmp_path / "flows.csv").write_text(header + rows)
    (tmp_path / "pings.txt").write_text("198.51.100.1 : 20\n198.51.100.2 : 200\n")

    def atoll(*words: str) -> dict[str, object]:
        done = subprocess.run([ATOLL, "latencies", *words, "--json"], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    draw = ("from-flows", "flows.csv", "--to", "10.20.0.0/16", "--out", "targets.txt", "--weights", "draws.csv")
    drawn = atoll(*draw)
    assert (drawn["addresses"], drawn["senders"], drawn["bytes"]) == (2, 2, 1_000_000)
    targets = [line for line in (tmp_path / "targets.txt").read_text().splitlines() if not line.startswith("#")]
    assert targets == ["198.51.100.1", "198.51.100.2"]
    first = (tmp_path / "draws.csv").read_text()
    atoll(*draw)
    assert (tmp_path / "draws.csv").read_text() == first

    make = ("import", "pings.txt", "--out", "latencies.yaml", "--servers", "2")
    assert atoll(*make)["rtt_ms"] == {"w1": 20, "w2": 200}
    weighted = atoll("import", "pings.txt", "--out", "latencies.yaml", "--servers", "10", "--weights", "draws.csv")
    assert list(weighted["rtt_ms"].values()).count(20) in (8, 9)  # type: ignore[attr-defined]


def test_the_format_of_flow_records_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text("x,y\n1,2\n")
    words = [ATOLL, "latencies", "from-flows", "flows.csv", "--to", "10.20.0.0/16", "--out", "targets.txt"]
    for options, said in (((), "name the format: --format"), (("--format", "argus"), "there is no column Proto")):
        done = subprocess.run([*words, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert said in done.stderr


def test_a_damaged_sender_is_a_damaged_record(tmp_path: Path) -> None:
    row = "2025-06-27 19:30:01.100,1.0,TCP,{},443,10.20.0.1,4000,900\n"
    (tmp_path / "flows.csv").write_text(
        "ts,td,pr,sa,sp,da,dp,ibyt\n" + row.format("198.51.100") + row.format("198.51.100.1")
    )
    words = ("latencies", "from-flows", "flows.csv", "--to", "10.20.0.0/16", "--out", "targets.txt")
    done = subprocess.run([ATOLL, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 of 2 records are damaged" in done.stderr) == (0, True), done.stderr


def test_a_wrong_line_of_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "pings.txt").write_text("198.51.100.1 : 20\n")
    (tmp_path / "draws.csv").write_text("target,draws\n198.51.100.1,2\n198.51.100.1,3\nx\n")
    words = ("latencies", "import", "pings.txt", "--out", "l.yaml", "--servers", "1", "--weights", "draws.csv")
    done = subprocess.run([ATOLL, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == ["draws.csv:3", "draws.csv:4"]

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
    assert found.ms == (0.035, 13.0)


def test_what_ping_prints_today_is_read() -> None:
    try:
        done = subprocess.run(
            ["ping", "-c", "3", "-i", "0.01", "127.0.0.1"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("ping does not run here")
    found = read_rtts([("now", done.stdout)])
    assert found.mistakes == ()
    assert len(found.ms) == 1


@pytest.mark.parametrize(
    "text",
    ["1.5\n2\n\n# a remark\n30\n", "rtt_ms\n30\n1.5\n2\n", "target,rtt_ms\na,1\na,1.5\na,9\nb,30\nc,2\n"],
    ids=["numbers", "numbers under a name", "targets"],
)
def test_lists_of_rtts_are_read(text: str) -> None:
    found = read_rtts([("rtts.csv", text)])
    assert (found.ms, found.mistakes) == ((1.5, 2.0, 30.0), ())


def test_what_is_no_rtt_is_told_with_its_line() -> None:
    found = read_rtts([("a.txt", "1\n2 ms\n"), ("b.txt", "5\n\nfar\n-3\n")])
    what = "neither a line of ping nor an RTT in milliseconds, alone or after a target and a comma"
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

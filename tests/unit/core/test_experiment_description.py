# SPDX-License-Identifier: Apache-2.0
"""experiment.yaml: what the shipped experiments resolve to, defaults, and the exact message for every kind of mistake."""

# ruff: noqa: E501, ISC004 (the table of mistakes reads best with a message on a line)

import re
from pathlib import Path

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment, load_lab, load_lab_or_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Counted, Experiment
from atoll_core.experiment.flow_sizes import published
from atoll_core.experiment.traffic import MIN_IP_BYTES, SizeMeaning
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Phase
from atoll_core.units import Duration, Rate, Size


@pytest.fixture(scope="module")
def lab(project):
    return (project / "emulation/labs/island.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(project):
    """The shipped GEO experiment, beside its lab."""
    return (
        (project / "examples/geo.yaml").read_text(encoding="utf-8").replace("../emulation/labs/island.yaml", "lab.yaml")
    )


@pytest.fixture
def load(tmp_path, monkeypatch, lab):
    """Loads texts as e.yaml and lab.yaml of the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_texts(text: str, lab: str = lab) -> tuple[Network, Experiment]:
        Path("e.yaml").write_text(text, encoding="utf-8")
        Path("lab.yaml").write_text(lab, encoding="utf-8")
        return load_experiment(Path("e.yaml"))

    return load_texts


def mistakes_of(load, *texts: str) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        load(*texts)
    return str(refused.value).splitlines()


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} must stand in the text exactly once"
        text = text.replace(old, new)
    return text


def line_of(text: str, words: str) -> int:
    assert text.count(words) == 1, f"{words!r} must stand in the edited text exactly once"
    return text[: text.index(words)].count("\n") + 1


def test_the_demo_is_what_the_issue_asks_for(load, text):
    network, experiment = load(text)
    assert (experiment.name, experiment.file, experiment.lab, experiment.seed) == ("geo", "e.yaml", "lab.yaml", 1)
    assert experiment.chain.hops == ("tap-w", "sat", "tap-i")
    down, up = experiment.link("sat").to_island, experiment.link("sat").to_world
    assert (down.rate, down.delay, down.queue) == (Rate(16_000_000), Duration(250 * 10**6), Size(100_000))
    assert up.rate == Rate(4_000_000)
    assert [name for _, name in experiment.latency] == [delay.name for delay in network.delay_boxes[0].classes]
    assert experiment.transfer is not None
    assert (experiment.transfer.size, experiment.transfer.start) == (Size(10**7), Duration(10 * 10**9))
    assert (experiment.traffic.channels, experiment.duration) == (20, Duration(60 * 10**9))


MINIMAL = """\
name: least
lab: lab.yaml
duration: 10 s
chain: [sat]
links:
  sat:
    to_island: {rate: 1 Mbit/s, delay: 5 ms, queue: 1500 B}
    to_world: {rate: 1 Mbit/s, delay: 5 ms, queue: 1500 B}
traffic: {channels: 0}
"""


def test_defaults(load):
    _, experiment = load(MINIMAL)
    assert experiment.seed == 1
    assert experiment.latency == ()
    assert (experiment.traffic.flow_sizes, experiment.traffic.port) == ("published", 5001)
    assert experiment.transfer is None
    assert experiment.ping.interval == Duration(100 * 10**6)
    assert (experiment.tcp.congestion_control, experiment.tcp.ecn, experiment.tcp.buffer_max) == (
        "cubic",
        False,
        Size(16 * 10**6),
    )
    assert (experiment.links[0].counts, experiment.links[0].to_island.jitter) == (Counted.IP, None)


def test_defaults_of_a_transfer(load):
    _, experiment = load(MINIMAL.replace("10 s", "20 s") + "transfer: {size: 1 MB}\n")
    assert experiment.transfer is not None
    assert (experiment.transfer.start, experiment.transfer.tool, experiment.transfer.port) == (
        Duration(10 * 10**9),
        "atoll",
        5201,
    )


def test_an_empty_chain_and_an_undelayed_server_are_fine(load, text):
    _, experiment = load(MINIMAL.replace("[sat]", "[]").split("links:")[0] + "traffic: {channels: 1}\n")
    assert experiment.chain.hops == ()
    _, experiment = load(edited(text, ("  w3: rtt-50\n", "")))
    assert "w3" not in dict(experiment.latency)


SAT = "    to_island: {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}"

# What is replaced, by what, words on the line of the mistake, and the message; @words@ stands for a line of lab.yaml.
MISTAKES = [
    # -- names
    ("chain: [tap-w, sat,", "chain: [tap-w, sattelite,", "chain", "chain hop 2: unknown box or tap 'sattelite'; did you mean 'sat'? known boxes and taps: pep-w, coder-w, sat, coder-i, pep-i, tap-w, tap-i"),
    ("\n  sat:", "\n  sta:", "  sta:", "link 'sta': unknown box 'sta'; did you mean 'sat'? known satellite emulators: sat"),
    ("chain: [tap-w, sat,", "chain: [tap-x, sat,", "chain", "chain hop 1: unknown box or tap 'tap-x'; did you mean 'tap-w'? known boxes and taps: pep-w, coder-w, sat, coder-i, pep-i, tap-w, tap-i"),
    ("chain: [tap-w, sat,", "chain: [w1, sat,", "chain", "chain hop 1: 'w1' is a host, but a chain consists of boxes and taps; known boxes and taps: pep-w, coder-w, sat, coder-i, pep-i, tap-w, tap-i"),
    ("chain: [tap-w, sat,", "chain: [tap-i, sat,", "chain", "chain hop 3: 'tap-i' occurs twice in the chain; keep one of them"),
    ("  w1: rtt-5\n", "  w1: rrt-5\n", "rrt-5", "latency of 'w1': no delay box carries the latency class 'rrt-5'; did you mean 'rtt-5'? known classes: rtt-5, rtt-20, rtt-50, rtt-90, rtt-140, rtt-200"),
    ("  w1: rtt-5\n", "  w1: rtt-6\n", "rtt-6", "latency of 'w1': no delay box carries the latency class 'rtt-6'; known classes: rtt-5, rtt-20, rtt-50, rtt-90, rtt-140, rtt-200"),
    ("  w1: rtt-5\n", "  w9: rtt-5\n", "w9", "latency of 'w9': unknown world host 'w9'; known world hosts: w1, w2, w3, w4, w5, w6, ws, wh"),
    ("  w1: rtt-5\n", "  i1: rtt-5\n", "i1", "latency of 'i1': an island-client has no terrestrial latency; give it to world hosts only"),
    ("  w1: rtt-5\n", "  w1: [rtt-5]\n", "[rtt-5]", "latency of 'w1': expected text; found a list"),
    ("\nlinks:", "\nlinks:\n  pep-w: {to_island: &d {rate: 1 Mbit/s, delay: 0 s, queue: 2 kB}, to_world: *d}", "pep-w", "link 'pep-w': box 'pep-w' is a router, which has no link settings; remove them"),
    ("\nlinks:", "\nlinks:\n  sta: {to_island: &d {rate: 1 Mbit/s, delay: 0 s, queue: 2 kB}, to_world: *d}", "sta:", "link 'sta': unknown box 'sta'; did you mean 'sat'? known satellite emulators: sat"),
    ("chain: [tap-w, sat, tap-i]", "chain: [tap-w, tap-i]", "sat:", "link 'sat': 'sat' is not in the chain; put it there or remove its settings"),
    ("lab: lab.yaml", "lab: nowhere.yaml", "lab:", "lab: nowhere.yaml: there is no such file; the path is relative to this file"),
    ("lab: lab.yaml", "lab: e.yaml", "lab:", "lab: e.yaml is an experiment; name the file of a lab"),
    ("lab: lab.yaml", "lab: ''", "lab:", "lab: .: is a directory; give a YAML file; the path is relative to this file"),
    ("flow_sizes: published", "flow_sizes: publishd", "publishd", "traffic: flow_sizes: distribution: unknown distribution 'publishd'; did you mean 'published'? write published, a size such as '10 kB', or a file"),
    ("flow_sizes: published", "flow_sizes: 10 kb", "10 kb", "traffic: flow_sizes: distribution: '10 kb' is not a size; did you mean 10 kB?"),
    ("flow_sizes: published", "flow_sizes: nowhere.csv", "nowhere", "traffic: flow_sizes: nowhere.csv: there is no such file; the path is relative to this file"),
    ("flow_sizes: published", "flow_sizes: {distribution: published, counts: tcp}", "counts: tcp", "traffic: flow_sizes: counts: unknown counts 'tcp'; known counts: payload, ip"),
    ("flow_sizes: published", "flow_sizes: {distribution: 100 B, counts: ip}", "counts: ip", "traffic: flow_sizes: the largest flow, 100 B, has fewer IP bytes than a connection, 269 B"),
    ("flow_sizes: published", "flow_sizes: {counts: ip}, pro_rate: 200 B", "pro_rate", "traffic: pro_rate: 200 B is smaller than the smallest connection; write at least 269 B of IP bytes"),
    ("flow_sizes: published", "pro_rate: 2 MB", "pro_rate", "traffic: pro_rate: '2 MB' is too large; it must be at most 1 MB"),
    ("flow_sizes: published", "flow_sizes: 100 B, pro_rate: 200 B", "pro_rate", "traffic: pro_rate: 200 B exceeds the largest flow, 100 B; lower it"),
    ("flow_sizes: published", "think_time: {mean: 2 s, distribution: normal}", "normal", "traffic: think_time: distribution: unknown distribution 'normal'; known distributions: constant, exponential"),
    ("flow_sizes: published", "flows_per_s: 0", "flows_per_s", "traffic: flows_per_s: the number 0 is not a rate of flows; write flows per second, above 0 and at most 1000000"),
    ("flow_sizes: published", "write_chunk: 100 kB, write_rate: 8 kbit/s, timeout: 1 min", "write_chunk", "traffic: a write_chunk takes longer than the timeout, 1 min, at write_rate; lower it"),
    ("flow_sizes: published", "write_chunk: 64 kB", "write_chunk", "traffic: write_chunk has no write_rate to keep; add 'write_rate: 2 Mbit/s'"),
    ("flow_sizes: published", "flows_per_s: 5, think_time: 2 s", "flows_per_s", "traffic: think_time and flows_per_s exclude each other; keep one of them"),
    ("ping: {interval", "udp: {rate: 2 Mbit/s, packet: 47 B}\nping: {interval", "47 B", "udp: packet: '47 B' is too small; it must be at least 48 B (headers, sequence number and time stamp)"),
    ("start: 10 s}", "start: 10 s, tool: iperf3, write_rate: 8 Mbit/s, write_chunk: 2 MB}", "2 MB", "transfer: write_chunk: 2 MB is more than iperf3 writes at once, 1048576 B"),
    ("start: 10 s}", "start: 10 s, tool: iperf}", "iperf", "transfer: tool: unknown tool 'iperf'; did you mean 'iperf3'? known tools: atoll, iperf3"),
    # -- links
    (SAT, SAT.replace("100 kB", "1499 B"), "1499", "link 'sat': to_island: queue: 1499 B is too small; it must be at least 1500 B (one MTU of 'sat'), or no full-size packet ever fits"),
    (SAT, SAT.replace("100 kB", "100 B"), "100 B", "link 'sat': to_island: queue: 100 B is too small; it must be at least 1500 B (one MTU of 'sat'), or no full-size packet ever fits"),
    (SAT, SAT.replace("100 kB}", "100 kB, jitter: 60 s}"), "jitter: 60 s", "link 'sat': to_island: jitter: 60 s exceeds the delay; write at most 250 ms"),
    (SAT, SAT.replace("100 kB}", "100 kB, jitter: 251 ms}"), "251", "link 'sat': to_island: jitter: 251 ms exceeds the delay; write at most 250 ms"),
    (SAT, SAT.replace("250 ms", "250"), "to_island", "link 'sat': to_island: delay: the number 250 is not a duration; write a number and one of ns, us, ms, s, min, h, such as '250 ms'"),
    (SAT, "    to_island: 16 Mbit/s", "to_island", "link 'sat': to_island: expected keys, such as 'to_island: {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}'; found '16 Mbit/s'"),
    (SAT, SAT + "\n    counts: frames", "counts", "link 'sat': counts: unknown counts 'frames'; known counts: ip, ethernet"),
    (SAT + "\n", "", "sat:", "link 'sat': to_island is missing; add 'to_island: {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}'"),
    # -- times and numbers
    ("duration: 60 s", "duration: 0 s", "duration", "duration: '0 s' is too small; it must be at least 1 s"),
    ("duration: 60 s", "duration: 10 s", "start", "transfer: start: 10 s is not before the end at 10 s; start it earlier"),
    ("duration: 60 s", "duration: 999999999999 h", "duration", "duration: '999999999999 h' is too large; write less than 9223372036.854775807 s"),
    ("duration: 60 s\n", "", "name:", "duration is missing; add 'duration: 60 s'"),
    ("interval: 100 ms", "interval: 999 us", "999", "ping: interval: '999 us' is too small; it must be at least 1 ms"),
    ("channels: 20", "channels: 100001", "channels", "traffic: channels: the number 100001 is not a whole number from 0 to 100000"),
    ("channels: 20", "channels: true", "channels", "traffic: channels: true is not a whole number from 0 to 100000"),
    ("channels: 20", "channels: 1e400", "channels", "traffic: channels: the number inf is not a whole number from 0 to 100000"),
    ("channels: 20", "channels: 20, port: 65536", "65536", "traffic: port: the number 65536 is not a whole number from 1 to 65535"),
    ("seed: 1", "seed: -1", "seed", "seed: the number -1 is not a whole number from 0 to 9223372036854775807"),
    ("seed: 1", "seed: 1.0", "seed", "seed: the number 1.0 is not a whole number from 0 to 9223372036854775807"),
    ("seed: 1", "seed: " + "9" * 5000, "seed", "seed: '" + "9" * 39 + "…' is not a whole number from 0 to 9223372036854775807"),
    # -- TCP
    ("congestion_control: cubic", "congestion_control: 'cubic; reboot'", "reboot", "tcp: congestion_control: 'cubic; reboot' is not a congestion control; write the kernel's name for it, such as cubic, bbr or reno"),
    ("congestion_control: cubic", "ecn: 'yes'", "ecn", "tcp: ecn: 'yes' is neither true nor false; write one of them without quotes"),
    # -- shapes
    ("chain: [tap-w, sat, tap-i]", "chain: tap-w sat tap-i", "chain", "chain: expected a list, such as 'chain: [tap-w, sat, tap-i]'; found 'tap-w sat tap-i'"),
    ("chain: [tap-w, sat, tap-i]", "chain: [tap-w, sat, tap-i, 5]", "chain", "chain hop 4: expected text; found the number 5"),
    ("traffic: {channels: 20, flow_sizes: published}", "traffic:", "traffic", "traffic: expected keys, such as 'traffic: {channels: 20}'; found nothing"),
    ("seed: 1", "sed: 1", "sed", "unknown key 'sed'; did you mean 'seed'? known keys: boxes, branches, captures, chain, changes, duration, lab, latency, limits, links, name, ping, seed, tcp, traffic, transfer, transfers, udp"),
    ("name: geo", "name: ../geo", "name", "name: '../geo' is not a name; write a small letter, then small letters, digits and '-' (at most 63 in all)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "where", "message"), MISTAKES, ids=[message[:80] for *_, message in MISTAKES])
def test_a_mistake_is_told_once_with_its_line_and_its_remedy(load, text, old, new, where, message):
    wrong = re.sub("^#.*\n", "#\n", edited(text, (old, new)), flags=re.MULTILINE)
    assert mistakes_of(load, wrong) == [f"e.yaml:{line_of(wrong, where)}: {message}"]


def test_a_link_in_the_chain_needs_settings(load, text):
    wrong = text[: text.index("links:")] + text[text.index("latency:") :]
    assert mistakes_of(load, wrong) == [
        f"e.yaml:{line_of(wrong, 'chain:')}: chain hop 2: satellite emulator 'sat' has no settings; add 'sat' to links"
    ]


@pytest.mark.parametrize(
    ("host", "role", "why"),
    [
        ("ws", "world-special", "the ping series starts there"),
        ("wh", "world-whistle", "the whistle pings start there"),
        ("is", "island-special", "ping series and whistle go there"),
    ],
)
def test_the_hosts_every_experiment_needs_must_be_in_the_lab(load, text, lab, host, role, why):
    without = re.sub(rf"\n  {host}: .*", "", lab)
    assert mistakes_of(load, text, without) == [
        f"e.yaml:{line_of(text, 'lab: lab.yaml')}: lab: lab.yaml has no host with role {role}: {why}; add one"
    ]


def test_channels_need_clients_and_no_channels_need_none(load, text, lab):
    without = re.sub(r"\n  i[1-6]: .*", "", lab)
    assert mistakes_of(load, text, without) == [
        f"e.yaml:{line_of(text, 'lab: lab.yaml')}: lab: lab.yaml has no host with role island-client: the channels "
        "run on it; add one"
    ]
    no_channels = edited(text, ("channels: 20", "channels: 0"))
    load(no_channels, without)
    assert mistakes_of(load, f"{no_channels}udp: {{rate: 1 Mbit/s, receivers: clients}}\n", without) == [
        f"e.yaml:{line_of(text, 'lab: lab.yaml')}: lab: lab.yaml has no host with role island-client: it receives "
        "flows of UDP; add one"
    ]


def test_the_delay_trunk_must_carry_both_directions_each_way(load, text, lab):
    slow = edited(lab, ("rate: 1 Gbit/s\n    classes", "rate: 19.9 Mbit/s\n    classes"))
    assert mistakes_of(load, text, slow) == [
        f"e.yaml:{line_of(text, '  sat:')}: link 'sat': the trunk of delay box 'delay' (19.9 Mbit/s, "
        f"lab.yaml:{line_of(slow, '19.9')}) is too "
        "slow: each way it carries 16 Mbit/s to the island + 4 Mbit/s to the world = 20 Mbit/s; "
        "write 'rate: 20 Mbit/s' there, or lower the link's"
    ]
    load(text, slow.replace("19.9", "20"))
    undelayed = text[: text.index("latency:")] + text[text.index("traffic:") :]
    load(undelayed, slow)  # nobody uses the delay box


def test_trunks_between_switches_must_carry_the_link(load, text, lab):
    slow = edited(lab, ("from: sw-i/24, to: sw-c/3, rate: 1 Gbit/s", "from: sw-i/24, to: sw-c/3, rate: 15 Mbit/s"))
    assert mistakes_of(load, text, slow) == [
        f"e.yaml:{line_of(text, '  sat:')}: link 'sat': trunk sw-i/24 - sw-c/3 (15 Mbit/s, "
        f"lab.yaml:{line_of(slow, '15 Mbit')}) is too slow: "
        "16 Mbit/s leave sw-c by it; write 'rate: 16 Mbit/s' there, or lower the link's"
    ]
    load(text, slow.replace("15 Mbit/s", "16 Mbit/s"))


def test_a_trunk_too_slow_for_both_directions_is_one_mistake(load, text, lab):
    """The greater rate is enough for both."""
    slow = edited(lab, ("from: sw-i/24, to: sw-c/3, rate: 1 Gbit/s", "from: sw-i/24, to: sw-c/3, rate: 1 Mbit/s"))
    (mistake,) = mistakes_of(load, text, slow)
    assert mistake.endswith("16 Mbit/s leave sw-c by it; write 'rate: 16 Mbit/s' there, or lower the link's")


def test_a_trunk_crossed_twice_carries_twice(load, text, lab):
    """A box on the island switch, with the next hop back on the chain switch: frames cross the trunk to and fro."""
    moved = edited(
        lab,
        ("world: sw-c/11, island: sw-c/12", "world: sw-i/11, island: sw-i/12"),
        ("from: sw-i/24, to: sw-c/3, rate: 1 Gbit/s", "from: sw-i/24, to: sw-c/3, rate: 35 Mbit/s"),
    )
    answer = mistakes_of(load, edited(text, ("chain: [tap-w, sat", "chain: [tap-w, pep-w, sat")), moved)
    assert [re.findall(r"\S+ Mbit/s leave \S+ by it", mistake) for mistake in answer] == [
        ["36 Mbit/s leave sw-c by it"]
    ]


def test_mistakes_of_form_and_those_of_the_lab_come_before_those_of_meaning(load, text, lab):
    meaning = ("  w1: rtt-5\n", "  w1: rtt-7\n")
    wrong_lab = edited(lab, ("ip: 10.10.0.2,", "ip: 10.10.0.1 ,"))
    answer = mistakes_of(load, edited(text, ("seed: 1", "seed: one"), meaning), wrong_lab)
    assert [mistake.split(":")[0] for mistake in answer] == ["e.yaml", "lab.yaml"]
    assert "seed" in answer[0]
    (lab_alone,) = mistakes_of(load, edited(text, meaning), wrong_lab)
    assert lab_alone == answer[1]
    assert "rtt-7" in mistakes_of(load, edited(text, meaning))[0]


def test_a_host_with_a_mistake_of_form_causes_no_further_mistakes(load, text, lab):
    answer = mistakes_of(
        load, text, edited(lab, ("w1: {role: world-server, ip: 10.10.0.1,", "w1: {role: world-server, ip: x,"))
    )
    assert [mistake.split(":")[0] for mistake in answer] == ["lab.yaml"]


def test_an_experiment_is_checked_even_if_its_lab_cannot_be(load, text):
    answer = mistakes_of(load, edited(text, ("seed: 1", "seed: one")), "name: [")
    assert [mistake.split(":")[0] for mistake in answer] == ["e.yaml", "lab.yaml"]


def test_the_lab_is_found_from_the_folder_of_the_experiment(tmp_path, monkeypatch, text, lab):
    (tmp_path / "here").mkdir()
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/l.yaml").write_text(lab)
    (tmp_path / "here/e.yaml").write_text(text.replace("lab.yaml", "../labs/l.yaml"))
    monkeypatch.chdir(tmp_path)
    network, experiment = load_experiment(Path("here/e.yaml"))
    assert (network.file, experiment.file) == ("labs/l.yaml", "here/e.yaml")
    monkeypatch.chdir(tmp_path / "here")
    assert load_experiment(Path("e.yaml"))[0].file == "../labs/l.yaml"


def test_a_file_tells_by_its_keys_what_it_is(project, tmp_path):
    lab, experiment = project / "emulation/labs/island.yaml", project / "examples/geo.yaml"
    assert load_lab_or_experiment(lab) == (load_lab(lab), None)
    assert load_lab_or_experiment(experiment) == load_experiment(experiment)
    (tmp_path / "x.yaml").write_text("name: x\nspeed: 5\n")
    with pytest.raises(DescriptionError, match=r"x.yaml:1: neither a lab \(networks, .*\) nor an experiment \(lab, "):
        load_lab_or_experiment(tmp_path / "x.yaml")


def test_every_shipped_description_is_right(project):
    labs, experiments = ([*(project / each).glob("*.yaml")] for each in ("emulation/labs", "examples"))
    assert min(len(labs), len(experiments)) > 2
    for lab in labs:
        assert load_lab_or_experiment(lab) == (load_lab(lab), None)
    for experiment in experiments:
        assert description_warnings(*load_experiment(experiment)) == (), experiment


def with_tcp(text: str, tcp: str, transfer: str = "") -> str:
    return edited(text, ("tcp: {congestion_control: cubic}", tcp), ("start: 10 s}", f"start: 10 s{transfer}}}"))


def test_congestion_controls_for_all_for_single_servers_and_for_the_transfer(load, text):
    tcp = "tcp: {congestion_control: bbr, servers: {w1: hybla, w6: htcp}}"
    _, experiment = load(with_tcp(text, tcp, ", congestion_control: hybla"))
    assert [experiment.congestion_control(host) for host in ("w1", "w2", "w6", "i1")] == ["hybla", "bbr", "htcp", "bbr"]
    assert experiment.transfer_congestion_control(experiment.transfer) == "hybla"
    assert experiment.congestion_controls == {
        "bbr": ("tcp.congestion_control",),
        "hybla": ("tcp.servers.w1", "transfer.congestion_control"),
        "htcp": ("tcp.servers.w6",),
    }


@pytest.mark.parametrize(
    ("server", "answer"),
    [
        (
            "w7",
            "tcp: server 'w7': unknown world server 'w7'; known world servers: w1, w2, w3, w4, w5, w6",
        ),
        ("ws", "tcp: server 'ws': this host only sends transfers; write transfer: congestion_control instead"),
        ("i1", "tcp: server 'i1': a host of role island-client sends no load; name world servers only"),
    ],
)
def test_only_world_servers_have_a_congestion_control_of_their_own(load, text, server, answer):
    broken = with_tcp(text, f"tcp: {{servers: {{{server}: cubic}}}}")
    assert mistakes_of(load, broken) == [f"e.yaml:{line_of(broken, 'tcp: {')}: {answer}"]


def test_captures_are_as_the_experiment_asks(load, text):
    """Snap length and ring of every capture; what is left out is as usual."""

    def asked(text: str) -> set[tuple[int, int]]:
        configs = [job.config or {} for job in make_plan(*load(text)).jobs if job.phase is Phase.CAPTURE]
        return {(config["snap_bytes"], config["buffer_bytes"]) for config in configs}

    assert asked(text) == {(96, 16_000_000)}
    assert asked(text + "captures: {snap: 200 B, buffer: 64 MB}\n") == {(200, 64_000_000)}
    assert asked(text + "captures: {snap: 200 B}\n") == {(200, 16_000_000)}
    assert mistakes_of(load, text + "captures: {snap: 20 B}\n")[0].endswith(
        "'20 B' is too small; it must be at least 64 B"
    )


def test_recorded_sizes_are_ip_bytes_of_which_the_smallest_are_put_together(load, text):
    _, asked = load(edited(text, ("flow_sizes: published", "flow_sizes: {distribution: published, counts: ip}")))
    found = asked.traffic
    assert (found.flow_sizes, found.sizes_count) == ("published", SizeMeaning.IP)
    assert found.pro_rate == Size(MIN_IP_BYTES)
    assert found.distribution == published().pro_rated(MIN_IP_BYTES)
    as_before = load(text)[1].traffic
    assert (as_before.sizes_count, as_before.pro_rate, as_before.sizes) == (SizeMeaning.PAYLOAD, None, None)


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            "channels: 20,",
            "channels: many, think_time: {mean: 1 s}, flows_per_s: 4,",
            ["traffic: channels: 'many' is not"],
        ),
        (
            "queue: 100 kB}",
            "queue: 100 kB, loss: {probability: 1 %, bit_error: 1e-7, where: outside}}",
            ["link 'sat': to_island: loss: where: unknown where 'outside'"],
        ),
        (
            "queue: 100 kB}",
            "queue: 100 kB, loss: {probability: much}}",
            ["link 'sat': to_island: loss: probability: 'much' is not a share"],
        ),
    ],
)
def test_fields_of_the_right_form_are_compared_once_all_have_it(load, text, old, new, messages):
    found = mistakes_of(load, text.replace(old, new, 1))
    assert len(found) == len(messages), found
    for message in messages:
        assert any(message in line for line in found), found


def test_examples_in_messages_name_things_of_this_lab(load, text, lab):
    """The chain of a lab whose link and taps have names of their own; of one without a link, none."""
    own = re.sub(r"\bsat\b", "orbit", lab).replace("tap-w", "gate").replace("w1:", "rome:").replace("rtt-5:", "near:")
    without = text[: text.index("chain:")] + text[text.index("links:") :]
    found = mistakes_of(load, without.replace("latency:", "latency: 5\nx:", 1), own)
    assert any("chain is missing; add 'chain: [gate, orbit, tap-i]'" in line for line in found), found
    assert any("latency: expected keys, such as 'latency: {rome: near}'" in line for line in found)
    linkless = mistakes_of(load, without, lab.replace("kind: link", "kind: external"))
    assert any("chain is missing; add 'chain: ...'" in line for line in linkless), linkless

# SPDX-License-Identifier: Apache-2.0
"""Doubtful wishes are warned of, not refused; ``--strict`` refuses them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_cli.commands.check import check
from atoll_cli.commands.plan import print_plan
from atoll_cli.terminal.output import warn
from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, UsageError, shown
from atoll_core.plan.plan import Backend
from atoll_core.platforms import MININET, VIRTUAL
from atoll_core.units import Duration, Rate

SMALL_BUFFERS = (
    "tcp: buffer_max: 1399999 B is less than the bandwidth-delay product, 16 Mbit/s x 700 ms = 1.4 MB, "
    "so one connection cannot fill the link; usual is at least 1.4 MB"
)


def warned(project: Path, *settings: str) -> list[str]:
    """What is warned of, without the settings that caused it."""
    found = description_warnings(*load_experiment(project / "examples/geo.yaml", settings))
    return [re.sub(r"^--set '.*?': ", "", doubt.message) for doubt in found]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tcp.buffer_max=1399999 B"], SMALL_BUFFERS),
        (
            ["transfer.size=200 MB"],
            (
                "transfer: size: 200 MB takes at least 100.0 s at 16 Mbit/s, and the run ends 50 s after the "
                "transfer's start; usual is at least twice the time that the transfer takes: 200.0 s"
            ),
        ),
        (
            ["transfer={size: 20 MB, write_rate: 2 Mbit/s}"],
            (
                "transfer: size: 20 MB takes at least 80.0 s at 2 Mbit/s, and the run ends 50 s after the "
                "transfer's start; usual is at least twice the time that the transfer takes: 160.0 s"
            ),
        ),
        (
            ["chain=[tap-i, sat, tap-w]"],
            (
                "chain: tap-i is at the world's end of the chain and tap-w at the island's; usual is the order from "
                "world to island"
            ),
        ),
        (["ping.interval=1 min"], "ping: interval: 1 min is not shorter than the duration, 60 s; usual is 100 ms"),
        (
            ["ping.interval=2 ms"],
            "ping: interval: pings every 2 ms take 8% of the 4 Mbit/s of 'sat'; usual is at most 5%",
        ),
        (
            ["links.sat.to_world.queue=1100 kB"],
            (
                "link 'sat': to_world: queue: a queue of 1100 kB at 4 Mbit/s delays packets by 2.2 s when full; usual "
                "is less than 2 s"
            ),
        ),
        (
            ["links.sat.to_island.queue=1100 kB", "links.sat.to_island.trace=traces/geo-rain.csv"],
            (
                "link 'sat': to_island: queue: a queue of 1100 kB at the least rate of its trace delays packets by "
                "2.2 s when full; "
                "usual is less than 2 s"
            ),
        ),
        (
            ["links.sat.to_island.aqm=codel"],
            (
                "link 'sat': to_island: aqm: an interval of 100 ms is less than the round-trip time, 700 ms; "
                "usual is about that (RFC 8289, section 4.3)"
            ),
        ),
        (
            ["udp={rate: 16 Mbit/s}"],
            "udp: rate: 16 Mbit/s of UDP fill 'sat' (16 Mbit/s); usual is an eighth of its rate",
        ),
    ],
)
def test_a_doubtful_wish_is_possible_and_warned_of(project: Path, settings: list[str], message: str) -> None:
    assert warned(project, *settings) == [message]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("hystart", "false", "only cubic has HyStart (tcp_cubic.c)"),
        ("pacing", "false", "bbr always paces (tcp_bbr.c)"),
        ("pacing", "true", "bbr always paces (tcp_bbr.c)"),
        (
            "slow_start_after_idle",
            "false",
            "the kernel does not reset the window of bbr (tcp_slow_start_after_idle_check)",
        ),
    ],
)
def test_a_tcp_setting_without_effect_is_warned_of_on_its_line(
    project: Path, tmp_path: Path, key: str, value: str, why: str
) -> None:
    """One congestion control that uses it is enough."""
    file = tmp_path / "without-effect.yaml"
    text = (project / "examples/geo.yaml").read_text().replace("../emulation", f"{project}/emulation")
    text = re.sub(r"(?m)^tcp:.*\n", "", text)
    message = f"tcp: {key}: {value} has no effect with bbr: {why}; usual is to leave it out"
    file.write_text(f"{text}\ntcp:\n  buffer_max: 16 MB\n  {key}: {value}\n  congestion_control: bbr\n")
    for settings, expected in (([], [message]), (["tcp.servers={w1: cubic}"], [])):
        found = [
            doubt for doubt in description_warnings(*load_experiment(file, settings)) if "no effect" in doubt.message
        ]
        assert [doubt.message for doubt in found] == expected
        assert all(f"  {key}: {value}" == file.read_text().splitlines()[doubt.line - 1] for doubt in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["traffic={channels: 160, flow_sizes: 10 MB, write_rate: 1 Mbit/s}"],
            "traffic: write_rate: 160 channels of at most 1 Mbit/s each ask for 158 Mbit/s, 9.9 times the",
        ),
        (
            ["traffic={channels: 20, flow_sizes: 100 kB, flows_per_s: 200}"],
            "traffic: flows_per_s: 200 flows a second of 100 kB in the mean ask for 160 Mbit/s, 10.0 times the",
        ),
        (
            ["traffic={channels: 20, flow_sizes: 100 kB, flows_per_s: 190}", "udp={rate: 8 Mbit/s}"],
            (
                "traffic: flows_per_s: 190 flows a second of 100 kB in the mean and UDP ask for 160 Mbit/s, "
                "10.0 times the"
            ),
        ),
    ],
)
def test_a_link_that_is_asked_for_several_times_its_rate_is_warned_of(
    project: Path, settings: list[str], message: str
) -> None:
    assert warned(project, "transfer=", *settings) == [f"{message} 16 Mbit/s of 'sat'; usual is less than 4 times"]


BASE_SCENARIOS = [  # rate in Mbit/s, queue in kB, one-way delay in ms, the most channels
    *((rate, queue, 250, 600) for rate, queue in ((8, 100), (16, 120), (32, 250), (64, 600))),
    *((rate, queue, 62.5, 4000) for rate, queue in ((32, 200), (64, 400), (160, 1000), (320, 2000))),
]


@pytest.mark.parametrize(("rate", "queue", "delay", "channels"), BASE_SCENARIOS)
@pytest.mark.parametrize("write_rate", ["", ", write_rate: 4 Mbit/s", ", think_time: 2 s, write_rate: 500 kbit/s"])
def test_closed_loops_of_the_laboratory_overbook_nothing(
    project: Path, rate: int, queue: int, delay: float, channels: int, write_rate: str
) -> None:
    """A channel waits for its flows: so many are usual there, a cap of each connection's rate included."""
    link = f"{{rate: {rate} Mbit/s, delay: {delay} ms, queue: {queue} kB}}"
    settings = [
        f"links.sat={{to_island: {link}, to_world: {link}}}",
        f"traffic={{channels: {channels}, flow_sizes: published{write_rate}}}",
        f"udp={{rate: {rate / 8} Mbit/s}}",
        "tcp.buffer_max=100 MB",
        "duration=90 s",
    ]
    assert [line for line in warned(project, *settings) if "ask for" in line] == []


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("60 %", "60 % of the packets are lost; usual is less than 50 %"),
        ("99 %", "99 % of the packets are lost; usual is less than 50 %"),
        ("{bit_error: 1e-3}", "100 % of the packets are lost; usual is less than 50 %"),
        (
            "{model: gilbert-elliott, good_to_bad: 30 %, bad_to_good: 20 %}",
            "60 % of the packets are lost; usual is less than 50 %",
        ),
        (
            "{model: gilbert-elliott, good_to_bad: 0 %, bad_to_good: 20 %}",
            "this gilbert-elliott channel loses no packet; usual are good_to_bad and loss_bad above 0 %",
        ),
        (
            "{model: gilbert-elliott, good_to_bad: 1 %, bad_to_good: 20 %, loss_bad: 0 %}",
            "this gilbert-elliott channel loses no packet; usual are good_to_bad and loss_bad above 0 %",
        ),
        ("49 %", None),
        ("{model: gilbert-elliott, good_to_bad: 0 %, bad_to_good: 20 %, loss_good: 1 %}", None),
    ],
)
def test_loss_of_most_packets_and_bursty_loss_of_none_are_warned_of(
    project: Path, loss: str, words: str | None
) -> None:
    expected = [] if words is None else [f"link 'sat': to_island: loss: {words}"]
    assert warned(project, f"links.sat.to_island.loss={loss}") == expected


def test_slow_links_are_warned_of_where_tc_may_play_them(project: Path) -> None:
    slow = ["links.sat.to_world={rate: 64 kbit/s, delay: 250 ms, queue: 10 kB}", "ping.interval=1 s"]
    described = load_experiment(project / "examples/geo.yaml", slow)
    (open_,), (tc,), engine = (
        description_warnings(*described, backend) for backend in (None, Backend.TC, Backend.ENGINE)
    )
    assert open_ == tc
    assert tc.message.endswith(
        "link 'sat': to_world: rate: a full-size packet takes 187.5 ms at 64 kbit/s; if tc emulates the link (the "
        "default on virtual), the first packet after an idle time does not get this delay; "
        "--backend engine (in a study: `backend: engine`) is exact"
    )
    assert engine == ()
    assert warned(project, slow[0].replace("queue", "aqm: {codel: {interval: 1 s}}, queue"), slow[1]) == []


def test_what_is_usual_is_not_warned_of(project: Path) -> None:
    assert warned(project) == []
    assert warned(project, "tcp.buffer_max=1.4 MB", "links.sat.to_island.aqm={codel: {interval: 700 ms}}") == []


def test_a_duration_of_the_command_line_counts(project: Path) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml")
    (doubt,) = description_warnings(network, replace(experiment, duration=Duration.parse("11 s")))
    assert "10 MB takes at least 5.0 s" in doubt.message


@pytest.mark.parametrize(
    ("setting", "begin"),
    [
        ("tcp.buffer_max=1399999 B", "tcp: buffer_max: "),
        ("links.sat.to_world.rate=64 kbit/s", "link 'sat': to_world: queue: "),
        ("links.sat.to_island={rate: 16 Mbit/s, delay: 9 s, queue: 100 kB}", "tcp: buffer_max: "),
        ("duration=11 s", "transfer: size: "),
        ("chain=[sat]", "chain: "),
    ],
)
def test_a_warning_of_a_setting_of_the_command_line_names_it_and_no_line_of_the_file(
    project: Path, setting: str, begin: str
) -> None:
    found = description_warnings(*load_experiment(project / "examples/geo.yaml", ["seed=2", setting]))
    (said,) = [doubt for doubt in found if begin in doubt.message]
    assert said.message.startswith(f"--set {shown(setting)}: {begin}")
    assert said.line == 0


def doubtful(project: Path, folder: Path) -> Path:
    text = (project / "examples/geo.yaml").read_text(encoding="utf-8")
    text = text.replace("../emulation", f"{project}/emulation").replace("tcp: {", "tcp: {buffer_max: 1399999 B, ")
    (folder / "e.yaml").write_text(text, encoding="utf-8")
    return Path("e.yaml")


def test_check_warns_with_file_and_line_and_strict_refuses(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = doubtful(project, tmp_path)
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "buffer_max" in text)
    assert check([file], as_json=False) == 0
    out, err = capsys.readouterr()
    assert out.startswith("e.yaml: ok (")
    assert err == f"e.yaml:{line}: warning: {SMALL_BUFFERS}\n"
    assert check([file], as_json=False, strict=True) == 2
    assert capsys.readouterr().err == f"e.yaml:{line}: {SMALL_BUFFERS}\n"


def test_a_setting_of_a_box_is_warned_of_on_its_own_line(project: Path, tmp_path: Path) -> None:
    """Not on the line of the box above it."""
    text = (project / "examples/pep-world.yaml").read_text(encoding="utf-8")
    text = text.replace("../emulation", f"{project}/emulation")
    text = text.replace("pep-w: {accept: after}", "pep-w:\n    accept: after\n    buffer_max: 5000 B")
    (tmp_path / "e.yaml").write_text(text, encoding="utf-8")
    found = description_warnings(*load_experiment(tmp_path / "e.yaml"))
    (doubt,) = [doubt for doubt in found if doubt.message.startswith("box 'pep-w': buffer_max: ")]
    assert text.splitlines()[doubt.line - 1] == "    buffer_max: 5000 B"


def test_check_takes_settings_for_experiments_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    geo, lab = Path("examples/geo.yaml"), Path("emulation/labs/island.yaml")
    setting = "tcp.buffer_max=1399999 B"
    assert check([lab, geo], as_json=False, settings=[setting]) == 0
    assert capsys.readouterr().err == f"examples/geo.yaml: warning: --set '{setting}': {SMALL_BUFFERS}\n"
    assert check([geo], as_json=False, settings=["seed=x"]) == 2
    assert capsys.readouterr().err.startswith("examples/geo.yaml: --set 'seed=x': seed: 'x' is not a whole number")
    with pytest.raises(UsageError, match="name an experiment"):
        check([lab], as_json=False, settings=[setting])


def test_json_has_warnings_beside_mistakes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = doubtful(project, tmp_path)

    def answer(*, strict: bool) -> dict[str, Any]:
        check([file], as_json=True, strict=strict)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    lenient, strict = answer(strict=False), answer(strict=True)
    assert (lenient["ok"], lenient["mistakes"], [each["message"] for each in lenient["warnings"]]) == (
        True,
        [],
        [SMALL_BUFFERS],
    )
    assert (strict["ok"], strict["mistakes"], strict["warnings"]) == (False, lenient["warnings"], [])


def test_the_other_verbs_print_warnings_and_strict_refuses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = description_warnings(*load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1399999 B"]))
    said = f"--set 'tcp.buffer_max=1399999 B': {SMALL_BUFFERS}"
    assert [each["message"] for each in warn(found, strict=False)] == [said]
    assert f"warning: {said}\n" in capsys.readouterr().err
    with pytest.raises(DescriptionError, match="bandwidth-delay product"):
        warn(found, strict=True)
    assert warn((), strict=True) == []


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("[tap-w, coder-w, sat, coder-i, tap-i]", None),
        ("[tap-w, pep-w, sat, tap-i]", None),  # alone between captures: payload proves what passes it
        (
            "[sat]",
            (
                "captures do not show the packets that sat loses; usual is a tap at the world's end and at the "
                "island's end"
            ),
        ),
        (
            "[coder-w, tap-w, sat, tap-i]",
            "captures do not show the packets that coder-w loses; usual is a tap at the world's end",
        ),
        (
            "[tap-w, coder-w, pep-w, sat, tap-i, pep-i]",
            (
                "captures do not show the packets that pep-i and coder-w lose; usual is a tap at the island's end "
                "and between "
                "coder-w and pep-w"
            ),
        ),
    ],
)
def test_taps_where_captures_prove_less_are_warned_of(tmp_path: Path, project: Path, chain: str, message: str) -> None:
    lab = (project / "emulation/labs/island.yaml").read_text()
    router, leg = "pep-w: {kind: router, ", "world: sw-c/11"
    assert router + leg in lab
    program = "pep-w: {kind: program, forwarding: routed, program: {start: [pep]}, "
    (tmp_path / "lab.yaml").write_text(lab.replace(router + leg, program + leg))
    experiment = (project / "examples/geo.yaml").read_text().replace("../emulation/labs/island.yaml", "lab.yaml")
    text = re.sub("^chain: .*", f"chain: {chain}", experiment, flags=re.MULTILINE)
    (tmp_path / "geo.yaml").write_text(text)
    found = description_warnings(*load_experiment(tmp_path / "geo.yaml"))
    assert [doubt.message for doubt in found] == ([f"chain: {message}"] if message else [])


def test_a_rate_beyond_what_the_engine_was_measured_at_is_warned_of_but_not_with_tc(project: Path) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1 GB"])
    (link,) = experiment.links
    fast = replace(link, to_island=replace(link.to_island, rate=Rate.parse("2.5 Gbit/s")))
    experiment = replace(experiment, links=(fast,), transfer=None)
    (doubt,) = description_warnings(network, experiment, Backend.ENGINE)
    assert description_warnings(network, experiment) == (doubt,)
    assert "2.5 Gbit/s is more than the 1 Gbit/s up to which the engine was measured in real time" in doubt.message
    assert doubt.message.endswith("--backend tc and --on virtual take any rate")
    assert description_warnings(network, experiment, Backend.TC) == ()
    assert description_warnings(network, experiment, Backend.ENGINE, platform=VIRTUAL) == ()


@pytest.mark.parametrize(
    ("rate", "kept"), [("1234 bit/s", "1.232 kbit/s"), ("64001 bit/s", None), ("9.6 kbit/s", None)]
)
def test_a_rate_that_tc_takes_for_another_is_warned_of_but_not_with_the_engine(
    project: Path, rate: str, kept: str | None
) -> None:
    slow = f"links.sat.to_world={{rate: {rate}, delay: 0 ms, queue: 1500 B}}"
    network, experiment = load_experiment(project / "examples/geo.yaml", [slow, "ping.interval=1 min"])
    for backend in (None, Backend.TC, Backend.ENGINE):
        found = [
            doubt.message
            for doubt in description_warnings(network, experiment, backend)
            if "whole bytes" in doubt.message
        ]
        assert bool(found) == (kept is not None and backend is not Backend.ENGINE)
        assert all(f"to_world: rate: 1234 bit/s become {kept} if tc" in message for message in found)


def test_plan_does_not_recommend_virtual_time_to_those_who_asked_for_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1 GB"])
    (link,) = experiment.links
    fast = replace(link, to_island=replace(link.to_island, rate=Rate.parse("2.5 Gbit/s")))
    described = network, replace(experiment, links=(fast,), transfer=None)
    with pytest.raises(DescriptionError, match="--on virtual take any rate"):
        print_plan(described, Backend.ENGINE, MININET, as_json=True, strict=True)
    print_plan(described, Backend.ENGINE, VIRTUAL, as_json=True, strict=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "links: {sat: {to_island: {queue: 10 MB}}}",
            "link 'sat': to_island: queue: a queue of 10 MB at 16 Mbit/s delays packets by 5.0 s when full",
        ),
        (
            "links: {sat: {to_world: {rate: 60 kbit/s}}}",
            "ping: interval: pings every 100 ms take 11% of the 60 kbit/s of 'sat'",
        ),
        ("links: {sat: {to_world: {loss: 60 %}}}", "link 'sat': to_world: loss: 60 % of the packets are lost"),
        ("udp: {rate: 20 Mbit/s}", "udp: rate: 20 Mbit/s of UDP fill 'sat' (16 Mbit/s)"),
        (
            "traffic: {flows_per_s: 200}",
            "traffic: flows_per_s: 200 flows a second of 100 kB in the mean and UDP ask for",
        ),
        (
            "links: {sat: {to_world: {rate: 1234 bit/s}}}",
            "link 'sat': to_world: rate: 1234 bit/s become 1.232 kbit/s",
        ),
        (
            "links: {sat: {to_island: {delay: 9 s}}}",
            "tcp: buffer_max: 16 MB is less than",
        ),
    ],
)
def test_what_a_change_makes_doubtful_is_told_once_with_its_line(
    project: Path, tmp_path: Path, change: str, message: str
) -> None:
    text = (project / "examples/geo.yaml").read_text().replace("../emulation", f"{project}/emulation")
    path = tmp_path / "changing.yaml"
    path.write_text(f"{text}\nchanges:\n  - {{at: 5 s, {change}}}\n  - {{at: 50 s, latency: {{w1: null}}}}\n")
    line = next(number for number, each in enumerate(path.read_text().splitlines(), 1) if "at: 5 s" in each)
    settings = ["udp={rate: 1 Mbit/s}", "traffic={channels: 20, flow_sizes: 100 kB, flows_per_s: 1}", "transfer="]
    network, experiment = load_experiment(path, [*settings, "tcp.buffer_max=16 MB"])
    assert description_warnings(network, replace(experiment, schedule=())) == ()
    found = [doubt for doubt in description_warnings(network, experiment) if message in doubt.message]
    assert [(doubt.line, doubt.key_path) for doubt in found] == [(line, ("changes", 0))]
    assert found[0].message.startswith(f"from 5 s on: {message}")


def test_a_transfer_is_measured_by_the_rates_of_its_whole_time(project: Path) -> None:
    slow = "{{at: {} s, links: {{sat: {{to_island: {{rate: 1 Mbit/s}}}}}}}}"
    for at_s, doubtful in ((11, True), (55, False)):
        found = warned(project, f"changes=[{slow.format(at_s)}]", "transfer.size=10 MB")
        assert any(each.startswith("transfer: size: 10 MB takes at least ") for each in found) == doubtful


CODED = {  # of examples/coder-geo.yaml, as shares of 16 Mbit/s
    "udp={rate: 14 Mbit/s}": None,
    "udp={rate: 15 Mbit/s}": ("1.5 Mbit/s", "15 Mbit/s", "1 Mbit/s"),
    "traffic={channels: 60, flow_sizes: 100 MB, write_rate: 250 kbit/s}": ("1.5 Mbit/s", "15 Mbit/s", "1 Mbit/s"),
    "traffic={channels: 20, flow_sizes: 100 kB, flows_per_s: 18}": None,
    "traffic={channels: 200, flow_sizes: published}": None,
}


def test_adaptive_redundancy_counts_as_it_is_without_reports(project: Path) -> None:
    own = {"redundancy": "adaptive", "redundancy_fallback": "6"}
    given = [f"boxes.{box}.{key}={text}" for box in ("coder-w", "coder-i") for key, text in own.items()]
    load = "udp={rate: 15 Mbit/s}"
    found = description_warnings(*load_experiment(project / "examples/coder-geo.yaml", [load, *given]))
    assert [doubt.message for doubt in found if "its redundancy needs 3 Mbit/s" in doubt.message]


@pytest.mark.parametrize(("load", "amounts"), CODED.items())
def test_redundancy_that_the_load_leaves_no_room_for_is_warned_of(
    project: Path, load: str, amounts: tuple[str, str, str] | None
) -> None:
    """3 repair packets for 30. What a closed loop asks for is not known."""
    found = description_warnings(*load_experiment(project / "examples/coder-geo.yaml", [load]))
    said = [doubt.message for doubt in found if "redundancy" in doubt.message]
    if amounts is None:
        assert said == []
    else:
        (message,) = said
        needs, of, left = amounts
        assert message.endswith(
            f"box 'coder-w': its redundancy needs {needs}, but a load of {of} leaves {left} of the 16 Mbit/s of 'sat', "
            "so it fills the queue or is never sent; usual is less than what is left"
        )


def test_of_adapted_redundancy_the_fallback_is_known(project: Path) -> None:
    given = [f"boxes.{box}.redundancy=adaptive" for box in ("coder-w", "coder-i")]
    for fallback, amounts in ((3, ["1.5 Mbit/s"]), (0, [])):
        more = [*given, f"boxes.coder-w.redundancy_fallback={fallback}", "udp={rate: 15 Mbit/s}"]
        found = description_warnings(*load_experiment(project / "examples/coder-geo.yaml", more))
        said = [doubt.message for doubt in found if "redundancy" in doubt.message]
        assert len(said) == len(amounts)
        assert all(amount in message for amount, message in zip(amounts, said, strict=True))


def test_redundancy_is_warned_of_with_its_line_and_for_the_coded_part_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the end that encodes towards the island; half of the streams pass the coders of the second example."""
    monkeypatch.chdir(project)
    geo, half = Path("examples/coder-geo.yaml"), Path("examples/coder-half.yaml")
    lines = geo.read_text(encoding="utf-8").splitlines()
    streams = "traffic={channels: 60, flow_sizes: 100 MB, write_rate: 250 kbit/s}"
    network, experiment = load_experiment(geo)
    udp = load_experiment(geo, ["udp={rate: 15 Mbit/s}"])[1].udp
    (doubt,) = description_warnings(network, replace(experiment, udp=udp))
    assert lines[doubt.line - 1].startswith("  coder-w: ")
    assert check([half], as_json=False, settings=[streams, "transfer=null"]) == 0
    assert "its redundancy needs 1.5 Mbit/s, but a load of 15 Mbit/s leaves 1 Mbit/s" in capsys.readouterr().err
    fewer = [streams, "transfer=null", "boxes.coder-w.redundancy=3", "boxes.coder-i.redundancy=3"]
    assert check([half], as_json=False, settings=fewer) == 0
    assert "redundancy" not in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""Doubtful wishes are warned of, not refused; ``--strict`` refuses them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll.cli.check import check
from atoll.cli.plan import print_plan
from atoll.cli.warning import warn
from atoll.control.doubts import doubts
from atoll.model.errors import DescriptionError
from atoll.model.load import load_experiment
from atoll.model.places import MININET, VIRTUAL
from atoll.model.plan import Backend
from atoll.model.units import Duration, Rate

SMALL_BUFFERS = (
    "tcp: buffer_max: 1.399999 MB is less than the bandwidth-delay product, 16 Mbit/s x 700 ms = 1.4 MB, "
    "so one connection cannot fill the link; usual is at least that"
)


def warned(project: Path, *settings: str) -> list[str]:
    return [doubt.message for doubt in doubts(*load_experiment(project / "examples/geo.yaml", settings))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tcp.buffer_max=1399999 B"], SMALL_BUFFERS),
        (
            ["transfer.size=200 MB"],
            (
                "transfer: size: 200 MB takes at least 100.0 s at 16 Mbit/s, and the run ends 50 s after the "
                "transfer's start; usual is a duration that leaves it twice that"
            ),
        ),
        (["ping.interval=1 min"], "ping: interval: 1 min is no less than the duration, 1 min; usual is 100 ms"),
        (
            ["ping.interval=2 ms"],
            "ping: interval: pings every 2 ms take 8% of the 4 Mbit/s of 'sat'; usual is at most 5%",
        ),
        (
            ["links.sat.to_world.queue=1100 kB"],
            "link 'sat': to_world: queue: 1.1 MB at 4 Mbit/s delay packets by 2.2 s when full; usual is less than 2 s",
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
            "udp: rate: 16 Mbit/s fill the 16 Mbit/s of 'sat' alone; usual is an eighth of that",
        ),
    ],
)
def test_a_doubtful_wish_is_possible_and_warned_of(project: Path, settings: list[str], message: str) -> None:
    assert warned(project, *settings) == [message]


def test_what_is_usual_is_not_warned_of(project: Path) -> None:
    assert warned(project) == []
    assert warned(project, "tcp.buffer_max=1.4 MB", "links.sat.to_island.aqm={codel: {interval: 700 ms}}") == []


def test_a_duration_of_the_command_line_counts(project: Path) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml")
    (doubt,) = doubts(network, replace(experiment, duration=Duration.parse("11 s")))
    assert "10 MB takes at least 5.0 s" in doubt.message


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


def test_json_has_warnings_beside_mistakes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = doubtful(project, tmp_path)

    def told(*, strict: bool) -> dict[str, Any]:
        check([file], as_json=True, strict=strict)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    lenient, strict = told(strict=False), told(strict=True)
    assert (lenient["ok"], lenient["mistakes"], [each["message"] for each in lenient["warnings"]]) == (
        True,
        [],
        [SMALL_BUFFERS],
    )
    assert (strict["ok"], strict["mistakes"], strict["warnings"]) == (False, lenient["warnings"], [])


def test_the_other_verbs_print_warnings_and_strict_refuses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = doubts(*load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1399999 B"]))
    assert [each["message"] for each in warn(found, strict=False)] == [SMALL_BUFFERS]
    assert f"warning: {SMALL_BUFFERS}\n" in capsys.readouterr().err
    with pytest.raises(DescriptionError, match="bandwidth-delay product"):
        warn(found, strict=True)
    assert warn((), strict=True) == []


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("[tap-w, coder-w, sat, coder-i, tap-i]", None),
        ("[tap-w, pep-w, sat, tap-i]", None),  # alone between captures: payload proves what passes it
        ("[sat]", "captures do not show what sat loses; usual is a tap at the world's end and at the island's end"),
        ("[coder-w, tap-w, sat, tap-i]", "captures do not show what coder-w loses; usual is a tap at the world's end"),
        (
            "[tap-w, coder-w, pep-w, sat, tap-i, pep-i]",
            (
                "captures do not show what pep-i and coder-w lose; usual is a tap at the island's end and between "
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
    (tmp_path / "geo.yaml").write_text(experiment)
    found = doubts(*load_experiment(tmp_path / "geo.yaml", [f"chain={chain}"]))
    assert [doubt.message for doubt in found] == ([f"chain: {message}"] if message else [])


def test_a_rate_beyond_what_the_engine_was_measured_at_is_warned_of_but_not_with_tc(project: Path) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1 GB"])
    (link,) = experiment.links
    fast = replace(link, to_island=replace(link.to_island, rate=Rate.parse("2.5 Gbit/s")))
    experiment = replace(experiment, links=(fast,))
    (doubt,) = doubts(network, experiment, Backend.ENGINE)
    assert doubts(network, experiment) == (doubt,)
    assert "2.5 Gbit/s is more than the 1 Gbit/s up to which the engine was measured in real time" in doubt.message
    assert doubt.message.endswith("--backend tc and --on virtual take up to 10 Gbit/s")
    assert doubts(network, experiment, Backend.TC) == ()
    assert doubts(network, experiment, Backend.ENGINE, real_time=False) == ()


def test_plan_does_not_recommend_virtual_time_to_those_who_asked_for_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, experiment = load_experiment(project / "examples/geo.yaml", ["tcp.buffer_max=1 GB"])
    (link,) = experiment.links
    fast = replace(link, to_island=replace(link.to_island, rate=Rate.parse("2.5 Gbit/s")))
    described = network, replace(experiment, links=(fast,))
    with pytest.raises(DescriptionError, match="--on virtual take up to 10 Gbit/s"):
        print_plan(described, Backend.ENGINE, MININET, as_json=True, strict=True)
    print_plan(described, Backend.ENGINE, VIRTUAL, as_json=True, strict=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == []

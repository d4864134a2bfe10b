# SPDX-License-Identifier: Apache-2.0
"""Settings side by side: one row a setting, in the words of descriptions, whatever kinds of things stand there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from atoll_core.described import setting_text
from atoll_core.description.loader import load_experiment
from atoll_core.description.yaml_document import compose_document
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    BoxConfiguration,
    Codel,
    Experiment,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkTrace,
    Loss,
    LossPoint,
    LossTrace,
    Red,
    TraceRow,
    Transfer,
)
from atoll_core.experiment.flow_sizes import FlowSizes, Interpolation, published
from atoll_core.experiment.setting_texts import Setting, settings_table, settings_tree
from atoll_core.lab.box_kind import PROGRAM
from atoll_core.lab.network import Network, Program, Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.units import Duration, Rate, Size
from tests.support.sandbox import ROOT
from tests.support.synthetic_run import experiment, network

DASH = "\N{EN DASH}"
LAB = network()


def table(lab: Network, *experiments: Experiment) -> Iterator[Setting]:
    return settings_table("", [each.described(lab) for each in experiments])


def unlike(*experiments: Experiment, lab: Network = LAB) -> dict[str, tuple[str, ...]]:
    return {each.key: each.texts for each in table(lab, *experiments) if not each.alike}


def alike(*experiments: Experiment) -> dict[str, str]:
    return {each.key: each.texts[0] for each in table(LAB, *experiments) if each.alike}


def to_island(**changes: Any) -> Experiment:
    asked = experiment()
    link = asked.links[0]
    return replace(asked, links=(replace(link, to_island=replace(link.to_island, **changes)),))


def test_settings_of_one_experiment_have_the_shape_of_its_file() -> None:
    tree = settings_tree(to_island(loss=Bernoulli(0.01)), network())
    assert tree["links"]["sat"]["to_island"]["loss"] == "1 %"
    assert tree["traffic"]["port"] == "5001"
    assert "changes" not in tree  # unset


def test_changes_have_the_shape_of_the_file_and_only_what_differs() -> None:
    asked = to_island(loss=Bernoulli(0.01))
    first = replace(asked.versions[0], traffic=asked.traffic, links=asked.links, udp_rate=Rate(10**6))
    louder = replace(first, at=Duration(10**9), traffic=replace(asked.traffic, channels=60), udp_rate=Rate(2 * 10**6))
    clean = replace(louder, at=Duration(2 * 10**9), links=experiment().links)
    assert settings_tree(replace(asked, schedule=(first, louder, clean)), network())["changes"] == [
        {"at": "1 s", "traffic": {"channels": "60"}, "udp": {"rate": "2 Mbit/s"}},
        {"at": "2 s", "links": {"sat": {"to_island": {"loss": "null"}}}},
    ]


def test_settings_of_boxes_have_names_and_units_as_in_the_file() -> None:
    lab, asked = load_experiment(ROOT / "examples/coder-geo.yaml")
    boxes = settings_tree(asked, lab)["boxes"]
    assert {key: boxes["coder-w"][key] for key in ("flush", "residual_loss", "link_rate", "generation", "mode")} == {
        "flush": "100 ms",
        "residual_loss": "0.1 %",
        "link_rate": "16 Mbit/s",
        "generation": "30",
        "mode": "on",
    }


def test_boxes_are_compared_by_their_names() -> None:
    lab, asked = load_experiment(ROOT / "examples/coder-geo.yaml")
    names = [each.box for each in asked.boxes]
    faster = tuple(
        replace(each, settings=tuple((key, 50_000_000 if key == "flush" else value) for key, value in each.settings))
        if each.box == "coder-w"
        else each
        for each in reversed(asked.boxes)
    )
    other = replace(asked, boxes=faster)
    assert len(names) > 1
    assert unlike(asked, other, lab=lab) == {"boxes.coder-w.flush": ("100 ms", "50 ms")}


def test_settings_that_a_kind_does_not_declare_stay_as_they_were_recorded() -> None:
    """As in runs of other versions."""
    lab, asked = load_experiment(ROOT / "examples/coder-geo.yaml")
    old = replace(asked, boxes=(BoxConfiguration("coder-w", (("flush", None), ("former", 7))),))
    assert settings_tree(old, lab)["boxes"] == {"coder-w": {"former": "7"}}


def lossy(loss: Loss | None) -> Experiment:
    return to_island(loss=loss)


BURSTY = GilbertElliott(0.001, 0.2)


@pytest.mark.parametrize(
    ("first", "then", "key", "texts"),
    [
        (None, Bernoulli(0.01), "loss", ("null", "1 %")),
        (Bernoulli(0.001), Bernoulli(0.01), "loss", ("0.1 %", "1 %")),
        (Bernoulli(0.01), LossTrace("loss.txt", (True, False)), "loss", ("1 %", "{trace: loss.txt, where: after}")),
        (
            Bernoulli(0.01),
            BURSTY,
            "loss",
            (
                "1 %",
                (
                    "{model: gilbert-elliott, good_to_bad: 0.1 %, bad_to_good: 20 %, loss_good: 0 %, loss_bad: 100 %, "
                    "where: after}"
                ),
            ),
        ),
        (BURSTY, replace(BURSTY, loss_bad=0.5), "loss.loss_bad", ("100 %", "50 %")),
        (BURSTY, replace(BURSTY, where=LossPoint.BEFORE), "loss.where", ("after", "before")),
        (Bernoulli(0.01), BitError(1e-7), "loss", ("1 %", "{bit_error: 1e-07, where: after}")),
        (Bernoulli(0.01), Bernoulli(0.01, LossPoint.BEFORE), "loss", ("1 %", "{probability: 1 %, where: before}")),
    ],
)
def test_loss_is_one_row(first: Loss | None, then: Loss | None, key: str, texts: tuple[str, ...]) -> None:
    """However a description writes it, and with whatever it is compared."""
    assert unlike(lossy(first), lossy(then)) == {f"links.sat.to_island.{key}": texts}


def test_the_rest_of_a_setting_that_differs_in_part_is_alike() -> None:
    transfer = Transfer(Size(10**7), Duration(10**9), "atoll", 5201)
    asked, other = experiment(transfer=transfer), experiment(transfer=replace(transfer, size=Size(10**6)))
    assert unlike(asked, other) == {"transfer.size": ("10 MB", "1 MB")}
    answer = alike(asked, other)
    assert (answer["transfer.start"], answer["transfer.tool"], answer["transfer.port"]) == ("1 s", "atoll", "5201")
    assert answer["transfer.congestion_control"] == "null"


def test_what_only_one_has_is_told_as_a_whole() -> None:
    asked = experiment(transfer=Transfer(Size(10**7), Duration(10**9), "atoll", 5201))
    other = experiment(transfer=None, tcp=replace(asked.tcp, servers=(("w1", "bbr"),)))
    assert unlike(asked, other) == {
        "transfer": ("{size: 10 MB, start: 1 s, tool: atoll, port: 5201}", "null"),
        "tcp.servers.w1": (DASH, "bbr"),
    }


def test_queue_management_goes_by_the_keys_of_descriptions() -> None:
    codel = Codel(Duration(5 * 10**6), Duration(10**8))
    red = Red(Size(30_000), Size(90_000), 0.1, 0.002)
    patient = replace(codel, target=Duration(20 * 10**6))
    key = "links.sat.to_island.aqm"
    assert unlike(to_island(aqm=codel), to_island(aqm=patient)) == {f"{key}.codel.target": ("5 ms", "20 ms")}
    assert unlike(to_island(aqm=codel), to_island(aqm=red), to_island()) == {
        key: (
            "{codel: {target: 5 ms, interval: 100 ms}}",
            "{red: {min: 30 kB, max: 90 kB, weight: 0.002, probability: 10 %}}",
            "null",
        )
    }


def test_jitter_goes_by_its_parts() -> None:
    steady = Jitter(JitterShape.NORMAL, Duration(10**6))
    assert unlike(to_island(jitter=steady), to_island(jitter=replace(steady, correlation=0.25))) == {
        "links.sat.to_island.jitter.correlation": ("0 %", "25 %")
    }


def test_files_are_alike_by_what_is_in_them() -> None:
    """A file that was edited between two runs is another one; one that was moved is not."""
    rain = LinkTrace("rain.csv", (TraceRow(Duration(0)),))
    moved, edited = replace(rain, file="elsewhere/rain.csv"), replace(rain, rows=(TraceRow(Duration(0), loss=0.1),))
    assert unlike(to_island(trace=rain), to_island(trace=moved)) == {}
    ((key, (first, then)),) = unlike(to_island(trace=rain), to_island(trace=edited)).items()
    assert key == "links.sat.to_island.trace"
    assert first.startswith("rain.csv, SHA-256 ")
    assert then.startswith("rain.csv, SHA-256 ")
    assert first != then


def test_flow_sizes_are_one_setting_with_what_they_stand_for() -> None:
    asked = experiment()
    sizes = FlowSizes("mine.csv", Interpolation.STEPS, ((10**9, 1000),))
    mine = replace(asked, traffic=replace(asked.traffic, flow_sizes="mine.csv", sizes=sizes))
    edited = replace(mine, traffic=replace(mine.traffic, sizes=replace(sizes, knots=((10**9, 2000),))))
    assert unlike(asked, mine) == {"traffic.flow_sizes": ("published", "mine.csv")}
    assert list(unlike(mine, edited)) == ["traffic.flow_sizes"]
    assert alike(mine, mine)["traffic.flow_sizes"] == "mine.csv"


def test_pro_rating_leaves_the_name_of_the_published_sizes() -> None:
    asked = experiment()
    least = Size(300)
    sizes = published().pro_rated(least.bytes)
    other = replace(asked, traffic=replace(asked.traffic, pro_rate=least, sizes=sizes))
    assert unlike(asked, other) == {"traffic.pro_rate": ("null", "300 B")}


def test_machines_of_a_laboratory_go_by_name_and_lists_are_one_setting() -> None:
    """Also where other machines are before them in their list."""
    trunks = (
        Trunk(PortRef("s1", 30), PortRef("s2", 1), Rate(10**9)),
        Trunk(PortRef("s1", 31), PortRef("s3", 1), Rate(10**9)),
    )
    program = replace(LAB.boxes[0], kind=PROGRAM, program=Program(("coder", "--rate", "1/2 of all", "a: b")))
    first = replace(LAB, trunks=trunks, boxes=(program,))
    after = replace(program, program=Program(("coder",)))
    then = replace(first, hosts=LAB.hosts[::-1], trunks=trunks[1:], boxes=(after,))
    others = settings_table("lab", [first.described, then.described])
    assert {each.key: each.texts for each in others if not each.alike} == {
        "lab.trunks": (
            "[{from: s1/30, to: s2/1, rate: 1 Gbit/s}, {from: s1/31, to: s3/1, rate: 1 Gbit/s}]",
            "[{from: s1/31, to: s3/1, rate: 1 Gbit/s}]",
        ),
        "lab.boxes.sat.program.start": ('[coder, --rate, 1/2 of all, "a: b"]', "[coder]"),
    }


def test_shares_are_exact() -> None:
    less, more = Bernoulli(0.1), Bernoulli(0.1 + 1e-16)
    assert unlike(lossy(less), lossy(more)) == {"links.sat.to_island.loss": ("10 %", "10.00000000000001 %")}


@pytest.mark.parametrize("word", ["null", "True", "0x1f", "1e3", "8080", "-", "a: b", "a, b", "#a", "it's", ""])
def test_text_that_yaml_reads_otherwise_has_quotes(word: str) -> None:
    assert setting_text([word]) == f"[{json.dumps(word)}]"
    document = compose_document(f"words: {setting_text([word, 'plain words', 'rtt-5', '1/2'])}", "")
    assert document.tree == {"words": [word, "plain words", "rtt-5", "1/2"]}

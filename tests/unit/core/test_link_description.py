# SPDX-License-Identifier: Apache-2.0
"""Impaired and time-varying links: what descriptions of them resolve to, and the message for every kind of mistake."""

# ruff: noqa: E501 (the table of mistakes reads best with a message on a line)

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import from_json, to_json
from atoll_core.description.json_schema import FOLDER
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Codel,
    Experiment,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkDirection,
    LinkTrace,
    LossPoint,
    LossTrace,
    LowPriority,
    Red,
    TraceRow,
    mean_loss,
)
from atoll_core.units import Duration, Rate, Size

TEXT = """\
name: e
lab: lab.yaml
duration: 10 s
chain: [sat]
links:
  sat:
    to_island: {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB@}
    to_world: {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}
traffic: {channels: 0}
"""
LINE = 7  # of to_island
MS = 10**6


@pytest.fixture
def load(tmp_path, monkeypatch, project):
    """Loads an experiment whose link towards the island has what is given besides rate, delay and queue."""
    monkeypatch.chdir(tmp_path)
    Path("lab.yaml").write_text((project / "emulation/labs/island.yaml").read_text())

    def load_with(extra: str, **files: str) -> Experiment:
        for name, text in files.items():
            Path(name.replace("_", ".")).write_text(text)
        Path("e.yaml").write_text(TEXT.replace("@", f", {extra}" if extra else ""))
        return load_experiment(Path("e.yaml"))[1]

    return load_with


def mistakes_of(load, extra: str, **files: str) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        load(extra, **files)
    return str(refused.value).splitlines()


FORMS = [
    ("", "jitter", None),
    ("jitter: 5 ms", "jitter", Jitter(JitterShape.UNIFORM, Duration(5 * MS))),
    ("jitter: {amount: 5 ms}", "jitter", Jitter(JitterShape.UNIFORM, Duration(5 * MS))),
    ("jitter: {distribution: normal, amount: 5 ms, correlation: 25 %}", "jitter", Jitter(JitterShape.NORMAL, Duration(5 * MS), 0.25)),
    ("jitter: {distribution: pareto, amount: 5 ms}", "jitter", Jitter(JitterShape.PARETO, Duration(5 * MS))),
    ("reorder: true", "reorder", True),
    ("queue_packets: 100", "queue_packets", 100),
    ("loss: 0.1 %", "loss", Bernoulli(0.001)),
    ("loss: {probability: 0 %}", "loss", Bernoulli(0.0)),
    ("loss: {probability: 1 %, where: before}", "loss", Bernoulli(0.01, LossPoint.BEFORE)),
    ("loss: {bit_error: 1e-7}", "loss", BitError(1e-7, LossPoint.AFTER)),
    ("loss: {bit_error: 0.00001, where: after}", "loss", BitError(1e-5)),
    ("loss: {model: gilbert-elliott, good_to_bad: 0.1 %, bad_to_good: 20 %}", "loss", GilbertElliott(0.001, 0.2, 0.0, 1.0)),
    ("loss: {model: gilbert-elliott, good_to_bad: 0.1 %, bad_to_good: 20 %, loss_good: 0.01 %, loss_bad: 0 %}", "loss", GilbertElliott(0.001, 0.2, 0.0001, 0.0)),
    ("low_priority: 200 kB", "low_priority", LowPriority(Size(200_000))),
    ("low_priority: {queue: 200 kB, queue_packets: 100}", "low_priority", LowPriority(Size(200_000), 100)),
    ("low_priority: null", "low_priority", None),
    ("aqm: drop-tail", "aqm", None),
    ("aqm: codel", "aqm", Codel(Duration(5 * MS), Duration(100 * MS))),
    ("aqm: {codel: {interval: 600 ms}}", "aqm", Codel(Duration(5 * MS), Duration(600 * MS))),
    ("aqm: {red: {min: 30 kB, max: 90 kB}}", "aqm", Red(Size(30_000), Size(90_000), 0.1, 0.002)),
    ("aqm: {red: {min: 30 kB, max: 90 kB, probability: 5 %, weight: 1}}", "aqm", Red(Size(30_000), Size(90_000), 0.05, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("extra", "key", "resolved"), FORMS, ids=[extra for extra, *_ in FORMS])
def test_every_form_resolves_to_a_typed_setting_and_an_editor_accepts_it(load, extra, key, resolved):
    experiment = load(extra)
    assert getattr(experiment.link("sat").to_island, key) == resolved
    schema = json.loads((FOLDER / "experiment.schema.json").read_text())
    jsonschema.validate(YAML(typ="safe", pure=True).load(Path("e.yaml").read_text()), schema)


@pytest.mark.parametrize(("extra", "key", "resolved"), FORMS, ids=[extra for extra, *_ in FORMS])
def test_every_form_survives_json(load, extra, key, resolved):
    experiment = load(extra)
    assert from_json(Experiment, json.loads(json.dumps(to_json(experiment)))) == experiment


def test_traces_are_read_from_files_beside_the_experiment(load):
    direction = (
        load(
            "loss: {trace: lost.txt}, trace: t.csv",
            lost_txt="0\n# a burst\n1\n\n1\n0\n",
            t_csv="# rain\nt_s,rate_bit_s,delay_ms,loss,blocked\n0,8000000,,,\n 1.5 , , 62.5 , 0.001 , 0\n2,,,,1\n",
        )
        .link("sat")
        .to_island
    )
    assert direction.loss == LossTrace("lost.txt", (False, True, True, False))
    assert direction.trace.rows == (
        TraceRow(Duration(0), rate=Rate(8_000_000)),
        TraceRow(Duration(1500 * MS), delay=Duration(62_500_000), loss=0.001),
        TraceRow(Duration(2000 * MS), blocked=True),
    )
    again = from_json(LinkDirection, json.loads(json.dumps(to_json(direction))))
    assert again == direction


def test_paths_are_tested_at_the_beginning_of_the_trace(load, project):
    """Expected is the first row's delay, not the configured one; what jitter may add is four deviations."""
    load("trace: t.csv, jitter: {distribution: normal, amount: 2 ms}", t_csv="t_s,delay_ms\n0,100\n5,200\n")
    checks = make_plan(*load_experiment(Path("e.yaml"))).checks
    assert {(check.rtt_ns, check.jitter_ns) for check in checks} == {(350 * MS, 8 * MS)}


def test_buffers_are_held_against_the_longest_delay_of_a_trace(load):
    load("trace: t.csv", t_csv="t_s,delay_ms\n0,100\n1,60000\n")
    (doubt,) = (
        one for one in description_warnings(*load_experiment(Path("e.yaml"))) if one.key_path == ("tcp", "buffer_max")
    )
    assert "tcp: buffer_max: 16 MB is less than the bandwidth-delay product, 16 Mbit/s x 60.25 s = 120.5 MB" in str(
        doubt
    )


P = f"e.yaml:{LINE}: link 'sat': to_island: "

MISTAKES = [
    ("jitter: 251 ms", "jitter: 251 ms exceeds the delay; write at most 250 ms"),
    ("jitter: 5", "jitter: amount: the number 5 is not a duration; write a number and one of ns, us, ms, s, min, h, such as '250 ms'"),
    ("jitter: {amount: 5 ms, distribution: gamma}", "jitter: distribution: unknown distribution 'gamma'; known distributions: uniform, normal, pareto"),
    ("jitter: {distribution: normal}", "jitter: amount is missing; add 'amount: 5 ms'"),
    ("loss: '0,1 %'", "loss: probability: '0,1 %' is not a share; decimals follow a point, as in '0.1 %'"),
    ("jitter: {amount: 5 ms, correlation: 0.25}", "jitter: correlation: the number 0.25 is not a share; write a number and %, such as '0.1 %'"),
    ("queue_packets: 0", "queue_packets: the number 0 is not a whole number from 1 to 1000000"),
    ("low_priority: 1 kB", "low_priority: queue: 1 kB is too small; it must be at least 1500 B (one MTU of 'sat'), or no full-size packet ever fits"),
    ("low_priority: 200", "low_priority: queue: the number 200 is not a size; write a number and one of B, kB, MB, GB, such as '100 kB'"),
    ("low_priority: {queue_packets: 5}", "low_priority: queue is missing; add 'queue: 200 kB'"),
    ("low_priority: {queue: 200 kB, limit: 5}", "low_priority: unknown key 'limit'; known keys: queue, queue_packets"),
    ("low_priority: {queue: 200 kB, queue_packets: 0}", "low_priority: queue_packets: the number 0 is not a whole number from 1 to 1000000"),
    ("reorder: 1", "reorder: the number 1 is neither true nor false; write one of them without quotes"),
    ("loss: 100.1 %", "loss: probability: '100.1 %' is too large; it must be at most 100 %"),
    ("loss: {}", "loss: the kind of loss is missing; add one of probability, bit_error, model or trace, such as 'probability: 0.1 %'"),
    ("loss: {model: gilbert}", "loss: model: unknown model 'gilbert'; did you mean 'gilbert-elliott'? known models: gilbert-elliott"),
    ("loss: {model: gilbert-elliott, good_to_bad: 1 %}", "loss: bad_to_good is missing; add 'bad_to_good: 20 %'"),
    ("loss: {model: gilbert-elliott}", "loss: good_to_bad and bad_to_good are missing; add 'good_to_bad: 0.1 %, bad_to_good: 20 %'"),
    ("loss: {good_to_bad: 1 %, loss_bad: 1 %}", "loss: good_to_bad and loss_bad belong to a model; add 'model: gilbert-elliott' or remove them"),
    ("loss: {bit_error: 1e-7, probability: 1 %, trace: x}", "loss: probability, bit_error and trace exclude each other; keep one of them"),
    ("loss: {good_to_bad: 1 %, probability: 1 %}", "loss: good_to_bad belongs to a model; add 'model: gilbert-elliott' or remove it"),
    ("loss: {probability: 1 %, trace: x}", "loss: probability and trace exclude each other; keep one of them"),
    ("loss: {bit_error: 0.1 %}", "loss: bit_error: '0.1 %' is not a bit error rate; write a number from 0 to 1, such as 1e-7"),
    ("loss: {bit_error: 2}", "loss: bit_error: the number 2 is not a bit error rate; write a number from 0 to 1, such as 1e-7"),
    ("loss: {bit_error: 1e-7, probability: 1 %}", "loss: probability and bit_error exclude each other; keep one of them"),
    ("loss: {probability: 1 %, where: befor}", "loss: where: unknown where 'befor'; did you mean 'before'? known wheres: after, before"),
    ("loss: {where: before}", "loss: the kind of loss is missing; add one of probability, bit_error, model or trace, such as 'probability: 0.1 %'"),
    ("loss: {trace: x.txt}", "loss: trace: x.txt: there is no such file; the path is relative to this file"),
    ("aqm: fq", "aqm: unknown aqm 'fq'; known aqms: codel, red, drop-tail"),
    ("aqm: {red: {max: 90 kB}}", "aqm: red: min is missing; add 'min: 30 kB'"),
    ("aqm: {codel: {}, red: {min: 1 B, max: 2 B}}", "aqm: write one of codel and red, such as 'aqm: codel'"),
    ("aqm: {codel: {targt: 5 ms}}", "aqm: codel: unknown key 'targt'; did you mean 'target'? known keys: interval, target"),
    ("aqm: {codel: {interval: 2 h}}", "aqm: codel: interval: '2 h' is too large; it must be at most 60 s"),
    ("aqm: {codel: {target: 1 s}}", "aqm: codel: target 1 s exceeds interval 100 ms; lower it"),
    ("aqm: {red: {min: 90 kB, max: 90 kB}}", "aqm: red: min: 90 kB is not below max, 90 kB; lower it"),
    ("aqm: {red: {min: 30 kB, max: 101 kB}}", "aqm: red: max: 101 kB exceeds the queue of 100 kB; lower it"),
    ("aqm: {red: {min: 30 kB, max: 90 kB, weight: 0}}", "aqm: red: weight: the number 0 is not a weight; write a number above 0 and up to 1, such as 0.002"),
    ("loss: 100 %", "loss: every packet is lost, so paths cannot be tested before the load; write less than 100 %"),
    ("loss: {probability: 100 %, where: before}", "loss: every packet is lost, so paths cannot be tested before the load; write less than 100 %"),
    ("loss: {bit_error: 1}", "loss: every packet is lost, so paths cannot be tested before the load; write a smaller one, such as 1e-7"),
    ("loss: {bit_error: 0.1}", "loss: every packet is lost, so paths cannot be tested before the load; write a smaller one, such as 1e-7"),
    ("loss: {model: gilbert-elliott, good_to_bad: 1 %, bad_to_good: 0 %}", "loss: every packet is lost, so paths cannot be tested before the load; write bad_to_good above 0 %, or loss_good or loss_bad below 100 %"),
    ("loss: {model: gilbert-elliott, good_to_bad: 1 %, bad_to_good: 20 %, loss_good: 100 %}", "loss: every packet is lost, so paths cannot be tested before the load; write bad_to_good above 0 %, or loss_good or loss_bad below 100 %"),
    ("trace: nowhere.csv", "trace: nowhere.csv: there is no such file; the path is relative to this file"),
    ("trace: .", "trace: .: is a directory; give a CSV file; the path is relative to this file"),
]  # fmt: skip


@pytest.mark.parametrize(("extra", "message"), MISTAKES, ids=[extra for extra, _ in MISTAKES])
def test_a_mistake_is_told_once_with_its_remedy(load, extra, message):
    assert mistakes_of(load, extra) == [P + message]


IN_TRACES = [
    ("", "t.csv:1: has no rows; a trace begins with a line of column names, such as 't_s,rate_bit_s'"),
    ("t_s,rate\n0,1\n", "t.csv:1: unknown column 'rate'; known columns: t_s, rate_bit_s, delay_ms, loss, blocked"),
    ("t_s,loss,loss\n0,0,0\n", "t.csv:1: column loss occurs twice; keep one of them"),
    ("loss,t_s\n0,0\n", "t.csv:1: the first column must be t_s, the time in seconds"),
    ("t_s\n0\n", "t.csv:1: no column has values that change with time; add one or more of t_s, rate_bit_s, delay_ms, loss, blocked"),
    ("t_s,loss\n", "t.csv:1: there is no row below the column names; add one for t_s 0"),
    ("t_s,loss\n0\n", "t.csv:2: 1 cells where the header names 2 columns; write one for each"),
    ("#\n\nt_s,loss\n0.5,0\n", "t.csv:4: the first row must have t_s 0; it also applies before the load begins"),
    ("t_s,loss\n0,0\n2,0\n1.5,0\n", "t.csv:4: t_s 1.5 is not later than 2 of the previous row; put rows in ascending order"),
    ("t_s,loss\n0,1.5\n", "t.csv:2: loss: 1.5 is not from 0 to 1"),
    ("t_s,loss\n0,-0.5\n", "t.csv:2: loss: '-0.5' is not a number without sign, unit or exponent, such as '62.5'"),
    ("t_s,loss\n0,nan\n", "t.csv:2: loss: 'nan' is not a number without sign, unit or exponent, such as '62.5'"),
    ("t_s,delay_ms\n0,60001\n", "t.csv:2: delay_ms: 60001 is not from 0 to 60000"),
    ("t_s,rate_bit_s\n0,0\n", "t.csv:2: rate_bit_s: 0 is not from 1000 to 100000000000"),
    ("t_s,blocked\n0,0\n1,yes\n", "t.csv:3: blocked: 'yes' is neither 0 nor 1"),
    ("t_s,blocked\n,0\n", "t.csv:2: t_s: '' is not a number without sign, unit or exponent, such as '62.5'"),
    ("t_s,blocked\n0,1\n", "t.csv:2: link 'sat': to_island: the link is blocked at t_s 0, so paths cannot be tested before the load; write blocked 0 in the first row"),
    ("t_s,loss\n0,1\n1,0\n", "t.csv:2: link 'sat': to_island: every packet is lost at t_s 0, so paths cannot be tested before the load; write a loss below 1 in the first row"),
    ("t_s,rate_bit_s\n0,1000\n1,17000000\n2,18000000\n", "t.csv:3: link 'sat': to_island: 17 Mbit/s is too fast: rate is 16 Mbit/s (e.yaml:7), the largest rate that the link can have; raise that to 18 Mbit/s"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), IN_TRACES, ids=[repr(text) for text, _ in IN_TRACES])
def test_a_mistake_in_a_trace_is_told_where_it_is(load, text, message):
    assert mistakes_of(load, "trace: t.csv", t_csv=text) == [message]


def test_a_trace_of_losses_alone_is_refused(load):
    assert mistakes_of(load, "loss: {trace: lost.txt}", lost_txt="1\n1\n") == [
        P + "loss: every packet is lost, so paths cannot be tested before the load; write a 0 in the file"
    ]


ALL_LOST = (
    "100 %",
    "{bit_error: 1}",
    "{model: gilbert-elliott, good_to_bad: 1 %, bad_to_good: 0 %}",
    "{trace: lost.txt}",
)


@pytest.mark.parametrize("loss", ALL_LOST)
def test_a_change_may_lose_every_packet(load, loss):
    """In a change, as the paths have been tested before."""
    Path("lost.txt").write_text("1\n")
    load("")
    with Path("e.yaml").open("a") as file:
        file.write(f"changes: [{{at: 1 s, links: {{sat: {{to_island: {{loss: {loss}}}}}}}}}]\n")
    _, experiment = load_experiment(Path("e.yaml"))
    changed = experiment.versions[1].links[0].to_island.loss
    assert changed is not None
    assert mean_loss(changed, 84) == 1


def test_jitter_may_not_exceed_the_least_delay_of_a_trace(load):
    answer = mistakes_of(load, "jitter: 50 ms, trace: t.csv", t_csv="t_s,delay_ms\n0,100\n1,20\n")
    assert answer == [P + "jitter: 50 ms exceeds the least delay of the trace; write at most 20 ms"]


def test_the_short_form_of_red_lacks_both_thresholds(load):
    answer = mistakes_of(load, "aqm: red")
    assert [mistake.partition("aqm: red: ")[2] for mistake in answer] == [
        "max is missing; add 'max: 90 kB'",
        "min is missing; add 'min: 30 kB'",
    ]


def test_a_file_that_is_wrong_in_every_line_is_told_ten_times(load):
    answer = mistakes_of(load, "loss: {trace: lost.txt}", lost_txt="x\n" * 1000)
    wrong = "'x' is neither 0 (the packet passes) nor 1 (it is lost)"
    assert answer == [f"lost.txt:{line}: {wrong}" for line in range(1, 11)]


def test_a_trace_that_both_directions_follow_is_told_of_once(load):
    text = TEXT.replace("@", ", trace: t.csv").replace("100 kB}\ntraffic", "100 kB, trace: t.csv}\ntraffic")
    Path("t.csv").write_text("t_s,loss\n0,2\n")
    Path("e.yaml").write_text(text)
    with pytest.raises(DescriptionError) as refused:
        load_experiment(Path("e.yaml"))
    assert str(refused.value) == "t.csv:2: loss: 2 is not from 0 to 1"


def test_a_trace_has_bounds(load):
    rows = "".join(f"{second},0\n" for second in range(50_001))
    assert "more than 50000 rows" in mistakes_of(load, "trace: t.csv", t_csv="t_s,loss\n" + rows)[0]


def test_a_full_queue_empties_at_the_least_rate_of_a_trace_but_for_pauses():
    rows = [(0, 16_000_000), (10, 2_000_000), (20, 0), (30, 8_000_000)]
    trace = LinkTrace("rain.csv", tuple(TraceRow(Duration(s * 10**9), Rate(rate)) for s, rate in rows))
    way = LinkDirection(Rate(16_000_000), Duration(0), Size(100_000), trace=trace)
    assert way.full_queue == Duration(400_000_000)
    assert way.longest_pause == Duration(10 * 10**9)

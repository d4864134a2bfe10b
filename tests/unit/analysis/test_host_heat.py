# SPDX-License-Identifier: Apache-2.0
"""Hot, throttled and busy machines: from two samples of agents to a finding, silent where nothing is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.verdict.host_heat import HostHeat, judge_heat
from atoll_analysis.verdict.verdict import judge
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_testbed.run.kernel_drops import DropSample, heat_between
from tests.unit.analysis.test_verdict import VALID


@pytest.fixture
def sample(project: Path) -> dict[str, Any]:
    """An agent's sample, as the contract shows it."""
    lines = (project / "tests/data/contract/agent.jsonl").read_text().splitlines()
    (sample,) = (message["sample"] for line in lines if "sample" in (message := json.loads(line)["message"]))
    return sample


def changed(sample: dict[str, Any], **figures: float | None) -> DropSample:
    return DropSample({**sample, "machine": {**sample["machine"], **figures}})


def findings(begin: dict[str, DropSample], end: dict[str, DropSample]) -> list[str]:
    """Findings of a run between two samples; none of them makes it invalid."""
    found = list(judge_heat({name: HostHeat(**heat) for name, heat in heat_between(begin, end).items()}))
    assert not any(finding.is_reason for finding in found)
    return [finding.text for finding in found]


def test_a_throttled_machine_is_named_with_its_temperature_and_the_remedy(sample: dict[str, Any]) -> None:
    """Only looks of this run count; the machine that stayed cool is not named."""
    begin = {name: changed(sample, heat_looks=100, hot_looks=7) for name in ("pi-3", "pi-4")}
    end = {
        "pi-3": changed(sample, heat_looks=112, hot_looks=11, temperature_max_c=82.4),
        "pi-4": changed(sample, heat_looks=112, hot_looks=7),
    }
    assert findings(begin, end) == [
        (
            "HOST_HOT: processors were throttled or at their temperature limit: pi-3 in 4 of 12 looks (82 °C, limit "
            "80 °C): cool the machine, or give it fewer channels (capacity)"
        )
    ]


def test_a_weak_power_supply_has_another_remedy(sample: dict[str, Any]) -> None:
    end = {"pi-3": changed(sample, heat_looks=20, low_voltage_looks=2)}
    (finding,) = findings({"pi-3": DropSample(sample)}, end)
    assert finding == (
        "HOST_HOT: processors were slowed down by a supply voltage that is too low: pi-3 in 2 of 8 looks: "
        "use a stronger power supply or a shorter cable"
    )


def test_a_machine_without_idle_time_is_too_busy(sample: dict[str, Any]) -> None:
    """Not that of an emulated lab, whose links measure their own lateness."""
    machine = sample["machine"]
    busy = changed(sample, busy_ns=machine["busy_ns"] + 97_000, idle_ns=machine["idle_ns"] + 3_000)
    most = changed(sample, busy_ns=machine["busy_ns"] + 95_000, idle_ns=machine["idle_ns"] + 5_000)
    before: dict[str, DropSample] = dict.fromkeys(("nuc-1", "nuc-2", EMULATION), DropSample(sample))
    assert findings(before, {"nuc-1": busy, "nuc-2": most, EMULATION: busy}) == [
        (
            "HOST_HOT: processors were too busy, bound 95 %: nuc-1 97.0 %: stop other programs there, or give the "
            "machine fewer channels (capacity)"
        )
    ]


def test_nothing_is_said_of_machines_without_sensors(sample: dict[str, Any]) -> None:
    """Their figures are null; older agents send none; agents that did not answer have no sample."""
    names = [name for name in sample["machine"] if name.startswith(("temperature", "heat", "hot", "low"))]
    assert len(names) == 6
    unknown = changed(sample, **dict.fromkeys(names))
    older = DropSample({**sample, "machine": {"busy_ns": 1, "idle_ns": 2}})
    silent = DropSample(unknown="it has ended")
    samples = {"a": unknown, "b": older, "c": silent, EMULATION: unknown}
    assert heat_between(samples, samples) == {}


def test_the_whole_verdict_has_the_finding_as_a_caveat() -> None:
    heat = dict.fromkeys(("temperature_max_c", "temperature_limit_c", "low_voltage_looks", "busy"))
    summary: Any = {**VALID, "host_heat": {"i1": {**heat, "looks": 3, "hot_looks": 3}}}
    (finding,) = judge(summary)
    assert finding.text.startswith("HOST_HOT: ")
    assert "i1 in 3 of 3 looks: cool" in finding.text
    assert judge({**VALID, "host_heat": {}}) == []  # type: ignore[typeddict-item]

# SPDX-License-Identifier: Apache-2.0
"""The measurements by name: their cases, the boxes they compare, how long one takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from linkbench import classes, delay, joint, rate, throughput
from linkbench.measurement import CaseFigures

ENGINE = "engine"
_WITHOUT_LOSS = (throughput.GIGABIT, throughput.FASTEST)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question asked of several boxes under several loads."""

    name: str
    question: str
    cases: Sequence[str]
    boxes: Sequence[str]  # in this machine's kernel, the engine first
    measure: Callable[[str, str, float, int], CaseFigures]  # (box, case, seconds, seed)
    seconds: float
    quick_seconds: float
    quick_cases: Sequence[str]
    inside: Sequence[str] = ()  # cases also measured of netem+tbf inside User-Mode Linux, where every packet is dear


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "throughput", "What passes without loss?", _WITHOUT_LOSS, (ENGINE, "tbf", "rattan"),
            throughput.measure, 2.0, 0.5, _WITHOUT_LOSS,
        ),
        Scenario(
            "limit", "Where does that end?", tuple(throughput.BEYOND), (ENGINE,),
            throughput.measure, 2.0, 0.5, (),
        ),
        Scenario(
            "delay", "How exact is the delay of each packet?", tuple(delay.LOADS), (ENGINE, "rattan"),
            delay.measure, 10.0, 1.0, tuple(delay.LOADS), inside=("idle", "16 Mbit/s"),
        ),
        Scenario(
            "rate", "How exact is the rate?", tuple(rate.RATES), (ENGINE, "tbf", "rattan"),
            rate.measure, 10.0, 0.6, ("8 Mbit/s", "320 Mbit/s"), inside=("8 Mbit/s", "16 Mbit/s"),
        ),
        Scenario(
            "joint", "Do rate, queue and delay hold together?", tuple(joint.LINKS), (ENGINE, "rattan"),
            joint.measure, 5.0, 1.5, ("30 kB at 8 Mbit/s",), inside=("30 kB at 8 Mbit/s", "100 kB at 16 Mbit/s"),
        ),
        Scenario(
            "classes", "How exact are 64 delay classes?", (classes.CASE,), (ENGINE,),
            classes.measure, 5.0, 0.5, (classes.CASE,),
        ),
    )
}  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""What a link's program is told: keys only for what an experiment uses (docs/contracts.md)."""

from dataclasses import replace

import pytest

from atoll_controller.planner.link_config import direction_config
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Codel,
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
)
from atoll_core.units import Duration, Rate, Size

PLAIN = LinkDirection(Rate(16_000_000), Duration(250_000_000), Size(100_000))
TODAY = {"rate_bit_s": 16_000_000, "delay_ns": 250_000_000, "jitter_ns": 0, "queue_bytes": 100_000}
ROWS = (TraceRow(Duration(0), rate=Rate(8_000_000)), TraceRow(Duration(5), delay=Duration(7), loss=0.5, blocked=True))


def test_a_plain_direction_is_configured_as_ever():
    assert list(direction_config(PLAIN).items()) == list(TODAY.items())


@pytest.mark.parametrize(
    ("change", "key", "answer"),
    [
        ({"jitter": Jitter(JitterShape.UNIFORM, Duration(5))}, "jitter_ns", 5),
        (
            {"jitter": Jitter(JitterShape.UNIFORM, Duration(5), 0.25)},
            "jitter",
            {"kind": "uniform", "amount_ns": 5, "correlation": 0.25},
        ),
        (
            {"jitter": Jitter(JitterShape.PARETO, Duration(5))},
            "jitter",
            {"kind": "pareto", "amount_ns": 5, "correlation": 0.0},
        ),
        ({"queue_packets": 100}, "queue_packets", 100),
        ({"reorder": True}, "reorder", True),
        ({"loss": Bernoulli(0.5)}, "loss", {"kind": "bernoulli", "probability": 0.5}),
        (
            {"loss": GilbertElliott(0.1, 0.2, 0.3, 0.4)},
            "loss",
            {"kind": "gilbert-elliott", "good_to_bad": 0.1, "bad_to_good": 0.2, "loss_good": 0.3, "loss_bad": 0.4},
        ),
        ({"loss": BitError(1e-7)}, "loss", {"kind": "bit-error", "probability": 1e-7}),
        (
            {"loss": Bernoulli(0.5, LossPoint.BEFORE)},
            "loss",
            {"kind": "bernoulli", "probability": 0.5, "where": "before"},
        ),
        ({"loss": LossTrace("f", (True, False))}, "loss", {"kind": "trace", "lost": [True, False]}),
        ({"low_priority": LowPriority(Size(5))}, "low_priority", {"queue_bytes": 5}),
        ({"low_priority": LowPriority(Size(5), 6)}, "low_priority", {"queue_bytes": 5, "queue_packets": 6}),
        ({"aqm": Codel(Duration(5), Duration(6))}, "aqm", {"kind": "codel", "target_ns": 5, "interval_ns": 6}),
        (
            {"aqm": Red(Size(5), Size(6), 0.1, 0.002)},
            "aqm",
            {"kind": "red", "min_bytes": 5, "max_bytes": 6, "max_probability": 0.1, "weight": 0.002},
        ),
        (
            {"trace": LinkTrace("f", ROWS)},
            "trace",
            [{"t_ns": 0, "rate_bit_s": 8_000_000}, {"t_ns": 5, "delay_ns": 7, "loss": 0.5, "blocked": True}],
        ),
    ],
)
def test_each_setting_adds_its_key(change, key, answer):
    config = direction_config(replace(PLAIN, **change))
    assert config[key] == answer
    jitter = {"jitter", "jitter_ns"} & set(config)
    assert len(jitter) == 1
    assert set(config) - {key} - jitter == set(TODAY) - {"jitter_ns"} - {key}

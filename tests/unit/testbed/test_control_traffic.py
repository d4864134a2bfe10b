# SPDX-License-Identifier: Apache-2.0
"""The packets of in-band control during a measurement, in the manifest, the summary and its note."""

from dataclasses import replace

from atoll_analysis.verdict.control_traffic import control_notes, in_band_control
from atoll_testbed.run.control_traffic import ControlSample, control_increase

BEGIN = ControlSample(t_s=10.0, hosts=3, to_hosts=(5, 500), to_daemon=(4, 400))


def test_the_increase_between_two_readings_is_a_figure_and_a_note() -> None:
    end = ControlSample(t_s=20.0, hosts=3, to_hosts=(25, 3000), to_daemon=(5, 1650))
    increase = control_increase(BEGIN, end)
    assert increase == {
        "hosts": 3,
        "seconds": 10.0,
        "to_hosts": {"packets": 20, "bytes": 2500},
        "to_daemon": {"packets": 1, "bytes": 1250},
    }
    traffic = in_band_control({"in_band_control": increase})
    assert traffic == increase
    (note,) = control_notes(traffic)
    assert note == (
        "in-band control of 3 hosts during the measurement: 20 packets (2.5 kB, 2.00 kbit/s) to them, "
        "1 packet (1.2 kB, 1.00 kbit/s) from them; figures do not contain it"
    )


def test_a_switch_that_was_rebooted_or_did_not_answer_gives_no_wrong_figure() -> None:
    rebooted = control_increase(BEGIN, replace(BEGIN, t_s=11.0, to_hosts=(1, 100), to_daemon=(0, 0)))
    assert rebooted is not None
    assert rebooted["to_hosts"] == {"packets": 0, "bytes": 0}
    assert control_increase(BEGIN, None) is control_increase(None, BEGIN) is None
    assert in_band_control({}) is None
    assert control_notes(None) == []

# SPDX-License-Identifier: Apache-2.0
"""Generated traces are physically plausible, follow their seed, and are those that examples/traces holds."""

import math
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest

from atoll_core.description.link_trace import read_trace
from atoll_core.errors import MachineError, PlanError, UsageError
from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration, Rate
from atoll_emulation.trace_generators.acm import MODES, Acm
from atoll_emulation.trace_generators.orbit import (
    EARTH_RADIUS_KM,
    LIGHT_KM_S,
    Constellation,
    Site,
    distance_km,
    elevation_deg,
    positions_km,
)
from atoll_emulation.trace_generators.passes import LEO, MEO, ConstellationService, pass_trace
from atoll_emulation.trace_generators.rain import TROPICAL_KU, RainFade, attenuation_db, es_n0_loss_db, rain_trace
from atoll_emulation.trace_generators.trace_rows import make_trace

pytestmark = pytest.mark.long

S = 10**9
FADE = RainFade(Rate(16 * 10**6), Duration(600 * S), fade_db=6, at=Duration(300 * S), seed=3)


def slant_km(altitude_km: float, elevation: float) -> float:
    """Distance to a satellite at this elevation over a spherical Earth, by the law of cosines."""
    up = EARTH_RADIUS_KM * math.sin(math.radians(elevation))
    return math.sqrt(up**2 + altitude_km**2 + 2 * EARTH_RADIUS_KM * altitude_km) - up


def delays_ms(trace: LinkTrace) -> list[float]:
    return [row.delay.ms for row in trace.rows if row.delay]


# Geometry


@pytest.mark.parametrize("wanted", [MEO, LEO], ids=["meo", "leo"])
def test_delays_lie_between_the_zenith_and_the_least_elevation(wanted):
    """Twice the altitude is the shortest, twice the slant range at the mask the longest; 1 % for flattening."""
    altitude, mask = wanted.service.constellation.altitude_km, wanted.service.least_elevation_deg
    found = delays_ms(pass_trace(wanted))
    assert min(found) >= 2 * altitude / LIGHT_KM_S * 1e3 * 0.99
    assert max(found) <= 2 * slant_km(altitude, mask) / LIGHT_KM_S * 1e3 * 1.01


def test_a_meo_round_trip_is_what_the_operator_states():
    """O3b: 8062 km, under 150 ms with a satellite well in view; never below 4 x 8062 km at the speed of light."""
    found = [2 * delay for delay in delays_ms(pass_trace(MEO))]
    assert 107.5 <= min(found) <= 150
    assert max(found) < 170


def test_a_satellite_returns_overhead_after_the_synodic_day():
    """An equatorial MEO satellite overtakes the Earth's turning: at 8062 km it passes the same meridian every 6 h."""
    ring = Constellation(altitude_km=8062, inclination_deg=0, planes=1, per_plane=1, phasing=0)
    assert ring.period_s == pytest.approx(287.9 * 60, rel=1e-3)
    instants = np.arange(0, 24 * 3600, 10.0)
    elevations = elevation_deg(Site(0, 0), positions_km(ring.satellites(0, 0), instants)[0])
    culminations = instants[1:-1][
        (elevations[1:-1] > elevations[:-2]) & (elevations[1:-1] >= elevations[2:]) & (elevations[1:-1] > 80)
    ]
    synodic_s = 1 / (1 / ring.period_s - 1 / 86_164)
    assert np.diff(culminations) == pytest.approx(synodic_s, abs=60)


def test_positions_keep_the_altitude_and_the_inclination():
    """SGP4's short-period terms move a circular orbit by some kilometres, not more."""
    shell = Constellation(altitude_km=550, inclination_deg=53, planes=2, per_plane=2, phasing=1)
    positions = positions_km(shell.satellites(10, 20), np.arange(0, shell.period_s, 5.0))
    radii = np.linalg.norm(positions, axis=-1)
    assert np.abs(radii - EARTH_RADIUS_KM - 550).max() < 25
    latitudes = np.degrees(np.arcsin(positions[..., 2] / radii))
    assert latitudes.max() == pytest.approx(53, abs=0.5)
    assert latitudes.min() == pytest.approx(-53, abs=0.5)


def test_one_satellite_is_where_all_are():
    satellites = LEO.service.constellation.satellites(1, 2)
    instants = np.array([0.0, 17.25, 600.0])
    assert positions_km([satellites[700]], instants)[0] == pytest.approx(positions_km(satellites, instants)[700])


def test_a_zenith_is_straight_above():
    site = Site(-21.2, -159.78)
    above = (site.position_km + 550 * site.up)[np.newaxis]
    assert elevation_deg(site, above) == pytest.approx([90])
    assert distance_km(site, above) == pytest.approx([550])
    assert np.linalg.norm(Site(90, 0).position_km) == pytest.approx(6356.752, abs=1e-3)  # WGS 84, polar


# Hand-over


def test_a_hand_over_comes_halfway_and_blocks_for_the_gap():
    rows = pass_trace(MEO).rows
    begins = [row.t.s for row in rows if row.blocked]
    after = [later.t.s for row, later in pairwise(rows) if row.blocked]
    assert begins == [300.0]
    assert after == [300.1]


def test_without_a_gap_nothing_is_blocked_and_the_delay_jumps():
    found = pass_trace(replace(MEO, gap=Duration(0)))
    assert not any(row.blocked for row in found.rows)
    assert max(abs(a - b) for a, b in pairwise(delays_ms(found))) > 1


def test_a_meo_satellite_serves_until_the_next_has_come_round():
    """20 satellites, a synodic period of 6 h: a hand-over every 18 minutes."""
    rows = pass_trace(replace(MEO, duration=Duration(3600 * S), step=Duration(S))).rows
    begins = [row.t.s for row in rows if row.blocked]
    assert np.diff(begins) == pytest.approx(6.0 * 3600 / 20, rel=0.01)


def test_a_blockage_is_counted_once_whatever_changes_during_it():
    found = pass_trace(replace(LEO, duration=Duration(600 * S), gap=Duration(500 * 10**6), delay_step=Duration(1000)))
    blocked = [row.t.s for row in found.rows if row.blocked]
    assert found.blockages == len({at // 15 for at in blocked}) < len(blocked)


def test_leo_satellites_change_only_at_the_schedule():
    begins = [row.t.s for row in pass_trace(replace(LEO, duration=Duration(600 * S))).rows if row.blocked]
    assert len(begins) > 3
    assert all(begin % 15 == 0 for begin in begins)


def test_with_a_single_satellite_the_link_is_blocked_from_its_setting_on():
    alone = ConstellationService(
        Constellation(8062, 0.04, 1, 1, 0), least_elevation_deg=10, period=Duration(S), keeps_satellite=True
    )
    wanted = replace(MEO, service=alone, step=Duration(10 * S), duration=Duration(4 * 3600 * S))
    for start_s in range(0, 6 * 3600, 600):
        try:
            rows = pass_trace(replace(wanted, start=Duration(start_s * S))).rows
        except PlanError:
            continue  # not in view at the beginning
        assert any(row.blocked for row in rows)
        return
    pytest.fail("the satellite never came into view")


def test_a_trace_that_begins_without_a_satellite_is_refused():
    nowhere = replace(MEO, gateway=Site(85, 0))  # no equatorial satellite rises there
    with pytest.raises(PlanError, match="blocked at the beginning of the trace"):
        pass_trace(nowhere)


# Rows


def test_rows_are_never_further_from_the_model_than_the_threshold():
    fine = pass_trace(replace(LEO, delay_step=Duration(0)))
    coarse = pass_trace(replace(LEO, delay_step=Duration(50_000)))
    assert len(coarse.rows) < len(fine.rows) / 20
    index = 0
    for row in fine.rows:
        while index + 1 < len(coarse.rows) and coarse.rows[index + 1].t <= row.t:
            index += 1
        assert row.delay
        assert abs(row.delay.ns - (coarse.rows[index].delay or Duration(0)).ns) <= 50_000
        assert row.blocked == coarse.rows[index].blocked


def test_too_many_rows_are_refused():
    states = (TraceRow(Duration(t), delay=Duration(t % 2)) for t in range(60_000))
    with pytest.raises(PlanError, match="60000 rows, but at most 50000 are possible"):
        make_trace(states, Duration(0))


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (pass_trace, replace(MEO, duration=Duration(60 * S))),
        (pass_trace, replace(LEO, duration=Duration(30 * S))),
        (rain_trace, FADE),
    ],
    ids=["meo", "leo", "rain"],
)
def test_the_seed_decides(make, wanted):
    assert make(wanted) == make(wanted)
    assert make(wanted) != make(replace(wanted, seed=wanted.seed + 2))


# Rain


def test_the_fade_is_as_deep_as_asked_when_asked():
    found = attenuation_db(replace(FADE, at=Duration(100 * S)))
    assert len(found) == 601
    assert found[100] == pytest.approx(6)


def test_the_climate_is_met_in_the_long_term():
    """The parameters give back both points; samples far from the fade are the stationary log-normal process."""
    for decibels, share in ((7.0, 1e-3), (20.0, 1e-4)):
        x = (math.log(decibels) - TROPICAL_KU.mean) / TROPICAL_KU.spread
        assert 1 - NormalDist().cdf(x) == pytest.approx(share, rel=1e-6)
    forgetful = replace(FADE, dynamics=1.0, duration=Duration(20_000 * S), at=Duration(0))
    logs = [math.log(found) for found in attenuation_db(forgetful)[100:]]
    assert mean(logs) == pytest.approx(TROPICAL_KU.mean, abs=0.1)
    assert stdev(logs) == pytest.approx(TROPICAL_KU.spread, rel=0.05)


def test_rain_takes_more_than_its_attenuation():
    """It warms the sky: at 3 dB half of 275 K are added to 160 K."""
    assert es_n0_loss_db(0, 160) == 0
    assert es_n0_loss_db(3.0103, 160) == pytest.approx(3.0103 + 10 * math.log10((160 + 137.5) / 160), abs=1e-3)


def test_rates_are_those_of_modes_and_never_above_the_clear_sky():
    clear = Acm(FADE.clear_db).clear_mode
    possible = {round(16e6 * mode.efficiency / clear.efficiency) for mode in MODES}
    rates = {row.rate.bit_s for row in rain_trace(FADE).rows if row.rate}
    assert len(rates) > 3
    assert rates <= {rate for rate in possible if rate <= 16_000_000}


def test_no_rain_is_the_whole_rate_and_a_cloudburst_an_outage():
    drizzle = rain_trace(replace(FADE, fade_db=0.001, duration=Duration(S), at=Duration(0)))
    assert [(row.rate, row.blocked) for row in drizzle.rows] == [(Rate(16_000_000), False)]
    deep = rain_trace(replace(FADE, fade_db=40, dynamics=0.01, seed=1))
    assert any(row.blocked for row in deep.rows)


def test_modes_ascend_in_both_figures():
    assert (
        sorted(MODES, key=lambda mode: mode.efficiency) == sorted(MODES, key=lambda mode: mode.es_n0_db) == list(MODES)
    )


def test_a_modem_goes_down_at_once_and_up_with_hysteresis():
    acm = Acm(13.0)
    assert acm.clear_mode.name == "16APSK 4/5"  # 11.03 dB, with 1 dB of margin and 0.5 dB of hysteresis
    qpsk_1_2, qpsk_2_5 = 0.988858 / acm.clear_mode.efficiency, 0.789412 / acm.clear_mode.efficiency
    assert acm.update(2.01) == qpsk_1_2
    assert acm.update(1.99) == qpsk_2_5
    assert acm.update(2.49) == qpsk_2_5
    assert acm.update(2.51) == qpsk_1_2
    assert acm.update(-1.36) == 0
    assert acm.update(-0.86) == 0
    assert acm.update(-0.84) > 0
    assert acm.update(99) == 1


def test_a_longer_path_is_a_lower_rate():
    rows = pass_trace(replace(MEO, rate=Rate(32 * 10**6), zenith_db=13.0)).rows
    near, far = min(rows, key=lambda row: row.delay or Duration(0)), max(rows, key=lambda row: row.delay or Duration(0))
    assert near.rate
    assert far.rate
    assert far.rate < near.rate <= Rate(32 * 10**6)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"clear_db": -3}, "too low for the most robust mode"), ({"at": Duration(601 * S)}, "is after the end")],
)
def test_impossible_fades_are_refused(change, message):
    with pytest.raises(PlanError, match=message):
        rain_trace(replace(FADE, **change))


# The command


def run(arguments: list[str]) -> str:
    from typer.testing import CliRunner

    from atoll_cli.main import app

    ran = CliRunner().invoke(app, ["link-traces", *arguments])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.output


@pytest.mark.parametrize("name", ["geo-rain", "meo-pass", "leo-pass"])
def test_a_shipped_trace_is_what_its_first_line_makes(project, tmp_path, name):
    """To within a step: another processor may round the last bit the other way."""
    shipped = (project / "examples/traces" / f"{name}.csv").read_text()
    command = re.match(r"# made by: atoll link-traces (.*)\n", shipped)
    assert command
    run([*shlex.split(command[1]), "--out", str(tmp_path / "again.csv")])
    again = (tmp_path / "again.csv").read_text()
    assert again.splitlines()[0] == shipped.splitlines()[0]
    was, now = read_trace(shipped, name).value, read_trace(again, name).value
    assert was
    assert now
    assert len(was.rows) == len(now.rows)
    for old, new in zip(was.rows, now.rows, strict=True):
        assert (old.rate, old.blocked) == (new.rate, new.blocked)
        assert abs(old.t.ns - new.t.ns) <= 20_000_000
        assert abs((old.delay or Duration(0)).ns - (new.delay or Duration(0)).ns) <= 2_000


def test_a_figure_is_drawn(tmp_path):
    out = run(
        ["meo", "--out", str(tmp_path / "m.csv"), "--duration", "10 s", "--plot", str(tmp_path / "m.png"), "--json"]
    )
    assert '"blockages": 1' in out
    assert (tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["meo", "--duration", "7 h"], "--duration: 7 h is not from 1 s to 6 h"),
        (["meo", "--duration", "7"], "--duration: '7' is not a duration"),
        (["leo", "--island", "Tonga"], "--island: 'Tonga' is not a position"),
        (["leo", "--gateway", "91,0"], "--gateway: 91,0 is not on Earth"),
        (["rain", "--exceeded-0.1", "30"], "must be above 0 dB and below"),
        (["rain", "--plot", "rain.bmp"], "--plot rain.bmp: the name does not end in"),
    ],
)
def test_a_wrong_option_is_told_in_a_line(tmp_path, arguments, message):
    with pytest.raises((PlanError, UsageError), match=re.escape(message)):
        run([*arguments, "--out", str(tmp_path / "x.csv")])
    assert list(Path(tmp_path).iterdir()) == []


def test_figures_of_one_are_in_the_singular(tmp_path):
    out = run(["meo", "--out", str(tmp_path / "m.csv"), "--duration", "10 s"])
    assert re.match(r".*m.csv: \d+ rows, 10 s, blocked 1 time, delay ", out)


def test_a_full_disk_is_named_by_its_file():
    with pytest.raises(MachineError, match=r"^--out /dev/full: disk full: free space there, or name another"):
        run(["leo", "--out", "/dev/full", "--duration", "10 s"])

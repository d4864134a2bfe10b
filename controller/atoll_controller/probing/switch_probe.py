# SPDX-License-Identifier: Apache-2.0
"""Measure how a hardware switch behaves, and compare it with its driver's profile.

The switch must carry nothing else: its table is filled, and frames go through it. The probe talks to it as every plan
does (``Controller``), and deletes its entries at the end, whatever happened. They have a cookie of their own, by which
a later probe finds those of one that was killed.
"""

import asyncio
import re
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from atoll_controller.openflow.controller_client import Controller
from atoll_controller.probing.probe_frames import UDP, ProbeEnd, ProbeMark, probe_frame
from atoll_core.errors import LabError
from atoll_core.lab.twin import TwinBehaviour, TwinSettings
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, UnmanagedEntry, Vlan
from atoll_core.plan.switch_features import SwitchFeatures
from atoll_switches.capability_profile import Profile, behaviour, missing_features
from atoll_switches.entry_placement import choose_table, table_capacity

COOKIE = 0x70726F6265000000
"""The cookie of a probe's entries; no plan has it."""

_TO_TABLES = 0xFFFFFFF9  # OFPP_TABLE (7.2.1): a packet out goes through the switch's tables
_SOURCE = ProbeEnd("02:00:00:00:00:01", IPv4Address("192.0.2.1"))
_FIRST_ADDRESS = int(IPv4Address("198.18.0.0"))  # RFC 2544: addresses for measurements
_VLAN = 4000
_PRIORITY = 1000
_START_TABLE, _NO_TABLE = 0, 250  # where the pipeline of a ProCurve starts; a number that no switch was seen to have
_EXTRA = 64  # entries beyond the size of the table that are tried
_TRIALS = 5  # of the time until an entry forwards
_BURST_FRAMES = 20  # frames; a port that counts fewer may have counted a switch's own
_FORWARD_TIMEOUT_S = 15.0  # for an entry to forward at all
_EARLY_S = 0.2  # after a barrier; later, the barrier was early
_POLL_S = 0.25
_CURRENT_S = 1.0  # counters that follow in less are current
_REBOOT_TIMEOUT_S = 90.0  # for a switch that rebooted to come back, so that its entries can be deleted
_RATE_TOLERANCE, _TIME_TOLERANCE = 0.3, 0.2
_REFUSED = re.compile(r"refused .*(OFP[A-Z]+_\w+|experimenter error \S+)", re.DOTALL)

_LABELS = {"only-ipv4": "other EtherTypes"}


class Agreement(StrEnum):
    """How a behaviour compares with the profile."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_OBSERVED = "not seen"


@dataclass(frozen=True, slots=True)
class ProbedBehaviour:
    """One behaviour by the profile and as it was seen, as text.

    ``name``: a key of the profile, or ``takes X`` for a feature. ``verified``: whether the profile says that it was
    seen on a switch; None if the profile does not contain it.
    """

    name: str
    profile: str
    seen: str
    verdict: Agreement
    verified: bool | None = None


def refuse_occupied(switch: str, entries: Sequence[FlowEntry | UnmanagedEntry]) -> None:
    """Raise LabError if a switch has any entries, the first of which the message shows."""
    if entries:
        number = "a flow entry" if len(entries) == 1 else f"{len(entries)} flow entries"
        raise LabError(
            f"{switch} carries something else: {number} ('{entries[0]}'); "
            "take a switch that no lab uses (`atoll down`, and delete its entries)"
        )


class SwitchProbe:
    """A probe of one connected switch; ``notify`` takes a line for each stage. Await :meth:`run` once."""

    def __init__(
        self, controller: Controller, switch: str, dpid: int, switch_profile: Profile, notify: Callable[[str], None]
    ) -> None:
        self._controller = controller
        self._switch = switch
        self._dpid = dpid
        self._profile = switch_profile
        self._expected: TwinBehaviour = behaviour(switch_profile.driver, TwinSettings())
        self._verified = {fact.name: fact.verified for fact in switch_profile.twin}
        self._notify = notify
        self._table = switch_profile.table
        self._findings: list[ProbedBehaviour] = []

    async def run(self) -> list[ProbedBehaviour]:
        """All findings. The switch has no entry of the probe afterwards.

        Raises LabError: the switch has entries of others, too few ports, did not answer, or went away.
        """
        ports = sorted(self._controller.switches[self._dpid].ports)
        if len(ports) < 2:
            raise LabError(f"{self._switch} has {len(ports)} ports for OpenFlow; a probe needs two")
        features = await self._controller.features(self._dpid)
        self._find_table(features)
        await self._require_empty()
        try:
            await self._clean()
            self._notify("which entries its tables take")
            await self._try_features(ports)
            await self._try_other_tables(ports, {table.first for table in features.tables})
            self._notify("how many entries fit, and how fast it takes them")
            rate = await self._fill(ports, table_capacity(features, self._table))
            self._notify(f"when an entry forwards: {_TRIALS} trials")
            entry = await self._measure_lag(ports, rate)
            self._notify(f"when counters follow: up to {3 * self._expected.statistics.s:.0f} s")
            await self._measure_statistics(ports, entry)
        finally:
            await self._clean_finally()
        return self._findings

    # Tables

    def _find_table(self, features: SwitchFeatures) -> None:
        try:
            self._table = choose_table(self._profile, features, self._switch)
            observed = str(self._table)
        except LabError as error:
            observed = f"none that fits: {error}"
        if not features.tables:
            self._add("table", str(self._profile.table), "it does not report its tables", same=None)
            return
        self._compare("table", str(self._profile.table), observed)
        numbers = [number for table in features.tables for number in (table.first, table.last)]
        software = str(self._profile.software_table)
        tables = ", ".join(str(number) for number in dict.fromkeys(numbers))
        self._compare("software_table", software, software if self._profile.software_table in numbers else tables)

    async def _require_empty(self) -> None:
        """Raise LabError for entries that are not a probe's."""
        entries = [entry for entry in await self._entries() if entry.cookie != COOKIE]
        refuse_occupied(self._switch, entries)

    # Features

    async def _try_features(self, ports: Sequence[int]) -> None:
        """Try one entry for each feature, alone in the table."""
        refusals: dict[str, str] = {}
        unable: list[str] = []
        trials = self._feature_trials(ports)
        for feature, match, actions in trials:
            entry = self._entry(match, actions)
            missing = [*missing_features(self._profile, entry)]
            refused = await self._try_add(entry)
            if missing:
                unable.append(feature)
            if refused:
                refusals[feature] = refused
            else:
                await self._change(delete=[entry])
        takes_all = bool(unable) and not any(feature in refusals for feature in unable)
        for feature, _, _ in trials:
            if feature in unable and takes_all:  # one difference, not one for each feature
                continue
            profile = "refused" if feature in unable else "taken"
            observed = f"refused: {refusals[feature]}" if feature in refusals else "taken"
            same = (feature in refusals) == (feature in unable)
            self._add(f"takes {_LABELS.get(feature, feature)}", profile, observed, same=same)
        if unable:
            text = "entries that its hardware cannot process"
            observed = f"takes {text}" if takes_all else f"refuses {text}"
            self._compare("refuses", f"{'refuses' if self._expected.refuses else 'takes'} {text}", observed)

    async def _try_other_tables(self, ports: Sequence[int], reported: Collection[int]) -> None:
        """Try an entry in the tables around the one in hardware, and in one that is not there."""
        entry = self._entry(Match(ports[0], ip_proto=UDP, l4_dst=9), (Output(ports[1]),))
        software = self._profile.software_table
        tables = ((_START_TABLE, "read-only", True), (software, "software", False), (_NO_TABLE, "not there", True))
        for table, description, expected in tables:
            if table is None or table == self._table or (table == _NO_TABLE and table in reported):
                continue
            refused = await self._try_add(entry, table=table)
            if not refused:
                await self._controller.change(self._dpid, [entry], (), table)
            observed = f"refused: {refused}" if refused else "taken"
            name, profile = f"entry in table {table} ({description})", "refused" if expected else "taken"
            self._add(name, profile, observed, same=bool(refused) == expected)

    def _feature_trials(self, ports: Sequence[int]) -> list[tuple[str, Match, tuple[Action, ...]]]:
        port, second_port = ports[0], ports[1]
        prefix, out = IPv4Network((_FIRST_ADDRESS, 24)), (Output(second_port),)
        several = (Output(second_port), Output(ports[2] if len(ports) > 2 else port))
        return [
            ("vlan", Match(port, vlan=_VLAN), out),
            ("untagged", Match(port, vlan=Vlan.UNTAGGED), out),
            ("ipv4_src", Match(port, ipv4_src=prefix), out),
            ("ipv4_dst", Match(port, ipv4_dst=prefix), out),
            ("ip_proto", Match(port, ip_proto=UDP), out),
            ("l4_src", Match(port, ip_proto=UDP, l4_src=9), out),
            ("l4_dst", Match(port, ip_proto=UDP, l4_dst=9), out),
            ("only-ipv4", Match(port, eth_type=0x88B5), out),  # IEEE 802, local experiments
            ("PushVlan", Match(port, vlan=Vlan.UNTAGGED), (PushVlan(_VLAN), *out)),
            ("PopVlan", Match(port, vlan=_VLAN), (PopVlan(), *out)),
            ("several-outputs", Match(port), several),
        ]

    # Size and rate

    async def _fill(self, ports: Sequence[int], reported: int | None) -> float:
        """Add entries until one is refused, and delete them; the rate in entries/s."""
        size = reported or self._expected.max_entries
        entries = [self._entry(self._match(ports[0], number), (Output(ports[1]),)) for number in range(size + _EXTRA)]
        progress_marks: list[tuple[float, int]] = []
        start_s = time.monotonic()
        refused = await self._try_add(*entries, progress=lambda done: progress_marks.append((time.monotonic(), done)))
        duration_s = time.monotonic() - start_s
        fitting = await self._controller.count(self._dpid, self._table) if refused else len(entries)
        await self._change(delete=entries[:fitting])
        if reported is None:
            self._add("max_entries", str(self._expected.max_entries), "not reported", same=None)
        else:
            self._compare("max_entries", str(self._expected.max_entries), str(reported))
        observed = f"{size - fitting} ({fitting} fit; then {refused})" if refused else f"more than {size} fit"
        same = bool(refused) and size - fitting == self._expected.occupied
        self._add("occupied", str(self._expected.occupied), observed, same=same)
        if len(progress_marks) > 1:
            (first_s, first), (last_s, last) = progress_marks[0], progress_marks[-1]
            return (last - first) / max(last_s - first_s, 1e-6)
        return fitting / duration_s

    # Lag and barriers

    async def _measure_lag(self, ports: Sequence[int], rate: float) -> FlowEntry:
        """How long the data plane follows behind a flow-mod and behind its barrier; an entry that forwards now."""
        round_trips: list[float] = []
        for _ in range(_TRIALS):
            start_s = time.monotonic()
            await self._change()
            round_trips.append(time.monotonic() - start_s)
        base_s = statistics.median(round_trips)
        trials = [await self._measure_trial(ports, number) for number in range(_TRIALS)]
        measured = [trial for trial in trials if trial is not None]
        low, high = self._expected.lag_min, self._expected.lag_max
        profile = f"{low} to {high}"
        verified = self._verified["lag_min"] and self._verified["lag_max"]
        is_early: bool | None = None
        if not measured:
            text = f"port {ports[1]} counted no frame; it needs a link, and a switch that sends packets out by tables"
            self._add("lag", profile, text, same=None, verified=verified)
        else:
            lags = [max(0.0, lag_s - base_s) for lag_s, _ in measured]
            fits = min(lags) >= low.s * (1 - _TIME_TOLERANCE) and max(lags) <= high.s * (1 + _TIME_TOLERANCE) + base_s
            text = f"{min(lags):.2f} to {max(lags):.2f} s in {len(lags)} trials"
            self._add("lag", profile, text, same=fits, verified=verified)
            if any(behind_s > _EARLY_S for _, behind_s in measured):
                is_early = True
            elif max(lags) > _EARLY_S:
                is_early = False
        self._add_barriers(is_early)
        self._add_rate(rate, waits=is_early is False)
        return self._entry(self._match(ports[0], _TRIALS - 1), (Output(ports[1]),))

    async def _measure_trial(self, ports: Sequence[int], number: int) -> tuple[float, float] | None:
        """Seconds from a flow-mod, and from its barrier's reply, until frames come out; None: they never do."""
        entry = self._entry(self._match(ports[0], number), (Output(ports[1]),))
        frames_before = await self._sent_frames(ports[1])
        start_s = time.monotonic()
        await self._change(add=[entry])
        replied_s = time.monotonic()
        behind_s = 0.0
        while time.monotonic() - start_s < _FORWARD_TIMEOUT_S:
            sent_s = time.monotonic()
            await self._send(ports[0], number)
            if await self._sent_frames(ports[1]) - frames_before >= _BURST_FRAMES:
                return (replied_s if behind_s == 0.0 else sent_s) - start_s, behind_s
            behind_s = time.monotonic() - replied_s
        return None

    def _add_barriers(self, is_early: bool | None) -> None:
        texts = {True: "answered before the entry forwards", False: "answered when the entry forwards"}
        expected = texts[self._expected.early_barriers]
        if is_early is None:
            self._add("early_barriers", expected, "entries forward at once, or no frame was seen", same=None)
        else:
            self._compare("early_barriers", expected, texts[is_early])

    def _add_rate(self, rate: float, *, waits: bool) -> None:
        expected = self._expected.flow_mods_per_s
        profile = f"{expected}/s" if expected else "as many as come"
        if waits:
            self._add("flow_mods_per_s", profile, "barriers wait for the data plane", same=None)
            return
        same = abs(rate - expected) <= _RATE_TOLERANCE * expected
        self._add("flow_mods_per_s", profile, f"{rate:.0f}/s", same=same)

    # Counters

    async def _measure_statistics(self, ports: Sequence[int], entry: FlowEntry) -> None:
        """The time between two changes of a packet counter under constant traffic."""
        period = self._expected.statistics
        profile = str(period) if period.ns else "at each request"
        changes: list[float] = []
        (last_count,) = await self._controller.packets(self._dpid, [entry], self._table)
        start_s = time.monotonic()
        while len(changes) < 2 and time.monotonic() - start_s < 3 * period.s + _FORWARD_TIMEOUT_S:
            await self._send(ports[0], _TRIALS - 1)
            (count,) = await self._controller.packets(self._dpid, [entry], self._table)
            if count != last_count:
                changes.append(time.monotonic())
                last_count = count
            await asyncio.sleep(_POLL_S)
        if len(changes) < 2:
            text = f"the counter changed {len(changes)} times in {time.monotonic() - start_s:.0f} s"
            self._add("statistics", profile, text, same=None)
            return
        step_s = changes[1] - changes[0]
        is_current = step_s < _CURRENT_S
        text = "at each request" if is_current else f"{step_s:.1f} s"
        same = is_current if not period.ns else not is_current and abs(step_s - period.s) <= _TIME_TOLERANCE * period.s
        self._add("statistics", profile, text, same=same)

    # Help

    def _add(self, name: str, profile: str, seen: str, *, same: bool | None, verified: bool | None = None) -> None:
        """Add a behaviour; ``same``: None if it was not seen. ``verified``: by default that of the profile's fact."""
        verdict = Agreement.NOT_OBSERVED if same is None else Agreement.SAME if same else Agreement.DIFFERS
        verified = self._verified.get(name) if verified is None else verified
        self._findings.append(ProbedBehaviour(name, profile, seen, verdict, verified))

    def _compare(self, name: str, profile: str, seen: str) -> None:
        self._add(name, profile, seen, same=profile == seen)

    def _entry(self, match: Match, actions: tuple[Action, ...]) -> FlowEntry:
        return FlowEntry(self._switch, _PRIORITY, match, actions, COOKIE, "probe")

    def _match(self, port: int, number: int) -> Match:
        return Match(port, ipv4_dst=IPv4Network((_FIRST_ADDRESS + number, 32)))

    async def _send(self, port: int, number: int) -> None:
        """Send a burst through the switch's tables, as come in by the port."""
        end = ProbeEnd("02:00:00:00:00:02", IPv4Address(_FIRST_ADDRESS + number))
        frame = probe_frame(_SOURCE, end, None, UDP, ProbeMark(0, number, 0))
        entry = FlowEntry(self._switch, 0, Match(port), (Output(_TO_TABLES),), COOKIE, "probe")
        refused = await self._controller.send(self._dpid, [(entry, frame)] * _BURST_FRAMES)
        if refused[0] is not None:
            raise LabError(f"{self._switch} refuses packets out by its tables: {refused[0]}")

    async def _sent_frames(self, port: int) -> int:
        """The frames that left by a port."""
        return (await self._controller.counters(self._dpid, self._table))["ports"][str(port)]["tx_packets"]

    async def _try_add(
        self, *entries: FlowEntry, table: int | None = None, progress: Callable[[int], None] | None = None
    ) -> str:
        """Add entries; the name of the error with which the switch refused one, or nothing. Raises LabError."""
        try:
            await self._controller.change(self._dpid, (), entries, self._table if table is None else table, progress)
        except LabError as error:
            refused = _REFUSED.search(str(error))
            if refused is None:
                raise
            return refused[1]
        return ""

    async def _change(self, delete: Sequence[FlowEntry | UnmanagedEntry] = (), add: Sequence[FlowEntry] = ()) -> None:
        await self._controller.change(self._dpid, delete, add, self._table)

    async def _entries(self) -> tuple[FlowEntry | UnmanagedEntry, ...]:
        return await self._controller.read(self._dpid, self._switch, self._table)

    async def _clean(self) -> None:
        probe_entries = [entry for entry in await self._entries() if entry.cookie == COOKIE]
        if probe_entries:
            await self._change(delete=probe_entries)

    async def _clean_finally(self) -> None:
        """Delete the probe's entries, also from a switch that comes back. Raises LabError when it does not."""
        deadline_s = time.monotonic() + _REBOOT_TIMEOUT_S
        while True:
            try:
                await self._controller.wait_for([self._dpid], max(1.0, deadline_s - time.monotonic()))
                await self._clean()
            except LabError as error:
                if self._controller.closed.done() or time.monotonic() > deadline_s:
                    raise LabError(
                        f"{self._switch} may still have entries of the probe (cookie {COOKIE:#x}): {error}; "
                        "another probe deletes them first"
                    ) from None
            else:
                return

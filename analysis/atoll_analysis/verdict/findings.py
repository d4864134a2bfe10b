# SPDX-License-Identifier: Apache-2.0
"""Verdicts, and the findings that decide them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether the results of a run can be trusted."""

    VALID = "valid"
    CAVEATS = "valid with caveats"
    INVALID = "invalid"


class FindingCode(StrEnum):
    """Names of findings, for scripts: texts may change. The comments are the meanings that `atoll results` prints."""

    NOT_MEASURED = "NOT_MEASURED"  # the run has no measurement window
    CUT_SHORT = "CUT_SHORT"  # the measurement ended early
    FILE_DAMAGED = "FILE_DAMAGED"  # a file of the run is missing, or other than when the run ended

    TERRESTRIAL_RTT = "TERRESTRIAL_RTT"  # a terrestrial RTT is not the configured one
    # a terrestrial RTT is too large, but by no more than the test's own pings scatter: the machine was too busy
    TERRESTRIAL_RTT_SCATTER = "TERRESTRIAL_RTT_SCATTER"

    DEPARTURES_LATE = "DEPARTURES_LATE"  # the 99th percentile of lateness is too large: the machine was too busy
    DEPARTURE_LATE = "DEPARTURE_LATE"  # the largest lateness is too large: the machine was too busy
    STALLS = "STALLS"  # packets left links or delay boxes late for some time
    BOX_OVERLOADED = "BOX_OVERLOADED"  # a box lost packets at its own socket: the machine was too busy

    PACKETS_OVER_MTU = "PACKETS_OVER_MTU"  # packets larger than the MTU reached a box
    UNKNOWN_VLAN = "UNKNOWN_VLAN"  # a delay box got packets of no latency class
    LINK_OVER_RATE = "LINK_OVER_RATE"  # a capture shows more than the rate of a link
    SCHEDULE_OVER_RATE = "SCHEDULE_OVER_RATE"  # departures were scheduled above the rate of a link
    BOX_BYPASSED = "BOX_BYPASSED"  # a box that ends connections saw none that completed
    BOX_PARTLY_BYPASSED = "BOX_PARTLY_BYPASSED"  # a box that ends connections saw fewer than completed

    CAPTURE_MISSING = "CAPTURE_MISSING"  # there is no file of a capture
    CAPTURE_UNCOUNTED = "CAPTURE_UNCOUNTED"  # a capture did not report whether it dropped packets
    CAPTURE_DROPPED = "CAPTURE_DROPPED"  # a capture dropped packets
    CAPTURE_TRUNCATED = "CAPTURE_TRUNCATED"  # a capture ends within a packet
    CAPTURE_INCOMPLETE = "CAPTURE_INCOMPLETE"  # a capture has fewer packets than it counted
    WHISTLE_MISSING = "WHISTLE_MISSING"  # a capture does not contain a whistle

    LOSS_DIFFERS = "LOSS_DIFFERS"  # captures and links do not have the same loss
    PAYLOAD_DIFFERS = "PAYLOAD_DIFFERS"  # TCP payload is not the same before and after a box
    PAYLOAD_UNPROVEN = "PAYLOAD_UNPROVEN"  # boxes that may lose TCP payload are on a chain
    DROPPED_BY_BACKLOG = "DROPPED_BY_BACKLOG"  # packets that waited for a processor were dropped
    DROPPED_BY_SWITCH = "DROPPED_BY_SWITCH"  # packets were lost at Open vSwitch's own sockets
    DROPPED_BY_SOCKET = "DROPPED_BY_SOCKET"  # the kernel of a host dropped packets or connections at a socket

    CHANGE_FAILED = "CHANGE_FAILED"  # a scheduled change failed
    CHANGE_NOT_MADE = "CHANGE_NOT_MADE"  # a scheduled change was not made
    CHANGE_LATE = "CHANGE_LATE"  # a scheduled change began late: the machine was too busy

    SERVER_UNSEEN = "SERVER_UNSEEN"  # the captures have no TCP payload from a server
    HOST_SILENT = "HOST_SILENT"  # a client or a server was silent
    NO_PAYLOAD = "NO_PAYLOAD"  # no byte arrived in any flow
    FLOWS_FAILED = "FLOWS_FAILED"  # flows failed
    PINGS_UNSENT = "PINGS_UNSENT"  # fewer pings were sent than planned
    PINGS_LOST = "PINGS_LOST"  # more pings were lost than the links explain
    TRANSFER_NO_RESULT = "TRANSFER_NO_RESULT"  # the transfer left no result
    TRANSFER_NO_BYTE = "TRANSFER_NO_BYTE"  # no byte of the transfer arrived
    TRANSFER_UNFINISHED = "TRANSFER_UNFINISHED"  # the transfer was not finished

    UDP_UNREPORTED = "UDP_UNREPORTED"  # the UDP sender did not report how many bytes it sent
    UDP_LOST = "UDP_LOST"  # no UDP packet arrived
    UDP_RATE = "UDP_RATE"  # UDP was not sent at the configured rate
    CLOCK_STEPPED = "CLOCK_STEPPED"  # the clock was set during the measurement
    CLOCK_DRIFTED = "CLOCK_DRIFTED"  # the clock of a machine drifted
    START_SPREAD = "START_SPREAD"  # clients did not begin together
    DUPLICATE_ADDRESS = "DUPLICATE_ADDRESS"  # two machines have the same IP address
    SHARES_UNEQUAL = "SHARES_UNEQUAL"  # servers or clients have shares of the flows that chance does not explain
    CLOCKS_UNCERTAIN = "CLOCKS_UNCERTAIN"  # the clocks of imported captures are not known well enough
    NOT_IN_CAPTURES = "NOT_IN_CAPTURES"  # imported captures do not show something that a run of atoll records
    HOST_HOT = "HOST_HOT"  # processors were throttled, at their temperature limit, short of voltage, or too busy


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure of a run beyond its bound, as text. ``is_reason``: it makes the run invalid; else a caveat."""

    code: FindingCode
    text: str
    is_reason: bool


def reason(code: FindingCode, text: str) -> Finding:
    """Make a finding that makes a run invalid."""
    return Finding(code, text, is_reason=True)


def caveat(code: FindingCode, text: str) -> Finding:
    """Make a finding that is a caveat."""
    return Finding(code, text, is_reason=False)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict of a run with these findings."""
    are_reasons = {finding.is_reason for finding in findings}
    return Verdict.INVALID if True in are_reasons else Verdict.CAVEATS if are_reasons else Verdict.VALID

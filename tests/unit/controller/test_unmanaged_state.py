# SPDX-License-Identifier: Apache-2.0
"""Groups and meters that are no plan's: read and deleted with the bytes that os-ken makes, told in words."""

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from atoll_controller.fabric.reconciler import unmanaged_state_text
from atoll_controller.openflow.switch_session import Reply, SwitchError, SwitchSession
from atoll_core.openflow_wire import encoder
from atoll_core.plan.switch_features import UnmanagedState


def packed(message) -> bytes:
    """A message of os-ken's as bytes."""
    message.xid = 9
    message.serialize()
    return bytes(message.buf)


def test_deletions_and_requests_are_those_of_os_ken() -> None:
    """A group-mod, a meter-mod and the request for meters."""
    datapath = ProtocolDesc(version=ofp.OFP_VERSION)
    assert encoder.delete_group(7, 9) == packed(
        parser.OFPGroupMod(datapath, ofp.OFPGC_DELETE, type_=ofp.OFPGT_ALL, group_id=7)
    )
    assert encoder.delete_meter(3, 9) == packed(parser.OFPMeterMod(datapath, ofp.OFPMC_DELETE, flags=0, meter_id=3))
    assert encoder.meter_request(9) == packed(parser.OFPMeterConfigStatsRequest(datapath, 0, ofp.OFPM_ALL))
    assert encoder.multipart_request(encoder.GROUPS, 9) == packed(parser.OFPGroupDescStatsRequest(datapath, 0))


def group(number: int, ports: int) -> bytes:
    """A group's description (7.3.5.9) with that many buckets of one output."""
    bucket = bytes([0, 32, *bytes(14), 0, 0, 0, 16, *bytes(12)])
    return (8 + 32 * ports).to_bytes(2) + bytes(2) + number.to_bytes(4) + bucket * ports


def meter(number: int) -> bytes:
    """A meter's configuration (7.3.5.13) with one band."""
    return (24).to_bytes(2) + (1).to_bytes(2) + number.to_bytes(4) + bytes([0, 1, 0, 16, *bytes(12)])


class Wired:
    """A switch whose answers are given; what is sent to it is kept."""

    def __init__(self, *answers: bytes | str) -> None:
        self.sent: list[bytes] = []
        self._answers = list(answers)
        self.switch = SwitchSession(1, 1, {}, self._take)

    def _take(self, message: bytes) -> None:
        self.sent.append(message)
        xid = int.from_bytes(message[-4:] if message[1] != encoder.MULTIPART_REQUEST else message[4:8])
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            self.switch.take(Reply(int.from_bytes(message[4:8]), error=answer))
        self.switch.take(Reply(xid, b"" if isinstance(answer, str) else answer))


def test_numbers_are_read_whatever_a_group_or_meter_holds() -> None:
    """In ascending order; a switch that knows no meters has none."""
    wired = Wired(group(9, 3) + group(2, 0), meter(4) + meter(1))
    assert wired.switch.leftovers() == UnmanagedState((2, 9), (1, 4))
    assert Wired(b"", "OFPET_BAD_REQUEST OFPBRC_BAD_MULTIPART").switch.leftovers() == UnmanagedState()


def test_groups_go_before_meters_and_a_refusal_names_what_stays() -> None:
    """One barrier is waited for."""
    wired = Wired(b"")
    assert wired.switch.clear(UnmanagedState((2,), (1,))) == 1
    assert wired.sent == [encoder.delete_group(2, 1) + encoder.delete_meter(1, 2) + encoder.barrier(3)]
    with pytest.raises(SwitchError, match="switch 1 refused the end of group 2: OFPET_GROUP_MOD_FAILED"):
        Wired("OFPET_GROUP_MOD_FAILED").switch.clear(UnmanagedState((2,), (1,)))


def test_words_name_the_numbers() -> None:
    """One kind or both, one or several."""
    assert unmanaged_state_text(UnmanagedState((1, 7), (3,))) == "groups 1, 7 and meter 3"
    assert unmanaged_state_text(UnmanagedState((), (3, 4))) == "meters 3, 4"
    assert not UnmanagedState()

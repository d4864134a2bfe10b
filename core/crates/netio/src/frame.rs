// SPDX-License-Identifier: Apache-2.0
//! A frame as a packet socket receives it.

use atoll_headers::VlanTag;

/// A frame in the receive ring.
#[derive(Debug)]
pub struct Received<'a> {
    /// When the kernel saw it, `CLOCK_REALTIME` in ns since 1970.
    pub real_time_ns: u64,
    /// Length on the wire without `vlan`; more than `frame` if that was cut.
    pub wire_bytes: u32,
    /// From the destination address on, without `vlan`.
    pub frame: &'a [u8],
    /// The outer VLAN tag, which Linux takes out of the frame.
    pub vlan: Option<VlanTag>,
    /// The sender left the transport checksum to hardware that does not exist here: the receiver
    /// will discard this frame as corrupt.
    pub checksum_missing: bool,
}

impl<'a> Received<'a> {
    /// A whole frame without a tag, its checksums filled in: for programs that are run without sockets.
    #[must_use]
    pub fn whole(frame: &'a [u8], real_time_ns: u64) -> Self {
        Self {
            real_time_ns,
            wire_bytes: frame.len() as u32,
            frame,
            vlan: None,
            checksum_missing: false,
        }
    }
}

/// The tag in a ring's header, `status` being its `tp_status`.
pub(crate) fn tag_from_ring_status(status: u32, control: u16, protocol: u16) -> Option<VlanTag> {
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(VlanTag {
        control,
        protocol: if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
            libc::ETH_P_8021Q as u16
        } else {
            protocol
        },
    })
}

/// The tag in a control message, as `interface::enable_vlan_tags` asks for (packet(7), `PACKET_AUXDATA`);
/// None if it has none, or is another message.
#[must_use]
pub fn tag_of_control_message(level: i32, kind: i32, data: &[u8]) -> Option<VlanTag> {
    if (level, kind) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // `struct tpacket_auxdata` (linux/if_packet.h): status, then 12 bytes, then the tag's two halves.
    let half = |at: usize| Some(u16::from_ne_bytes(data.get(at..at + 2)?.try_into().ok()?));
    let status = u32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
    tag_from_ring_status(status, half(16)?, half(18)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_from_its_control_message_alone() {
        let mut data = [0_u8; 20];
        data[..4].copy_from_slice(&libc::TP_STATUS_VLAN_VALID.to_ne_bytes());
        data[16..18].copy_from_slice(&0x2065_u16.to_ne_bytes());
        let read = |level: i32, kind: i32, data: &[u8]| {
            tag_of_control_message(level, kind, data).map(|tag| (tag.id(), tag.protocol))
        };
        assert_eq!(
            read(libc::SOL_PACKET, libc::PACKET_AUXDATA, &data),
            Some((0x65, 0x8100))
        );
        assert_eq!(read(libc::SOL_SOCKET, libc::PACKET_AUXDATA, &data), None);
        assert_eq!(
            read(libc::SOL_PACKET, libc::PACKET_AUXDATA, &data[..19]),
            None
        );
        data[..4].fill(0);
        assert_eq!(read(libc::SOL_PACKET, libc::PACKET_AUXDATA, &data), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A frame as a packet socket receives it.

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

/// An 802.1Q or 802.1ad tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority, drop eligibility and VLAN id (tag control information).
    pub control: u16,
    /// 0x8100 or 0x88a8 (tag protocol identifier).
    pub protocol: u16,
}

impl VlanTag {
    /// The tag in a ring's header, `status` being its `tp_status`.
    pub(crate) fn from_ring_status(status: u32, control: u16, protocol: u16) -> Option<Self> {
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Self {
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
    pub fn of_control_message(level: i32, kind: i32, data: &[u8]) -> Option<Self> {
        if (level, kind) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            return None;
        }
        // `struct tpacket_auxdata` (linux/if_packet.h): status, then 12 bytes, then the tag's two halves.
        let half = |at: usize| Some(u16::from_ne_bytes(data.get(at..at + 2)?.try_into().ok()?));
        let status = u32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
        Self::from_ring_status(status, half(16)?, half(18)?)
    }

    /// VLAN id, 0 to 4095.
    #[must_use]
    pub fn id(self) -> u16 {
        self.control & 0xfff
    }
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
            VlanTag::of_control_message(level, kind, data).map(|tag| (tag.id(), tag.protocol))
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

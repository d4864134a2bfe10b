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
    /// The sender left the transport checksum to hardware that is not there: whoever gets this frame
    /// will discard it as corrupt.
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
    /// The tag that a ring's header tells of, `status` being its `tp_status`.
    pub(crate) fn told(status: u32, control: u16, protocol: u16) -> Option<Self> {
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Self {
            control,
            protocol: if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
                libc::ETH_P_8021Q as u16
            } else {
                protocol
            },
        })
    }

    /// VLAN id, 0 to 4095.
    #[must_use]
    pub fn id(self) -> u16 {
        self.control & 0xfff
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The length of an Ethernet frame's packet, and a frame in the model.

use crate::config::Counted;
use atoll_frame_engine::Outgoing;
use atoll_headers::{ETHERNET_BYTES, ethernet_header, read_u16};
use atoll_link_model::Departure;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// Lower Effort (RFC 8622).
const DSCP_LE: u16 = 1;
const IPV4_HEADER_MIN: usize = 20;
const IPV4_TOTAL_LENGTH_OFFSET: usize = 2;

/// A frame that waits in the model.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frame: Vec<u8>,
    /// By how much it is taken to have arrived later than its stamp.
    pub(crate) arrival_shift_ns: u64,
}

/// The facts about a sent frame that a link or delay box needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentFrame {
    /// Direction or class it belongs to, as the program numbers them.
    pub(crate) part: usize,
    /// Bytes it counts for.
    pub(crate) bytes: u32,
    /// When it should leave: as scheduled, less `arrival_shift_ns`.
    pub(crate) due_ns: u64,
}

impl SentFrame {
    /// A frame that has left the model, to be sent at port `to`.
    pub(crate) fn outgoing(part: usize, to: usize, departure: Departure<Held>) -> Outgoing<Self> {
        let held = departure.packet;
        Outgoing {
            port: to,
            scheduled_ns: departure.scheduled_ns,
            frame: held.frame,
            tag: Self {
                part,
                bytes: departure.bytes,
                due_ns: departure.scheduled_ns - held.arrival_shift_ns,
            },
        }
    }
}

/// Whether a frame has a packet that is marked LE, in IPv4's DSCP or IPv6's traffic class; its ECN bits do not matter.
pub(crate) fn is_lower_effort(frame: &[u8]) -> bool {
    let (header, ether_type) = ethernet_header(frame);
    // The traffic class is bits 8 to 15 of IPv4's header and 4 to 11 of IPv6's; the DSCP is its upper six bits.
    let dscp = read_u16(frame, header).and_then(|word| match ether_type {
        Some(TYPE_IPV4) => Some(word >> 2 & 0x3f),
        Some(TYPE_IPV6) => Some(word >> 6 & 0x3f),
        _ => None,
    });
    dscp == Some(DSCP_LE)
}

/// A frame's lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// All after the Ethernet header and VLAN tags, padding included.
    pub(crate) payload_bytes: u32,
    /// The IPv4 packet by its own header; for other frames the frame without 14 bytes.
    pub(crate) ip_bytes: u32,
}

impl Lengths {
    /// Measure a frame of `wire_bytes`, of which at least the headers are in `frame`.
    ///
    /// The IPv4 header is believed and not the frame, which hardware pads to 60 bytes.
    pub(crate) fn of(frame: &[u8], wire_bytes: u32) -> Self {
        let (header, ether_type) = ethernet_header(frame);
        let payload_bytes = wire_bytes.saturating_sub(header as u32);
        let stated = match ether_type {
            Some(TYPE_IPV4) => read_u16(frame, header + IPV4_TOTAL_LENGTH_OFFSET).map(u32::from),
            _ => None,
        };
        let plausible = IPV4_HEADER_MIN as u32..=payload_bytes;
        Self {
            payload_bytes,
            ip_bytes: stated
                .filter(|bytes| plausible.contains(bytes))
                .unwrap_or(wire_bytes.saturating_sub(ETHERNET_BYTES as u32)),
        }
    }

    /// The bytes a link counts the packet for.
    pub(crate) fn counted_bytes(self, counts: Counted) -> u32 {
        match counts {
            Counted::Ip => self.ip_bytes,
            Counted::Ethernet => self.ip_bytes + ETHERNET_BYTES as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE_VLAN: u16 = 0x8100;

    /// Addresses of zeros, then `types`, then an IPv4 header's begin with `total_length`.
    fn frame(types: &[u16], total_length: u16, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; atoll_headers::ADDRESSES_BYTES];
        frame.extend(types.iter().flat_map(|word| word.to_be_bytes()));
        frame.extend([0x45, 0]);
        frame.extend(total_length.to_be_bytes());
        frame.resize(bytes, 0);
        frame
    }

    fn ip_bytes(frame: &[u8]) -> u32 {
        Lengths::of(frame, frame.len() as u32).ip_bytes
    }

    #[test]
    fn lower_effort_is_a_code_point_of_both_protocols() {
        let marked = |types: &[u16], word: u16| {
            let mut bytes = frame(types, 40, 60);
            let header = ethernet_header(&bytes).0;
            bytes[header..header + 2].copy_from_slice(&word.to_be_bytes());
            is_lower_effort(&bytes)
        };
        for ecn in 0..4 {
            assert!(marked(&[TYPE_IPV4], 0x4504 | ecn));
            assert!(marked(&[TYPE_VLAN, 7, TYPE_IPV4], 0x4504 | ecn));
            assert!(marked(&[TYPE_IPV6], 0x6040 | ecn << 4), "{ecn}");
            assert!(!marked(&[TYPE_IPV4], 0x4500 | ecn), "default");
            assert!(!marked(&[TYPE_IPV6], 0x6000 | ecn << 4), "default");
        }
        assert!(!marked(&[TYPE_IPV4], 0x4520), "CS1 is not LE");
        assert!(!marked(&[TYPE_IPV6], 0x6004), "bits of the flow label");
        assert!(!marked(&[0x0806], 0x4504), "no IP");
        assert!(!is_lower_effort(&[]));
    }

    #[test]
    fn padding_is_not_part_of_the_packet() {
        assert_eq!(ip_bytes(&frame(&[TYPE_IPV4], 40, 60)), 40);
    }

    #[test]
    fn inner_tags_belong_to_the_header() {
        let frame = frame(&[TYPE_VLAN, 7, TYPE_IPV4], 1500, 1518);
        assert_eq!(
            Lengths::of(&frame, 1518),
            Lengths {
                payload_bytes: 1500,
                ip_bytes: 1500
            }
        );
    }

    #[test]
    fn frames_whose_length_cannot_be_believed_count_without_the_ethernet_header() {
        assert_eq!(ip_bytes(&frame(&[0x0806], 28, 60)), 46, "not IPv4");
        assert_eq!(
            ip_bytes(&frame(&[TYPE_IPV4], 19, 60)),
            46,
            "shorter than a header"
        );
        assert_eq!(
            ip_bytes(&frame(&[TYPE_IPV4], 47, 60)),
            46,
            "longer than the frame"
        );
        assert_eq!(ip_bytes(&[0; 14]), 0);
        assert_eq!(ip_bytes(&[]), 0);
    }

    #[test]
    fn a_cut_frame_is_measured_by_its_length_on_the_wire() {
        let cut = frame(&[TYPE_IPV4], 9000, 128);
        assert_eq!(Lengths::of(&cut, 9014).payload_bytes, 9000);
    }

    #[test]
    fn ethernet_counts_fourteen_bytes_more() {
        let lengths = Lengths::of(&frame(&[TYPE_IPV4], 40, 60), 60);
        assert_eq!(
            (
                lengths.counted_bytes(Counted::Ip),
                lengths.counted_bytes(Counted::Ethernet)
            ),
            (40, 54)
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The frames: UDP in IPv4, so that every link counts them as it counts traffic, with a number inside.

use atoll_headers::internet_checksum;

/// IPv4 header (20), UDP header (8), mark (4), flow (2), sequence number (8).
pub(crate) const LEAST_PACKET: u32 = 42;

const ETHERNET: usize = 14;
const TAG: usize = 4;
/// The mark in the payload of our frames.
const MARK: [u8; 4] = *b"atol";
/// Offset of the mark in an IP packet.
const MARK_OFFSET: usize = 28;
/// To nobody's address, so that the kernel behind an interface discards them; locally administered.
const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0xff, 0x02];
const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0xff, 0x01];
/// Of the network for benchmarks (RFC 2544 and 6890).
const ADDRESSES: [[u8; 4]; 2] = [[198, 18, 0, 1], [198, 19, 0, 1]];
/// Discard (RFC 863).
const UDP_PORT: u16 = 9;

/// A frame's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) flow: u16,
    pub(crate) sequence: u64,
}

/// A frame of `flow` with a packet of `packet_bytes` (at least [`LEAST_PACKET`]), in VLAN `vlan` if there is one.
pub(crate) fn build(flow: u16, packet_bytes: u32, vlan: Option<u16>) -> Vec<u8> {
    let mut frame = [DESTINATION, SOURCE].concat();
    if let Some(vlan) = vlan {
        frame.extend_from_slice(&[0x81, 0x00]); // IEEE 802.1Q
        frame.extend_from_slice(&vlan.to_be_bytes());
    }
    frame.extend_from_slice(&[0x08, 0x00]);
    let begin = frame.len();
    frame.resize(begin + packet_bytes as usize, 0);
    let (ip, udp) = frame[begin..].split_at_mut(20);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(packet_bytes as u16).to_be_bytes());
    ip[8] = 64; // hops
    ip[9] = 17; // UDP
    ip[12..20].copy_from_slice(&ADDRESSES.concat());
    let sum = internet_checksum(0, ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    udp[..2].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(packet_bytes as u16 - 20).to_be_bytes());
    udp[8..12].copy_from_slice(&MARK); // no checksum, which IPv4 allows
    udp[12..14].copy_from_slice(&flow.to_be_bytes());
    frame
}

/// Give a frame made by [`build`] its sequence number.
pub(crate) fn number(frame: &mut [u8], tagged: bool, sequence: u64) {
    let begin = ETHERNET + if tagged { TAG } else { 0 } + MARK_OFFSET + 6;
    frame[begin..begin + 8].copy_from_slice(&sequence.to_be_bytes());
}

/// The name of a frame that lost its tag on the way to us; None if it is not ours.
pub(crate) fn name(frame: &[u8]) -> Option<Name> {
    let ours = frame.get(ETHERNET + MARK_OFFSET..ETHERNET + LEAST_PACKET as usize)?;
    let (mark, rest) = ours.split_at(4);
    let (flow, sequence) = rest.split_at(2);
    (mark == MARK).then_some(Name {
        flow: u16::from_be_bytes(flow.try_into().ok()?),
        sequence: u64::from_be_bytes(sequence.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_by_flow_and_number() {
        for packet_bytes in [LEAST_PACKET, 50, 1500] {
            let mut frame = build(7, packet_bytes, None);
            number(&mut frame, false, 1 << 40);
            assert_eq!(frame.len(), packet_bytes as usize + ETHERNET);
            let expected = Name {
                flow: 7,
                sequence: 1 << 40,
            };
            assert_eq!(name(&frame), Some(expected));
        }
    }

    #[test]
    fn a_tag_moves_everything_and_is_taken_out_by_the_kernel() {
        let mut tagged = build(1, 100, Some(101));
        number(&mut tagged, true, 5);
        assert_eq!(&tagged[12..16], &[0x81, 0x00, 0, 101]);
        tagged.drain(12..16);
        let mut plain = build(1, 100, None);
        number(&mut plain, false, 5);
        assert_eq!(tagged, plain);
    }

    #[test]
    fn the_header_checksum_sums_to_nothing() {
        assert_eq!(
            internet_checksum(0, &build(1, 1500, None)[ETHERNET..ETHERNET + 20]),
            0
        );
    }

    #[test]
    fn frames_of_others_have_no_name() {
        assert_eq!(name(&[0; 60]), None);
        assert_eq!(name(&[0; 20]), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Outer packets: IPv4 and UDP around what coders say to each other.

use crate::ipv4::{self, HEADER_BYTES, Ipv4, UDP};
use atoll_headers::{ETHERNET_BYTES, internet_checksum, pseudo_header_sum, read_u16};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// The destination port, one of those that nobody registers (RFC 6335). The addresses are the tunnel's alone.
const PORT: u16 = 49_500;
/// The source port is one of these, and says in which session of the sender, from its start to its end, it sent the packet.
const SESSIONS: RangeInclusive<u16> = 49_152..=u16::MAX;
const UDP_BYTES: usize = 8;
/// Bytes of both headers.
pub(crate) const OUTER_BYTES: usize = HEADER_BYTES + UDP_BYTES;
/// The most bytes by which a tunnel's packet is longer than the longest of those in it: the outer headers, a repair
/// packet's own, and the length within its symbol, which Reed-Solomon rounds up to an even one.
pub(crate) const OVERHEAD_BYTES: usize = OUTER_BYTES + 12 + 2 + 2;
/// "Lower effort" (RFC 8622): the DSCP 1 above the two bits of ECN.
pub(crate) const LOWER_EFFORT: u8 = 1 << 2;

/// The session of a coder that began at this number. That of the coder before it is another one, but by chance.
pub(crate) fn session(session_start: u32) -> u16 {
    SESSIONS.start() + (session_start % SESSIONS.len() as u32) as u16
}

/// The addresses of frames in a tunnel, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) source_mac: [u8; 6],
    pub(crate) destination_mac: [u8; 6],
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) session: u16,
}

/// Append Ethernet addresses and the type of IPv4.
pub(crate) fn write_ethernet(frame: &mut Vec<u8>, destination: [u8; 6], source: [u8; 6]) {
    frame.extend(destination);
    frame.extend(source);
    frame.extend([0x08, 0x00]);
}

/// Append the frame that carries what `write` appends, which is at most 65507 bytes.
pub(crate) fn write_frame(
    frame: &mut Vec<u8>,
    addresses: &Addresses,
    (tos, identification): (u8, u16),
    content_bytes: usize,
    write: impl FnOnce(&mut Vec<u8>),
) {
    write_ethernet(frame, addresses.destination_mac, addresses.source_mac);
    let ends = (addresses.source, addresses.destination);
    let length = (OUTER_BYTES + content_bytes) as u16;
    ipv4::write_header(frame, (tos, identification), UDP, ends, length);
    let udp = frame.len();
    frame.extend(addresses.session.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend((length - HEADER_BYTES as u16).to_be_bytes());
    frame.extend([0, 0]);
    write(frame);
    let checksum = match checksum(ends, &frame[udp..]) {
        0 => u16::MAX, // 0 says that there is none (RFC 768)
        sum => sum,
    };
    frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    debug_assert_eq!(frame.len(), ETHERNET_BYTES + usize::from(length));
}

/// The session and the content of a tunnel's packet that arrived undamaged. The addresses are the caller's to check.
pub(crate) fn content<'a>(packet: &Ipv4<'a>) -> Option<(u16, &'a [u8])> {
    let payload = packet.payload();
    let length = usize::from(read_u16(payload, 4)?);
    let (session, is_coder_port) = (read_u16(payload, 0)?, read_u16(payload, 2)? == PORT);
    let datagram = payload
        .get(..length)
        .filter(|_| is_coder_port && length >= UDP_BYTES && SESSIONS.contains(&session))?;
    let has_checksum = read_u16(payload, 6)? != 0;
    let ends = (packet.source(), packet.destination());
    (!packet.is_fragment() && has_checksum && checksum(ends, datagram) == 0)
        .then_some((session, &datagram[UDP_BYTES..]))
}

/// That of a datagram and its pseudo-header (RFC 768).
fn checksum((source, destination): (Ipv4Addr, Ipv4Addr), datagram: &[u8]) -> u16 {
    let pseudo_sum = pseudo_header_sum(source, destination, UDP, datagram.len());
    internet_checksum(pseudo_sum, datagram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESSES: Addresses = Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: Ipv4Addr::new(10, 10, 255, 254),
        destination: Ipv4Addr::new(10, 20, 255, 254),
        session: 50_000,
    };

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(
            &mut frame,
            &ADDRESSES,
            (LOWER_EFFORT, 3),
            content.len(),
            |out| {
                out.extend(content);
            },
        );
        frame
    }

    #[test]
    fn repair_packets_are_marked_as_lower_effort() {
        let frame = frame(&[1]);
        assert_eq!(frame[ETHERNET_BYTES + 1] >> 2, 1, "RFC 8622, table 1");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(bytes: Vec<u8>) {
            let frame = frame(&bytes);
            let packet = Ipv4::parse(&frame[ETHERNET_BYTES..]).unwrap();
            prop_assert_eq!(content(&packet), Some((ADDRESSES.session, bytes.as_slice())));
        }

        #[test]
        fn a_damaged_datagram_is_none(bytes: [u8; 64], at in 20..92_usize, bit in 0..8_u32) {
            let mut frame = frame(&bytes);
            frame[ETHERNET_BYTES + at] ^= 1 << bit;
            let packet = Ipv4::parse(&frame[ETHERNET_BYTES..]).unwrap();
            prop_assert_eq!(content(&packet), None);
        }

        #[test]
        fn no_bytes_make_it_panic(payload: Vec<u8>) {
            let bytes = crate::ipv4::tests::packet([10, 0, 0, 1], [10, 0, 0, 2], UDP, &payload);
            let _ = content(&Ipv4::parse(&bytes).unwrap());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! IPv4 packets as a router sees them (RFC 791, RFC 1812).

use atoll_headers::{internet_checksum, read_u16};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub(crate) const HEADER_BYTES: usize = 20;
/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// Explicit congestion notification (RFC 3168): the two bits, and "congestion experienced".
pub(crate) const ECN: u8 = 3;
const TOS_AT: usize = 1;
const TTL_AT: usize = 8;
const CHECKSUM_AT: usize = 10;

/// A whole packet with a right header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ipv4<'a> {
    /// Header and payload, without what follows the packet in its frame.
    pub(crate) bytes: &'a [u8],
    header_bytes: usize,
}

impl<'a> Ipv4<'a> {
    /// The packet at the beginning of `bytes`; `None` if there is none, or its header is damaged.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header_bytes = usize::from(first & 15) * 4;
        let length = usize::from(read_u16(bytes, 2)?);
        let right = first >> 4 == 4 && header_bytes >= HEADER_BYTES && length >= header_bytes;
        let bytes = bytes.get(..length).filter(|_| right)?;
        (internet_checksum(0, &bytes[..header_bytes]) == 0).then_some(Self {
            bytes,
            header_bytes,
        })
    }

    pub(crate) fn source(&self) -> Ipv4Addr {
        self.address(12)
    }

    pub(crate) fn destination(&self) -> Ipv4Addr {
        self.address(16)
    }

    pub(crate) fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// DSCP and ECN.
    pub(crate) fn tos(&self) -> u8 {
        self.bytes[TOS_AT]
    }

    pub(crate) fn ttl(&self) -> u8 {
        self.bytes[TTL_AT]
    }

    /// Whether it is a part of a packet.
    pub(crate) fn is_fragment(&self) -> bool {
        u16::from_be_bytes([self.bytes[6], self.bytes[7]]) & 0x3fff != 0
    }

    /// What follows the header.
    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_bytes..]
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| self.bytes[at + byte]);
        Ipv4Addr::new(a, b, c, d)
    }
}

/// Take one from the TTL of the packet, which is above 0, as a router does.
pub(crate) fn decrement_ttl(packet: &mut [u8]) {
    let ttl = packet[TTL_AT];
    change(packet, TTL_AT, ttl - 1);
}

/// Whether the packet's ends know ECN.
pub(crate) fn is_ecn_capable(tos: u8) -> bool {
    matches!(tos & ECN, 1 | 2)
}

/// Tell the receiver of the packet that there was congestion.
pub(crate) fn mark_congestion(packet: &mut [u8]) {
    let tos = packet[TOS_AT];
    change(packet, TOS_AT, tos | ECN);
}

/// Change a byte of the header, and the checksum with it (RFC 1624).
fn change(packet: &mut [u8], at: usize, value: u8) {
    let word = at & !1;
    let before = u16::from_be_bytes([packet[word], packet[word + 1]]);
    packet[at] = value;
    let after = u16::from_be_bytes([packet[word], packet[word + 1]]);
    let checksum = u16::from_be_bytes([packet[CHECKSUM_AT], packet[CHECKSUM_AT + 1]]);
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    packet[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Append a header without options for a packet of `length` bytes, which is not to be fragmented.
pub(crate) fn write_header(
    out: &mut Vec<u8>,
    (tos, identification): (u8, u16),
    protocol: u8,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    length: u16,
) {
    const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0];
    const TTL: u8 = 64;
    let start = out.len();
    out.extend([0x45, tos]);
    out.extend(length.to_be_bytes());
    out.extend(identification.to_be_bytes());
    out.extend(DO_NOT_FRAGMENT);
    out.extend([TTL, protocol, 0, 0]);
    out.extend(source.octets());
    out.extend(destination.octets());
    let checksum = internet_checksum(0, &out[start..]).to_be_bytes();
    out[start + CHECKSUM_AT..start + CHECKSUM_AT + 2].copy_from_slice(&checksum);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of a protocol between two hosts.
    pub(crate) fn packet(
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let length = (HEADER_BYTES + payload.len()) as u16;
        write_header(
            &mut out,
            (0, 7),
            protocol,
            (source.into(), destination.into()),
            length,
        );
        out.extend(payload);
        out
    }

    #[test]
    fn what_follows_a_packet_in_its_frame_is_not_part_of_it() {
        let mut bytes = packet([10, 0, 0, 1], [10, 1, 0, 1], UDP, &[1, 2, 3]);
        bytes.extend([0; 23]);
        let found = Ipv4::parse(&bytes).unwrap();
        assert_eq!((found.bytes.len(), found.payload()), (23, &[1, 2, 3][..]));
        assert_eq!(found.source(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(found.destination(), Ipv4Addr::new(10, 1, 0, 1));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            if let Some(found) = Ipv4::parse(&bytes) {
                prop_assert!(found.payload().len() <= bytes.len());
            }
        }

        #[test]
        fn a_changed_header_keeps_a_right_checksum(tos: u8, ttl in 1..=255_u8, payload: [u8; 4]) {
            let mut bytes = packet([10, 0, 0, 1], [10, 1, 0, 1], 6, &payload);
            change(&mut bytes, TTL_AT, ttl);
            change(&mut bytes, TOS_AT, tos);
            decrement_ttl(&mut bytes);
            mark_congestion(&mut bytes);
            let found = Ipv4::parse(&bytes);
            prop_assert!(found.is_some());
            prop_assert_eq!(found.map(|each| (each.ttl(), each.tos())), Some((ttl - 1, tos | ECN)));
        }

        #[test]
        fn a_damaged_header_is_none(at in 0..20_usize, bit in 0..8_u32) {
            let mut bytes = packet([10, 0, 0, 1], [10, 1, 0, 1], 6, &[9; 40]);
            bytes[at] ^= 1 << bit;
            prop_assert!(Ipv4::parse(&bytes).is_none());
        }
    }
}

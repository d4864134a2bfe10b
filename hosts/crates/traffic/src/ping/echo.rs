// SPDX-License-Identifier: Apache-2.0
//! ICMP echo on the wire (RFC 792).

use atoll_headers::internet_checksum;
use std::net::Ipv4Addr;

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const ICMP: u8 = 1;

/// Bytes of an IPv4 header without options, as the kernel puts before our messages.
pub const IP_HEADER_BYTES: usize = 20;

/// Bytes of an echo message before its payload.
pub const ECHO_HEADER_BYTES: usize = 8;

/// Direction of an echo message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the pinging host.
    Request,
    /// Back to it.
    Reply,
}

/// An echo message in its IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Request or reply.
    pub kind: Kind,
    /// Source address of the packet.
    pub source: Ipv4Addr,
    /// Its destination.
    pub destination: Ipv4Addr,
    /// Tells one pinging process from another.
    pub identifier: u16,
    /// The low 16 bits of the ping's number.
    pub sequence: u16,
    /// The echoed payload.
    pub payload: &'a [u8],
}

/// An echo request, ready to be sent on a raw ICMP socket.
pub fn request(identifier: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(ECHO_HEADER_BYTES + payload.len());
    message.extend_from_slice(&[ECHO_REQUEST, 0, 0, 0]);
    message.extend_from_slice(&identifier.to_be_bytes());
    message.extend_from_slice(&sequence.to_be_bytes());
    message.extend_from_slice(payload);
    let checksum = internet_checksum(0, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// The echo message in an IPv4 packet; None if the packet is anything else, cut short, or damaged.
pub fn parse(packet: &[u8]) -> Option<Echo<'_>> {
    let version_and_length = *packet.first()?;
    let header_bytes = usize::from(version_and_length & 0x0f) * 4;
    if version_and_length >> 4 != 4 || header_bytes < IP_HEADER_BYTES || *packet.get(9)? != ICMP {
        return None;
    }
    let address = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let message = packet.get(header_bytes..)?;
    let header: [u8; ECHO_HEADER_BYTES] = message.get(..ECHO_HEADER_BYTES)?.try_into().ok()?;
    let kind = match header[..2] {
        [ECHO_REPLY, 0] => Kind::Reply,
        [ECHO_REQUEST, 0] => Kind::Request,
        _ => return None,
    };
    // The sum over a message that holds its own checksum is zero.
    if internet_checksum(0, message) != 0 {
        return None;
    }
    Some(Echo {
        kind,
        source: address(12)?,
        destination: address(16)?,
        identifier: u16::from_be_bytes([header[4], header[5]]),
        sequence: u16::from_be_bytes([header[6], header[7]]),
        payload: &message[ECHO_HEADER_BYTES..],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `message` as the kernel hands it over: behind an IPv4 header.
    fn packet(message: &[u8]) -> Vec<u8> {
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        packet.extend_from_slice(message);
        packet
    }

    #[test]
    fn other_packets_are_no_echo() {
        let good = packet(&request(1, 2, b"x"));
        let mut udp = good.clone();
        udp[9] = 17;
        let mut unreachable = good.clone();
        unreachable[20] = 3;
        for other in [&[][..], &good[..27], &good[..19], &udp, &unreachable] {
            assert_eq!(parse(other), None);
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_is_read(identifier: u16, sequence: u16, payload: Vec<u8>) {
            let packet = packet(&request(identifier, sequence, &payload));
            let echo = Echo {
                kind: Kind::Request,
                source: Ipv4Addr::new(10, 0, 0, 1),
                destination: Ipv4Addr::new(10, 0, 0, 2),
                identifier,
                sequence,
                payload: &payload,
            };
            prop_assert_eq!(parse(&packet), Some(echo));
        }

        #[test]
        fn a_flipped_bit_is_noticed(payload: Vec<u8>, bit in 0..64_usize) {
            let mut packet = packet(&request(4711, 5, &payload));
            packet[20 + bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(parse(&packet), None);
        }

        #[test]
        fn no_packet_makes_the_parser_fail(packet: Vec<u8>) {
            let _ = parse(&packet);
        }
    }
}

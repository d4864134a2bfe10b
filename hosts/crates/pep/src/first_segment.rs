// SPDX-License-Identifier: Apache-2.0
//! The first segment of a connection as an IPv4 packet, why a server does not accept it, and the packets that answer it:
//! bytes in, bytes out.

use atoll_headers::{internet_checksum, pseudo_header_sum, read_u16};
use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;
const IP_HEADER_BYTES: usize = 20;
const TCP_HEADER_BYTES: usize = 20;
/// Of the TCP header (RFC 9293, section 3.1).
const CHECKSUM_AT: usize = 16;
const SYN: u8 = 0x02;
const RST_ACK: u8 = 0x14;
const TTL: u8 = 64;

/// A SYN as it arrived, with a complete checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FirstSegment {
    /// The IPv4 packet.
    packet: Vec<u8>,
    header_bytes: usize,
    pub(crate) client: SocketAddrV4,
    pub(crate) server: SocketAddrV4,
    pub(crate) sequence: u32,
}

impl FirstSegment {
    /// Read a packet; none: it is no whole IPv4 packet with a SYN, or was damaged on its way. `checksum_missing`: the sender
    /// has left the TCP checksum to hardware, and it is completed here.
    pub(crate) fn parse(packet: &[u8], checksum_missing: bool) -> Option<Self> {
        let header_bytes = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || header_bytes < IP_HEADER_BYTES {
            return None;
        }
        let total_bytes = usize::from(read_u16(packet, 2)?);
        // Short frames are padded behind the packet.
        let mut packet = packet.get(..total_bytes)?.to_vec();
        let segment = packet.get(header_bytes..)?;
        let is_fragment = read_u16(&packet, 6)? & 0x3fff != 0;
        let offset_bytes = usize::from(segment.get(12)? >> 4) * 4;
        let is_syn = segment.get(13)? & 0x17 == SYN; // nor ACK, RST, FIN
        if packet[9] != TCP
            || is_fragment
            || !is_syn
            || !(TCP_HEADER_BYTES..=segment.len()).contains(&offset_bytes)
        {
            return None;
        }
        let (source, destination) = (address(&packet, 12)?, address(&packet, 16)?);
        let client = SocketAddrV4::new(source, read_u16(segment, 0)?);
        let server = SocketAddrV4::new(destination, read_u16(segment, 2)?);
        let sequence = u32::from_be_bytes(segment.get(4..8)?.try_into().ok()?);
        let pseudo_sum = pseudo_header_sum(source, destination, TCP, segment.len());
        if checksum_missing {
            let segment = &mut packet[header_bytes..];
            put_checksum(segment, CHECKSUM_AT, pseudo_sum);
        } else if internet_checksum(pseudo_sum, segment) != 0 {
            return None;
        }
        Some(Self {
            packet,
            header_bytes,
            client,
            server,
            sequence,
        })
    }

    /// The packet, to be sent again.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The packet by which a server refuses it (RFC 9293, section 3.10.7.1).
    pub(crate) fn refusal(&self) -> Vec<u8> {
        let segment = &self.packet[self.header_bytes..];
        let payload_bytes = segment.len() - usize::from(segment[12] >> 4) * 4;
        let acknowledged = self.sequence.wrapping_add(1 + payload_bytes as u32);
        let mut answer = ip_header(self.server, self.client, TCP, TCP_HEADER_BYTES);
        answer.extend(self.server.port().to_be_bytes());
        answer.extend(self.client.port().to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(acknowledged.to_be_bytes());
        answer.extend([(TCP_HEADER_BYTES as u8 / 4) << 4, RST_ACK]);
        answer.extend([0; 6]);
        let sum = pseudo_header_sum(*self.server.ip(), *self.client.ip(), TCP, TCP_HEADER_BYTES);
        put_checksum(&mut answer[IP_HEADER_BYTES..], CHECKSUM_AT, sum);
        answer
    }

    /// The ICMP message that its destination cannot be reached (RFC 792), from the server's address: the router that the
    /// proxy heard of it by is not known here.
    pub(crate) fn unreachable(&self, code: UnreachableCode) -> Vec<u8> {
        const ICMP: u8 = 1;
        const DESTINATION_UNREACHABLE: u8 = 3;
        let quoted = &self.packet[..self.header_bytes + 8];
        let mut answer = ip_header(self.server, self.client, ICMP, 8 + quoted.len());
        answer.extend([DESTINATION_UNREACHABLE, code as u8, 0, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(quoted);
        put_checksum(&mut answer[IP_HEADER_BYTES..], 2, 0);
        answer
    }
}

/// Of an ICMP message "destination unreachable".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreachableCode {
    Network = 0,
    Host = 1,
    Protocol = 2,
}

/// Why a server did not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Refused,
    Unreachable(UnreachableCode),
    /// No answer, or no room for the connection: the client tries again.
    Unanswered,
}

impl Refusal {
    /// By the error of a connection that could not be made.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET) => Self::Refused,
            Some(Errno::NETUNREACH) => Self::Unreachable(UnreachableCode::Network),
            Some(Errno::HOSTUNREACH) => Self::Unreachable(UnreachableCode::Host),
            Some(Errno::NOPROTOOPT) => Self::Unreachable(UnreachableCode::Protocol),
            // No answer; or something is missing here, a port that is still in use for one.
            _ => Self::Unanswered,
        }
    }

    /// Its number in a frame.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Refused => 0,
            Self::Unanswered => 1,
            Self::Unreachable(code) => 2 + code as u8,
        }
    }

    /// The one with this number.
    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        use UnreachableCode::{Host, Network, Protocol};
        Some(match byte {
            0 => Self::Refused,
            1 => Self::Unanswered,
            2 => Self::Unreachable(Network),
            3 => Self::Unreachable(Host),
            4 => Self::Unreachable(Protocol),
            _ => return None,
        })
    }
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

fn put_checksum(bytes: &mut [u8], at: usize, initial_sum: u32) {
    bytes[at..at + 2].fill(0);
    let checksum = internet_checksum(initial_sum, bytes);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A header that the kernel completes with identification and checksum (raw(7)).
fn ip_header(from: SocketAddrV4, to: SocketAddrV4, protocol: u8, payload_bytes: usize) -> Vec<u8> {
    let total_bytes = (IP_HEADER_BYTES + payload_bytes) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total_bytes.to_be_bytes());
    header.extend([0, 0, 0, 0, TTL, protocol, 0, 0]);
    header.extend(from.ip().octets());
    header.extend(to.ip().octets());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A SYN with an MSS option and some payload.
    fn syn(payload: &[u8]) -> Vec<u8> {
        let client: SocketAddrV4 = "10.20.0.1:4321".parse().unwrap();
        let server: SocketAddrV4 = "10.10.0.1:80".parse().unwrap();
        let mut packet = ip_header(client, server, TCP, TCP_HEADER_BYTES + 4 + payload.len());
        packet.extend([0x10, 0xe1, 0, 80]);
        packet.extend(0xffff_fff0_u32.to_be_bytes());
        packet.extend([0, 0, 0, 0, 6 << 4, SYN, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend([2, 4, 5, 0xb4]);
        packet.extend(payload);
        let sum = pseudo_header_sum(
            *client.ip(),
            *server.ip(),
            TCP,
            packet.len() - IP_HEADER_BYTES,
        );
        put_checksum(&mut packet[IP_HEADER_BYTES..], CHECKSUM_AT, sum);
        packet
    }

    #[test]
    fn a_syn_is_read_with_its_padding_removed() {
        let packet = syn(b"");
        let mut padded = packet.clone();
        padded.extend([0; 2]);
        let read = FirstSegment::parse(&padded, false).unwrap();
        assert_eq!(read.client.to_string(), "10.20.0.1:4321");
        assert_eq!(read.server.to_string(), "10.10.0.1:80");
        assert_eq!(read.sequence, 0xffff_fff0);
        assert_eq!(read.packet(), packet);
    }

    #[test]
    fn a_checksum_is_completed_if_it_is_missing_and_refused_if_it_is_wrong() {
        let packet = syn(b"data");
        let mut partial = packet.clone();
        partial[IP_HEADER_BYTES + CHECKSUM_AT] ^= 0x55;
        assert_eq!(FirstSegment::parse(&partial, false), None);
        let completed = FirstSegment::parse(&partial, true).unwrap();
        assert_eq!(completed.packet(), packet);
    }

    #[test]
    fn segments_that_begin_nothing_are_refused() {
        for flags in [0x12_u8, 0x10, 0x06, 0x03, 0] {
            let mut packet = syn(b"");
            packet[IP_HEADER_BYTES + 13] = flags;
            assert_eq!(FirstSegment::parse(&packet, true), None, "{flags:#x}");
        }
        let changes: [(usize, u8); 4] =
            [(0, 0x65), (9, 17), (6, 0x20), (IP_HEADER_BYTES + 12, 0xf0)];
        for (at, byte) in changes {
            let mut packet = syn(b"");
            packet[at] = byte;
            assert_eq!(FirstSegment::parse(&packet, true), None, "byte {at}");
        }
    }

    #[test]
    fn a_refusal_acknowledges_syn_and_payload() {
        let answer = FirstSegment::parse(&syn(b"12345"), false)
            .unwrap()
            .refusal();
        assert_eq!(answer.len(), 40);
        assert_eq!(answer[12..20], [10, 10, 0, 1, 10, 20, 0, 1]);
        let segment = &answer[IP_HEADER_BYTES..];
        assert_eq!(segment[..4], [0, 80, 0x10, 0xe1]);
        assert_eq!(segment[8..12], 0xffff_fff6_u32.to_be_bytes());
        assert_eq!(segment[13], RST_ACK);
        let sum = pseudo_header_sum([10, 10, 0, 1].into(), [10, 20, 0, 1].into(), TCP, 20);
        assert_eq!(internet_checksum(sum, segment), 0);
    }

    #[test]
    fn an_unreachable_message_quotes_the_segment() {
        let packet = syn(b"12345");
        let first = FirstSegment::parse(&packet, false).unwrap();
        let answer = first.unreachable(UnreachableCode::Host);
        let message = &answer[IP_HEADER_BYTES..];
        assert_eq!(message[..2], [3, 1]);
        assert_eq!(message[8..], packet[..28]);
        assert_eq!(internet_checksum(0, message), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), missing: bool) {
            let _ = FirstSegment::parse(&bytes, missing);
        }

        #[test]
        fn a_damaged_syn_is_refused_or_answered(at in 0_usize..49, byte: u8, missing: bool) {
            let mut packet = syn(b"12345");
            packet[at] = byte;
            if let Some(first) = FirstSegment::parse(&packet, missing) {
                prop_assert_eq!(first.refusal().len(), 40);
                prop_assert!(first.unreachable(UnreachableCode::Network).len() >= 56);
            }
        }

        #[test]
        fn any_changed_bit_of_a_segment_is_noticed(bit in 0_usize..(29 * 8)) {
            let mut packet = syn(b"12345");
            packet[IP_HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(FirstSegment::parse(&packet, false), None);
        }
    }
}

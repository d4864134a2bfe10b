// SPDX-License-Identifier: Apache-2.0
//! The header of probes: a mark at the beginning of the payload, the same for all protocols.
//!
//! A probe of ICMP is an echo request, which any host answers by itself. Probes of other protocols are answered by the
//! `probe` job of the host they are for; they are made so that nobody else reacts to them: TCP with RST alone (RFC 9293,
//! 3.5.2: a reset is never answered), UDP to the discard port (RFC 863), anything else bare.

use atoll_headers::{internet_checksum, pseudo_header_sum};
use std::net::Ipv4Addr;

/// Bytes of an IPv4 header without options.
pub const IP_HEADER_BYTES: usize = 20;

/// The text that marks begin with.
pub const MAGIC: &[u8; 12] = b"atoll probe\0";

/// Text (12), session (4), number (4), attempt (2), 1 if it is an answer (1), nothing (1); big-endian.
pub const PROBE_HEADER_BYTES: usize = 24;

/// Protocols as in the IPv4 header (IANA, Assigned Internet Protocol Numbers).
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Bytes before the payload.
pub const ICMP_HEADER_BYTES: usize = 8;
pub const TCP_HEADER_BYTES: usize = 20;
pub const UDP_HEADER_BYTES: usize = 8;

const DISCARD_PORT: u16 = 9;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const RST: u8 = 0x04;
const TTL: u8 = 64;

/// Which probe a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Tells one user of probes from another.
    pub session: u32,
    /// Which of the session's probes.
    pub number: u32,
    /// Counts from 0.
    pub attempt: u16,
    /// It is on its way back.
    pub answer: bool,
}

/// A probe in its IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Source address of the packet.
    pub source: Ipv4Addr,
    /// Its destination.
    pub destination: Ipv4Addr,
    /// As in the IPv4 header.
    pub protocol: u8,
    /// Identity of the probe.
    pub header: ProbeHeader,
}

impl Probe {
    /// The probe that its receiver sends back.
    pub fn answer_probe(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            header: ProbeHeader {
                answer: true,
                ..self.header
            },
        }
    }

    /// As an IPv4 packet, whose length, identification and checksum the kernel fills in (raw(7), `IP_HDRINCL`).
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; IP_HEADER_BYTES];
        packet[0] = 0x45;
        packet[8] = TTL;
        packet[9] = self.protocol;
        packet[12..16].copy_from_slice(&self.source.octets());
        packet[16..20].copy_from_slice(&self.destination.octets());
        packet.extend_from_slice(&self.segment());
        packet
    }

    /// The header and payload behind the IPv4 header.
    fn segment(&self) -> Vec<u8> {
        let probe_header = self.header.bytes();
        let ports = u32::from(DISCARD_PORT) << 16 | u32::from(DISCARD_PORT);
        let (header, checksum_at) = match self.protocol {
            ICMP => {
                let kind = if self.header.answer {
                    ECHO_REPLY
                } else {
                    ECHO_REQUEST
                };
                let mut header = vec![kind, 0, 0, 0];
                header.extend_from_slice(&(self.header.session as u16).to_be_bytes());
                header.extend_from_slice(&self.header.attempt.to_be_bytes());
                (header, Some(2))
            }
            UDP => {
                let mut header = ports.to_be_bytes().to_vec();
                let length = (UDP_HEADER_BYTES + PROBE_HEADER_BYTES) as u16;
                header.extend_from_slice(&length.to_be_bytes());
                header.extend_from_slice(&[0, 0]);
                (header, Some(6))
            }
            TCP => {
                let mut header = vec![0; TCP_HEADER_BYTES];
                header[..4].copy_from_slice(&ports.to_be_bytes());
                header[12] = 5 << 4; // words of header
                header[13] = RST;
                (header, Some(16))
            }
            _ => (Vec::new(), None),
        };
        let mut segment = header;
        segment.extend_from_slice(&probe_header);
        if let Some(at) = checksum_at {
            let pseudo_sum = if self.protocol == ICMP {
                0
            } else {
                pseudo_header_sum(self.source, self.destination, self.protocol, segment.len())
            };
            let checksum = internet_checksum(pseudo_sum, &segment);
            segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        segment
    }
}

impl ProbeHeader {
    fn bytes(self) -> [u8; PROBE_HEADER_BYTES] {
        let mut bytes = [0; PROBE_HEADER_BYTES];
        bytes[..12].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.attempt.to_be_bytes());
        bytes[22] = u8::from(self.answer);
        bytes
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let rest = payload.strip_prefix(MAGIC)?;
        let (session, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (attempt, rest) = rest.split_first_chunk()?;
        Some(Self {
            session: u32::from_be_bytes(*session),
            number: u32::from_be_bytes(*number),
            attempt: u16::from_be_bytes(*attempt),
            answer: *rest.first()? != 0,
        })
    }
}

/// The probe in an IPv4 packet; None if the packet is anything else, or cut short.
pub fn parse(packet: &[u8]) -> Option<Probe> {
    let first = *packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header_bytes < IP_HEADER_BYTES {
        return None;
    }
    let (header, segment) = packet.split_at_checked(header_bytes)?;
    let protocol = header[9];
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let payload_at = match protocol {
        ICMP => ICMP_HEADER_BYTES,
        UDP => UDP_HEADER_BYTES,
        TCP => usize::from(*segment.get(12)? >> 4) * 4,
        _ => 0,
    };
    let mut header = ProbeHeader::parse(segment.get(payload_at..)?)?;
    if protocol == ICMP {
        // The host that answers sends back what it was sent.
        header.answer = match segment[0] {
            ECHO_REPLY => true,
            ECHO_REQUEST => false,
            _ => return None,
        };
    }
    Some(Probe {
        source: address(12),
        destination: address(16),
        protocol,
        header,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn probe(protocol: u8) -> Probe {
        Probe {
            source: Ipv4Addr::new(10, 10, 0, 1),
            destination: Ipv4Addr::new(10, 20, 0, 2),
            protocol,
            header: ProbeHeader {
                session: 0xdead_beef,
                number: 7,
                attempt: 2,
                answer: false,
            },
        }
    }

    #[test]
    fn what_is_sent_is_what_is_read_in_both_directions() {
        for protocol in [ICMP, TCP, UDP, 253] {
            let request = probe(protocol);
            assert_eq!(parse(&request.packet()), Some(request));
            let answer = request.answer_probe();
            assert!(answer.header.answer && answer.destination == request.source);
            assert_eq!(parse(&answer.packet()), Some(answer));
        }
    }

    /// The packets of `tests/data/contract/probe-packets.jsonl`, which the controller has switches send.
    #[test]
    fn packets_are_those_of_the_contract() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../tests/data/contract/probe-packets.jsonl");
        let text = std::fs::read_to_string(folder).unwrap();
        for line in text.lines() {
            let example: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| u32::try_from(example[key].as_u64().unwrap()).unwrap();
            let address = |key: &str| example[key].as_str().unwrap().parse().unwrap();
            let packet: Vec<u8> = example["packet"]
                .as_str()
                .unwrap()
                .as_bytes()
                .chunks(2)
                .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
                .collect();
            let probe = Probe {
                source: address("src"),
                destination: address("dst"),
                protocol: number("protocol") as u8,
                header: ProbeHeader {
                    session: number("session"),
                    number: number("number"),
                    attempt: number("attempt") as u16,
                    answer: false,
                },
            };
            assert_eq!(parse(&packet), Some(probe));
            assert_eq!(probe.segment(), packet[IP_HEADER_BYTES..]);
        }
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn checksums_hold() {
        for protocol in [ICMP, TCP, UDP] {
            let request = probe(protocol);
            let segment = request.segment();
            let pseudo_sum = if protocol == ICMP {
                0
            } else {
                pseudo_header_sum(
                    request.source,
                    request.destination,
                    request.protocol,
                    segment.len(),
                )
            };
            assert_eq!(
                internet_checksum(pseudo_sum, &segment),
                0,
                "protocol {protocol}"
            );
        }
    }

    #[test]
    fn an_error_that_quotes_a_probe_is_none() {
        let mut packet = probe(ICMP).packet();
        packet[20] = 3; // destination unreachable
        assert_eq!(parse(&packet), None);
        let quoted = [&probe(UDP).packet()[..28], &probe(UDP).packet()].concat();
        assert_eq!(parse(&quoted), None);
    }

    proptest! {
        #[test]
        fn no_packet_makes_the_parser_fail(packet: Vec<u8>, protocol in 0_usize..4, cut in 0_usize..80) {
            let _ = parse(&packet);
            let good = probe([ICMP, TCP, UDP, 253][protocol]).packet();
            let _ = parse(&good[..cut.min(good.len())]);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Headers of one frame: Ethernet, VLAN tags, IPv4, and TCP, UDP or ICMP.
//!
//! All lengths come from headers, so that packets cut by the capture's snap length count in full.

use atoll_headers::{ETHERNET_BYTES, ethernet_header, read_u16};

/// IP protocol numbers.
pub const ICMP: u8 = 1;
/// As above.
pub const TCP: u8 = 6;
/// As above.
pub const UDP: u8 = 17;

/// TCP flags.
pub const FIN: u8 = 1;
/// As above.
pub const SYN: u8 = 2;
/// As above.
pub const RST: u8 = 4;
/// As above.
pub const ACK: u8 = 16;

const ETHERTYPE_IPV4: u16 = 0x0800;

const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO_REQUEST: u8 = 8;

/// An IPv4 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packet {
    /// VLAN id of the outermost tag, 0 without one.
    pub vlan: u16,
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Total length.
    pub ip_bytes: u32,
    /// Identification.
    pub ip_id: u16,
    /// Protocol number.
    pub proto: u8,
    /// First fragment of several, or a later one.
    pub fragment: bool,
    /// The transport header was cut off by the snap length, or is damaged; ports may be missing.
    pub cut: bool,
    /// Source port, or ICMP echo identifier.
    pub sport: u16,
    /// Destination port, or ICMP echo sequence number.
    pub dport: u16,
    /// Payload after the transport header; of a later fragment, all of it.
    pub payload_bytes: u32,
    /// ICMP type.
    pub icmp_type: u8,
    /// TCP's own fields.
    pub tcp: Option<Tcp>,
}

/// Fields of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags.
    pub flags: u8,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// Window scale option (RFC 7323, section 2.2), at most 14.
    pub window_scale: Option<u8>,
}

impl Tcp {
    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The IPv4 packet in an Ethernet frame of `wire_bytes`, of which `frame` was kept; `None` if it holds
/// none, or if not even its IP header was kept.
pub fn parse(frame: &[u8], wire_bytes: u32) -> Option<Packet> {
    let (ip_at, ether_type) = ethernet_header(frame);
    if ether_type != Some(ETHERTYPE_IPV4) {
        return None;
    }
    let tag = read_u16(frame, ETHERNET_BYTES).filter(|_| ip_at > ETHERNET_BYTES);
    let ip = frame.get(ip_at..)?;
    let version_and_length = *ip.first()?;
    let header_bytes = usize::from(version_and_length & 0x0f) * 4;
    if version_and_length >> 4 != 4 || header_bytes < 20 || ip.len() < header_bytes {
        return None;
    }
    // Zero: left to the NIC by segmentation offload.
    let ip_bytes = match read_u16(ip, 2)? {
        0 => wire_bytes.saturating_sub(ip_at as u32),
        length => u32::from(length),
    };
    let fragment_field = read_u16(ip, 6)?;
    let (more_follow, offset) = (fragment_field & 0x2000 != 0, fragment_field & 0x1fff);
    let mut packet = Packet {
        vlan: tag.map_or(0, |control| control & 0x0fff),
        src: u32_at(ip, 12)?,
        dst: u32_at(ip, 16)?,
        ip_bytes,
        ip_id: read_u16(ip, 4)?,
        proto: ip[9],
        fragment: more_follow || offset > 0,
        ..Packet::default()
    };
    let ip_payload = ip_bytes.saturating_sub(header_bytes as u32);
    if offset > 0 {
        packet.payload_bytes = ip_payload;
        return Some(packet);
    }
    // Padding of short frames is not payload.
    let kept = ip.len().min(ip_bytes as usize).max(header_bytes);
    let transport = &ip[header_bytes..kept];
    packet.cut = packet.transport_header(transport, ip_payload).is_none();
    Some(packet)
}

impl Packet {
    /// Read the transport header as far as it was kept; `None` when that was not all of it.
    fn transport_header(&mut self, header: &[u8], ip_payload: u32) -> Option<()> {
        match self.proto {
            TCP => {
                (self.sport, self.dport) = (read_u16(header, 0)?, read_u16(header, 2)?);
                let header_bytes = usize::from(*header.get(12)? >> 4) * 4;
                if header_bytes < 20 {
                    return None;
                }
                let flags = *header.get(13)?;
                self.payload_bytes = ip_payload.saturating_sub(header_bytes as u32);
                self.tcp = Some(Tcp {
                    seq: u32_at(header, 4)?,
                    ack: u32_at(header, 8)?,
                    flags,
                    window: read_u16(header, 14)?,
                    window_scale: if flags & SYN == 0 {
                        None
                    } else {
                        window_scale(&header[..header_bytes.min(header.len())])
                    },
                });
            }
            UDP => {
                (self.sport, self.dport) = (read_u16(header, 0)?, read_u16(header, 2)?);
                self.payload_bytes = ip_payload.saturating_sub(8);
            }
            ICMP => {
                self.icmp_type = *header.first()?;
                self.payload_bytes = ip_payload.saturating_sub(8);
                if matches!(self.icmp_type, ICMP_ECHO_REQUEST | ICMP_ECHO_REPLY) {
                    (self.sport, self.dport) = (read_u16(header, 4)?, read_u16(header, 6)?);
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// Kind 3 among a SYN's options; kinds 0 and 1 have no length (RFC 9293, section 3.1).
fn window_scale(header: &[u8]) -> Option<u8> {
    let mut options = header.get(20..)?;
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [3, 3, shift, ..] => return Some((*shift).min(14)),
            [_, length, ..] => options = options.get(usize::from(*length).max(2)..)?,
            [_] => return None,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame as on the wire: `tags` are VLAN ids, outermost first.
    pub fn frame(
        tags: &[u16],
        ip_options: usize,
        proto: u8,
        fragment: u16,
        transport: &[u8],
    ) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for tag in tags {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(0x0800_u16.to_be_bytes());
        let header = 20 + ip_options;
        frame.push(0x40 | (header / 4) as u8);
        frame.push(0);
        frame.extend(((header + transport.len()) as u16).to_be_bytes());
        frame.extend(0xbeef_u16.to_be_bytes());
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, proto, 0, 0]);
        frame.extend([10, 10, 0, 1, 10, 20, 0, 2]);
        frame.resize(frame.len() + ip_options, 1);
        frame.extend(transport);
        frame
    }

    /// A TCP segment from port 5001 to 40000.
    pub fn tcp(seq: u32, flags: u8, options: &[u8], payload: usize) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(5001_u16.to_be_bytes());
        segment.extend(40000_u16.to_be_bytes());
        segment.extend(seq.to_be_bytes());
        segment.extend(77_u32.to_be_bytes());
        segment.push(((20 + options.len()) as u8 / 4) << 4);
        segment.push(flags);
        segment.extend(500_u16.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(options);
        segment.resize(segment.len() + payload, b'x');
        segment
    }

    #[test]
    fn lengths_come_from_headers_through_tags_options_and_the_snap_length() {
        let whole = frame(&[101, 7], 8, TCP, 0, &tcp(1000, ACK, &[1; 12], 1400));
        let cut = &whole[..96];
        for kept in [&whole[..], cut] {
            let packet = parse(kept, whole.len() as u32).unwrap();
            assert_eq!(packet.vlan, 101);
            assert_eq!((packet.src, packet.dst), (0x0a0a_0001, 0x0a14_0002));
            assert_eq!(packet.ip_bytes, 28 + 32 + 1400);
            assert_eq!(packet.payload_bytes, 1400);
            assert_eq!(
                (packet.sport, packet.dport, packet.ip_id),
                (5001, 40000, 0xbeef)
            );
            let tcp = packet.tcp.unwrap();
            assert_eq!(
                (tcp.seq, tcp.ack, tcp.flags, tcp.window),
                (1000, 77, ACK, 500)
            );
            assert!(!packet.cut && !packet.fragment);
        }
    }

    #[test]
    fn padding_of_short_frames_is_not_payload() {
        let mut padded = frame(&[], 0, TCP, 0, &tcp(1, ACK, &[], 0));
        padded.resize(60, 0);
        assert_eq!(parse(&padded, 60).unwrap().payload_bytes, 0);
    }

    #[test]
    fn echo_carries_identifier_and_sequence_in_place_of_ports() {
        let echo = [8, 0, 0, 0, 0x12, 0x34, 0, 9, 1, 2, 3];
        let packet = parse(&frame(&[], 0, ICMP, 0, &echo), 0).unwrap();
        assert_eq!(
            (
                packet.icmp_type,
                packet.sport,
                packet.dport,
                packet.payload_bytes
            ),
            (8, 0x1234, 9, 3)
        );
        let unreachable = [3, 1, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let packet = parse(&frame(&[], 0, ICMP, 0, &unreachable), 0).unwrap();
        assert_eq!((packet.icmp_type, packet.sport, packet.dport), (3, 0, 0));
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let first = parse(
            &frame(
                &[],
                0,
                UDP,
                0x2000,
                &[0x13, 0x89, 0, 53, 0, 0, 0, 0, 1, 2, 3, 4],
            ),
            0,
        )
        .unwrap();
        assert_eq!(
            (
                first.fragment,
                first.sport,
                first.dport,
                first.payload_bytes
            ),
            (true, 5001, 53, 4)
        );
        let later = parse(&frame(&[], 0, UDP, 0x0001, &[0x13, 0x89, 0, 53]), 0).unwrap();
        assert_eq!(
            (
                later.fragment,
                later.sport,
                later.dport,
                later.payload_bytes
            ),
            (true, 0, 0, 4)
        );
    }

    #[test]
    fn the_window_scale_is_found_among_other_options() {
        let options = [2, 4, 5, 0xb4, 1, 3, 3, 20, 0, 0, 0, 0];
        let packet = parse(&frame(&[], 0, TCP, 0, &tcp(1, SYN, &options, 0)), 0).unwrap();
        assert_eq!(
            packet.tcp.unwrap().window_scale,
            Some(14),
            "RFC 7323: more than 14 counts as 14"
        );
        let packet = parse(&frame(&[], 0, TCP, 0, &tcp(1, SYN, &[2, 4, 5, 0xb4], 0)), 0).unwrap();
        assert_eq!(packet.tcp.unwrap().window_scale, None);
    }

    #[test]
    fn other_frames_are_none_of_ours() {
        let mut arp = frame(&[], 0, 0, 0, &[]);
        arp[13] = 6;
        assert_eq!(parse(&arp, 60), None);
        assert_eq!(parse(&[0; 13], 13), None);
    }

    proptest! {
        #[test]
        fn no_bytes_on_the_wire_can_break_the_parser(
            mut bytes in prop::collection::vec(any::<u8>(), 0..120), wire in any::<u32>(), ipv4 in any::<bool>(),
        ) {
            if ipv4 && bytes.len() > 15 {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            }
            if let Some(packet) = parse(&bytes, wire) {
                prop_assert!(packet.payload_bytes <= packet.ip_bytes);
            }
        }
    }
}

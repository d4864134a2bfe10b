// SPDX-License-Identifier: Apache-2.0
//! The 64-byte record of one packet.

/// Size of a record in a file.
pub const RECORD_BYTES: usize = 64;

/// The record of one IPv4 packet. In a file, little endian:
///
/// | offset | field | | offset | field |
/// |---|---|---|---|---|
/// | 0 | `t_ns` i64 | | 44 | `sport` u16 |
/// | 8 | `src` u32 | | 46 | `dport` u16 |
/// | 12 | `dst` u32 | | 48 | `ip_id` u16 |
/// | 16 | `ip_bytes` u32 | | 50 | `vlan` u16 |
/// | 20 | `payload_bytes` u32 | | 52 | `proto` u8 |
/// | 24 | `new_payload_bytes` u32 | | 53 | `tcp_flags` u8 |
/// | 28 | `seq` u32 | | 54 | `to_island` u8 |
/// | 32 | `ack` u32 | | 55 | `icmp_type` u8 |
/// | 36 | `flow` u32 | | 56 | 8 bytes zero |
/// | 40 | `window` u32 | | 64 | |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// Capture instant, ns since 1970 (`CLOCK_REALTIME`).
    pub t_ns: i64,
    /// Source address as a number.
    pub src: u32,
    /// Destination address as a number.
    pub dst: u32,
    /// Length of the IP packet, header included, by its own header: also of packets cut by the snap length.
    pub ip_bytes: u32,
    /// Payload of TCP, UDP or ICMP (their headers excluded); of a later fragment, all it carries.
    pub payload_bytes: u32,
    /// TCP payload bytes not seen before in this flow and direction.
    pub new_payload_bytes: u32,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgement number.
    pub ack: u32,
    /// Number of the 5-tuple, from 0 in order of appearance, the same in both directions; a new
    /// connection on a used 5-tuple gets a new number. ICMP: by addresses and identifier.
    pub flow: u32,
    /// TCP receive window in bytes, scaled when the capture holds both SYNs.
    pub window: u32,
    /// Source port; ICMP echo: identifier; later fragments: 0.
    pub sport: u16,
    /// Destination port; ICMP echo: sequence number; later fragments: 0.
    pub dport: u16,
    /// IP identification.
    pub ip_id: u16,
    /// VLAN id of the outermost tag, 0 without one.
    pub vlan: u16,
    /// IP protocol number.
    pub proto: u8,
    /// TCP flags as on the wire (FIN 1, SYN 2, RST 4, PSH 8, ACK 16, ...).
    pub tcp_flags: u8,
    /// 1: the destination is in the island's prefix.
    pub to_island: u8,
    /// ICMP type.
    pub icmp_type: u8,
}

impl Record {
    /// As in a file.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..8].copy_from_slice(&self.t_ns.to_le_bytes());
        let words = [
            self.src,
            self.dst,
            self.ip_bytes,
            self.payload_bytes,
            self.new_payload_bytes,
            self.seq,
            self.ack,
            self.flow,
            self.window,
        ];
        for (slot, word) in bytes[8..44].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let halves = [self.sport, self.dport, self.ip_id, self.vlan];
        for (slot, half) in bytes[44..52].chunks_exact_mut(2).zip(halves) {
            slot.copy_from_slice(&half.to_le_bytes());
        }
        bytes[52..56].copy_from_slice(&[
            self.proto,
            self.tcp_flags,
            self.to_island,
            self.icmp_type,
        ]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_contract_says() {
        let record = Record {
            t_ns: -2,
            src: 0x0102_0304,
            window: 7,
            sport: 0x1122,
            vlan: 9,
            proto: 6,
            icmp_type: 8,
            ..Record::default()
        };
        let bytes = record.to_bytes();
        assert_eq!(bytes[0..8], (-2_i64).to_le_bytes());
        assert_eq!(bytes[8..12], [4, 3, 2, 1]);
        assert_eq!(bytes[40..44], [7, 0, 0, 0]);
        assert_eq!(bytes[44..46], [0x22, 0x11]);
        assert_eq!(bytes[50..54], [9, 0, 6, 0]);
        assert_eq!(bytes[54..], [0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The record of a frame that passed.

use crate::frame::Name;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;

/// Little endian: stamp (`CLOCK_REALTIME`, ns since 1970; u64), sequence number (u64), bytes on the wire without VLAN
/// tag (u32), flow (u16), VLAN id (u16, 0 without tag).
pub(crate) fn record(
    real_time_ns: u64,
    name: Name,
    wire_bytes: u32,
    vlan: u16,
) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&real_time_ns.to_le_bytes());
    bytes[8..16].copy_from_slice(&name.sequence.to_le_bytes());
    bytes[16..20].copy_from_slice(&wire_bytes.to_le_bytes());
    bytes[20..22].copy_from_slice(&name.flow.to_le_bytes());
    bytes[22..].copy_from_slice(&vlan.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_each_field_at_its_place() {
        let name = Name {
            flow: 3,
            sequence: 0x0102,
        };
        let bytes = record(1, name, 1514, 101);
        assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..10], [2, 1]);
        assert_eq!(bytes[16..], [0xea, 5, 0, 0, 3, 0, 101, 0]);
    }
}

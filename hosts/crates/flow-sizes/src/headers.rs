// SPDX-License-Identifier: Apache-2.0
//! The IP bytes of a flow and the TCP payload that it carries.
//!
//! A flow is one direction of a connection. That of a server to its client holds, where nothing is sent twice, packets of
//! 1500 bytes and Linux's options: a SYN-ACK of 60 bytes; acknowledgements of the client's request and of its FIN and the
//! server's own FIN, 52 bytes each; and the payload, of which each segment holds up to 1448 bytes below headers of 52 (20 of
//! IPv4, 20 of TCP, 12 of the time stamps option, RFC 7323). A long flow may do with one or two packets of 52 bytes less,
//! when the FIN leaves with the last payload or an acknowledgement with the first.

/// IPv4 and TCP headers of a segment, time stamps included.
const HEADERS_BYTES: u64 = 52;

/// IP bytes of a full-size segment.
const SEGMENT_BYTES: u64 = 1500;

/// SYN-ACK, two acknowledgements, FIN.
const WITHOUT_PAYLOAD_BYTES: u64 = 60 + 3 * HEADERS_BYTES;

/// The most TCP payload that a flow of `ip_bytes` holds, and at least 1 byte: a flow of fewer than 269 does not exist.
#[must_use]
pub const fn payload_bytes(ip_bytes: u64) -> u64 {
    let left = ip_bytes.saturating_sub(WITHOUT_PAYLOAD_BYTES);
    let (segments, rest) = (left / SEGMENT_BYTES, left % SEGMENT_BYTES);
    let payload = segments * (SEGMENT_BYTES - HEADERS_BYTES) + rest.saturating_sub(HEADERS_BYTES);
    if payload == 0 { 1 } else { payload }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip_bytes(payload: u64) -> u64 {
        60 + 52 + 52 + 52 + payload + 52 * payload.div_ceil(1448)
    }

    #[test]
    fn the_smallest_flow_carries_one_byte() {
        assert_eq!(ip_bytes(1), 269);
        assert_eq!(
            [0, 1, 216, 268, 269, 270].map(payload_bytes),
            [1, 1, 1, 1, 1, 2]
        );
        assert_eq!(payload_bytes(216 + 1500), 1448);
        assert_eq!(payload_bytes(216 + 1500 + 52), 1448);
        assert_eq!(payload_bytes(216 + 1500 + 53), 1449);
    }

    proptest! {
        #[test]
        fn as_much_is_carried_as_fits(ip in 269..1_u64 << 53) {
            let payload = payload_bytes(ip);
            prop_assert!(ip_bytes(payload) <= ip && ip < ip_bytes(payload + 1));
        }
    }
}

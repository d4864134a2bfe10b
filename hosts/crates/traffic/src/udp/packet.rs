// SPDX-License-Identifier: Apache-2.0
//! The payload of a stream's packet: stream, sequence number and the instant it was sent, big-endian.

/// IPv4 (RFC 791) and UDP (RFC 768) headers.
pub const PACKET_HEADERS_BYTES: usize = 20 + 8;

/// Stream (4), sequence number (8), send stamp (8).
pub const HEADER_BYTES: usize = 20;

/// The first bytes of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Which of a sender's streams; a lone one is 0.
    pub stream: u32,
    /// Counts from 0 within the stream.
    pub seq: u64,
    /// Real time just before the send call.
    pub sent_ns: i64,
}

impl DatagramHeader {
    /// Write it to the beginning of `payload`, which has room for it.
    pub fn write(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.stream.to_be_bytes());
        payload[4..12].copy_from_slice(&self.seq.to_be_bytes());
        payload[12..HEADER_BYTES].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Read it back; None when `payload` is too short to be one of ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (stream, rest) = payload.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (sent_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            stream: u32::from_be_bytes(*stream),
            seq: u64::from_be_bytes(*seq),
            sent_ns: i64::from_be_bytes(*sent_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(stream: u32, seq: u64, sent_ns: i64, rest in 0..9_usize) {
            let header = DatagramHeader { stream, seq, sent_ns };
            let mut payload = vec![0; HEADER_BYTES + rest];
            header.write(&mut payload);
            prop_assert_eq!(DatagramHeader::read(&payload), Some(header));
            prop_assert_eq!(DatagramHeader::read(&payload[..HEADER_BYTES - 1]), None);
        }
    }
}

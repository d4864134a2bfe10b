// SPDX-License-Identifier: Apache-2.0
//! VLAN tags, checksums and prefixes of Ethernet and IP headers.
#![forbid(unsafe_code)]

use serde::Deserialize;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Bytes of the two Ethernet addresses; a VLAN tag follows them.
pub const ADDRESSES_BYTES: usize = 12;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;
/// Bytes of an Ethernet header without tags: the addresses and the type.
pub const ETHERNET_BYTES: usize = 14;
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];

/// An 802.1Q or 802.1ad tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority, drop eligibility and VLAN id (tag control information).
    pub control: u16,
    /// 0x8100 or 0x88a8 (tag protocol identifier).
    pub protocol: u16,
}

impl VlanTag {
    /// VLAN id, 0 to 4095.
    #[must_use]
    pub fn id(self) -> u16 {
        self.control & 0xfff
    }
}

/// The bytes of a frame before its packet, which are its Ethernet header and all VLAN tags in it, and the packet's type:
/// `None` if the frame ends before.
#[must_use]
pub fn ethernet_header(frame: &[u8]) -> (usize, Option<u16>) {
    let mut bytes = ETHERNET_BYTES;
    loop {
        match read_u16(frame, bytes - 2) {
            Some(tag) if VLAN_TYPES.contains(&tag) => bytes += TAG_BYTES,
            ether_type => return (bytes, ether_type),
        }
    }
}

/// The two bytes at `offset`, in network order; `None` if the frame ends before.
#[must_use]
pub fn read_u16(frame: &[u8], offset: usize) -> Option<u16> {
    let bytes = frame.get(offset..offset + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Append the frame as it was on the wire to `buffer`: Linux delivers the outer VLAN tag apart from the frame, and
/// here it returns to its place between addresses and type.
pub fn append_tagged(buffer: &mut Vec<u8>, frame: &[u8], vlan: Option<VlanTag>) {
    let Some(vlan) = vlan else {
        buffer.extend_from_slice(frame);
        return;
    };
    let (addresses, rest) = frame.split_at(ADDRESSES_BYTES.min(frame.len()));
    buffer.extend_from_slice(addresses);
    buffer.extend_from_slice(&vlan.protocol.to_be_bytes());
    buffer.extend_from_slice(&vlan.control.to_be_bytes());
    buffer.extend_from_slice(rest);
}

/// The Internet checksum (RFC 1071): the one's complement of the one's complement sum of `initial_sum` and all 16-bit
/// words of `bytes`, the last one padded with zero.
///
/// `initial_sum` is the sum of a pseudo-header's words, or 0. Over bytes that contain their own checksum the result
/// is 0. Valid up to 128 KiB.
#[must_use]
pub fn internet_checksum(initial_sum: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2); // compilers make vectors of whole words only
    let odd = (words.remainder().first()).map_or(0, |byte| u32::from(*byte) << 8);
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = initial_sum + odd + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The sum of the words of the pseudo-header that the checksums of TCP and UDP cover (RFC 9293, 3.1; RFC 768), for
/// [`internet_checksum`]. `bytes`: of the header and payload that follow the IPv4 header.
#[must_use]
pub fn pseudo_header_sum(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, bytes: usize) -> u32 {
    let words = [from, to].map(Ipv4Addr::to_bits);
    let sum: u32 = words
        .iter()
        .map(|bits| (bits >> 16) + (bits & 0xffff))
        .sum();
    sum + u32::from(protocol) + bytes as u32
}

/// An IPv4 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    network: u32,
    mask: u32,
}

impl Prefix {
    /// Whether an address is in it.
    #[must_use]
    pub fn contains(self, address: impl Into<u32>) -> bool {
        address.into() & self.mask == self.network
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let network = address.parse().map(Ipv4Addr::to_bits).ok()?;
            let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            (network & mask == network).then_some(Self { network, mask })
        };
        parse().ok_or_else(|| format!("'{text}' is not an IPv4 prefix such as 10.20.0.0/16"))
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_every_length_are_understood() {
        let holds =
            |prefix: &str, address: u32| prefix.parse::<Prefix>().unwrap().contains(address);
        assert!(holds("10.20.0.0/16", 0x0a14_ffff));
        assert!(!holds("10.20.0.0/16", 0x0a15_0000));
        assert!(holds("0.0.0.0/0", 7));
        assert!(holds("10.20.0.1/32", 0x0a14_0001));
        for wrong in [
            "10.20.0.0",
            "10.20/16",
            "10.20.0.0/33",
            "10.20.0.1/16",
            "x/8",
        ] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    const TAG: VlanTag = VlanTag {
        control: 0x2065,
        protocol: 0x8100,
    };

    fn tagged(frame: &[u8], vlan: Option<VlanTag>) -> Vec<u8> {
        let mut buffer = Vec::new();
        append_tagged(&mut buffer, frame, vlan);
        buffer
    }

    #[test]
    fn checksum_of_rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(0, &bytes), !0xddf2);
    }

    #[test]
    fn an_initial_sum_counts_as_words_before_the_bytes() {
        let bytes = [0xff, 0xfe, 0x12, 0x34, 0x56];
        assert_eq!(
            internet_checksum(0xfffe, &bytes[2..]),
            internet_checksum(0, &bytes)
        );
    }

    #[test]
    fn an_odd_last_byte_is_padded_with_zero() {
        assert_eq!(
            internet_checksum(0, &[1, 2, 3]),
            internet_checksum(0, &[1, 2, 3, 0])
        );
    }

    #[test]
    fn tags_belong_to_the_header() {
        let mut frame = vec![0; ADDRESSES_BYTES];
        frame.extend([0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x08, 0, 0x45]);
        assert_eq!(ethernet_header(&frame), (22, Some(0x0800)));
        assert_eq!(ethernet_header(&frame[..21]), (22, None), "cut");
        assert_eq!(ethernet_header(&frame[..13]), (14, None));
        assert_eq!(ethernet_header(&[0; 14]), (14, Some(0)));
    }

    #[test]
    fn a_tag_returns_between_addresses_and_type() {
        let frame: Vec<u8> = (0..60).collect();
        let with_tag = tagged(&frame, Some(TAG));
        assert_eq!(with_tag[..12], frame[..12]);
        assert_eq!(with_tag[12..16], [0x81, 0x00, 0x20, 0x65]);
        assert_eq!(with_tag[16..], frame[12..]);
        assert_eq!(tagged(&frame, None), frame);
        assert_eq!(TAG.id(), 101);
    }

    #[test]
    fn a_frame_shorter_than_its_addresses_keeps_its_bytes_in_front() {
        assert_eq!(
            tagged(&[1, 2, 3], Some(TAG)),
            [1, 2, 3, 0x81, 0, 0x20, 0x65]
        );
    }
}

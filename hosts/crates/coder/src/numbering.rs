// SPDX-License-Identifier: Apache-2.0
//! Numbers of source packets in a tunnel, in the order in which they were sent, so that the receiver knows what was lost.
//!
//! They are in bits of the code's header that are 0 otherwise: byte 1 has the lower 8 bits, the upper 5 of byte 2 the others.
//! The packet's number in its generation, or the number of its sources, is at most 1024 and needs 11 bits.

use atoll_rlnc::{Header, HeaderError};

const UPPER: u8 = 0b1111_1000;
const UPPER_SHIFT: u16 = 3;
/// Of the longest header.
const HEADER_MAX: usize = 12;

/// Write the number, which is below [`atoll_redundancy::NUMBER_MODULUS`], into a header.
pub(crate) fn write(header: &mut [u8], number: u16) {
    header[1] = number as u8;
    header[2] |= ((number >> 8) << UPPER_SHIFT) as u8;
}

/// Split a packet of a tunnel into its number, its header and the rest.
///
/// # Errors
/// If it does not begin with a header.
pub(crate) fn parse(content: &[u8]) -> Result<(u16, Header, &[u8]), HeaderError> {
    let mut bytes = [0; HEADER_MAX];
    let length = content.len().min(HEADER_MAX);
    let head = &mut bytes[..length];
    head.copy_from_slice(&content[..length]);
    let mut number = 0;
    if let [_, low, high, ..] = head {
        number = u16::from(*low) | u16::from(*high >> UPPER_SHIFT) << 8;
        (*low, *high) = (0, *high & !UPPER);
    }
    let (header, _) = Header::parse(head)?;
    Ok((number, header, &content[header.length()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_redundancy::NUMBER_MODULUS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(number in 0..NUMBER_MODULUS, generation in any::<u32>(), index in 0..1024_u16, packet in any::<Vec<u8>>(), seed in any::<u32>()) {
            for header in [
                Header::Systematic { generation, index },
                Header::Repair { generation, count: index + 1, seed },
            ] {
                let mut content = Vec::new();
                header.write(&mut content);
                write(&mut content, number);
                content.extend(&packet);
                prop_assert_eq!(parse(&content), Ok((number, header, &packet[..])));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>(), kind in 0xb0..0xb6_u8) {
            let _ = parse(&bytes);
            let _ = parse(&[&[kind][..], &bytes].concat());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Packets of pcapng files: <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/>.
//!
//! A file has sections, a section has interfaces with a clock resolution each. Blocks of other kinds are skipped.
//! The crate pcap-parser (0.17) does not read resolutions of powers of two, nor clock offsets in big-endian files.

use crate::input::{Input, LONGEST_FRAME_BYTES};
use std::ops::Range;

pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// Type, length, and the length again behind the body.
const BLOCK_BYTES: u32 = 12;
/// Fields of a packet block before the frame.
const PACKET_FIELDS: usize = 20;
/// A block that claims more is none: frames have [`LONGEST_FRAME_BYTES`] at most, name tables and keys less.
const LONGEST_BLOCK_BYTES: u32 = 1 << 24;

/// An interface of a section.
pub struct Interface {
    link_type: u32,
    units_per_s: u64,
    offset_s: i64,
}

/// A captured packet in its block.
pub struct PacketAt {
    pub t_ns: i64,
    pub wire_bytes: u32,
    pub bytes: Range<usize>,
}

/// Read the section header behind its type: the byte order of what follows.
pub fn read_section_header(input: &mut Input) -> Result<(), String> {
    let mut fields = [0; 8]; // length of the block, byte order
    if !input.fill_or_cut(&mut fields)? {
        return Ok(());
    }
    let order = [fields[4], fields[5], fields[6], fields[7]];
    input.big_endian = u32::from_be_bytes(order) == BYTE_ORDER;
    if !input.big_endian && u32::from_le_bytes(order) != BYTE_ORDER {
        return Err(format!(
            "{}: is not a capture file (no byte order)",
            input.path
        ));
    }
    let length = input.read_word(&fields);
    let rest = length.checked_sub(BLOCK_BYTES);
    let rest = rest.filter(|&rest| rest <= LONGEST_BLOCK_BYTES);
    let mut body = vec![0; rest.ok_or_else(|| input.damaged(length))? as usize];
    input.fill_or_cut(&mut body)?;
    Ok(())
}

/// The next packet, in `block`; `None` at the end, or where the file was cut.
pub fn next_packet(
    input: &mut Input,
    interfaces: &mut Vec<Interface>,
    block: &mut Vec<u8>,
) -> Result<Option<PacketAt>, String> {
    while let Some(kind) = next_block(input, block)? {
        match kind {
            SECTION_HEADER => interfaces.clear(),
            INTERFACE_DESCRIPTION => interfaces.push(interface(input, block)?),
            SIMPLE_PACKET => {
                return Err(format!(
                    "{}: has packets without a time stamp (simple packet blocks); capture with dumpcap or tcpdump",
                    input.path
                ));
            }
            ENHANCED_PACKET | OBSOLETE_PACKET => {
                return packet(input, interfaces, block, kind).map(Some);
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Read the body of the next block into `block`, and return its type; `None` at the end.
fn next_block(input: &mut Input, block: &mut Vec<u8>) -> Result<Option<u32>, String> {
    let mut kind = [0; 4];
    let filled = input.fill(&mut kind)?;
    if filled < kind.len() {
        input.truncated |= filled > 0;
        return Ok(None);
    }
    let kind = input.read_word(&kind);
    if kind == SECTION_HEADER {
        read_section_header(input)?;
        return Ok((!input.truncated).then_some(kind));
    }
    let mut length = [0; 4];
    if !input.fill_or_cut(&mut length)? {
        return Ok(None);
    }
    let length = input.read_word(&length);
    if !(BLOCK_BYTES..=LONGEST_BLOCK_BYTES).contains(&length) || length % 4 != 0 {
        return Err(input.damaged(length));
    }
    block.resize((length - 8) as usize, 0);
    Ok(input.fill_or_cut(block)?.then(|| {
        block.truncate((length - BLOCK_BYTES) as usize);
        kind
    }))
}

fn interface(input: &Input, block: &[u8]) -> Result<Interface, String> {
    if block.len() < 8 {
        return Err(input.damaged(block.len() as u32));
    }
    let mut interface = Interface {
        link_type: u32::from(input.read_half(block)),
        units_per_s: 1_000_000,
        offset_s: 0,
    };
    let mut options = &block[8..];
    while let Some((header, rest)) = options.split_at_checked(4) {
        let bytes = usize::from(input.read_half(&header[2..]));
        let Some(content) = rest.get(..bytes) else {
            break;
        };
        match (input.read_half(header), content) {
            (OPTION_RESOLUTION, [resolution, ..]) => {
                interface.units_per_s = units_per_s(*resolution).unwrap_or(0);
            }
            (OPTION_OFFSET, seconds) => {
                let seconds = seconds.try_into().unwrap_or_default();
                interface.offset_s = if input.big_endian {
                    i64::from_be_bytes(seconds)
                } else {
                    i64::from_le_bytes(seconds)
                };
            }
            _ => {}
        }
        options = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(interface)
}

/// Of the option `if_tsresol`: a power of ten, or with the highest bit one of two; `None` beyond 64 bits.
fn units_per_s(resolution: u8) -> Option<u64> {
    let (base, exponent) = (
        if resolution & 0x80 == 0 { 10_u64 } else { 2 },
        resolution & 0x7f,
    );
    base.checked_pow(u32::from(exponent))
}

fn packet(
    input: &mut Input,
    interfaces: &[Interface],
    block: &[u8],
    kind: u32,
) -> Result<PacketAt, String> {
    input.frames += 1;
    let length = block.len() as u32;
    if block.len() < PACKET_FIELDS {
        return Err(input.damaged(length));
    }
    let word = |at: usize| input.read_word(&block[at..at + 4]);
    let number = if kind == OBSOLETE_PACKET {
        u32::from(input.read_half(block)) // then a count of drops
    } else {
        word(0)
    };
    let undescribed = || {
        format!(
            "{}: frame {} is of interface {number}, which the file does not describe: the file is damaged",
            input.path, input.frames
        )
    };
    let interface = interfaces.get(number as usize).ok_or_else(undescribed)?;
    input.require_ethernet(interface.link_type)?;
    let kept = word(12);
    let end = PACKET_FIELDS + kept as usize;
    if kept > LONGEST_FRAME_BYTES || end > block.len() {
        return Err(input.damaged(kept));
    }
    let units = u64::from(word(4)) << 32 | u64::from(word(8));
    Ok(PacketAt {
        t_ns: t_ns(units, interface).ok_or_else(undescribed)?,
        wire_bytes: word(16),
        bytes: PACKET_FIELDS..end,
    })
}

fn t_ns(units: u64, interface: &Interface) -> Option<i64> {
    let ns = (u128::from(units) * 1_000_000_000).checked_div(u128::from(interface.units_per_s))?;
    let offset_ns = interface.offset_s.checked_mul(1_000_000_000)?;
    i64::try_from(ns).ok()?.checked_add(offset_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    type Word = fn(u32) -> [u8; 4];
    type Half = fn(u16) -> [u8; 2];

    fn block(word: Word, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = word(12 + body.len().next_multiple_of(4) as u32);
        let mut block = [&word(kind)[..], &length, body].concat();
        block.resize(block.len().next_multiple_of(4), 0);
        block.extend(length);
        block
    }

    fn option(half: Half, code: u16, content: &[u8]) -> Vec<u8> {
        let mut option = [&half(code)[..], &half(content.len() as u16), content].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn section(word: Word) -> Vec<u8> {
        let body = [&word(BYTE_ORDER)[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        block(word, SECTION_HEADER, &body)
    }

    fn described(word: Word, half: Half, link_type: u16, options: &[u8]) -> Vec<u8> {
        let body = [&half(link_type)[..], &[0, 0], &word(96), options].concat();
        block(word, INTERFACE_DESCRIPTION, &body)
    }

    fn enhanced(word: Word, interface: u32, units: u64, bytes: &[u8]) -> Vec<u8> {
        let fields = [
            interface,
            (units >> 32) as u32,
            units as u32,
            bytes.len() as u32,
            60,
        ];
        let mut body: Vec<u8> = fields.into_iter().flat_map(word).collect();
        body.extend(bytes);
        block(word, ENHANCED_PACKET, &body)
    }

    fn read(file: &[u8]) -> Result<(Vec<i64>, bool), String> {
        let mut input = Input::new("x".into(), Box::new(Cursor::new(file[4..].to_vec())));
        read_section_header(&mut input)?;
        let (mut interfaces, mut block, mut instants) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(packet) = next_packet(&mut input, &mut interfaces, &mut block)? {
            assert_eq!((packet.wire_bytes, &block[packet.bytes]), (60, &b"abc"[..]));
            instants.push(packet.t_ns);
        }
        Ok((instants, input.truncated))
    }

    #[test]
    fn every_resolution_offset_and_byte_order_gives_the_same_instant() {
        for (word, half, offset) in [
            (
                u32::to_le_bytes as Word,
                u16::to_le_bytes as Half,
                1_600_000_000_i64.to_le_bytes(),
            ),
            (
                u32::to_be_bytes,
                u16::to_be_bytes,
                1_600_000_000_i64.to_be_bytes(),
            ),
        ] {
            let interfaces = [
                vec![],
                option(half, OPTION_RESOLUTION, &[9]),
                option(half, OPTION_RESOLUTION, &[0x8a]), // 2^-10 s
                [
                    option(half, 2, b"eth0"), // a name
                    option(half, OPTION_OFFSET, &offset),
                    option(half, 0, &[]),
                ]
                .concat(),
            ];
            let units = [
                1_600_000_000_500_000,
                1_600_000_000_500_000_000,
                (1_600_000_000 << 10) + 512,
                500_000,
            ];
            let mut file = section(word);
            for options in &interfaces {
                file.extend(described(word, half, 1, options));
            }
            file.extend(block(word, 5, &[0; 12])); // statistics
            for (interface, units) in units.into_iter().enumerate() {
                file.extend(enhanced(word, interface as u32, units, b"abc"));
            }
            assert_eq!(
                read(&file).unwrap(),
                (vec![1_600_000_000_500_000_000; 4], false)
            );
        }
    }

    #[test]
    fn a_new_section_has_its_own_byte_order_and_interfaces() {
        let (le, be): (Word, Word) = (u32::to_le_bytes, u32::to_be_bytes);
        let first = [
            section(le),
            described(le, u16::to_le_bytes, 1, &[]),
            enhanced(le, 0, 1, b"abc"),
        ]
        .concat();
        let second = [
            section(be),
            described(be, u16::to_be_bytes, 1, &[]),
            enhanced(be, 0, 2, b"abc"),
        ]
        .concat();
        let both = [&first[..], &second].concat();
        assert_eq!(read(&both).unwrap(), (vec![1000, 2000], false));
        let undescribed = [first, section(be), enhanced(be, 0, 2, b"abc")].concat();
        let error = read(&undescribed).unwrap_err();
        assert!(error.starts_with("x: frame 2 is of interface 0"), "{error}");
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_is_whole_and_says_so() {
        let word = u32::to_le_bytes;
        let begin = [section(word), described(word, u16::to_le_bytes, 1, &[])].concat();
        let whole = [&begin[..], &enhanced(word, 0, 1, b"abc")].concat();
        let ends = [section(word).len(), begin.len(), whole.len()];
        for end in 4..=whole.len() {
            let (instants, truncated) = read(&whole[..end]).unwrap();
            assert_eq!(instants.len(), usize::from(end == whole.len()));
            assert_eq!(truncated, !ends.contains(&end), "cut at {end}");
        }
    }

    #[test]
    fn what_cannot_be_a_packet_of_ethernet_is_refused() {
        let word: Word = u32::to_le_bytes;
        let cooked = [
            section(word),
            described(word, u16::to_le_bytes, 113, &[]),
            enhanced(word, 0, 1, b"abc"),
        ]
        .concat();
        let simple = [section(word), block(word, SIMPLE_PACKET, &[0; 8])].concat();
        let long = [section(word), word(9).to_vec(), word(u32::MAX).to_vec()].concat();
        let large_frame = [
            section(word),
            described(word, u16::to_le_bytes, 1, &[]),
            enhanced(word, 0, 1, &vec![0; 300_000]),
        ]
        .concat();
        for (file, words) in [
            (cooked, "link type 113"),
            (simple, "without a time stamp"),
            (long, "claims 4294967295 bytes"),
            (large_frame, "claims 300000 bytes"),
        ] {
            let error = read(&file).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_can_break_the_reader(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), blocks in 0..4_usize,
        ) {
            let word = u32::to_le_bytes;
            let mut file = section(word);
            for kind in [INTERFACE_DESCRIPTION, ENHANCED_PACKET, OBSOLETE_PACKET, 9].into_iter().take(blocks) {
                file.extend(block(word, kind, &bytes));
            }
            file.extend(&bytes);
            let mut input = Input::new("x".into(), Box::new(Cursor::new(file[4..].to_vec())));
            read_section_header(&mut input).unwrap();
            let (mut interfaces, mut block) = (Vec::new(), Vec::new());
            while let Ok(Some(_)) = next_packet(&mut input, &mut interfaces, &mut block) {}
        }
    }
}

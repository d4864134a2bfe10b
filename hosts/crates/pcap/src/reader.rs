// SPDX-License-Identifier: Apache-2.0
//! Classic pcap files, plain or zstd-compressed, read to their end or to where they were cut.
//!
//! Format: <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/>. Micro- and nanosecond time
//! stamps, both byte orders. A file that ends within a frame (its writer was killed, the disk was
//! full) gives the frames before, and says so.

use crate::failed_on;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const MAGIC_ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LINK_TYPE_ETHERNET: u32 = 1;

/// tcpdump's own limit (`MAXIMUM_SNAPLEN`): a frame that claims more is none.
const LONGEST_FRAME_BYTES: u32 = 262_144;

const BUFFER: usize = 1 << 20;

/// One captured frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Capture instant, ns since 1970.
    pub t_ns: i64,
    /// Its length on the wire.
    pub wire_bytes: u32,
    /// The captured part of it.
    pub bytes: &'a [u8],
}

/// A capture being read.
pub struct Reader {
    path: String,
    input: Box<dyn Read>,
    big_endian: bool,
    ns_per_unit: i64,
    frame: Vec<u8>,
    frames: u64,
    /// The file ended within its header or a frame.
    pub truncated: bool,
}

impl Reader {
    /// Open a capture; compression is recognised by content, whatever the file's name.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(failed_on(&name))?;
        let mut input = BufReader::with_capacity(BUFFER, file);
        let head = input.fill_buf().map_err(failed_on(&name))?;
        if head.starts_with(&MAGIC_ZSTD) {
            let decoder = zstd::Decoder::with_buffer(input).map_err(failed_on(&name))?;
            Self::new(name, Box::new(BufReader::with_capacity(BUFFER, decoder)))
        } else {
            Self::new(name, Box::new(input))
        }
    }

    /// Read the header of a capture from `input`; `path` is for messages.
    pub fn new(path: String, input: Box<dyn Read>) -> Result<Self, String> {
        let mut reader = Self {
            path,
            input,
            big_endian: false,
            ns_per_unit: 1,
            frame: Vec::new(),
            frames: 0,
            truncated: false,
        };
        let mut header = [0; 24];
        let filled = reader.fill(&mut header)?;
        if filled >= 4 {
            reader.recognise([header[0], header[1], header[2], header[3]])?;
        }
        if filled < header.len() {
            reader.truncated = true;
            return Ok(reader);
        }
        // The upper bits describe frame check sequences.
        let link_type = reader.read_word(&header[20..24]) & 0x0fff_ffff;
        if link_type != LINK_TYPE_ETHERNET {
            return Err(format!(
                "{}: has link type {link_type}, not Ethernet; capture on one interface, not on \"any\"",
                reader.path
            ));
        }
        Ok(reader)
    }

    /// The next frame; `None` at the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, String> {
        if self.truncated {
            return Ok(None);
        }
        let mut header = [0; 16];
        let filled = self.fill(&mut header)?;
        if filled < header.len() {
            self.truncated = filled > 0 || self.truncated;
            return Ok(None);
        }
        let [seconds, fraction, kept, wire_bytes] =
            [0, 4, 8, 12].map(|at| self.read_word(&header[at..at + 4]));
        self.frames += 1;
        if kept > LONGEST_FRAME_BYTES {
            return Err(format!(
                "{}: frame {} claims {kept} bytes: the file is damaged",
                self.path, self.frames
            ));
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(kept as usize, 0);
        let filled = self.fill(&mut frame)?;
        self.frame = frame;
        if filled < self.frame.len() {
            self.truncated = true;
            return Ok(None);
        }
        Ok(Some(Frame {
            t_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.ns_per_unit,
            wire_bytes,
            bytes: &self.frame,
        }))
    }

    fn recognise(&mut self, magic: [u8; 4]) -> Result<(), String> {
        for (big_endian, number) in [
            (false, u32::from_le_bytes(magic)),
            (true, u32::from_be_bytes(magic)),
        ] {
            self.big_endian = big_endian;
            match number {
                MAGIC_MICROSECONDS => self.ns_per_unit = 1000,
                MAGIC_NANOSECONDS => self.ns_per_unit = 1,
                MAGIC_PCAPNG => {
                    let path = &self.path;
                    let remedy = format!("convert it: tcpdump -r {path} -w OUT.pcap");
                    return Err(format!("{path}: is a pcapng file; {remedy}"));
                }
                _ => continue,
            }
            return Ok(());
        }
        Err(format!(
            "{}: is not a capture file (no pcap magic number)",
            self.path
        ))
    }

    fn read_word(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    /// Fill `buffer` as far as the file goes; how much that was.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.truncated = true; // within a zstd frame
                    break;
                }
                Err(error) => return Err(failed_on(&self.path)(error)),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn capture(read_word: impl Fn(u32) -> [u8; 4], magic: u32, fraction: u32) -> Vec<u8> {
        let mut file = Vec::new();
        for number in [
            magic,
            0x0004_0002,
            0,
            0,
            65535,
            1,
            1_600_000_000,
            fraction,
            3,
            60,
        ] {
            file.extend(read_word(number));
        }
        file.extend(b"abc");
        file
    }

    fn read(file: Vec<u8>) -> Reader {
        Reader::new("x.pcap".into(), Box::new(Cursor::new(file))).unwrap()
    }

    #[test]
    fn both_byte_orders_and_both_resolutions_give_the_same_instant() {
        for file in [
            capture(u32::to_le_bytes, MAGIC_MICROSECONDS, 5),
            capture(u32::to_be_bytes, MAGIC_MICROSECONDS, 5),
            capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 5000),
            capture(u32::to_be_bytes, MAGIC_NANOSECONDS, 5000),
        ] {
            let mut reader = read(file);
            let frame = reader.next_frame().unwrap().unwrap();
            let expected = Frame {
                t_ns: 1_600_000_000_000_005_000,
                wire_bytes: 60,
                bytes: b"abc",
            };
            assert_eq!(frame, expected);
            assert_eq!(reader.next_frame().unwrap(), None);
            assert!(!reader.truncated);
        }
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_is_whole_and_says_so() {
        let one = capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 0);
        let whole = [&one[..], &one[24..]].concat();
        for end in 0..whole.len() {
            let mut reader = read(whole[..end].to_vec());
            let mut frames = 0;
            while reader.next_frame().unwrap().is_some() {
                frames += 1;
            }
            assert_eq!(frames, u8::from(end >= one.len()), "cut at {end}");
            assert_eq!(
                reader.truncated,
                end != 24 && end != one.len(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn a_cut_compressed_file_is_read_to_the_cut() {
        let one = capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 0);
        let mut whole = one.clone();
        for _ in 0..20_000 {
            whole.extend(&one[24..]);
        }
        let mut packed = zstd::encode_all(&whole[..], 1).unwrap();
        let path = std::env::temp_dir().join(format!("atoll-pcap-{}.pcap", std::process::id()));
        std::fs::write(&path, &packed).unwrap();
        let count = |path: &Path| {
            let mut reader = Reader::open(path).unwrap();
            let mut frames = 0;
            while reader.next_frame().unwrap().is_some() {
                frames += 1;
            }
            (frames, reader.truncated)
        };
        assert_eq!(count(&path), (20_001, false));
        packed.truncate(packed.len() - 10);
        std::fs::write(&path, &packed).unwrap();
        let (frames, truncated) = count(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(truncated && frames < 20_001, "{frames}");
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        let refusal = |file: Vec<u8>| {
            Reader::new("x".into(), Box::new(Cursor::new(file)))
                .err()
                .unwrap()
        };
        assert!(refusal(MAGIC_PCAPNG.to_le_bytes().to_vec()).contains("tcpdump -r x -w OUT.pcap"));
        assert_eq!(
            refusal(b"GIF89a".to_vec()),
            "x: is not a capture file (no pcap magic number)"
        );
        let mut cooked = capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 0);
        cooked[20] = 113;
        assert!(refusal(cooked).contains("link type 113"));
    }

    #[test]
    fn a_damaged_length_is_an_error_and_not_a_gigabyte_of_memory() {
        let mut file = capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 0);
        file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read(file).next_frame().unwrap_err();
        assert!(error.contains("frame 1 claims 4294967295 bytes"));
    }
}

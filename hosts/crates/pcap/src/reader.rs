// SPDX-License-Identifier: Apache-2.0
//! Capture files, pcap and pcapng, plain or compressed by zstd or gzip, read to their end or to where they were cut.
//!
//! Format: <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/>; that of pcapng is in [`crate::pcapng`].
//! Micro- and nanosecond time stamps, both byte orders. A file that ends within a frame (its writer was killed, the
//! disk was full) gives the frames before, and says so.

use crate::failed_on;
use crate::input::{Input, LONGEST_FRAME_BYTES};
use crate::pcapng::{self, Interface};
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

pub const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const MAGIC_GZIP: [u8; 2] = [0x1f, 0x8b];
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
    pub input: Input,
    format: Format,
    frame: Vec<u8>,
}

enum Format {
    Pcap { ns_per_unit: i64 },
    PcapNg { interfaces: Vec<Interface> },
}

impl Reader {
    /// Open a capture, or a pipe; compression is recognised by content, whatever the file's name.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let mut file = File::open(path).map_err(failed_on(&name))?;
        let mut head = Vec::new();
        let read = file.by_ref().take(4).read_to_end(&mut head);
        read.map_err(failed_on(&name))?;
        let is_gzip = head.starts_with(&MAGIC_GZIP);
        let is_zstd = head == MAGIC_ZSTD;
        let input = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(file));
        let unpacked: Box<dyn Read> = if is_zstd {
            Box::new(zstd::Decoder::with_buffer(input).map_err(failed_on(&name))?)
        } else if is_gzip {
            Box::new(GzipMembers(Some(GzDecoder::new(input))))
        } else {
            return Self::new(name, Box::new(input));
        };
        Self::new(name, Box::new(BufReader::with_capacity(BUFFER, unpacked)))
    }

    /// Read the header of a capture from `input`; `path` is for messages.
    pub fn new(path: String, input: Box<dyn Read>) -> Result<Self, String> {
        let mut reader = Self {
            input: Input::new(path, input),
            format: Format::Pcap { ns_per_unit: 1 },
            frame: Vec::new(),
        };
        let mut magic = [0; 4];
        if !reader.input.fill_or_cut(&mut magic)? {
            return Ok(reader);
        }
        if magic == pcapng::SECTION_HEADER.to_be_bytes() {
            reader.format = Format::PcapNg {
                interfaces: Vec::new(),
            };
            pcapng::read_section_header(&mut reader.input)?;
            return Ok(reader);
        }
        reader.recognise(magic)?;
        let mut header = [0; 20];
        if !reader.input.fill_or_cut(&mut header)? {
            return Ok(reader);
        }
        // The upper bits describe frame check sequences.
        let link_type = reader.input.read_word(&header[16..20]) & 0x0fff_ffff;
        reader.input.require_ethernet(link_type)?;
        Ok(reader)
    }

    /// The next frame; `None` at the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, String> {
        if self.input.truncated {
            return Ok(None);
        }
        match &mut self.format {
            Format::Pcap { ns_per_unit } => {
                let ns_per_unit = *ns_per_unit;
                self.next_record(ns_per_unit)
            }
            Format::PcapNg { interfaces } => {
                let packet = pcapng::next_packet(&mut self.input, interfaces, &mut self.frame)?;
                Ok(packet.map(|packet| Frame {
                    t_ns: packet.t_ns,
                    wire_bytes: packet.wire_bytes,
                    bytes: &self.frame[packet.bytes],
                }))
            }
        }
    }

    fn next_record(&mut self, ns_per_unit: i64) -> Result<Option<Frame<'_>>, String> {
        let mut header = [0; 16];
        let filled = self.input.fill(&mut header)?;
        if filled < header.len() {
            self.input.truncated = filled > 0 || self.input.truncated;
            return Ok(None);
        }
        let [seconds, fraction, kept, wire_bytes] =
            [0, 4, 8, 12].map(|at| self.input.read_word(&header[at..at + 4]));
        self.input.frames += 1;
        if kept > LONGEST_FRAME_BYTES {
            return Err(self.input.damaged(kept));
        }
        self.frame.resize(kept as usize, 0);
        let is_whole = self.input.fill_or_cut(&mut self.frame)?;
        Ok(is_whole.then(|| Frame {
            t_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * ns_per_unit,
            wire_bytes,
            bytes: &self.frame,
        }))
    }

    fn recognise(&mut self, magic: [u8; 4]) -> Result<(), String> {
        for (big_endian, number) in [
            (false, u32::from_le_bytes(magic)),
            (true, u32::from_be_bytes(magic)),
        ] {
            self.input.big_endian = big_endian;
            let ns_per_unit = match number {
                MAGIC_MICROSECONDS => 1000,
                MAGIC_NANOSECONDS => 1,
                _ => continue,
            };
            self.format = Format::Pcap { ns_per_unit };
            return Ok(());
        }
        Err(format!(
            "{}: is not a capture file (no pcap magic number)",
            self.input.path
        ))
    }
}

/// The members of a gzip file, up to zeros that pad it, as on tapes.
struct GzipMembers<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let has_next = !matches!(member.get_mut().fill_buf()?.first(), None | Some(0));
            let input = self.0.take().map(GzDecoder::into_inner);
            self.0 = input.filter(|_| has_next).map(GzDecoder::new);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
            assert!(!reader.input.truncated);
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
                reader.input.truncated,
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
        let packed = zstd::encode_all(&whole[..], 1).unwrap();
        let path = std::env::temp_dir().join(format!("atoll-pcap-{}.pcap", std::process::id()));
        let count = |path: &Path| {
            let mut reader = Reader::open(path).unwrap();
            let mut frames = 0;
            while reader.next_frame().unwrap().is_some() {
                frames += 1;
            }
            (frames, reader.input.truncated)
        };
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&whole).unwrap();
        for mut packed in [packed, gzip.finish().unwrap()] {
            std::fs::write(&path, &packed).unwrap();
            assert_eq!(count(&path), (20_001, false));
            packed.truncate(packed.len() - 10);
            std::fs::write(&path, &packed).unwrap();
            let (frames, truncated) = count(&path);
            assert!(truncated && frames <= 20_001, "{frames}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn zeros_behind_a_gzip_member_are_its_end() {
        let one = capture(u32::to_le_bytes, MAGIC_NANOSECONDS, 0);
        let member = |content: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(content).unwrap();
            gzip.finish().unwrap()
        };
        let padded = [member(&one), member(&one[24..]), vec![0; 512]].concat();
        let mut content = Vec::new();
        GzipMembers(Some(GzDecoder::new(&padded[..])))
            .read_to_end(&mut content)
            .unwrap();
        assert_eq!(content, [&one[..], &one[24..]].concat());
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        let refusal = |file: Vec<u8>| {
            Reader::new("x".into(), Box::new(Cursor::new(file)))
                .err()
                .unwrap()
        };
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

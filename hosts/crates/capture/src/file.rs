// SPDX-License-Identifier: Apache-2.0
//! The file of a capture: whole records only, also when the disk is full. It has the classic pcap format with nanosecond
//! time stamps, little-endian.
//!
//! Source: <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/>.

use atoll_headers::{TAG_BYTES, append_tagged};
use atoll_job::failed;
use atoll_netio::frame::Received;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const LINK_TYPE_ETHERNET: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;

const RECORD_HEADER_BYTES: usize = 16;

/// A capture file being written.
#[derive(Debug)]
pub(crate) struct CaptureFile {
    file: File,
    path: PathBuf,
    snap_bytes: u16,
    /// Length of the file, which ends with a whole record.
    length: u64,
    /// Records that are not in the file yet.
    pending: Vec<u8>,
}

impl CaptureFile {
    /// Create or empty the file and write its header.
    pub(crate) fn create(path: &Path, snap_bytes: u16) -> io::Result<Self> {
        let header = file_header(snap_bytes);
        let mut file = File::create(path).map_err(|error| write_error(path, error))?;
        file.write_all(&header)
            .map_err(|error| write_error(path, error))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            snap_bytes,
            length: header.len() as u64,
            pending: Vec::new(),
        })
    }

    /// Take a frame, which the next [`Self::flush`] writes; returns its length on the wire.
    pub(crate) fn push(&mut self, received: &Received<'_>) -> u32 {
        append(&mut self.pending, received, self.snap_bytes)
    }

    /// Write the frames taken. When that fails, the file ends with the last record that could be written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let (written, outcome) = write_up_to_failure(&mut self.file, &self.pending);
        let complete_bytes = complete_bytes(&self.pending[..written]);
        self.length += complete_bytes as u64;
        self.pending.clear();
        outcome.map_err(|error| {
            let _ = self.file.set_len(self.length); // the first error is the one to report
            write_error(&self.path, error)
        })
    }
}

/// Write `bytes`; how many were written, and why not all.
fn write_up_to_failure(output: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// The failure of writing `path`. The complete records written before are kept.
fn write_error(path: &Path, error: io::Error) -> io::Error {
    let full =
        [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT].map(|full| Some(full.raw_os_error()));
    let path = path.display();
    if full.contains(&error.raw_os_error()) {
        io::Error::other(format!("disk full: cannot write {path}"))
    } else {
        failed(format!("write {path}"))(error)
    }
}

/// The header of a file whose records have at most `snap_bytes` of each frame.
fn file_header(snap_bytes: u16) -> Vec<u8> {
    let mut header = MAGIC_NANOSECONDS.to_le_bytes().to_vec();
    header.extend(VERSION.into_iter().flat_map(u16::to_le_bytes));
    // Time zone and accuracy, both zero by the format.
    let words = [0, 0, u32::from(snap_bytes), LINK_TYPE_ETHERNET];
    header.extend(words.into_iter().flat_map(u32::to_le_bytes));
    header
}

/// Append the record of a frame, its VLAN tag back in its place; returns its length on the wire.
fn append(records: &mut Vec<u8>, received: &Received<'_>, snap_bytes: u16) -> u32 {
    let tag_bytes = if received.vlan.is_some() {
        TAG_BYTES
    } else {
        0
    };
    let wire_bytes = received.wire_bytes + tag_bytes as u32;
    let snapped = (received.frame.len() + tag_bytes).min(usize::from(snap_bytes));
    let header = [
        (received.real_time_ns / NS_PER_S) as u32, // until 2106
        (received.real_time_ns % NS_PER_S) as u32,
        snapped as u32,
        wire_bytes,
    ];
    records.extend(header.into_iter().flat_map(u32::to_le_bytes));
    let end = records.len() + snapped;
    append_tagged(records, received.frame, received.vlan);
    records.truncate(end);
    wire_bytes
}

/// How many of these bytes are whole records, the rest being the begin of one.
fn complete_bytes(records: &[u8]) -> usize {
    let mut end = 0;
    while let Some(kept) = records.get(end + 8..end + 12) {
        let kept = u32::from_le_bytes([kept[0], kept[1], kept[2], kept[3]]) as usize;
        let next = end + RECORD_HEADER_BYTES + kept;
        if next > records.len() {
            break;
        }
        end = next;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_headers::VlanTag;

    #[test]
    fn what_a_full_output_took_is_counted() {
        let mut room = [0; 5];
        let (written, outcome) = write_up_to_failure(&mut room.as_mut_slice(), b"1234567");
        assert_eq!(written, 5);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::WriteZero);
        assert_eq!(&room, b"12345");
    }

    #[test]
    fn a_full_disk_is_named_with_the_file() {
        let error = CaptureFile::create(Path::new("/dev/full"), 96).unwrap_err();
        assert_eq!(error.to_string(), "disk full: cannot write /dev/full");
    }

    fn received(frame: &[u8], vlan: Option<VlanTag>) -> Received<'_> {
        Received {
            real_time_ns: 1_795_254_138_936_818_342,
            wire_bytes: 1514,
            frame,
            vlan,
            checksum_missing: false,
        }
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn a_file_begins_with_what_it_holds() {
        let header = file_header(96);
        assert_eq!(words(&header), [0xa1b2_3c4d, 0x0004_0002, 0, 0, 96, 1]);
    }

    #[test]
    fn a_record_tells_instant_length_kept_and_length_on_the_wire() {
        let frame: Vec<u8> = (0..96).collect();
        let mut records = Vec::new();
        assert_eq!(append(&mut records, &received(&frame, None), 96), 1514);
        assert_eq!(
            words(&records[..16]),
            [1_795_254_138, 936_818_342, 96, 1514]
        );
        assert_eq!(records[16..], frame);
    }

    #[test]
    fn a_vlan_tag_is_put_back_and_counts_for_both_lengths() {
        let frame: Vec<u8> = (0..96).collect();
        let tag = Some(VlanTag {
            control: 0x6065,
            protocol: 0x88a8,
        });
        let mut records = Vec::new();
        assert_eq!(append(&mut records, &received(&frame, tag), 96), 1518);
        assert_eq!(words(&records[8..16]), [96, 1518]);
        let expected: Vec<u8> = (0..12)
            .chain([0x88, 0xa8, 0x60, 0x65])
            .chain(12..92)
            .collect();
        assert_eq!(records[16..], expected);
    }

    #[test]
    fn a_frame_shorter_than_its_addresses_is_kept_as_it_is() {
        let mut records = Vec::new();
        append(&mut records, &received(&[1, 2, 3], None), 96);
        assert_eq!(records[16..], [1, 2, 3]);
    }

    #[test]
    fn wherever_records_are_cut_the_whole_ones_are_found() {
        let frame = [7; 60];
        let mut records = Vec::new();
        let mut ends = vec![0];
        for length in [60, 14, 0, 33] {
            append(&mut records, &received(&frame[..length], None), 96);
            ends.push(records.len());
        }
        for cut in 0..=records.len() {
            let expected = ends.iter().rfind(|&&end| end <= cut).unwrap();
            assert_eq!(complete_bytes(&records[..cut]), *expected, "cut at {cut}");
        }
    }
}

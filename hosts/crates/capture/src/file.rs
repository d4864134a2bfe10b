// SPDX-License-Identifier: Apache-2.0
//! The file of a capture: whole records only, also when the disk is full.

use crate::error::CaptureError;
use crate::record;
use atoll_netio::frame::Received;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

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
    pub(crate) fn create(path: &Path, snap_bytes: u16) -> Result<Self, CaptureError> {
        let header = record::file_header(snap_bytes);
        let mut file = File::create(path).map_err(|error| CaptureError::of_writing(path, error))?;
        file.write_all(&header)
            .map_err(|error| CaptureError::of_writing(path, error))?;
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
        record::append(&mut self.pending, received, self.snap_bytes)
    }

    /// Write the frames taken. When that fails, the file ends with the last record that could be written.
    pub(crate) fn flush(&mut self) -> Result<(), CaptureError> {
        let (written, outcome) = write_up_to_failure(&mut self.file, &self.pending);
        let whole = record::whole(&self.pending[..written]);
        self.length += whole as u64;
        self.pending.clear();
        outcome.map_err(|error| {
            let _ = self.file.set_len(self.length); // the first error is the one to tell
            CaptureError::of_writing(&self.path, error)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

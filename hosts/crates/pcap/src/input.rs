// SPDX-License-Identifier: Apache-2.0
//! Bytes of a capture file in its byte order, to its end or to where it was cut.

use crate::failed_on;
use std::io::{self, Read};

pub const LINK_TYPE_ETHERNET: u32 = 1;

/// tcpdump's own limit (`MAXIMUM_SNAPLEN`): a frame that claims more is none.
pub const LONGEST_FRAME_BYTES: u32 = 262_144;

/// The unpacked content of a capture file.
pub struct Input {
    pub path: String,
    source: Box<dyn Read>,
    pub big_endian: bool,
    pub frames: u64,
    /// The file ended within its header or a frame.
    pub truncated: bool,
}

impl Input {
    /// Read from `source`; `path` is for messages.
    pub fn new(path: String, source: Box<dyn Read>) -> Self {
        Self {
            path,
            source,
            big_endian: false,
            frames: 0,
            truncated: false,
        }
    }

    /// Refuse a link type other than Ethernet.
    pub fn require_ethernet(&self, link_type: u32) -> Result<(), String> {
        if link_type == LINK_TYPE_ETHERNET {
            return Ok(());
        }
        Err(format!(
            "{}: has link type {link_type}, not Ethernet; capture on one interface, not on \"any\"",
            self.path
        ))
    }

    /// The error of the current frame that has an impossible length.
    pub fn damaged(&self, bytes: u32) -> String {
        format!(
            "{}: frame {} claims {bytes} bytes: the file is damaged",
            self.path, self.frames
        )
    }

    /// A number of two bytes in the byte order of the file.
    pub fn read_half(&self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    /// A number of four bytes in the byte order of the file.
    pub fn read_word(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    /// Fill `buffer` and return true; if the file ends before, note that it was cut.
    pub fn fill_or_cut(&mut self, buffer: &mut [u8]) -> Result<bool, String> {
        let is_whole = self.fill(buffer)? == buffer.len();
        self.truncated |= !is_whole;
        Ok(is_whole)
    }

    /// Fill `buffer` as far as the file goes; how much that was.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.truncated = true; // within what was compressed
                    break;
                }
                Err(error) => return Err(failed_on(&self.path)(error)),
            }
        }
        Ok(filled)
    }
}

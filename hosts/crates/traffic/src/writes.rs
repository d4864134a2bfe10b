// SPDX-License-Identifier: Apache-2.0
//! How a sender writes: as fast as TCP takes it, paced, at a largest rate, or in chunks with pauses.

use crate::job::{SECOND_NS, monotonic_ns, wrong_setting};
use crate::socket::{is_not_ready, pace};
use serde::Deserialize;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

/// Offered to the kernel in one write.
const WRITE_BYTES: usize = 1 << 18;

static PAYLOAD: [u8; WRITE_BYTES] = [0; WRITE_BYTES];

/// Below it a full-size segment takes more than 12 s, which clients would take for a lost connection.
const RATE_MIN_BIT_S: u64 = 1000;

/// The settings of a sender's writes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Writes {
    /// The most that one connection sends, headers included; absent: as fast as it can.
    write_rate_bit_s: Option<u64>,
    /// Keep that rate, without headers, by writes of so many bytes with pauses, and not by pacing.
    write_chunk_bytes: Option<u64>,
    /// Pace the segments of every connection at the rate of its congestion control.
    #[serde(default)]
    paced: bool,
}

impl Writes {
    /// Check the settings.
    ///
    /// # Errors
    /// If the rate is too low, or a chunk has no rate or no bytes.
    pub fn check(&self) -> io::Result<()> {
        let wrong = match (self.write_rate_bit_s, self.write_chunk_bytes) {
            (Some(..RATE_MIN_BIT_S), _) => {
                format!("write_rate_bit_s: must be at least {RATE_MIN_BIT_S}")
            }
            (None, Some(_)) | (_, Some(0)) => {
                "write_chunk_bytes: at least 1, with write_rate_bit_s".into()
            }
            _ => return Ok(()),
        };
        Err(wrong_setting(wrong))
    }

    /// Whether there are pauses between writes.
    pub fn are_in_chunks(&self) -> bool {
        self.write_chunk_bytes.is_some()
    }

    /// Have the kernel pace a connection, or those that a listening socket accepts, if they are paced; return the chunks of each.
    ///
    /// # Errors
    /// As of [`pace`].
    pub fn begin(&self, socket: impl AsFd) -> io::Result<Option<Chunks>> {
        let (chunks, paced_bit_s) = match (self.write_chunk_bytes, self.write_rate_bit_s) {
            (Some(bytes), Some(rate_bit_s)) => (Some(Chunks::new(bytes, rate_bit_s)), None),
            (_, rate_bit_s) => (None, rate_bit_s),
        };
        if self.paced || paced_bit_s.is_some() {
            pace(socket, paced_bit_s)?;
        }
        Ok(chunks)
    }
}

/// The writes of one connection: a chunk in each interval. One that is late by less than an interval delays no other, so that the
/// mean rate is kept; a longer delay, such as of a full socket, is not caught up.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    chunk_bytes: u64,
    interval_ns: u64,
    /// Of the present chunk.
    remaining: u64,
    /// Of the next chunk; none before the first one.
    next_ns: Option<u64>,
}

impl Chunks {
    fn new(chunk_bytes: u64, rate_bit_s: u64) -> Self {
        let bits = u128::from(chunk_bytes) * 8;
        let interval_ns = bits * u128::from(SECOND_NS) / u128::from(rate_bit_s);
        Self {
            chunk_bytes,
            interval_ns: u64::try_from(interval_ns).unwrap_or(u64::MAX),
            remaining: 0,
            next_ns: None,
        }
    }

    /// How many bytes may be written now.
    ///
    /// # Errors
    /// The instant of the next chunk, if that is none.
    fn allowed(&mut self, now_ns: u64) -> Result<u64, u64> {
        if self.remaining == 0 {
            let begin_ns = match self.next_ns {
                Some(next_ns) if now_ns < next_ns => return Err(next_ns),
                Some(next_ns) if now_ns - next_ns < self.interval_ns => next_ns,
                _ => now_ns,
            };
            self.remaining = self.chunk_bytes;
            self.next_ns = Some(begin_ns.saturating_add(self.interval_ns));
        }
        Ok(self.remaining)
    }

    /// So many bytes were written.
    fn wrote(&mut self, bytes: u64) {
        self.remaining -= bytes;
    }
}

/// What came of a write.
pub enum Written {
    /// So many bytes were written.
    Bytes(u64),
    /// The socket takes none now.
    NotReady,
    /// The next chunk begins at this instant.
    PausedUntil(u64),
}

/// Write once, at most `remaining` bytes and what the chunks of the connection allow.
///
/// # Errors
/// Those of the connection.
pub fn write(
    mut stream: &TcpStream,
    chunks: &mut Option<Chunks>,
    remaining: u64,
) -> io::Result<Written> {
    let allowed = match chunks.as_mut().map(|each| each.allowed(monotonic_ns())) {
        Some(Err(next_ns)) => return Ok(Written::PausedUntil(next_ns)),
        Some(Ok(bytes)) => remaining.min(bytes),
        None => remaining,
    };
    let offered = usize::try_from(allowed).unwrap_or(usize::MAX);
    let count = match stream.write(&PAYLOAD[..offered.min(WRITE_BYTES)]) {
        Err(error) if is_not_ready(&error) => return Ok(Written::NotReady),
        other => other? as u64,
    };
    if let Some(chunks) = chunks {
        chunks.wrote(count);
    }
    Ok(Written::Bytes(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_begins_in_each_interval() {
        let mut chunks = Chunks::new(1000, 8_000_000); // 1 ms each
        assert_eq!(chunks.allowed(5_000_000), Ok(1000));
        chunks.wrote(600);
        assert_eq!(chunks.allowed(5_100_000), Ok(400));
        chunks.wrote(400);
        assert_eq!(chunks.allowed(5_200_000), Err(6_000_000));
        assert_eq!(chunks.allowed(6_300_000), Ok(1000), "late");
        chunks.wrote(1000);
        assert_eq!(chunks.allowed(6_900_000), Err(7_000_000), "on time again");
        assert_eq!(chunks.allowed(9_000_000), Ok(1000));
        chunks.wrote(1000);
        assert_eq!(chunks.allowed(9_100_000), Err(10_000_000), "not caught up");
    }

    #[test]
    fn chunks_have_a_rate_and_bytes() {
        let is_right = |rate, chunk| {
            let writes = Writes {
                write_rate_bit_s: rate,
                write_chunk_bytes: chunk,
                paced: false,
            };
            writes.check().is_ok()
        };
        assert!(
            is_right(None, None) && is_right(Some(1000), None) && is_right(Some(1000), Some(1))
        );
        assert!(!is_right(Some(999), None));
        assert!(!is_right(None, Some(1)));
        assert!(!is_right(Some(1000), Some(0)));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Any capture to a pcap file with nanoseconds, by another clock if asked.

use crate::failed_on;
use crate::input::{LINK_TYPE_ETHERNET, LONGEST_FRAME_BYTES};
use crate::reader::{MAGIC_NANOSECONDS, Reader};
use crate::record_writer::replace_output;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::str::FromStr;

const NS_PER_S: i64 = 1_000_000_000;

/// The summary of a conversion: the last line of standard output.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "done")]
pub struct Converted {
    /// Frames written.
    pub frames: u64,
    /// The input ends within a frame. The output does so, too.
    pub truncated: bool,
}

/// The clock of a capture against another one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Clock {
    /// How far it is ahead at `since_ns`.
    pub offset_ns: i64,
    /// How much faster it is, in parts of 10^9.
    pub drift_ppb: f64,
    /// An instant by this clock, ns since 1970.
    pub since_ns: i64,
}

impl Clock {
    /// An instant of this clock by the other one.
    fn corrected_ns(self, t_ns: i64) -> i64 {
        let drifted_ns = (t_ns - self.since_ns) as f64 * self.drift_ppb / 1e9;
        t_ns - self.offset_ns - drifted_ns.round() as i64
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let clock = || {
            let [offset, drift, since] = text.split(',').collect::<Vec<_>>()[..] else {
                return None;
            };
            Some(Self {
                offset_ns: offset.parse().ok()?,
                drift_ppb: drift.parse().ok().filter(|drift: &f64| drift.is_finite())?,
                since_ns: since.parse().ok()?,
            })
        };
        clock().ok_or_else(|| format!("{text:?} is not OFFSET_NS,DRIFT_PPB,SINCE_NS such as 1500000,-20.5,1767322800000000000"))
    }
}

/// Write the capture `input` as pcap with nanoseconds to `output`, which is replaced only if all of `input` was read.
///
/// # Errors
/// As of [`crate::write_records`], and for an instant that pcap cannot hold.
pub fn convert(input: &Path, output: &Path, clock: Clock) -> Result<Converted, String> {
    replace_output(input, output, |reader, file| {
        write_capture(reader, file, &output.display().to_string(), clock)
    })
}

fn write_capture(
    mut reader: Reader,
    output: impl Write,
    name: &str,
    clock: Clock,
) -> Result<Converted, String> {
    let mut writer = BufWriter::with_capacity(1 << 20, output);
    let mut write = |words: &[u32], bytes: &[u8]| {
        let mut words = words.iter().map(|word| word.to_le_bytes());
        let written = words.try_for_each(|word| writer.write_all(&word));
        written
            .and_then(|()| writer.write_all(bytes))
            .map_err(failed_on(name))
    };
    let version = 0x0004_0002; // 2.4
    let header = [MAGIC_NANOSECONDS, version, 0, 0, LONGEST_FRAME_BYTES];
    write(&header, &LINK_TYPE_ETHERNET.to_le_bytes())?;
    let mut frames = 0;
    let path = reader.input.path.clone();
    while let Some(frame) = reader.next_frame()? {
        frames += 1;
        let t_ns = clock.corrected_ns(frame.t_ns);
        let seconds = u32::try_from(t_ns.div_euclid(NS_PER_S)).map_err(|_| format!("{path}: frame {frames} would be outside of the years 1970 to 2106 by the corrected clock"))?;
        let nanoseconds = t_ns.rem_euclid(NS_PER_S) as u32;
        let kept = frame.bytes.len() as u32;
        write(&[seconds, nanoseconds, kept, frame.wire_bytes], frame.bytes)?;
    }
    if reader.input.truncated {
        write(&[0], &[])?; // a part of a header, so that readers notice the cut
    }
    writer.flush().map_err(failed_on(name))?;
    Ok(Converted {
        frames,
        truncated: reader.input.truncated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A big-endian file of two frames, the second one snapped, 600 s later; with microseconds.
    fn capture() -> Vec<u8> {
        let words = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65535, 1_u32];
        let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        for (second, wire_bytes) in [(1000_u32, 3), (1600, 1500)] {
            file.extend(
                [second, 7, 3, wire_bytes]
                    .into_iter()
                    .flat_map(u32::to_be_bytes),
            );
            file.extend(b"abc");
        }
        file
    }

    fn converted(file: Vec<u8>, clock: Clock) -> (Converted, Vec<u8>) {
        let reader = Reader::new("in".into(), Box::new(Cursor::new(file))).unwrap();
        let mut output = Vec::new();
        let done = write_capture(reader, &mut output, "out", clock).unwrap();
        (done, output)
    }

    #[test]
    fn frames_keep_their_lengths_and_get_the_instants_of_the_other_clock() {
        let clock: Clock = "1500000,-20.5,1000000007000".parse().unwrap();
        let (done, output) = converted(capture(), clock);
        assert_eq!((done.frames, done.truncated), (2, false));
        let mut reader = Reader::new("out".into(), Box::new(Cursor::new(output))).unwrap();
        for (t_ns, wire_bytes) in [
            (1_000_000_007_000 - 1_500_000, 3),
            (1_600_000_007_000 - 1_500_000 + 12_300, 1500),
        ] {
            let frame = reader.next_frame().unwrap().unwrap();
            assert_eq!((frame.t_ns, frame.wire_bytes), (t_ns, wire_bytes));
            assert_eq!(frame.bytes, b"abc");
        }
        assert!(!reader.input.truncated);
    }

    #[test]
    fn a_cut_capture_stays_cut() {
        let mut file = capture();
        file.pop();
        let (done, output) = converted(file, Clock::default());
        assert_eq!((done.frames, done.truncated), (1, true));
        let mut reader = Reader::new("out".into(), Box::new(Cursor::new(output))).unwrap();
        assert!(reader.next_frame().unwrap().is_some());
        assert!(reader.next_frame().unwrap().is_none() && reader.input.truncated);
    }

    #[test]
    fn an_instant_before_1970_is_refused() {
        let reader = Reader::new("in".into(), Box::new(Cursor::new(capture()))).unwrap();
        let clock = Clock {
            offset_ns: 2_000_000_000_000,
            ..Clock::default()
        };
        let error = write_capture(reader, Vec::new(), "out", clock).unwrap_err();
        assert!(error.starts_with("in: frame 1 would be outside"));
    }

    #[test]
    fn a_clock_has_three_numbers() {
        for text in ["", "1,2", "1,x,3", "1,nan,3", "1,2,3,4"] {
            assert!(text.parse::<Clock>().is_err(), "{text}");
        }
    }
}

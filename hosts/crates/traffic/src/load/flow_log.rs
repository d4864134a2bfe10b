// SPDX-License-Identifier: Apache-2.0
//! The flow log: CSV, a line a flow, in the order in which flows end.

use crate::job::failed;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

const HEADER: &str = "channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome";

/// One flow as it ended. Instants are real time; those that never came are None.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Channel number.
    pub channel: u64,
    /// Flow number in its channel.
    pub flow: u64,
    /// Address of the server.
    pub server: SocketAddr,
    /// Bytes requested.
    pub size_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// When the connection was begun.
    pub start_ns: i64,
    /// When it was established.
    pub connected_ns: Option<i64>,
    /// When the first bytes were read.
    pub first_byte_ns: Option<i64>,
    /// When the server closed, the flow failed, or the run ended.
    pub end_ns: i64,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes came, then the end of the stream.
    Completed,
    /// The run ended first.
    Cut,
    /// The name of the errno with the cause.
    Failed(String),
}

/// An open flow log.
#[derive(Debug)]
pub struct FlowLog {
    writer: BufWriter<File>,
    path: String,
}

impl FlowLog {
    /// Create the file, or empty it, and write the header.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path_shown = path.display().to_string();
        let file = File::create(path).map_err(failed(format!("create flow log {path_shown}")))?;
        let mut log = Self {
            writer: BufWriter::with_capacity(1 << 16, file),
            path: path_shown,
        };
        let written = writeln!(log.writer, "{HEADER}");
        log.checked(written)?;
        log.flush()?;
        Ok(log)
    }

    /// Append a line; it reaches the file at the next [`FlowLog::flush`] or before.
    ///
    /// # Errors
    /// If the file cannot be written: the disk is full, for one.
    pub fn append(&mut self, entry: &Entry, outcome: &Outcome) -> io::Result<()> {
        let written = write_line(&mut self.writer, entry, outcome);
        self.checked(written)
    }

    /// Hand everything to the operating system.
    ///
    /// # Errors
    /// As of [`FlowLog::append`].
    pub fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        self.checked(flushed)
    }

    fn checked(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.map_err(|error| failed(format!("write flow log {}", self.path))(error))
    }
}

fn write_line(writer: &mut impl Write, entry: &Entry, outcome: &Outcome) -> io::Result<()> {
    let instant =
        |instant: Option<i64>| instant.map_or_else(String::new, |instant| instant.to_string());
    let Entry {
        channel,
        flow,
        server,
        size_bytes,
        received_bytes,
        start_ns,
        end_ns,
        ..
    } = entry;
    let (connected, first_byte) = (instant(entry.connected_ns), instant(entry.first_byte_ns));
    write!(
        writer,
        "{channel},{flow},{server},{size_bytes},{received_bytes},{start_ns},{connected},{first_byte},{end_ns},"
    )?;
    match outcome {
        Outcome::Completed => writeln!(writer, "completed"),
        Outcome::Cut => writeln!(writer, "cut"),
        Outcome::Failed(errno) => writeln!(writer, "failed:{errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_that_never_came_are_empty() {
        let entry = Entry {
            channel: 6,
            flow: 2,
            server: "10.10.0.1:5001".parse().unwrap(),
            size_bytes: 400,
            received_bytes: 0,
            start_ns: 5,
            connected_ns: None,
            first_byte_ns: None,
            end_ns: 9,
        };
        let mut line = Vec::new();
        write_line(&mut line, &entry, &Outcome::Failed("ECONNREFUSED".into())).unwrap();
        assert_eq!(
            line,
            b"6,2,10.10.0.1:5001,400,0,5,,,9,failed:ECONNREFUSED\n"
        );
        let all = Entry {
            connected_ns: Some(6),
            first_byte_ns: Some(7),
            received_bytes: 400,
            ..entry
        };
        line.clear();
        write_line(&mut line, &all, &Outcome::Completed).unwrap();
        assert_eq!(line, b"6,2,10.10.0.1:5001,400,400,5,6,7,9,completed\n");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let message = FlowLog::create(Path::new("/dev/full"))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("cannot write flow log /dev/full: "),
            "{message}"
        );
    }
}

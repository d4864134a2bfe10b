// SPDX-License-Identifier: Apache-2.0
//! Standard input of a job: its configuration, then requests, then the end.

use crate::error::BadConfiguration;
use crate::request::{self, Request};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// Read at once: configurations that hold a trace have megabytes.
const CHUNK_BYTES: usize = 1 << 16;

/// Lines from a descriptor that is polled.
#[derive(Debug)]
pub(crate) struct Control<D> {
    descriptor: D,
    buffer: Vec<u8>,
    /// So much of `buffer` holds no end of a line.
    searched: usize,
    ended: bool,
}

impl Control<io::Stdin> {
    /// Standard input of this process. Nothing else may read it.
    pub(crate) fn standard_input() -> Self {
        Self::new(io::stdin())
    }
}

impl<D: AsFd> Control<D> {
    pub(crate) fn new(descriptor: D) -> Self {
        Self {
            descriptor,
            buffer: Vec::new(),
            searched: 0,
            ended: false,
        }
    }

    /// Wait for the first line.
    ///
    /// # Errors
    /// `InvalidInput` when the input ends before there is any; what reading fails with.
    pub(crate) fn first_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(line) = self.next_line() {
                return Ok(line);
            }
            if self.ended {
                let rest = std::mem::take(&mut self.buffer);
                let line = String::from_utf8_lossy(&rest).trim().to_owned();
                return if line.is_empty() {
                    Err(BadConfiguration::Missing.into())
                } else {
                    Ok(line)
                };
            }
            self.read()?;
        }
    }

    /// Read the available input. Blocks unless the descriptor polls readable.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        let end = self.buffer.len();
        self.buffer.resize(end + CHUNK_BYTES, 0);
        let read = rustix::io::read(&self.descriptor, &mut self.buffer[end..]);
        self.buffer.truncate(end + read.unwrap_or(0));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The next request that has arrived. An invalid line without an id to answer is reported here and
    /// skipped.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        while let Some(line) = self.next_line() {
            match request::parse(&line) {
                Ok(request) => return Some(request),
                Err(error) => eprintln!("atoll-host: request ignored: {error}: {line}"),
            }
        }
        None
    }

    /// Whether the input has ended.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    fn next_line(&mut self) -> Option<String> {
        let unseen = &self.buffer[self.searched..];
        let Some(end) = unseen.iter().position(|&byte| byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
        self.searched = 0;
        Some(String::from_utf8_lossy(&line).trim().to_owned())
    }
}

impl<D: AsFd> AsFd for Control<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn control(input: &str) -> Control<UnixStream> {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        writer.write_all(input.as_bytes()).unwrap();
        Control::new(reader)
    }

    #[test]
    fn requests_that_follow_the_configuration_at_once_are_not_lost() {
        let mut control = control(
            "{\"mtu\":1}\n{\"op\":\"mark\",\"id\":7}\n{\"op\":\"mark\",\"id\":8}\n{\"op\":",
        );
        assert_eq!(control.first_line().unwrap(), "{\"mtu\":1}");
        assert_eq!(control.next_request(), Some(Request::Mark { id: 7 }));
        assert_eq!(control.next_request(), Some(Request::Mark { id: 8 }));
        assert_eq!(control.next_request(), None, "not whole yet");
        control.read().unwrap();
        assert!(control.ended());
    }

    #[test]
    fn lines_that_are_no_request_are_skipped() {
        let mut control = control("\n\nnonsense\n{\"op\":\"jump\"}\n{\"op\":\"mark\",\"id\":1}\n");
        control.first_line().unwrap();
        assert_eq!(control.next_request(), Some(Request::Mark { id: 1 }));
    }

    #[test]
    fn an_input_without_configuration_is_a_bad_one() {
        assert_eq!(
            control("").first_line().unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            control("{}").first_line().unwrap(),
            "{}",
            "the end ends a line, too"
        );
    }
}
